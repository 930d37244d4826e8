"""T37: a response that is discarded for a retry is closed, and a body that can't be sent again is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import Any

import pytest

from forbear import RetriesExhausted
from loopback import Reply, Reset, Server

LARGE = b"." * 3_000_000  # more than what is read of an answer that is a failure
QUICK: dict[str, Any] = {"base": 0.001, "cap": 0.002}
PARTNERS = ["httpx", "httpx2"]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def rows() -> Iterator[bytes]:
    yield b"one"
    yield b"two"


async def rows_async() -> AsyncIterator[bytes]:
    yield b"one"
    yield b"two"


@pytest.mark.parametrize("name", PARTNERS)
@pytest.mark.parametrize("size", [10, len(LARGE)], ids=["short", "long"])
def test_discarded_responses_are_closed_before_the_wait(server: Server, name: str, size: int) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    server.script(Reply(503, body=LARGE[:size]), Reply(503, body=LARGE[:size]), Reply(body="well"))
    busy: list[int] = []
    inner = library.HTTPTransport(trust_env=False, limits=library.Limits(max_connections=1))

    def wait(_: float) -> None:
        busy.append(len([one for one in inner._pool.connections if not (one.is_idle() or one.is_closed())]))

    with library.Client(transport=ours.Transport(inner, sleep=wait, **QUICK)) as client:
        assert client.get(server.url).text == "well"
    assert busy == [0, 0]
    server.wait_until_idle()


@pytest.mark.parametrize("name", PARTNERS)
@pytest.mark.parametrize("size", [10, len(LARGE)], ids=["short", "long"])
async def test_discarded_async_responses_are_closed_before_the_wait(server: Server, name: str, size: int) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    server.script(Reply(503, body=LARGE[:size]), Reply(503, body=LARGE[:size]), Reply(body="well"))
    busy: list[int] = []
    inner = library.AsyncHTTPTransport(trust_env=False, limits=library.Limits(max_connections=1))

    async def wait(_: float) -> None:
        busy.append(len([one for one in inner._pool.connections if not (one.is_idle() or one.is_closed())]))

    async with library.AsyncClient(transport=ours.AsyncTransport(inner, sleep=wait, **QUICK)) as client:
        assert (await client.get(server.url)).text == "well"
    assert busy == [0, 0]
    await asyncio.to_thread(server.wait_until_idle)


@pytest.mark.parametrize("name", PARTNERS)
def test_a_body_that_is_gone_is_not_sent_again(server: Server, name: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    server.script(Reset(), Reply(body="well"))
    with library.Client(transport=ours.Transport(**QUICK)) as client:
        with pytest.raises(library.TransportError) as caught:
            client.put(server.url, content=rows())
        assert not isinstance(caught.value, RetriesExhausted)
        assert not isinstance(caught.value, library.StreamError)  # the original error, not one about the body
    assert [request.body for request in server.requests] == [b"onetwo"]


@pytest.mark.parametrize("name", PARTNERS)
async def test_an_async_body_that_is_gone_is_not_sent_again(server: Server, name: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    server.script(Reset(), Reply(body="well"))
    async with library.AsyncClient(transport=ours.AsyncTransport(**QUICK)) as client:
        with pytest.raises(library.TransportError) as caught:
            await client.put(server.url, content=rows_async())
        assert not isinstance(caught.value, (RetriesExhausted, library.StreamError))
    assert [request.body for request in server.requests] == [b"onetwo"]
