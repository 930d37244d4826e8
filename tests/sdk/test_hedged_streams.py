"""Hedged streams of the real SDKs: the first answer begins and then is silent, the copy is fast.

Proven: the consumer sees one clean stream with one beginning, after two requests; the loser's connection is not in use
any more when the first chunk comes, and nothing is in use after the end, however it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forbear import Hedge, StreamInterrupted, Upstream
from loopback import Hang, Server, Stream
from sdk.streaming import APIS, PIECES, Api, Mode, continued, label, shown
from sdk.test_streams import FORMS, clean, consume_async, in_use, non_blocking, options_of, until

HEDGE = 0.05
apis = pytest.mark.parametrize("api", APIS, ids=repr, indirect=True)
pytestmark = pytest.mark.usefixtures("little_to_collect", "no_complaints")


def beginning(api: Api) -> Stream:
    """Headers and all that comes before the first content, and then nothing for ever."""
    rows = api.rows(PIECES)
    first = next(at for at, row in enumerate(rows) if row.content)
    return Stream([row.frame for row in rows[:first]], ends="hang")


def service() -> Upstream:
    """Two places, so that a lease that is kept is seen."""
    return Upstream("llm", max_concurrency=2, budget=None, adaptive=False)


def busy(client: Any) -> int:
    """How many connections are in use."""
    return sum(not one.is_idle() for one in client._client._transport._pool.connections)


def opened(form: str, api: Api, client: Any, upstream: Upstream, mode: Mode = "raise") -> Any:
    return non_blocking(form, api, client, upstream, options_of(api, mode, client, hedge=Hedge(HEDGE)))


@apis
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first", ["begins", "no answer"])
def test_the_copy_is_one_clean_stream_and_the_first_is_out_of_use(
    server: Server, api: Api, form: str, first: str
) -> None:
    upstream = service()

    async def test() -> None:
        async with api.client(server.url, "async") as client:
            server.script(beginning(api) if first == "begins" else Hang(), api.answer())
            seen: list[str] = []
            async for chunk in opened(form, api, client, upstream):
                if not seen:
                    assert busy(client) <= 1, "the loser's connection is in use"
                    assert upstream.snapshot().in_flight == (1 if form == "upstream" else 0)
                seen.append(label(chunk))
            assert seen == shown(api.rows(PIECES))
            assert len(server.requests) == 2
            assert (in_use(client), upstream.snapshot().in_flight) == ([], 0)

    asyncio.run(clean(test()))


@apis
def test_a_first_that_is_fast_enough_is_asked_alone(server: Server, api: Api) -> None:
    async def test() -> None:
        async with api.client(server.url, "async") as client:
            server.script(api.answer())
            chunks = non_blocking("stream", api, client, service(), options_of(api, "raise", client, hedge=5.0))
            assert [label(chunk) async for chunk in chunks] == shown(api.rows(PIECES))
            assert len(server.requests) == 1
            assert in_use(client) == []

    asyncio.run(clean(test()))


@apis
@pytest.mark.parametrize("mode", ["raise", "restart", "resume"])
def test_a_copy_that_breaks_after_content_is_treated_as_any_other(server: Server, api: Api, mode: Mode) -> None:
    rows = api.rows(PIECES)
    after = next(at for at, row in enumerate(rows) if row.content) + 1
    way = api.breaks["FIN"]
    came = shown(rows[:after])
    texts = tuple(row.shows[0] for row in rows[:after] if row.content)

    async def test() -> None:
        async with api.client(server.url, "async") as client:
            rest = continued(rows[:after]) if mode == "resume" else PIECES
            server.script(beginning(api), api.broken(after, way), api.answer(rest))
            seen: list[str] = []
            error = await consume_async(opened("stream", api, client, service(), mode), seen)
            if mode == "raise":
                assert isinstance(error, StreamInterrupted)
                assert error.delivered == texts
                assert (seen, len(server.requests)) == (came, 2)
                return
            assert error is None
            assert len(server.requests) == 3
            again = api.rows(rest)
            if mode == "restart":
                assert seen == [*came, "<restarted: attempt 3, 1 void>", *shown(again)]
            else:
                first = next(at for at, row in enumerate(again) if row.content)
                assert seen == [*came, *shown(again[first:])]
            assert in_use(client) == []

    asyncio.run(clean(test()))


async def cancelled(chunks: Any, server: Server) -> None:
    """While both are silent."""
    task = asyncio.create_task(consume_async(chunks, []))
    await until(lambda: len(server.requests) == 2, "no copy was sent")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def closed(chunks: Any, server: Server) -> None:
    """After the first chunk of the copy."""
    await anext(chunks)
    assert len(server.requests) == 2
    await chunks.aclose()


async def out_of_time(chunks: Any, _: Server) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4 * HEDGE):
            async for _chunk in chunks:
                pass


@apis
@pytest.mark.parametrize("end", [cancelled, closed, out_of_time])
def test_however_it_is_left_nothing_is_in_use(server: Server, api: Api, end: Callable[[Any, Server], Any]) -> None:
    rows = api.rows(PIECES)
    after = next(at for at, row in enumerate(rows) if row.content) + 1
    cut = Stream([row.frame for row in rows[:after]], ends="hang")
    upstream = service()

    async def test() -> None:
        async with api.client(server.url, "async") as client:
            server.script(beginning(api), beginning(api) if end is cancelled else cut)
            await end(opened("upstream", api, client, upstream), server)
            assert (in_use(client), upstream.snapshot().in_flight) == ([], 0)

    asyncio.run(clean(test()))
