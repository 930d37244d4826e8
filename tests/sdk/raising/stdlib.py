"""What the standard library raises by itself: urllib's errors, bare sockets, and asyncio's two ways of giving up."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from urllib.parse import urlsplit

from sdk.places import Call, Place, streaming


def fetch(place: Place) -> object:
    with urllib.request.urlopen(f"{place.url}/x", b"{}", timeout=place.timeout) as response:
        return response.read()


def connect(place: Place) -> object:
    address = urlsplit(place.url)
    with socket.create_connection((address.hostname, address.port), place.connect_timeout) as bare:
        bare.settimeout(place.read_timeout)
        bare.sendall(b"GET / HTTP/1.1\r\n\r\n")
        return bare.recv(1)


async def cancelled(_place: Place) -> None:
    sleeper = asyncio.create_task(asyncio.sleep(3600))
    await asyncio.sleep(0)
    sleeper.cancel()
    await sleeper


async def wait_for(_place: Place) -> None:
    await asyncio.wait_for(asyncio.sleep(3600), 0.01)


CALLS = {
    "urllib": Call(fetch),
    "urllib-stream": streaming(fetch, b"data: 1\n\n"),
    "socket": Call(connect, tried=False),
    "cancelled": Call(cancelled, tried=False),
    "wait-for": Call(wait_for, tried=False),
}
