"""The real SDKs stream through forbear from a server that breaks after each event, in each way and in each mode.

Proven for every break: what the consumer sees, chunk by chunk, is what `sdk.streaming` expects, so nothing is shown
twice and nothing is missing; how many requests were made; which error ends the stream, and what it is taken for. And
that nothing is left behind, however a stream is left: no connection in use, no place at the upstream taken, no task,
no warning, no complaint of the interpreter or the event loop.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from typing import Any

import pytest

from forbear import (
    Kind,
    RetriesExhausted,
    StreamInterrupted,
    Upstream,
    classify,
    constant,
    retry,
    retry_sync,
    stream,
)
from loopback import Choose, Close, Hang, Reply, Server, Stream
from sdk.streaming import APIS, MODES, PIECES, Api, Break, Mode, Outcome, continued, expected, label, shown

FORMS = ("stream", "decorated", "upstream")
SHORT = 0.3  # seconds without content that are too many, where a test waits for them
OFTEN = 0.05  # seconds between two signs of life
LONG = 10.0  # seconds that no test must take
apis = pytest.mark.parametrize("api", APIS, ids=repr, indirect=True)
modes = pytest.mark.parametrize("mode", MODES)
pytestmark = pytest.mark.usefixtures("little_to_collect", "no_complaints")


async def clean(test: Awaitable[Any]) -> None:
    """Runs an async test, after which no task may be left and of which the event loop has nothing to complain."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    await test
    gc.collect()  # the async generators that the SDKs leave in cycles are closed by the loop
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "a task is left")
    assert told == []


async def until(holds: Callable[[], bool], else_: str) -> None:
    limit = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < limit, else_
        await asyncio.sleep(0.001)


def in_use(client: Any) -> list[str]:
    """The connections of a client's pool that are in use, and the requests that wait for one."""
    pool = client._client._transport._pool
    return [repr(one) for one in (*pool._requests, *(one for one in pool.connections if not one.is_idle()))]


# ---- the forms -------------------------------------------------------------------------------------------------------


def options_of(api: Api, mode: Mode, client: Any, **more: Any) -> dict[str, Any]:
    goes_on = {"resume": lambda delivered: api.open(client, "".join(delivered))}
    kept = goes_on if mode == "resume" else {"after_content": mode}
    return {"events": api.sdk, "backoff": constant(0.0), **kept, **more}


def blocking(form: str, api: Api, client: Any, upstream: Upstream, options: dict[str, Any]) -> Any:
    """The stream, under `for`."""
    if form == "decorated":

        @retry_sync(**options)
        def answer() -> Generator[Any, None, None]:
            with api.open(client) as chunks:
                yield from chunks

        return answer()
    return (upstream.stream if form == "upstream" else stream)(lambda: api.open(client), **options)


def non_blocking(form: str, api: Api, client: Any, upstream: Upstream, options: dict[str, Any]) -> Any:
    """The stream, under `async for`."""
    if form == "decorated":

        @retry(**options)
        async def answer() -> AsyncGenerator[Any]:
            opened = api.open(client)
            async with await opened if inspect.isawaitable(opened) else opened as chunks:
                async for chunk in chunks:
                    yield chunk

        return answer()
    return (upstream.stream if form == "upstream" else stream)(lambda: api.open(client), **options)


def service() -> Upstream:
    """One place, so that a lease that is kept is seen; without the waits that overload would cost."""
    return Upstream("llm", max_concurrency=1, budget=None, adaptive=False)


def consume(chunks: Iterable[Any], seen: list[str]) -> Exception | None:
    try:
        for chunk in chunks:
            seen.append(label(chunk))  # noqa: PERF401  # what came before an error is looked at too
    except Exception as error:  # whatever it is, it is what is looked at
        return error
    return None


async def consume_async(chunks: AsyncIterator[Any], seen: list[str]) -> Exception | None:
    try:
        async for chunk in chunks:
            seen.append(label(chunk))  # noqa: PERF401
    except Exception as error:  # whatever it is, it is what is looked at
        return error
    return None


def outcome(seen: list[str], requests: int, error: Exception | None) -> tuple[Outcome, BaseException | None]:
    """What came out, and the error behind it."""
    if isinstance(error, StreamInterrupted):
        cause = error.__cause__
        return Outcome(seen, requests, name_of(cause), True, error.delivered), cause
    return Outcome(seen, requests, name_of(error)), error


def name_of(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__module__}.{type(error).__qualname__}"


# ---- a break after each event ----------------------------------------------------------------------------------------


def cases(api: Api) -> Iterator[tuple[str, int, str]]:
    """Every way to break after every number of events, each in one of the forms, which take turns."""
    for number, way in enumerate(api.breaks):
        for after in range(len(api.rows(PIECES)) + 1):
            yield way, after, FORMS[(number + after) % len(FORMS)]


def script(server: Server, api: Api, mode: Mode, way: str, after: int) -> Outcome:
    """The first answer breaks; the second is good, and goes on where it is to. Gives what must come out."""
    came = api.rows(PIECES)[:after]
    rest = continued(came) if mode == "resume" and any(row.content for row in came) else PIECES
    server.requests.clear()
    server.script(api.broken(after, api.breaks[way]), api.answer(rest))
    return expected(api, after, api.breaks[way], mode)


def check(
    server: Server, api: Api, way: str, case: str, seen: list[str], error: Exception | None, want: Outcome
) -> None:
    came, behind = outcome(seen, len(server.requests), error)
    assert came == want, case
    if behind is not None:
        verdict = classify(behind)
        assert (verdict.kind, verdict.transient) == (api.breaks[way].kind, not api.breaks[way].permanent), case


@apis
@modes
def test_a_blocking_stream_breaks_after_any_event(server: Server, api: Api, mode: Mode):
    with api.client(server.url, "blocking") as client:
        for way, after, form in cases(api):
            want, seen, upstream = script(server, api, mode, way, after), list[str](), service()
            error = consume(blocking(form, api, client, upstream, options_of(api, mode, client)), seen)
            check(server, api, way, f"{way} after {after} events, {form}", seen, error, want)
            assert (in_use(client), upstream.snapshot().in_flight) == ([], 0), f"{way} after {after} events, {form}"


@apis
@modes
def test_an_async_stream_breaks_after_any_event(server: Server, api: Api, mode: Mode):
    async def test() -> None:
        async with api.client(server.url, "async") as client:
            for way, after, form in cases(api):
                want, seen, upstream = script(server, api, mode, way, after), list[str](), service()
                chunks = non_blocking(form, api, client, upstream, options_of(api, mode, client))
                error = await consume_async(chunks, seen)
                check(server, api, way, f"{way} after {after} events, {form}", seen, error, want)
                assert (in_use(client), upstream.snapshot().in_flight) == ([], 0), f"{way} after {after} events, {form}"

    asyncio.run(clean(test()))


@apis
def test_what_was_delivered_is_in_the_request_that_goes_on(server: Server, api: Api):
    first = next(i for i, row in enumerate(api.rows(PIECES), 1) if row.content)
    script(server, api, "resume", "FIN", first)
    with api.client(server.url, "blocking") as client:
        list(blocking("stream", api, client, service(), options_of(api, "resume", client)))
    asked, then = (request.json().get("messages") or request.json()["input"] for request in server.requests)
    assert then == [*asked, {"role": "assistant", "content": PIECES[0]}]


@apis
@pytest.mark.parametrize("mode", ["restart", "resume"])
def test_a_stream_that_breaks_each_time_is_given_up(server: Server, api: Api, mode: Mode):
    rows = api.rows(PIECES)
    first = next(i for i, row in enumerate(rows, 1) if row.content)
    server.script(api.broken(first, api.breaks["overloaded"]))
    seen: list[str] = []
    with api.client(server.url, "blocking") as client:
        options = options_of(api, mode, client, max_attempts=3)
        error = consume(blocking("stream", api, client, service(), options), seen)
    came, again = shown(rows[:first]), list(rows[first - 1].shows)
    if mode == "restart":
        void = "<restarted: attempt {}, 1 void>"
        assert seen == [*came, void.format(2), *came, void.format(3), *came]
    else:
        assert seen == [*came, *again, *again]
    assert isinstance(error, StreamInterrupted)
    assert error.delivered == ((PIECES[0],) if mode == "restart" else (PIECES[0],) * 3)
    assert isinstance(error.__cause__, RetriesExhausted)
    assert name_of(error.__cause__.last_error) == api.breaks["overloaded"].error
    assert len(server.requests) == 3


@apis
def test_failures_before_and_at_the_answer_are_retried_alike(server: Server, api: Api):
    """A status, no answer at all, and a stream that breaks before its first content."""
    bad = Reply(529, body={"type": "error", "error": {"type": "overloaded_error", "message": "x"}})
    server.script(
        bad, Close(), api.broken(1, api.breaks["FIN"]), api.broken(1, api.breaks["an early end"]), api.answer()
    )
    with api.client(server.url, "blocking") as client:
        chunks = blocking("upstream", api, client, service(), options_of(api, "raise", client))
        assert [label(chunk) for chunk in chunks] == shown(api.rows(PIECES))
    assert len(server.requests) == 5


@apis
def test_a_resumed_stream_that_had_all_its_text_still_comes_to_its_end(server: Server, api: Api):
    """The consumer learns why the answer ended, and what it has cost, though no more text comes."""
    rows = api.rows(PIECES)
    whole = max(i for i, row in enumerate(rows, 1) if row.content)
    server.script(api.broken(whole, api.breaks["FIN"]), api.answer(()))
    with api.client(server.url, "blocking") as client:
        chunks = blocking("stream", api, client, service(), options_of(api, "resume", client))
        seen = [label(chunk) for chunk in chunks]
    end = next(row.shows[0] for row in rows if row.ends)
    assert [one for one in seen if one[0] != "<"] == list(PIECES)
    assert seen.count(end) == 1


# ---- silence, in real time -------------------------------------------------------------------------------------------


def silences(api: Api) -> Iterator[tuple[int, Mode]]:
    """Silence before the first event, after the first one, and after the first content."""
    first = next(i for i, row in enumerate(api.rows(PIECES), 1) if row.content)
    for after in (0, 1, first):
        yield after, "raise"
    yield first, "restart"
    yield first, "buffer"


def wake(api: Api) -> None:
    """The SDKs load a part of themselves with the first call, which takes long: not where time is measured."""
    with Server(api.answer()) as server, api.client(server.url, "blocking") as client, api.open(client) as chunks:
        assert [label(chunk) for chunk in chunks] == shown(api.rows(PIECES))


def check_silence(
    api: Api, server: Server, after: int, mode: Mode, own: str, seen: list[str], error: Exception | None, took: float
) -> None:
    case = f"silence after {after} events, {mode}"
    assert SHORT <= took < LONG, case
    came, behind = outcome([one for one in seen if one != api.sign], len(server.requests), error)
    assert came == expected(api, after, Break(own, Kind.TIMEOUT), mode), case
    assert behind is None or (classify(behind).kind, classify(behind).transient) == (Kind.TIMEOUT, True), case


@apis
def test_a_silent_blocking_stream_ends_with_the_read_timeout_of_its_client(api: Api):
    def one(after: int, mode: Mode) -> None:
        with Server() as server, api.client(server.url, "blocking", read_timeout=SHORT) as client:
            server.script(api.broken(after, Break("", Kind.TIMEOUT, ends="hang")), api.answer())
            seen: list[str] = []
            begun = time.monotonic()
            error = consume(blocking("stream", api, client, service(), options_of(api, mode, client)), seen)
            check_silence(api, server, after, mode, api.stalled, seen, error, time.monotonic() - begun)
            assert in_use(client) == []

    wake(api)
    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(one, *case) for case in silences(api)]:
            done.result()


@apis
@pytest.mark.parametrize("alive", [False, True], ids=["silent", "only signs of life"])
def test_an_async_stream_without_content_ends_with_our_timeouts(api: Api, alive: bool):
    async def one(after: int, mode: Mode) -> None:
        with Server() as server:
            async with api.client(server.url, "async") as client:
                signs = [one for _ in range(int(LONG / OFTEN)) for one in (api.alive, OFTEN)] if alive else []
                frames = [row.frame for row in api.rows(PIECES)[:after]]
                server.script(Stream([*frames, *signs], ends="hang"), api.answer())
                options = options_of(api, mode, client, first_timeout=SHORT, gap_timeout=SHORT)
                seen: list[str] = []
                begun = time.monotonic()
                error = await consume_async(non_blocking("stream", api, client, service(), options), seen)
                check_silence(api, server, after, mode, "builtins.TimeoutError", seen, error, time.monotonic() - begun)
                assert error is None or "gap_timeout=0.3" in str(error.__cause__)
                assert in_use(client) == []

    async def test() -> None:
        await asyncio.gather(*(one(*case) for case in silences(api)))

    wake(api)
    asyncio.run(clean(test()))


@pytest.mark.parametrize("api", [one for one in APIS if one.sign], ids=repr, indirect=True)
def test_signs_of_life_alone_keep_no_blocking_stream_alive_where_the_sdk_shows_them(server: Server, api: Api):
    """Where it does not, nothing can be done between two of them, and the read timeout of the client never ends."""
    wake(api)
    first = next(i for i, row in enumerate(api.rows(PIECES), 1) if row.content)
    signs = [one for _ in range(int(LONG / OFTEN)) for one in (api.alive, OFTEN)]
    server.script(Stream([*(row.frame for row in api.rows(PIECES)[:first]), *signs], ends="hang"), api.answer())
    with api.client(server.url, "blocking") as client:
        seen: list[str] = []
        begun = time.monotonic()
        options = options_of(api, "restart", client, first_timeout=LONG, gap_timeout=SHORT)
        error = consume(blocking("stream", api, client, service(), options), seen)
        check_silence(api, server, first, "restart", "", seen, error, time.monotonic() - begun)
        assert in_use(client) == []


# ---- leaving ---------------------------------------------------------------------------------------------------------


def cut_at(api: Api, contents: int) -> Stream:
    """A stream that is silent for ever behind so many contents; its connection stays in use until it is left."""
    rows = api.rows(PIECES)
    places = [0] + [i for i, row in enumerate(rows, 1) if row.content]
    return Stream([row.frame for row in rows[: places[contents]]], ends="hang")


def close(chunks: Any) -> None:
    next(chunks)
    chunks.close()


def throw(chunks: Any) -> None:
    with pytest.raises(ZeroDivisionError), chunks if hasattr(chunks, "__exit__") else closing(chunks):
        next(chunks)
        raise ZeroDivisionError


def leave(chunks: Any) -> None:
    for _ in chunks:
        break


@apis
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", [close, throw, leave])
def test_a_blocking_stream_that_is_left_leaves_nothing(server: Server, api: Api, form: str, way: Callable[[Any], None]):
    upstream = service()
    with api.client(server.url, "blocking") as client:
        for contents in (1, 2):
            server.script(cut_at(api, contents))
            way(blocking(form, api, client, upstream, options_of(api, "raise", client)))
            assert (in_use(client), upstream.snapshot().in_flight) == ([], 0)
        server.script(api.answer())
        chunks = blocking(form, api, client, upstream, options_of(api, "raise", client))
        assert [label(chunk) for chunk in chunks] == shown(api.rows(PIECES))


async def aclose(chunks: Any) -> None:
    await anext(chunks)
    await chunks.aclose()


async def break_in_block(chunks: Any) -> None:
    async with aclosing(chunks):
        async for _ in chunks:
            break


async def break_and_forget(chunks: Any) -> None:
    async for _ in chunks:
        break


async def forget(chunks: Any) -> None:
    await anext(chunks)


async def cancel(chunks: Any) -> None:
    """While the consumer waits for the next chunk."""
    seen: list[str] = []
    task = asyncio.create_task(consume_async(chunks, seen))
    await until(lambda: len(seen) > 0, "nothing came")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def run_out_of_time(chunks: Any) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(OFTEN):
            async for _ in chunks:
                pass


AT_ONCE = (aclose, break_in_block, cancel, run_out_of_time)


@apis
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", [*AT_ONCE, break_and_forget, forget])
def test_an_async_stream_that_is_left_leaves_nothing(
    server: Server, api: Api, form: str, way: Callable[[Any], Coroutine[Any, Any, None]]
):
    upstream = service()

    async def test() -> None:
        async with api.client(server.url, "async") as client:
            server.script(cut_at(api, 2))
            await way(non_blocking(form, api, client, upstream, options_of(api, "raise", client)))
            if way not in AT_ONCE:  # the event loop closes it, a moment after its last reference is gone
                gc.collect()
                await until(lambda: not in_use(client) and not upstream.snapshot().in_flight, "it is in use for ever")
            assert (in_use(client), upstream.snapshot().in_flight) == ([], 0)
            server.script(api.answer())
            chunks = non_blocking(form, api, client, upstream, options_of(api, "raise", client))
            assert [label(chunk) async for chunk in chunks] == shown(api.rows(PIECES))

    asyncio.run(clean(test()))


@apis
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["no answer", "no event", "no content"])
def test_a_stream_that_is_cancelled_before_its_first_content_leaves_nothing(
    server: Server, api: Api, form: str, place: str
):
    upstream = service()
    steps: dict[str, Hang | Stream] = {
        "no answer": Hang(),
        "no event": Stream([], ends="hang"),
        "no content": Stream([api.rows(())[0].frame], ends="hang"),
    }

    async def test() -> None:
        async with api.client(server.url, "async") as client:
            server.script(steps[place])
            chunks = non_blocking(form, api, client, upstream, options_of(api, "raise", client))
            task = asyncio.create_task(anext(chunks))
            await until(lambda: bool(server.requests), "nothing was asked")
            await asyncio.sleep(OFTEN)
            assert in_use(client) != []
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (in_use(client), upstream.snapshot().in_flight) == ([], 0)

    asyncio.run(clean(test()))


@apis
def test_streams_that_are_cancelled_anywhere_leave_nothing(server: Server, api: Api):
    """At any moment of opening, reading, retrying and closing: each of many streams at another one."""
    upstream = Upstream("llm", max_concurrency=4, budget=None, adaptive=False)

    async def test() -> None:
        async with api.client(server.url, "async") as client:
            rows = api.rows(PIECES)
            until_the_end = next(at for at, row in enumerate(rows) if row.ends or row.last)
            slow = [one for row in rows[:until_the_end] for one in (row.frame, 0.002)]
            server.script(Choose(lambda _: Stream(slow, ends="close")))
            for moment in range(40):
                options = options_of(api, "restart", client, max_attempts=None)
                chunks = non_blocking(FORMS[moment % 3], api, client, upstream, options)
                task = asyncio.create_task(consume_async(chunks, []))
                await asyncio.sleep(moment * 0.0013)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert (in_use(client), upstream.snapshot().in_flight) == ([], 0), moment

    asyncio.run(clean(test()))


@pytest.mark.parametrize("api", APIS[:1], ids=repr, indirect=True)
@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize("after_content", ["raise", "buffer"])
def test_the_streaming_helper_of_the_openai_library_is_read_too(
    server: Server, api: Api, kind: str, after_content: str
):
    """A context manager, which hands over the chunks and what it makes of them."""
    server.script(api.broken(2, api.breaks["FIN"]), api.answer())
    options: Any = {"events": "openai", "after_content": after_content, "backoff": constant(0)}
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    seen: list[str] = []

    def note(event: Any) -> None:
        if event.type == "content.delta" and event.delta:
            seen.append(event.delta)

    async def main() -> None:
        async with api.client(server.url, kind) as client:
            async for event in stream(lambda: client.chat.completions.stream(**asked), **options):
                note(event)

    if kind == "async":
        asyncio.run(main())
    else:
        with api.client(server.url, kind) as client:
            for event in stream(lambda: client.chat.completions.stream(**asked), **options):
                note(event)
    assert (seen, len(server.requests)) == (list(PIECES), 2)
