"""The server's side of PostgreSQL's protocol, as far as one failing statement goes; for asyncpg and psycopg."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopback import Line, Server, Talk
from sdk.places import Place

SSL_REQUEST = 80877103
SETTINGS = {"server_version": "16.0", "client_encoding": "UTF8", "server_encoding": "UTF8"}


def message(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack("!I", len(payload) + 4) + payload


def setting(name: str, value: str) -> bytes:
    return message(b"S", f"{name}\0{value}\0".encode())


READY = message(b"Z", b"I")
WELCOME = (
    message(b"R", struct.pack("!I", 0))
    + b"".join(setting(name, value) for name, value in SETTINGS.items())
    + message(b"K", struct.pack("!II", 1, 1))
    + READY
)


def refusal(body: dict[str, Any]) -> bytes:
    """An ErrorResponse: severity, SQLSTATE and text."""
    severity = body.get("severity", "ERROR")
    fields = {"S": severity, "V": severity, "C": body["sqlstate"], "M": body["message"]}
    return message(b"E", b"".join(f"{key}{value}\0".encode() for key, value in fields.items()) + b"\0")


async def greet(line: Line) -> None:
    """Declines TLS, and reads the start-up message."""
    while True:
        size, code = struct.unpack("!II", await line.reader.readexactly(8))
        await line.reader.readexactly(size - 8)
        if code != SSL_REQUEST:
            return
        await line.send(b"N")


@contextmanager
def serve(body: dict[str, Any]) -> Iterator[Place]:
    """Refuses the first statement (with `at: "start"`: the connection) with an SQLSTATE; without one, breaks off."""

    async def talk(line: Line) -> None:
        await greet(line)
        if body.get("at") == "start":
            await line.send(refusal(body))
            return
        await line.send(WELCOME)
        while (kind := await line.reader.readexactly(1)) != b"X":
            size = struct.unpack("!I", await line.reader.readexactly(4))[0]
            await line.reader.readexactly(size - 4)
            if kind == b"Q" and "sqlstate" not in body:
                return
            if kind == b"Q":
                await line.send(refusal(body) + READY)

    with Server(Talk(talk)) as server:
        yield Place(server.url)
