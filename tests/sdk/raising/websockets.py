"""Calls through websockets: the handshake, and a close frame where a message was awaited."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import connect

from loopback import Choose, Request, Server, Speak
from sdk.places import Call, Place

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


def receive(place: Place) -> object:
    with connect(place.url.replace("http", "ws", 1), open_timeout=place.timeout, proxy=None) as socket:
        return socket.recv(timeout=place.read_timeout)


def accept(request: Request, frame: bytes) -> bytes:
    """The end of the handshake, and the server's first frame."""
    digest = hashlib.sha1((request.header("sec-websocket-key") or "").encode() + MAGIC.encode()).digest()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}", "", ""]
    return "\r\n".join(lines).encode() + frame


@contextmanager
def serve(body: dict[str, Any]) -> Iterator[Place]:
    """A server that closes with this code and reason at once; without a code it breaks off."""
    said = body.get("reason", "").encode()
    frame = struct.pack("!BBH", 0x88, 2 + len(said), body["close"]) + said if "close" in body else b""
    with Server(Choose(lambda request: Speak(accept(request, frame)))) as server:
        yield Place(server.url)


CALLS = {"receive": Call(receive, tried=False, serve=serve), "handshake": Call(receive)}
