"""Calls through asyncpg: one statement."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncpg

from sdk.places import Call, Place
from sdk.raising.postgres import serve


async def execute(place: Place) -> object:
    address = urlsplit(place.url)
    options = {"user": "u", "password": "p", "database": "d", "ssl": False, "timeout": place.connect_timeout}
    connection = await asyncpg.connect(host=address.hostname, port=address.port, **options)
    try:
        return await connection.execute("SELECT 1", timeout=place.read_timeout)
    finally:
        connection.terminate()


CALLS = {"execute": Call(execute, tried=False, serve=serve)}
