"""Calls through psycopg: one statement."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import psycopg

from sdk.places import Call, Place
from sdk.raising.postgres import serve


def execute(place: Place) -> object:
    address = urlsplit(place.url)
    options: dict[str, Any] = {"user": "u", "password": "p", "dbname": "d", "sslmode": "disable", "connect_timeout": 2}
    with psycopg.connect(host=address.hostname, port=address.port, autocommit=True, **options) as connection:
        return connection.execute("SELECT 1")


CALLS = {"execute": Call(execute, tried=False, serve=serve)}
