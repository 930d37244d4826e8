"""R018: attempts that are cut leave dead places in the pool, until every later request waits for a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest

from forbear import Kind, Upstream, classify
from loopback import Choose, Hang, Reply, Server, Stream

CALLS = 200
POOL = 10  # connections
CUT: dict[str, Any] = {"attempt_timeout": 0.05, "max_attempts": 1}
PARTNERS = ["httpx", "httpx2"]
SLOW = {
    "no answer": Choose(lambda _: Hang()),
    "a slow body": Reply(body="." * 100, drip=0.01),
    "an endless body": Stream([b"."], ends="hang"),
    "a slow failure": Reply(503, body="." * 100, drip=0.01),
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def dead(pool: Any) -> list[Any]:
    """What of a pool is held, or waited for."""
    busy = [one for one in pool.connections if not (one.is_idle() or one.is_closed())]
    return [*busy, *pool._requests]


@pytest.mark.parametrize("slow", SLOW)
@pytest.mark.parametrize("name", PARTNERS)
async def test_after_a_storm_of_cut_attempts_the_pool_is_as_before(server: Server, name: str, slow: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    inner = library.AsyncHTTPTransport(trust_env=False, limits=library.Limits(max_connections=POOL))
    transport = ours.AsyncTransport(inner, upstream=None, **CUT)
    async with library.AsyncClient(transport=transport, timeout=30.0) as client:

        async def call() -> None:
            with suppress(library.TransportError):
                await client.get(server.url)

        server.script(SLOW[slow])
        await asyncio.gather(*(call() for _ in range(CALLS)))
        assert dead(inner._pool) == []
        server.script(Reply(body="well"))
        normal = ours.AsyncTransport(inner, attempt_timeout=10.0)
        for _ in range(3):
            requests = [library.Request("GET", server.url) for _ in range(POOL)]
            answers = await asyncio.gather(*map(normal.handle_async_request, requests))
            assert [answer.status_code for answer in answers] == [200] * POOL
        await asyncio.to_thread(server.wait_until_idle, kept=POOL)
    await asyncio.to_thread(server.wait_until_idle)


@pytest.mark.parametrize("slow", SLOW)
@pytest.mark.parametrize("name", PARTNERS)
def test_in_threads_it_is_too(server: Server, name: str, slow: str) -> None:
    """As many threads as connections: of those that wait for one the library loses some, as without us."""
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    inner = library.HTTPTransport(trust_env=False, limits=library.Limits(max_connections=POOL))
    transport = ours.Transport(inner, upstream=None, **CUT)
    with library.Client(transport=transport, timeout=30.0) as client, ThreadPoolExecutor(POOL) as threads:

        def call(_: int) -> None:
            with suppress(library.TransportError):
                client.get(server.url)

        server.script(SLOW[slow])
        list(threads.map(call, range(CALLS)))
        assert dead(inner._pool) == []
        server.script(Reply(body="well"))
        normal = ours.Transport(inner, attempt_timeout=10.0)
        requests = [library.Request("GET", server.url) for _ in range(3 * POOL)]
        answers = list(threads.map(normal.handle_request, requests))
        assert [answer.status_code for answer in answers] == [200] * 3 * POOL
        server.wait_until_idle(kept=POOL)
    server.wait_until_idle()


@pytest.mark.parametrize("name", PARTNERS)
async def test_a_wait_for_a_free_connection_is_its_own_kind_of_failure(server: Server, name: str) -> None:
    """It says nothing about the server: it may pass, nothing was sent, and no guard counts it."""
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    server.script(Stream([b"."], ends="hang"))
    inner = library.AsyncHTTPTransport(trust_env=False, limits=library.Limits(max_connections=1))
    service = Upstream("service")
    transport = ours.AsyncTransport(inner, upstream=service, max_attempts=1, reraise=True)
    timeout = library.Timeout(30.0, pool=0.05)
    async with library.AsyncClient(transport=transport, timeout=timeout) as client, client.stream("GET", server.url):
        with pytest.raises(library.PoolTimeout) as caught:
            await client.post(server.url)
    failure = classify(caught.value)
    assert (failure.kind, failure.transient, failure.executed) == (Kind.POOL_FULL, True, "no")
    assert service.snapshot().in_flight == 0
