"""What a request costs more with forbear under it: httpx, sync and async, side by side in one run.

    python benchmarks/transports.py

The inner transport answers at once from memory, so that nothing but the layers is measured; a real request takes some
hundred microseconds more. The best of several rounds counts.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import httpx

from forbear.integrations.httpx import AsyncTransport, Transport

URL = "http://service.example/"
ROUNDS, REQUESTS = 7, 400


def answer(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=b"hello")


def best(run: Callable[[], None]) -> float:
    """Microseconds per request."""
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return min(found) / REQUESTS * 1e6


def blocking(transport: httpx.BaseTransport) -> float:
    client = httpx.Client(transport=transport)

    def run() -> None:
        for _ in range(REQUESTS):
            client.get(URL)

    return best(run)


def in_a_loop(transport: httpx.AsyncBaseTransport) -> float:
    async def requests() -> None:
        client = httpx.AsyncClient(transport=transport)
        for _ in range(REQUESTS):
            await client.get(URL)

    return best(lambda: asyncio.run(requests()))


def main() -> None:
    print(f"Python {sys.version.split()[0]}, httpx {version('httpx')}, forbear {version('forbear')}")
    mock = httpx.MockTransport(answer)
    print(f"{'':24}{'httpx':>12}{'+ forbear':>12}{'+ Upstream':>12}{'ratio':>8}   (microseconds per request)")
    for name, plain, alone, whole in (
        ("Client", blocking(mock), blocking(Transport(mock, upstream=None)), blocking(Transport(mock))),
        (
            "AsyncClient",
            in_a_loop(mock),
            in_a_loop(AsyncTransport(mock, upstream=None)),
            in_a_loop(AsyncTransport(mock)),
        ),
    ):
        print(f"{name:24}{plain:12.1f}{alone:12.1f}{whole:12.1f}{whole / plain:8.2f}")


if __name__ == "__main__":
    main()
