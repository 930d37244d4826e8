"""Calls through httpx: a request that raises for its status, a stream, a full pool, a proxy, an unknown protocol."""

from __future__ import annotations

import httpx

from sdk.places import Call, Place, streaming


def limits(place: Place) -> httpx.Timeout:
    return httpx.Timeout(place.read_timeout, connect=place.connect_timeout)


def post(place: Place) -> object:
    with httpx.Client(timeout=limits(place)) as client:
        return client.post(f"{place.url}/x", json={}).raise_for_status()


async def post_async(place: Place) -> object:
    async with httpx.AsyncClient(timeout=limits(place)) as client:
        return (await client.post(f"{place.url}/x", json={})).raise_for_status()


def stream(place: Place) -> object:
    with (
        httpx.Client(timeout=limits(place)) as client,
        client.stream("POST", f"{place.url}/x", json={}) as response,
    ):
        return list(response.raise_for_status().iter_bytes())


def full_pool(place: Place) -> object:
    one = httpx.Limits(max_connections=1)
    with httpx.Client(timeout=limits(place), limits=one) as client, client.stream("GET", f"{place.url}/x"):
        return client.get(f"{place.url}/y")


def by_proxy(place: Place) -> object:
    with httpx.Client(timeout=limits(place), proxy=place.url) as client:
        return client.get("https://127.0.0.1:9/x")


def unknown_protocol(place: Place) -> object:
    with httpx.Client(timeout=limits(place)) as client:
        return client.get("foo://127.0.0.1/x")


CALLS = {
    "post": Call(post),
    "post-async": Call(post_async),
    "stream": streaming(stream, b"data: 1\n\n"),
    "full-pool": Call(full_pool),
    "by-proxy": Call(by_proxy, tried=False),
    "unknown-protocol": Call(unknown_protocol, tried=False),
}
