"""R055: answers of failed attempts that nobody closes hold their connections, and closing the client then hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from loopback import Reply, Server

LARGE = b"." * 3_000_000  # bytes of an answer that nobody reads
QUICK: dict[str, Any] = {"base": 0.001, "cap": 0.002}
PARTNERS = ["httpx", "httpx2"]


@pytest.fixture
def failing() -> Iterator[Server]:
    """Fails three times, with a large answer, and then answers well."""
    with Server(*(Reply(503, body=LARGE) for _ in range(3)), Reply(body="well")) as server:
        yield server


@pytest.mark.parametrize("name", PARTNERS)
def test_the_client_closes_at_once_and_no_connection_stays(failing: Server, name: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    transport = ours.Transport(library.HTTPTransport(trust_env=False), **QUICK)
    client = library.Client(transport=transport)
    assert client.get(failing.url).text == "well"
    assert len(transport.inner._pool.connections) == 1
    failing.wait_until_idle(kept=1)
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 1.0
    failing.wait_until_idle()
    assert transport.upstream_of(failing.url).snapshot().in_flight == 0


@pytest.mark.parametrize("name", PARTNERS)
async def test_the_async_client_does_too(failing: Server, name: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    transport = ours.AsyncTransport(library.AsyncHTTPTransport(trust_env=False), **QUICK)
    client = library.AsyncClient(transport=transport)
    assert (await client.get(failing.url)).text == "well"
    assert len(transport.inner._pool.connections) == 1
    await asyncio.to_thread(failing.wait_until_idle, kept=1)
    began = time.monotonic()
    await client.aclose()
    assert time.monotonic() - began < 1.0
    await asyncio.to_thread(failing.wait_until_idle)
    assert transport.upstream_of(failing.url).snapshot().in_flight == 0


@pytest.mark.parametrize("name", PARTNERS)
def test_what_is_given_up_is_closed_too(failing: Server, name: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    for reraise in (False, True):
        failing.script(Reply(503, body=LARGE))
        inner = library.HTTPTransport(trust_env=False)
        with library.Client(transport=ours.Transport(inner, max_attempts=3, reraise=reraise, **QUICK)) as client:
            if reraise:
                with client.stream("GET", failing.url) as response:
                    assert response.status_code == 503
            else:
                with pytest.raises(ours.RetriesExhausted):
                    client.get(failing.url)
            assert all(one.is_idle() or one.is_closed() for one in inner._pool.connections)
            failing.wait_until_idle(kept=1)  # before the client is closed
