"""HTTP/1.1 as bytes: a request is read from a connection, the head of an answer is written.

It knows no script, and has what HTTP/2 needs too. HTTP/1.1 is written here, and not taken from a library, because the
server must be able to break every rule that a library would keep.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

NO_BODY = {204, 304}
LINGER = 1.0  # seconds in which a client may notice that we have ended the connection
RST_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with zero seconds: close() drops the connection with RST


@dataclass(frozen=True)
class Request:
    """One request as it came in. Header names are as the client wrote them; `at` is `time.monotonic()`; `connection`
    is the number of the connection, `stream` that of the HTTP/2 stream on it (0: the request came by HTTP/1.1).
    """

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    at: float
    connection: int
    stream: int = 0

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever the case of its name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


class Line:
    """One connection, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def secure(self, context: ssl.SSLContext) -> None:
        """Does the server's side of the TLS handshake."""
        await self.writer.start_tls(context)

    @property
    def protocol(self) -> str | None:
        """What the handshake agreed on for after it. None without TLS, and where the client did not say."""
        secured = self.writer.get_extra_info("ssl_object")
        return None if secured is None else secured.selected_alpn_protocol()

    async def send(self, data: bytes) -> None:
        """Sends, and waits until the bytes are on their way."""
        self.writer.write(data)
        await self.writer.drain()

    async def until_gone(self) -> None:
        """Waits for the client to leave."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """Drops the connection with RST; what was not sent yet is lost."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
        self.drop()

    def drop(self) -> None:
        """Leaves at once, without waiting for the client."""
        self.writer.transport.abort()

    async def bow_out(self) -> None:
        """FIN; then what the client still says is taken for a while, or it would meet RST. With TLS `close` does so."""
        if self.writer.can_write_eof():
            with suppress(OSError):  # the client is gone already, or it stays for too long
                self.writer.write_eof()
                async with asyncio.timeout(LINGER):
                    await self.until_gone()

    async def close(self) -> None:
        """Ends the connection with FIN, after what was sent, and waits for its end."""
        self.writer.close()
        with suppress(ConnectionError, ssl.SSLError, TimeoutError):
            await self.writer.wait_closed()


async def read_request(line: Line) -> tuple[str, str, list[tuple[str, str]], bytes]:
    """Method, path, headers and body of the next request. Raises `EOFError` where the client left instead."""
    head = (await line.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _version = head[0].split(" ", 2)
    headers = [(name, value.strip()) for name, _, value in (row.partition(":") for row in head[1:] if row)]
    known = {name.lower(): value for name, value in headers}
    if known.get("expect", "").lower() == "100-continue":
        await line.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    if known.get("transfer-encoding", "").lower() == "chunked":
        return method, path, headers, await read_chunks(line.reader)
    return method, path, headers, await line.reader.readexactly(int(known.get("content-length", 0)))


async def read_chunks(reader: asyncio.StreamReader) -> bytes:
    """The body of a request that was sent in chunks."""
    body = b""
    while size := int((await reader.readuntil(b"\n")).split(b";")[0], 16):  # EOFError where the client leaves
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body


def encode(body: Any) -> tuple[bytes, str]:
    """A body as bytes, and its content type."""
    if isinstance(body, bytes):
        return body, "application/octet-stream"
    if isinstance(body, str):
        kind = "application/json" if body[:1] in ("{", "[") else "text/plain; charset=utf-8"
        return body.encode(), kind
    return json.dumps(body).encode(), "application/json"


def pairs_of(headers: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Headers as pairs, so that a name may come twice."""
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)


def pieces_of(data: bytes, drip: float | None) -> Sequence[bytes]:
    """Data as it is sent: in one piece, or byte by byte."""
    return [data] if drip is None else [data[i : i + 1] for i in range(len(data))]


def merged(headers: Sequence[tuple[str, str]], defaults: Mapping[str, str]) -> list[tuple[str, str]]:
    """Headers and defaults: a default gives way to a header of the same name, and is left out if it is empty."""
    given = {name.lower() for name, _ in headers}
    return [*headers, *((name, value) for name, value in defaults.items() if value and name not in given)]


def head_of(status: int, headers: Sequence[tuple[str, str]], defaults: Mapping[str, str]) -> bytes:
    """A status line, headers and defaults."""
    reason = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Scripted"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in merged(headers, defaults)), "", ""]
    return "\r\n".join(lines).encode("latin-1")
