"""Calls through aiohttp: a request that raises for its status, one with a total limit, a stream, and a full pool."""

from __future__ import annotations

from typing import Any

import aiohttp

from sdk.places import Call, Place, streaming


def session(place: Place) -> aiohttp.ClientSession:
    limits = aiohttp.ClientTimeout(total=None, sock_connect=place.connect_timeout, sock_read=place.read_timeout)
    return aiohttp.ClientSession(timeout=limits)


async def post(place: Place) -> object:
    async with session(place) as client, client.post(f"{place.url}/x", json={}, raise_for_status=True) as response:
        return await response.read()


async def post_with_total(place: Place) -> object:
    limit = aiohttp.ClientTimeout(total=place.timeout)
    options: Any = {"json": {}, "timeout": limit, "raise_for_status": True}
    async with session(place) as client, client.post(f"{place.url}/x", **options) as response:
        return await response.read()


async def stream(place: Place) -> object:
    async with session(place) as client, client.post(f"{place.url}/x", json={}, raise_for_status=True) as response:
        return [chunk async for chunk in response.content.iter_any()]


async def full_pool(place: Place) -> object:
    one = aiohttp.TCPConnector(limit=1)
    limits = aiohttp.ClientTimeout(connect=place.read_timeout)
    async with aiohttp.ClientSession(timeout=limits, connector=one) as client, client.get(f"{place.url}/x"):
        return await client.get(f"{place.url}/y")


async def read_json(place: Place) -> object:
    async with session(place) as client, client.post(f"{place.url}/x", json={}) as response:
        return await response.json()


CALLS = {
    "post": Call(post),
    "post-with-total": Call(post_with_total),
    "stream": streaming(stream, b"data: 1\n\n"),
    "full-pool": Call(full_pool),
    "read-json": Call(read_json, tried=False),
}
