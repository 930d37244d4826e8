"""Calls through redis: one command, answered by a server that knows the protocol's greeting and one scripted error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loopback import Line, Server, Talk
from sdk.places import SHORT, Call, Place

GREETING = {b"HELLO", b"CLIENT", b"AUTH", b"SELECT"}


def get(place: Place) -> object:
    address = urlsplit(place.url)
    client = redis.Redis(
        host=address.hostname or "",
        port=address.port or 0,
        socket_connect_timeout=place.connect_timeout,
        socket_timeout=place.read_timeout,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    try:
        return client.get("x")
    finally:
        client.close()


async def read_command(line: Line) -> list[bytes]:
    count = int((await line.reader.readuntil(b"\r\n"))[1:])
    words = []
    for _ in range(count):
        size = int((await line.reader.readuntil(b"\r\n"))[1:])
        words.append((await line.reader.readexactly(size + 2))[:-2])
    return words


@contextmanager
def serve(body: dict[str, Any]) -> Iterator[Place]:
    """A server that greets every client, and then says `body["error"]`, or nothing at all."""

    async def talk(line: Line) -> None:
        while True:
            word = (await read_command(line))[0].upper()
            if word in GREETING:
                await line.send(b"+OK\r\n")
            elif "error" in body:
                await line.send(f"-{body['error']}\r\n".encode())
            else:
                await line.until_gone()

    with Server(Talk(talk)) as server:
        yield Place(server.url, read_timeout=SHORT if not body else 20.0)


CALLS = {"get": Call(get, tried=False, serve=serve)}
