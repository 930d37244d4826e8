"""Streams as users call them: every form, laziness, the clocks, mistakes, closing, and what is around whom."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import functools
import gc
import inspect
import itertools
import logging
import pickle
import threading
import tracemalloc
import warnings
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from forbear import (
    ApiError,
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    Options,
    Restarted,
    RetriesExhausted,
    StreamEvents,
    StreamInterrupted,
    StreamTruncated,
    Upstream,
    current_attempt,
    current_deadline,
    deadline,
    llm_retry,
    retry,
    retry_call,
    retry_sync,
    stream,
)
from forbear._runtime.scope import current
from forbear.testing import FakeTime, record_events

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Wait(NamedTuple):
    """A step of a source that takes so many seconds."""

    seconds: float


class Source:
    """Streams by script, one list of steps for each attempt, the last one for all further ones.

    An error is raised, a `Wait` takes its time, a function is called; anything else is a chunk.
    """

    def __init__(self, *attempts: list[Any]) -> None:
        self.attempts = attempts
        self.clock: FakeTime | None = None
        self.opened = self.closed = self.taken = 0
        self.limits: list[float | None] = []
        self.arguments: list[Any] = []

    def steps(self, arguments: Any) -> list[Any]:
        self.arguments.append(arguments)
        self.opened += 1
        return self.attempts[min(self.opened, len(self.attempts)) - 1]

    def chunk(self, step: Any) -> bool:
        if callable(step):
            step()
            return False
        if isinstance(step, BaseException):
            raise step.with_traceback(None)
        self.taken += 1
        return True

    def note(self) -> None:
        attempt = current_attempt()
        assert attempt is not None
        self.limits.append(attempt.timeout)

    def blocking(self, *arguments: Any) -> Generator[Any, None, str]:
        try:
            for step in self.steps(arguments):
                self.note()
                if isinstance(step, Wait):
                    assert self.clock is not None
                    self.clock.advance(step.seconds)
                elif self.chunk(step):
                    yield step
        finally:
            self.closed += 1
        return "returned"

    async def asynchronous(self, *arguments: Any) -> AsyncGenerator[Any]:
        try:
            for step in self.steps(arguments):
                self.note()
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                elif self.chunk(step):
                    yield step
        finally:
            self.closed += 1


class Played(NamedTuple):
    """What a consumer got, what it ended with and when."""

    chunks: list[Any]
    error: BaseException | None
    now: float


Play = Callable[..., Played]


def play_blocking(
    source: Source,
    *,
    slow: float = 0.0,
    take: int | None = None,
    after: Callable[[], object] = int,
    **options: Any,
) -> Played:
    chunks: list[Any] = []
    with FakeTime() as clock:
        source.clock = clock
        try:
            with stream(source.blocking, **options) as body:
                for chunk in body:
                    chunks.append(chunk)
                    clock.advance(slow)
                    if len(chunks) == take:
                        break
            after()
        except BaseException as error:
            return Played(chunks, error, clock.now)
        return Played(chunks, None, clock.now)


def play_async(
    source: Source,
    *,
    slow: float = 0.0,
    take: int | None = None,
    after: Callable[[], object] = int,
    **options: Any,
) -> Played:
    async def main() -> Played:
        chunks: list[Any] = []
        with FakeTime() as clock:
            try:
                async with stream(source.asynchronous, **options) as body:
                    async for chunk in body:
                        chunks.append(chunk)
                        await asyncio.sleep(slow)
                        if len(chunks) == take:
                            break
                after()
            except BaseException as error:
                return Played(chunks, error, clock.now)
            return Played(chunks, None, clock.now)

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(main())


@pytest.fixture(params=[play_blocking, play_async], ids=["blocking", "async"])
def play(request: pytest.FixtureRequest) -> Play:
    """`play(source, **options)`: iterates a stream to its end, in virtual time. `slow`: what the consumer takes for a
    chunk; `take`: after how many it leaves; `after`: called then.
    """
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A service with one place and a breaker, which must be at rest when the test is over."""
    made = Upstream("service", max_concurrency=1, breaker=CircuitBreaker(1, 10.0), budget=None)
    yield made
    assert at_rest(made)


def at_rest(service: Upstream) -> bool:
    snapshot = service.snapshot()
    trials = 0 if snapshot.breaker is None else snapshot.breaker.trials
    return (snapshot.in_flight, snapshot.waiting, snapshot.waiting_retries, trials) == (0, 0, 0, 0)


def ab() -> Iterator[str]:
    yield "a"
    yield "b"


async def ab_async() -> AsyncIterator[str]:
    yield "a"
    yield "b"


# ---- forms -----------------------------------------------------------------------------------------------------------


class Client:
    """An async stream as client libraries have it: an object with `__aiter__` and a close of some name."""

    def __init__(self, close: str) -> None:
        self.left, self.ended = ["a", "b"], 0
        if close:
            type(self).__dict__[close]  # it must exist, or the test proves nothing

    def __aiter__(self) -> Client:
        return self

    async def __anext__(self) -> str:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


class WithAclose(Client):
    async def aclose(self) -> None:
        self.ended += 1


class WithClose(Client):
    async def close(self) -> None:
        self.ended += 1


class WithBlockingClose(Client):
    def close(self) -> None:
        self.ended += 1


@pytest.mark.parametrize("kind", [WithAclose, WithClose, WithBlockingClose])
@pytest.mark.parametrize("take", [1, None])
async def test_a_client_librarys_stream_is_closed_by_whatever_method_it_has(
    kind: type[Client], take: int | None
) -> None:
    close = "aclose" if kind is WithAclose else "close"
    made: list[Client] = []

    def opened() -> Any:
        made.append(kind(close))
        return made[-1]

    async with stream(opened) as body:
        chunks = [chunk async for chunk in limited(body, take)]
    assert chunks == ["a", "b"][:take]
    assert [one.ended for one in made] == [1]


async def limited(body: AsyncIterator[Any], most: int | None) -> AsyncIterator[Any]:
    number = 0
    async for chunk in body:
        yield chunk
        number += 1
        if number == most:
            return


async def test_all_that_gives_an_async_stream_is_taken() -> None:
    left: list[str] = []

    async def opening() -> AsyncIterator[str]:
        await asyncio.sleep(0)
        return ab_async()

    @asynccontextmanager
    async def around() -> AsyncIterator[AsyncIterator[str]]:
        try:
            yield ab_async()
        finally:
            left.append("around")

    async def opening_around() -> Any:
        await asyncio.sleep(0)
        return around()

    class Sources:
        @staticmethod
        def __aiter__() -> AsyncIterator[str]:
            return ab_async()

    sources: list[Callable[[], Any]] = [
        ab_async, opening, functools.partial(around), opening_around, Sources,
        functools.partial(ab_async), lambda: stream(ab_async), lambda: asyncio.ensure_future(opening()),
    ]  # fmt: skip
    for number, source in enumerate(sources):
        assert [chunk async for chunk in stream(source)] == ["a", "b"], number
    assert left == ["around", "around"]


def test_all_that_gives_a_blocking_stream_is_taken(tmp_path: Path) -> None:
    left: list[str] = []

    @contextmanager
    def around() -> Iterator[Iterator[str]]:
        try:
            yield ab()
        finally:
            left.append("around")

    path = tmp_path / "file"
    path.write_text("a\nb\n")
    opened: list[Any] = []

    def file() -> Any:
        opened.append(path.open())
        return opened[-1]

    sources: list[Callable[[], Any]] = [
        ab, lambda: ["a", "b"], lambda: ("a", "b"), functools.partial(around), functools.partial(ab),
        lambda: stream(ab), lambda: iter("ab"),
    ]  # fmt: skip
    for number, source in enumerate(sources):
        assert list(stream(source)) == ["a", "b"], number
    assert left == ["around"]
    assert list(stream(file)) == ["a\n", "b\n"]
    with stream(file) as lines:
        assert next(lines) == "a\n"
    assert [one.closed for one in opened] == [True, True]


class Methods:
    """Streams as methods."""

    def __init__(self) -> None:
        self.fails = 1

    def chunks(self, base: int) -> Iterator[int]:
        if self.fails:
            self.fails -= 1
            raise ConnectionError
        yield base
        yield base + 1

    retried = retry(base=0)(chunks)
    retried_sync = retry_sync(base=0)(chunks)
    for_llm = llm_retry(base=0)(chunks)

    @retry(base=0)
    async def asynchronous(self, base: int) -> AsyncIterator[int]:
        for chunk in self.chunks(base):
            yield chunk

    @llm_retry(base=0)
    async def asynchronous_for_llm(self, base: int) -> AsyncIterator[int]:
        for chunk in self.chunks(base):
            yield chunk

    @retry(base=0)
    @classmethod
    def of_class(cls, base: int) -> Iterator[int]:
        yield base

    @retry(base=0)
    @staticmethod
    async def static(base: int) -> AsyncIterator[int]:
        yield base


@pytest.mark.parametrize("name", ["retried", "retried_sync", "for_llm"])
def test_a_decorated_generator_function_is_one_and_retried(name: str) -> None:
    decorated = getattr(Methods, name)
    assert inspect.isgeneratorfunction(decorated)
    assert inspect.signature(decorated) == inspect.signature(Methods.chunks)
    assert (decorated.__name__, decorated.__qualname__) == ("chunks", "Methods.chunks")
    assert list(getattr(Methods(), name)(3)) == [3, 4]
    assert list(getattr(Methods(), name)(base=3)) == [3, 4]


@pytest.mark.parametrize("name", ["asynchronous", "asynchronous_for_llm"])
async def test_a_decorated_async_generator_function_is_one_and_retried(name: str) -> None:
    decorated = getattr(Methods, name)
    assert inspect.isasyncgenfunction(decorated)
    assert list(inspect.signature(decorated).parameters) == ["self", "base"]
    assert decorated.__name__ == name
    assert [chunk async for chunk in getattr(Methods(), name)(3)] == [3, 4]


async def test_class_and_static_methods_are_bound_as_ever() -> None:
    assert list(Methods.of_class(1)) == [1]
    assert [chunk async for chunk in Methods.static(1)] == [1]


def test_retry_call_takes_generator_functions_with_their_arguments() -> None:
    options = Options(base=0)
    assert list(retry_call(Methods().chunks, 3, retry_options=options)) == [3, 4]
    service = Upstream("service")
    assert list(service.retry_call(Methods().chunks, 3, retry_options=options)) == [3, 4]
    assert list(service.retry_sync(base=0)(Methods().chunks)(3)) == [3, 4]
    assert list(service.stream(ab)) == ["a", "b"]
    assert at_rest(service)


async def test_and_async_generator_functions() -> None:
    assert [chunk async for chunk in retry_call(Methods.asynchronous, Methods(), base=3)] == [3, 4]
    service = Upstream("service")
    assert [chunk async for chunk in service.retry_call(Methods.asynchronous, Methods(), 3)] == [3, 4]
    assert [chunk async for chunk in service.stream(ab_async)] == ["a", "b"]
    assert at_rest(service)


@pytest.mark.parametrize("options", [{}, {"fallback": ["x"]}], ids=["plain", "with a fallback"])
def test_the_value_that_a_generator_returns_is_kept(options: dict[str, Any]) -> None:
    returned: list[object] = []

    @retry_sync(**options)
    def source() -> Generator[int, None, str]:
        yield 1
        return "returned"

    def consumer() -> Generator[int]:
        returned.append((yield from source()))

    assert list(consumer()) == [1]
    assert returned == ["returned"]


# ---- nothing happens before the first chunk --------------------------------------------------------------------------


async def test_nothing_happens_before_the_first_chunk_is_asked_for(upstream: Upstream) -> None:
    opened: list[int] = []

    def source() -> Any:
        opened.append(1)
        return ab()

    async def source_async() -> AsyncIterator[str]:
        opened.append(1)
        yield "a"

    with record_events() as events:
        kept: list[Any] = [
            upstream.stream(source), upstream.stream(source_async), upstream.retry()(source_async)(),
            iter(upstream.stream(source)), aiter(upstream.stream(source_async)),
            upstream.stream(source_async, fallback=1),
        ]  # fmt: skip
        assert at_rest(upstream)
        with deadline(0.0):  # the call begins with its first chunk, so this binds nothing
            one = upstream.stream(source)
        assert list(one) == ["a", "b"]
        opened.clear()
        kept.clear()
        gc.collect()
        await asyncio.sleep(0)
        assert opened == []
    assert [event.reason for event in events.ends] == ["success"]


AGAIN = "has been read to its end, or closed: make a new one"


async def test_one_that_is_closed_before_it_began_is_not_an_empty_answer() -> None:
    source = Source(["a"])
    body, blocking = stream(source.asynchronous), stream(source.blocking)
    await body.aclose()
    blocking.close()
    with pytest.raises(TypeError, match=AGAIN):
        _ = [chunk async for chunk in body]
    with pytest.raises(TypeError, match=AGAIN):
        list(blocking)
    async with stream(source.asynchronous):
        pass
    with stream(source.blocking):
        pass
    assert source.opened == 0


async def test_an_exhausted_or_failed_stream_is_not_begun_again() -> None:
    source = Source(["a"])
    body = stream(source.asynchronous)
    assert [chunk async for chunk in body] == ["a"]
    with pytest.raises(TypeError, match=AGAIN):
        _ = [chunk async for chunk in body]
    failed = stream(Source([KeyError()]).blocking)
    with pytest.raises(KeyError):
        next(failed)
    with pytest.raises(TypeError, match=AGAIN):
        list(failed)
    assert source.opened == 1


def test_one_that_is_half_read_goes_on_where_it_was() -> None:
    body = stream(Source(["a", "b", "c"]).blocking)
    for chunk in body:
        assert chunk == "a"
        break
    assert list(body) == ["b", "c"]


class Whole:
    """As the answer of a client that was not told to stream."""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield "id", 1

    def model_dump(self) -> dict[str, Any]:
        return dict(self)


async def test_a_whole_answer_is_no_stream() -> None:
    async def ask() -> Any:
        return Whole()

    with pytest.raises(TypeError, match=r"Whole, which is one whole answer: pass stream=True"):
        next(stream(Whole))
    with pytest.raises(TypeError, match=r"Whole, which is one whole answer: pass stream=True"):
        await anext(stream(ask))


# ---- the clocks ------------------------------------------------------------------------------------------------------


def test_first_timeout_is_without_content_whatever_else_comes(play: Play) -> None:
    source = Source(["", Wait(0.6), "", Wait(0.6), "", Wait(0.6), "late"], ["", Wait(0.5), "a"])
    played = play(source, first_timeout=1.0, gap_timeout=None, backoff=[0.0])
    assert played.chunks == ["", "a"]
    assert played.now == pytest.approx(1.5 if play is play_async else 1.7, abs=0.02)  # the blocking one is not cut
    assert source.closed == 2


def test_gap_timeout_is_without_content_whatever_else_comes(play: Play) -> None:
    source = Source(["a", Wait(0.9), "b", *[Wait(0.4), ""] * 50, "c"])
    played = play(source, first_timeout=None, gap_timeout=1.0)
    assert played.chunks == ["a", "b", "", ""]
    assert isinstance(played.error, StreamInterrupted)
    assert isinstance(played.error.__cause__, TimeoutError)
    assert "no content for gap_timeout=1 s; 2 contents had come" in str(played.error.__cause__)
    assert (played.error.contents, played.error.delivered) == (2, ("a", "b"))
    assert played.now == pytest.approx(1.9 if play is play_async else 2.1, abs=0.02)


def test_the_consumers_own_time_is_no_gap(play: Play) -> None:
    source = Source(["a", Wait(0.9), "b", Wait(0.9), "", "c", "d"])
    played = play(source, gap_timeout=1.0, slow=20.0, deadline=None)
    assert (played.chunks, played.error) == (["a", "b", "", "c", "d"], None)
    waits = Source(["a", Wait(0.6), "", Wait(0.6), "", "late"])
    played = play(waits, gap_timeout=1.0, slow=20.0, deadline=None)
    assert played.chunks == ["a", ""]
    assert isinstance(played.error, StreamInterrupted)


def test_total_timeout_is_for_one_attempt_to_its_end(play: Play) -> None:
    source = Source([*["", Wait(0.4)] * 10, "late"], *[[Wait(0.4), "a", Wait(0.4), "", Wait(0.4), "", "b"]] * 2)
    played = play(source, total_timeout=1.0, backoff=[0.0])
    assert played.chunks == ["a", ""]
    assert isinstance(played.error, StreamInterrupted)
    assert "longer than total_timeout=1 s; 1 content had come" in str(played.error.__cause__)
    assert source.opened == 2


def test_the_consumers_time_counts_for_the_total_and_the_deadline(play: Play) -> None:
    for name, reason in (("total_timeout", TimeoutError), ("deadline", TimeoutError)):
        source = Source(["a", "b", "c"])
        played = play(source, slow=0.7, **{name: 1.0})
        assert (played.chunks, source.closed) == (["a", "b"], 1), name
        assert isinstance(played.error, StreamInterrupted)
        assert isinstance(played.error.__cause__, reason)


def test_the_deadline_ends_a_stream_before_and_after_its_first_content(play: Play) -> None:
    before = play(Source([*["", Wait(0.3)] * 100]), deadline=1.0, attempt_timeout=None)
    assert before.chunks == []
    assert isinstance(before.error, DeadlineExceeded)
    after = play(Source(["a", *["", Wait(0.3)] * 100]), deadline=1.0, attempt_timeout=None)
    assert isinstance(after.error, StreamInterrupted)
    assert isinstance(after.error.__cause__, TimeoutError)
    assert after.error.delivered == ("a",)
    for played in (before, after):
        assert 1.0 <= played.now <= (1.05 if play is play_async else 1.3)


@pytest.mark.parametrize("mode", ["raise", "restart", "buffer"])
@pytest.mark.parametrize("at", [0.4, 1e6])
async def test_an_ambient_deadline_binds_where_the_stream_is_iterated(mode: Any, at: float) -> None:
    source = Source(["a", Wait(at), ConnectionError()])
    body = stream(source.asynchronous, after_content=mode, max_attempts=None, backoff=[0.3], attempt_timeout=None)
    with FakeTime() as clock:
        # The blocking kind of block, which cuts nothing by itself.
        with pytest.raises((StreamInterrupted, DeadlineExceeded)), deadline(1.0):
            async for _ in body:
                pass
        assert clock.now <= 1.05
        assert source.closed == source.opened >= 1


@pytest.mark.parametrize("mode", ["raise", "restart", "buffer"])
def test_it_binds_a_blocking_stream_between_its_steps(mode: Any) -> None:
    source = Source(["a", Wait(0.4), "", ConnectionError()])
    body = stream(source.blocking, after_content=mode, max_attempts=None, backoff=[0.3])
    with FakeTime() as source.clock:
        with pytest.raises((StreamInterrupted, DeadlineExceeded)), deadline(1.0):
            for _ in body:
                pass
        assert source.clock.now <= 1.0 + 0.4
        assert source.opened == source.closed == (1 if mode == "raise" else 2)


def test_attempt_timeout_is_the_longest_time_without_content(play: Play) -> None:
    source = Source([Wait(0.9), "a", Wait(0.9), "b", Wait(0.9), "c"])
    assert play(source, attempt_timeout=1.0).chunks == ["a", "b", "c"]
    assert isinstance(play(Source([Wait(1.1), "a"]), attempt_timeout=1.0, max_attempts=1).error, Exception) is (
        play is play_async  # a blocking source can't be cut, and what has come is no failure
    )
    spared = play(Source([Wait(5.0), "a", Wait(0.5), "b"]), attempt_timeout=1.0, first_timeout=None)
    assert spared.chunks == ["a", "b"]


def test_what_is_left_of_the_time_is_told_inside_the_source(play: Play) -> None:
    source = Source(["", Wait(0.5), "", "a", Wait(0.25), "", "b", Wait(0.0)])
    assert play(source, first_timeout=2.0, gap_timeout=1.0, slow=0.5).error is None
    assert source.limits == pytest.approx([2.0, 2.0, 1.5, 1.5, 1.0, 0.75, 0.75, 1.0], abs=0.02)


# ---- what came may stay, or must go ----------------------------------------------------------------------------------


def test_a_failure_before_the_first_content_is_retried_unseen(play: Play) -> None:
    source = Source([ApiError(503)], ["", ConnectionError()], ["", "", "a", "", "b"])
    played = play(source, backoff=[1.0, 2.0])
    assert (played.chunks, played.error, played.now) == (["", "", "a", "", "b"], None, 3.0)
    assert (source.opened, source.closed) == (3, 3)


@pytest.mark.parametrize("options", [{}, {"reraise": True}, {"max_attempts": 1}])
def test_after_it_the_failure_arrives_with_what_had_come(play: Play, options: dict[str, Any]) -> None:
    failure = ConnectionError("mine")
    source = Source(["a", "b", failure])
    played = play(source, **options)
    assert isinstance(played.error, StreamInterrupted)
    assert played.error.__cause__ is failure
    assert (played.chunks, played.now, source.opened) == (["a", "b"], 0.0, 1)


def test_an_answer_that_comes_anew_begins_behind_a_mark(play: Play) -> None:
    source = Source(["", "a", ConnectionError()], [ConnectionError()], ["", "b", "", ConnectionError()], ["c", "d"])
    played = play(source, after_content="restart", backoff=[0.0])
    assert played.chunks == ["", "a", Restarted(3, 1), "", "b", "", Restarted(4, 1), "c", "d"]
    given_up = play(Source(["a", ConnectionError()]), after_content="restart", backoff=[0.0], max_attempts=2)
    assert given_up.chunks == ["a", Restarted(2, 1), "a"]
    assert isinstance(given_up.error, StreamInterrupted)
    assert isinstance(given_up.error.__cause__, RetriesExhausted)


def test_an_answer_that_is_held_back_comes_whole_or_not_at_all(play: Play) -> None:
    source = Source(["", "a", ConnectionError()], ["", "b", "c"])
    assert play(source, after_content="buffer", backoff=[0.0]).chunks == ["", "b", "c"]
    given_up = play(Source(["a", ConnectionError()]), after_content="buffer", backoff=[0.0], max_attempts=2)
    assert given_up.chunks == []
    assert isinstance(given_up.error, RetriesExhausted)
    too_long = play(Source(["a", "b", "c", ConnectionError()]), after_content="buffer", hold_at_most=2)
    assert too_long.chunks == ["a", "b", "c"]
    assert isinstance(too_long.error, StreamInterrupted)


def test_one_that_goes_on_gets_what_was_delivered_and_the_arguments() -> None:
    got: list[Any] = []

    def go_on(delivered: list[str], *args: Any, **kwargs: Any) -> Iterator[str]:
        got.append((list(delivered), args, kwargs))
        delivered.clear()  # it is the callee's own list
        yield ""
        yield "c"
        if len(got) == 1:
            raise ConnectionError
        yield "d"

    @retry_sync(resume=go_on, base=0)
    def source(*_: Any, **__: Any) -> Iterator[str]:
        yield ""
        yield "a"
        yield "b"
        raise ConnectionError

    assert list(source(1, key=2)) == ["", "a", "b", "c", "c", "d"]
    assert got == [(["a", "b"], (1,), {"key": 2}), (["a", "b", "c"], (1,), {"key": 2})]


def test_reraise_gives_the_last_error_itself_before_any_content(play: Play) -> None:
    failure = ConnectionError()
    played = play(Source([failure]), reraise=True, max_attempts=2)
    assert played.error is failure


def test_what_can_not_pass_leaves_at_once(play: Play) -> None:
    failure = ApiError(401)
    source = Source(["", failure])
    assert play(source).error is failure
    assert (source.opened, source.closed) == (1, 1)


# ---- wrong use is told with the correction ---------------------------------------------------------------------------


def test_an_async_source_is_not_iterated_with_for() -> None:
    async def opening() -> AsyncIterator[str]:
        return ab_async()

    @asynccontextmanager
    async def around() -> AsyncIterator[AsyncIterator[str]]:
        yield ab_async()

    with pytest.raises(TypeError, match="iterated with `async for`"):
        next(stream(ab_async))
    with pytest.raises(TypeError, match="iterate the stream with `async for`"):
        next(stream(opening))
    manager = around()
    with pytest.raises(TypeError, match="which is no stream"):
        next(stream(lambda: manager))


async def test_a_blocking_source_is_not_iterated_with_async_for() -> None:
    source = Source(["a"])
    with pytest.raises(TypeError, match="iterated with `for`, not `async for`"):
        await anext(stream(source.blocking))
    with pytest.raises(TypeError, match="list, which is iterated with `for`"):
        await anext(stream(lambda: ["a"]))


@pytest.mark.parametrize(("given", "name"), [("text", "str"), (5, "int"), (None, "NoneType"), ({"a": 1}, "dict")])
async def test_what_is_no_stream_is_told_and_not_repeated(given: object, name: str) -> None:
    calls: list[int] = []

    def source() -> Any:
        calls.append(1)
        return given

    async def source_async() -> Any:
        calls.append(1)
        return given

    text = f"gave {name}, which is no stream; for a call with one result use retry"
    with pytest.raises(TypeError, match=text):
        next(stream(source, retryable=lambda _: True))
    with pytest.raises(TypeError, match=text):
        await anext(stream(source_async, retryable=lambda _: True))
    assert len(calls) == 2


async def test_a_stream_is_iterated_in_one_way() -> None:
    blocking = stream(ab)
    assert next(blocking) == "a"
    with pytest.raises(TypeError, match="iterated with `for` already"):
        await anext(blocking)
    with pytest.raises(TypeError, match=r"call its close\(\)"):
        await blocking.aclose()
    body = stream(ab_async)
    assert await anext(body) == "a"
    with pytest.raises(TypeError, match="iterated with `async for` already"):
        next(body)
    with pytest.raises(TypeError, match=r"await its aclose\(\)"):
        body.close()
    assert [chunk async for chunk in body] == ["b"]
    assert list(blocking) == ["b"]


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"retry_if_result": bool}, ValueError, "say with events= what is a failure"),
        ({"resume": iter, "after_content": "restart"}, ValueError, "choose one"),
        ({"after_content": "resume"}, ValueError, "needs resume="),
        ({"resume": 5}, ValueError, "resume must be a function"),
        ({"after_content": "replay"}, ValueError, "'raise' or 'restart' or 'buffer' or 'resume', not 'replay'"),
        ({"events": "gemini"}, ValueError, "events must be 'openai', 'anthropic' or StreamEvents"),
        ({"events": StreamEvents(content=asyncio.sleep)}, ValueError, "content must be a plain function"),
        ({"gap_timeout": 0}, ValueError, "gap_timeout"),
        ({"first_timeout": -1}, ValueError, "first_timeout"),
        ({"total_timeout": "x"}, (TypeError, ValueError), "total_timeout"),
        ({"hold_at_most": 0}, ValueError, "hold_at_most"),
        ({"gap": 5}, TypeError, "no option gap="),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(options: dict[str, Any], kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        stream(ab, **options)
    if "retry_if_result" not in options:
        with pytest.raises(kind, match=text):
            retry(**options)
    with pytest.raises(kind, match=text):
        retry(**options)(ab)


def test_options_of_streams_are_refused_for_what_is_none() -> None:
    async def fetch() -> None: ...

    for options in ({"gap_timeout": 5}, {"after_content": "restart"}, {"events": "openai"}, {"resume": iter}):
        with pytest.raises(TypeError, match="is for streams: use stream"):
            retry(**options)(fetch)
        with pytest.raises(TypeError, match="is for streams: use stream"):
            retry_sync(lambda: 1, **options)


def test_a_generator_function_is_not_called_as_if_it_had_a_result() -> None:
    with pytest.raises(TypeError, match=r"for chunk in stream\(ab, ...\)"):
        retry_sync(ab)
    with pytest.raises(TypeError, match=r"async for chunk in stream\(ab_async, ...\)"):
        retry(ab_async)  # type: ignore[arg-type, unused-coroutine]
    with pytest.raises(TypeError, match="use retry"):
        retry_sync()(ab_async)
    with pytest.raises(TypeError, match=r"stream\(lambda: Methods.chunks\(...\)\)"):
        stream(Methods.chunks)  # type: ignore[arg-type]
    coroutine = asyncio.sleep(0)
    with pytest.raises(TypeError, match="has already been made"):
        stream(coroutine)  # type: ignore[call-overload]


async def test_nothing_can_be_sent_into_it() -> None:
    source = Source(["a", "b"])
    generator: Any = retry()(source.asynchronous)()
    assert await generator.asend(None) == "a"
    with pytest.raises(TypeError, match="pass it as an argument"):
        await generator.asend(5)
    blocking: Any = retry_sync()(source.blocking)()
    assert blocking.send(None) == "a"
    with pytest.raises(TypeError, match="pass it as an argument"):
        blocking.send(5)
    assert source.closed == 2


# ---- its end ---------------------------------------------------------------------------------------------------------


class Mine(Exception):
    """The consumer's own."""


@pytest.mark.parametrize("how", ["break", "close", "with", "raise", "throw", "forget", "exhaust", "fail"])
def test_whatever_ends_a_blocking_stream_closes_its_source_and_frees_its_place(how: str, upstream: Upstream) -> None:
    source = Source(["a", "b"] if how != "fail" else ["a", ApiError(401)])
    with record_events() as events:
        body: Any = upstream.retry_sync()(source.blocking)() if how == "throw" else upstream.stream(source.blocking)
        assert next(body) == "a"
        assert upstream.snapshot().in_flight == 1
        if how == "break":
            for _ in body:
                break
            body.close()
        elif how == "close":
            body.close()
        elif how in ("with", "raise"):
            with contextlib.suppress(Mine), body:
                if how == "raise":
                    raise Mine
        elif how == "throw":
            with pytest.raises(Mine):
                body.throw(Mine())
        elif how == "exhaust":
            assert list(body) == ["b"]
        elif how == "fail":
            with pytest.raises(StreamInterrupted):
                next(body)
        del body
    assert (source.opened, source.closed) == (1, 1)
    expected = {"exhaust": "success", "fail": "unsafe"}.get(how, "closed")
    assert [event.reason for event in events.ends] == ["permanent" if how == "fail" else expected]
    assert [event.outcome for event in events.attempts] == ["failure" if how == "fail" else "success"]
    assert upstream.snapshot().successes == (how != "fail")


@pytest.mark.parametrize("how", ["break", "aclose", "with", "raise", "throw", "forget", "exhaust", "fail", "cancel"])
def test_whatever_ends_an_async_stream_closes_its_source_and_frees_its_place(
    how: str, run: Run, upstream: Upstream
) -> None:
    async def main() -> None:
        source = Source(["a", "b"] if how != "fail" else ["a", ApiError(401)])
        with record_events() as events:
            decorated = how == "throw"
            body: Any = upstream.retry()(source.asynchronous)() if decorated else upstream.stream(source.asynchronous)
            assert await anext(body) == "a"
            assert upstream.snapshot().in_flight == 1
            if how == "break":
                async with body:
                    async for _ in body:
                        break
            elif how == "aclose":
                await body.aclose()
            elif how in ("with", "raise"):
                with contextlib.suppress(Mine):
                    async with body:
                        if how == "raise":
                            raise Mine
            elif how == "throw":
                with pytest.raises(Mine):
                    await body.athrow(Mine())
            elif how == "exhaust":
                assert [chunk async for chunk in body] == ["b"]
            elif how == "fail":
                with pytest.raises(StreamInterrupted):
                    await anext(body)
            elif how == "cancel":

                async def consumer(body: Any) -> None:
                    async with body:
                        await asyncio.sleep(60)

                task = asyncio.create_task(consumer(body))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            del body
            gc.collect()
            for _ in range(5):  # one that was forgotten is closed by a task of the loop's own
                await asyncio.sleep(0)
        assert (source.opened, source.closed) == (1, 1)
        expected = {"exhaust": "success", "fail": "permanent"}.get(how, "closed")
        assert [event.reason for event in events.ends] == [expected]
        assert upstream.snapshot().successes == (how != "fail")
        assert at_rest(upstream)

    run(main())


def test_a_stream_that_the_loop_left_half_read_gives_its_place_back(run: Run, upstream: Upstream) -> None:
    left: list[Any] = []
    source = Source(["a", "b"])

    async def main() -> None:
        left.append(upstream.stream(source.asynchronous))
        await anext(left[0])

    run(main())  # the loop's end closes all async generators
    assert at_rest(upstream)
    assert source.closed == 1


def test_one_whose_loop_is_gone_gives_its_place_back_with_its_last_reference(upstream: Upstream) -> None:
    loop = asyncio.new_event_loop()
    body = upstream.stream(ab_async)
    assert loop.run_until_complete(anext(body)) == "a"
    loop.close()
    assert upstream.snapshot().in_flight == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the source's own generator is never closed is not ours to tell
        del body
        gc.collect()
    assert at_rest(upstream)


@pytest.mark.parametrize("how", ["exhaust", "close", "forget", "fail", "cancel"])
def test_under_trio_too(how: str, upstream: Upstream) -> None:
    closed: list[str] = []

    async def source() -> AsyncIterator[str]:
        try:
            await trio.sleep(0)
            yield "a"
            await trio.sleep(60 if how == "cancel" else 0)
            if how == "fail":
                raise ConnectionError
            yield "b"
        finally:
            closed.append("source")

    async def main() -> None:
        body = upstream.stream(source)
        assert await anext(body) == "a"
        assert upstream.snapshot().in_flight == 1
        if how == "exhaust":
            assert [chunk async for chunk in body] == ["b"]
        elif how == "close":
            await body.aclose()
        elif how == "fail":
            with pytest.raises(StreamInterrupted):
                await anext(body)
        elif how == "cancel":
            with trio.move_on_after(0.01) as scope:
                await anext(body)
            assert scope.cancelled_caught
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # trio's own, about a generator that was forgotten
            del body
            gc.collect()
            await trio.sleep(0.01)
        assert at_rest(upstream)
        assert closed == ["source"]
        assert current.get() is None

    trio.run(main)
    upstream.reset()


def test_errors_of_the_close_are_only_logged(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Source):
        def blocking(self, *arguments: Any) -> Any:
            return Wrapped(super().blocking(*arguments))

        def asynchronous(self, *arguments: Any) -> Any:
            return Wrapped(super().asynchronous(*arguments))

    class Wrapped:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __iter__(self) -> Any:
            return self.inner

        def __aiter__(self) -> Any:
            return self.inner

        def close(self) -> None:
            raise ValueError("a secret")

        async def aclose(self) -> None:
            raise ValueError("a secret")

    with caplog.at_level(logging.ERROR, "forbear"):
        played = play(Broken([ConnectionError()], ["a"]), backoff=[0.0])
        assert (played.chunks, played.error) == (["a"], None)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert all("the close of a stream raised ValueError" in record.message for record in caplog.records)
    assert "secret" not in caplog.text


async def test_a_source_that_never_ends_its_close_holds_nobody_up_for_long() -> None:
    class Hanging:
        def __init__(self) -> None:
            self.left = 1

        def __aiter__(self) -> Hanging:
            return self

        async def __anext__(self) -> str:
            return "a"

        async def aclose(self) -> None:
            await asyncio.sleep(1e6)

    with FakeTime() as clock:
        async with stream(Hanging) as body:
            assert await anext(body) == "a"
        assert clock.now <= 5.01


# ---- what is around whom ---------------------------------------------------------------------------------------------


def test_the_source_runs_in_its_attempt_and_all_attempts_have_one_key(play: Play) -> None:
    seen: list[tuple[int, str]] = []

    def look() -> None:
        attempt = current_attempt()
        assert attempt is not None
        seen.append((attempt.number, attempt.idempotency_key))

    source = Source([look, "", look, ConnectionError()], [look, "a", look, "b", look])
    assert play(source, backoff=[0.0]).chunks == ["a", "b"]
    assert [number for number, _ in seen] == [1, 1, 2, 2, 2]
    assert len({key for _, key in seen}) == 1
    source = Source([look, "a"])
    seen.clear()
    play(source)
    play(source)
    assert len({key for _, key in seen}) == 2


async def test_nothing_of_the_stream_is_around_its_consumer(upstream: Upstream) -> None:
    service = Upstream("service", max_concurrency=2, breaker=CircuitBreaker(1, trials=1))
    with FakeTime(), deadline(1000.0) as outer:
        assert outer is not None
        left = current_deadline()
        assert left is not None
        before = current.get()
        async for _ in service.stream(ab_async, deadline=5.0):
            assert current.get() is before
            assert current_attempt() is None
            assert await service.retry(probe, deadline=2000.0) == (1, 2)
        for _ in service.stream(ab, deadline=5.0):
            assert current.get() is before
            assert current_attempt() is None
            assert service.retry_sync(lambda: service.snapshot().in_flight) == 2
            task = asyncio.create_task(deep())
            assert await task is None
        assert at_rest(service)


async def probe() -> tuple[int, int]:
    attempt = current_attempt()
    assert attempt is not None
    assert attempt.deadline is not None
    assert attempt.deadline.remaining() > 5.0  # not that of the stream
    return attempt.number, 2


async def deep() -> object:
    await asyncio.sleep(0)
    return current_attempt()


async def test_a_call_of_the_consumers_waits_for_a_place_as_any_other(upstream: Upstream) -> None:
    with FakeTime() as clock:
        async with upstream.stream(ab_async, deadline=None) as body:
            async for _ in body:
                with pytest.raises(DeadlineExceeded):
                    await upstream.retry(deep, deadline=3.0)
                break
        assert clock.now == pytest.approx(3.0, abs=0.05)
        assert await upstream.retry(deep, deadline=3.0) is not None


async def test_a_source_may_call_the_service_that_it_streams_from(upstream: Upstream) -> None:
    async def nested() -> AsyncIterator[str]:
        async for chunk in upstream.stream(ab_async, deadline=2.0):
            yield chunk
        assert await upstream.retry(deep) is not None

    def nested_sync() -> Iterator[str]:
        yield from upstream.stream(ab, deadline=2.0)

    assert [chunk async for chunk in upstream.stream(nested)] == ["a", "b"]
    assert list(upstream.stream(nested_sync)) == ["a", "b"]


def test_a_breaker_around_the_consumer_is_not_taken_for_that_of_the_stream() -> None:
    breaker = CircuitBreaker(1, 10.0, trials=1)
    with FakeTime() as clock:
        half_open(breaker, clock)
        for _ in stream(ab, breaker=breaker):
            with pytest.raises(CircuitOpenError):  # the stream's is the only trial that is let through
                retry_sync(lambda: 1, breaker=breaker)
        assert breaker.state == "closed"


def half_open(breaker: CircuitBreaker, clock: FakeTime) -> None:
    breaker.enter().leave("failure")
    clock.advance(breaker.retry_in)
    assert breaker.state == "half_open"


@pytest.mark.parametrize("how", ["exhaust", "leave", "fail before", "fail after", "forget"])
def test_a_trial_of_a_half_open_breaker_comes_back_however_it_ends(how: str) -> None:
    breaker = CircuitBreaker(1, 10.0, trials=1)
    script: dict[str, list[Any]] = {"fail before": [ConnectionError()], "fail after": ["a", ConnectionError()]}
    source = Source(script.get(how, ["a", "b"]))
    with FakeTime() as clock:
        half_open(breaker, clock)
        body = stream(source.blocking, breaker=breaker, max_attempts=1)
        if how == "fail before":
            with pytest.raises(RetriesExhausted):
                next(body)
        else:
            assert next(body) == "a"
            assert breaker.snapshot().trials == 1
        if how == "fail after":
            with pytest.raises(StreamInterrupted):
                next(body)
        elif how == "exhaust":
            assert list(body) == ["b"]
        elif how == "leave":
            body.close()
        del body
        assert breaker.snapshot().trials == 0
        assert breaker.state == ("open" if how.startswith("fail") else "closed")


@pytest.mark.parametrize("how", ["exhaust", "leave", "fail before", "fail after", "forget", "cancel", "late"])
async def test_an_async_trial_too(how: str) -> None:
    breaker = CircuitBreaker(1, 10.0, trials=1)
    script: dict[str, list[Any]] = {
        "fail before": [ConnectionError()],
        "fail after": ["a", ConnectionError()],
        "cancel": ["a", Wait(1e6)],
        "late": ["a", Wait(1e6)],
    }
    source = Source(script.get(how, ["a", "b"]))
    with FakeTime() as clock:
        half_open(breaker, clock)
        body = stream(source.asynchronous, breaker=breaker, max_attempts=1, deadline=None, gap_timeout=3.0)
        if how == "fail before":
            with pytest.raises(RetriesExhausted):
                await anext(body)
        else:
            assert await anext(body) == "a"
            assert breaker.snapshot().trials == 1
        if how in ("fail after", "late"):
            with pytest.raises(StreamInterrupted):
                await anext(body)
        elif how == "exhaust":
            assert [chunk async for chunk in body] == ["b"]
        elif how == "leave":
            await body.aclose()
        elif how == "cancel":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await anext(body)
        del body
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)
        assert breaker.snapshot().trials == 0
        expected = {"fail before": "open", "fail after": "open", "late": "open", "cancel": "half_open"}
        assert breaker.state == expected.get(how, "closed")


def test_an_open_circuit_ends_it_before_anything_is_opened_or_after_what_came(play: Play) -> None:
    breaker = CircuitBreaker(1, 10.0)
    source = Source(["a", ConnectionError()])
    played = play(source, breaker=breaker, after_content="restart")
    assert played.chunks == ["a"]
    assert isinstance(played.error, StreamInterrupted)
    assert isinstance(played.error.__cause__, CircuitOpenError)
    breaker.force_open()
    refused = play(source, breaker=breaker)
    assert isinstance(refused.error, CircuitOpenError)
    assert source.opened == 1


class Chunk:
    """A chunk with a usage, as the last one of many services."""

    def __init__(self, tokens: int | None = None) -> None:
        self.usage = None if tokens is None else {"total_tokens": tokens}


@pytest.mark.parametrize("take", [None, 3])
def test_the_usage_of_the_last_chunk_settles_what_was_reserved(play: Play, take: int | None) -> None:
    service = Upstream("service", tokens_per_minute=6000, burst=6000)
    source = Source([Chunk(), Chunk(10), Chunk(300), Chunk(), Chunk()])
    left: list[float | None] = []
    played = play(
        source, upstream=service, tokens=1000, take=take, after=lambda: left.append(service.snapshot().tokens_left)
    )
    assert (played.error, left) == (None, [5700.0])


def test_each_attempt_stands_in_line_and_pays(play: Play) -> None:
    service = Upstream("service", requests_per_minute=60, burst=1)
    source = Source([ConnectionError()], ["a"])
    assert play(source, upstream=service, backoff=[0.0]).chunks == ["a"]
    snapshot = service.snapshot()
    assert (snapshot.successes, sum(snapshot.failures.values())) == (1, 1)
    assert at_rest(service)


# ---- who is told -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "options", "attempts", "end"),
    [
        ([["a"]], {}, ["success"], "success"),
        ([[ConnectionError()], ["a"]], {}, ["failure", "success"], "success"),
        ([["a", ConnectionError()]], {}, ["failure"], "interrupted"),
        ([["a", ConnectionError()], ["b"]], {"after_content": "restart"}, ["failure", "success"], "success"),
        ([[ConnectionError()]], {"max_attempts": 2}, ["failure", "failure"], "max_attempts"),
        ([[ApiError(401)]], {}, ["failure"], "permanent"),
        ([["a", ConnectionError()]], {"idempotent": False}, ["failure"], "unsafe"),
        ([[ConnectionError()]], {"deadline": 1.0, "backoff": [3.0]}, ["failure"], "deadline"),
        ([["a", "b"]], {"take": 1}, ["success"], "closed"),
        ([[ConnectionError()], ["a", "b"]], {"take": 1}, ["failure", "success"], "closed"),
    ],
)
def test_it_is_told_in_order_and_once(
    play: Play, script: list[list[Any]], options: dict[str, Any], attempts: list[str], end: str
) -> None:
    with record_events() as events:
        play(Source(*script), **{"backoff": [0.0], **options})
    kinds = [type(event).__name__ for event in events]
    between = ["AttemptEnded", "RetryState"] * (len(attempts) - 1)
    assert kinds == [*between, "AttemptEnded", "CallEnded"]
    assert [event.outcome for event in events.attempts] == attempts
    assert [event.reason for event in events.ends] == [end]
    assert events.ends[0].attempts == len(attempts)


def test_on_retry_is_told_before_each_wait(play: Play) -> None:
    told: list[tuple[int, float]] = []

    def hook(state: Any) -> None:
        told.append((state.attempt, state.delay))
        assert source.closed == state.attempt  # what failed is closed before the wait

    source = Source([ConnectionError()], ["", ConnectionError()], ["a"])
    assert play(source, backoff=[1.0, 2.0], on_retry=hook).chunks == ["a"]
    assert told == [(1, 1.0), (2, 2.0)]


async def test_an_async_on_retry_is_awaited() -> None:
    told: list[int] = []

    async def hook(state: Any) -> None:
        await asyncio.sleep(0)
        told.append(state.attempt)

    source = Source([ConnectionError()], ["a"])
    assert [chunk async for chunk in stream(source.asynchronous, base=0, on_retry=hook)] == ["a"]
    assert told == [1]


# ---- what answers in its place ---------------------------------------------------------------------------------------


BACKUP = retry(base=0)(ab)
BACKUP_ASYNC = retry(base=0)(ab_async)


@pytest.mark.parametrize(
    "fallback",
    [
        "ab-", ["a", "b"], lambda error: ["a", "b"], lambda error: iter("ab"), lambda error: (c for c in "ab"),
        lambda error: ab(), lambda error: stream(ab), BACKUP,
    ],
    ids=["value", "list", "function", "iterator", "generator", "source", "stream", "guarded"],
)  # fmt: skip
def test_a_fallback_takes_the_place_of_a_blocking_stream(fallback: Any) -> None:
    chunks = list(stream(Source(["", ConnectionError()]).blocking, max_attempts=2, base=0, fallback=fallback))
    assert chunks == (["ab-"] if fallback == "ab-" else ["a", "b"])


@pytest.mark.parametrize(
    "fallback",
    [
        "ab-", ["a", "b"], lambda error: ["a", "b"], lambda error: ab_async(), lambda error: stream(ab_async),
        BACKUP_ASYNC, lambda error: asyncio.sleep(0, ["a", "b"]), lambda error: asyncio.sleep(0, ab_async()),
    ],
    ids=["value", "list", "function", "generator", "stream", "guarded", "coroutine", "coroutine of a generator"],
)  # fmt: skip
async def test_a_fallback_takes_the_place_of_an_async_stream(fallback: Any) -> None:
    source = Source(["", ConnectionError()])
    body = stream(source.asynchronous, max_attempts=2, base=0, fallback=fallback)
    assert [chunk async for chunk in body] == (["ab-"] if fallback == "ab-" else ["a", "b"])
    assert source.closed == 2


def test_it_answers_nothing_after_content_and_no_error_of_the_consumers(play: Play) -> None:
    played = play(Source(["a", ConnectionError()]), fallback=["x"])
    assert played.chunks == ["a"]
    assert isinstance(played.error, StreamInterrupted)
    asked = play(Source(["a", ConnectionError()]), fallback=["x"], fallback_on=Exception)
    assert (asked.chunks, type(asked.error)) == (["a"], StreamInterrupted)
    failure = ApiError(401)
    assert play(Source([failure]), fallback=["x"]).error is failure
    assert play(Source([ApiError(401)]), fallback=["x"], fallback_on=ApiError).chunks == ["x"]
    assert play(Source(["a", "b"]), fallback=["x"], take=1).chunks == ["a"]

    @retry_sync(fallback=["x"])
    def source() -> Iterator[str]:
        yield "a"

    generator: Any = source()
    next(generator)
    with pytest.raises(ConnectionError):
        generator.throw(ConnectionError())


def test_it_gets_the_arguments_where_forbear_has_made_it() -> None:
    @retry_sync
    def never() -> None: ...

    @retry(base=0)
    def other(*args: Any, **kwargs: Any) -> Iterator[Any]:
        yield args, kwargs

    @retry_sync(base=0, max_attempts=2, fallback=other)
    def source(*_: Any, **__: Any) -> Iterator[Any]:
        raise ConnectionError
        yield

    assert list(source(1, key=2)) == [((1,), {"key": 2})]


async def test_it_has_what_is_left_of_the_deadline_and_is_closed() -> None:
    instead = Source([Wait(0.5), "x", Wait(0.5), "y", Wait(0.5), "z"])
    instead.note = lambda: None  # type: ignore[method-assign]  # no attempt is around it

    def fallback(_: Exception) -> Any:
        return instead.asynchronous()

    with FakeTime() as clock:
        chunks: list[Any] = []
        failing = Source([Wait(0.5), ConnectionError()])
        with pytest.raises(StreamInterrupted) as info:
            async for chunk in stream(failing.asynchronous, max_attempts=1, deadline=1.8, fallback=fallback):
                chunks.append(chunk)
                assert current_deadline() is None
        assert isinstance(info.value.__cause__, DeadlineExceeded)
        assert isinstance(info.value.__cause__.last_error, ConnectionError)
        assert (chunks, info.value.delivered) == (["x", "y"], ("x", "y"))
        assert clock.now == pytest.approx(1.8, abs=0.05)
        async with stream(failing.asynchronous, max_attempts=1, fallback=fallback) as body:
            assert await anext(body) == "x"
    assert instead.closed == 2


# ---- sources that nobody thought of ----------------------------------------------------------------------------------


class Odd:
    """An iterator whose methods are given."""

    def __init__(self, **does: Callable[[], Any]) -> None:
        self.does = does
        self.closed = 0

    def __iter__(self) -> Odd:
        self.does.get("iter", lambda: None)()
        return self

    def __next__(self) -> Any:
        return self.does.get("next", stop)()

    def __aiter__(self) -> Odd:
        self.does.get("iter", lambda: None)()
        return self

    async def __anext__(self) -> Any:
        try:
            return self.does.get("next", stop)()
        except StopIteration:
            raise StopAsyncIteration from None

    def close(self) -> None:
        self.closed += 1


def stop() -> None:
    raise StopIteration


def raising(*errors: BaseException, then: Any = None) -> Callable[[], Any]:
    left = list(errors)

    def call() -> Any:
        if left:
            raise left.pop(0)
        if then is None:
            raise StopIteration
        return then

    return call


async def both_ways(make: Callable[[], Any], **options: Any) -> list[Any]:
    """The outcomes of a stream, blocking and async: its chunks, or its error."""
    ended: list[Any] = []
    options = {"base": 0, **options}

    def blocking() -> None:
        try:
            ended.append(list(stream(make, **options)))
        except BaseException as error:
            ended.append(error)

    await asyncio.to_thread(blocking)  # where its waits stop no loop
    try:
        ended.append([chunk async for chunk in stream(make, **options)])
    except BaseException as error:
        ended.append(error)
    return ended


async def test_a_source_that_fails_to_iterate_is_closed_and_tried_again() -> None:
    made: list[Odd] = []

    def source() -> Odd:
        fails = raising(ConnectionError(), then=1) if len(made) % 2 == 0 else None
        made.append(Odd(iter=fails) if fails else Odd())
        return made[-1]

    assert await both_ways(source) == [[], []]
    assert [one.closed for one in made] == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
async def test_an_end_that_is_raised_where_none_can_be_is_a_mistake_and_no_end(kind: type[Exception]) -> None:
    def source() -> Any:
        raise kind

    ended = await both_ways(source)
    assert [isinstance(error, (RuntimeError, kind)) for error in ended] == [True, True]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_what_is_no_failure_leaves_at_once_and_closes(kind: type[BaseException]) -> None:
    made: list[Odd] = []

    def source() -> Odd:
        made.append(Odd(next=raising(kind(), then="late")))
        return made[-1]

    body = stream(source, base=0, retryable=lambda _: True)
    with pytest.raises(kind):
        next(body)
    assert [one.closed for one in made] == [1]


async def test_a_group_with_a_cancellation_in_it_is_no_failure() -> None:
    calls: list[int] = []

    def source() -> Odd:
        calls.append(1)
        return Odd(next=raising(BaseExceptionGroup("both", [asyncio.CancelledError(), ConnectionError()])))

    ended = await both_ways(source, retryable=lambda _: True)
    assert [type(error) for error in ended] == [BaseExceptionGroup, BaseExceptionGroup]
    assert len(calls) == 2


async def test_a_group_of_failures_is_retried_as_any_other() -> None:
    left = [ExceptionGroup("both", [ConnectionError(), ApiError(503)])] * 2

    def source() -> Odd:
        return Odd(next=raising(left.pop()) if left else stop)

    assert await both_ways(source, max_attempts=2) == [[], []] or left == []
    assert left == []


async def test_a_source_that_yields_on_when_it_should_end_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def stubborn() -> Iterator[str]:
        while True:
            try:
                yield "a"
            except GeneratorExit:
                yield "still here"
                return

    async def stubborn_async() -> AsyncIterator[str]:
        try:
            yield "a"
        except GeneratorExit:
            yield "still here"

    with stream(stubborn) as body:
        assert next(body) == "a"
    async with stream(stubborn_async) as body_async:
        assert await anext(body_async) == "a"
    assert [record.message.split(" at ")[0] for record in caplog.records] == [
        "the close of a stream raised RuntimeError"
    ] * 2


async def test_two_who_ask_at_once_are_told() -> None:
    source = Source(["a", Wait(0.01), "b"])
    async with stream(source.asynchronous) as body:
        assert await anext(body) == "a"
        ended = await asyncio.gather(anext(body), anext(body), return_exceptions=True)
        assert ended[0] == "b"
        assert isinstance(ended[1], RuntimeError)


async def test_one_that_is_closed_while_somebody_waits_for_it_is_told() -> None:
    source = Source([Wait(60), "a"])
    body = stream(source.asynchronous)
    task = asyncio.create_task(anext(body))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="already running"):
        await body.aclose()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert source.closed == 1


def test_a_generator_that_runs_already_is_no_stream() -> None:
    def source() -> Iterator[Any]:
        yield list(body)

    body = stream(source)
    with pytest.raises(ValueError, match="already executing"):
        next(body)


async def test_a_source_that_swallows_its_timeout_is_late_all_the_same() -> None:
    calls: list[int] = []

    async def source() -> AsyncIterator[str]:
        calls.append(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            yield "too late"

    with pytest.raises(RetriesExhausted) as caught:
        await anext(stream(source, first_timeout=0.01, base=0, max_attempts=2))
    assert isinstance(caught.value.last_error, TimeoutError)
    assert len(calls) == 2
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


def test_a_blocking_stream_may_wander_between_threads() -> None:
    service = Upstream("service", max_concurrency=1, breaker=CircuitBreaker(5))
    source = Source(["a", "b", ConnectionError()], ["c", "d"])
    body = service.stream(source.blocking, after_content="restart", base=0, budget=None)
    chunks: list[Any] = []

    def one() -> None:
        with contextlib.suppress(StopIteration):
            chunks.append(next(body))
        assert current_attempt() is None

    for _ in range(6):
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
    assert chunks == ["a", "b", Restarted(2, 2), "c", "d"]
    assert at_rest(service)


async def test_an_async_stream_may_wander_between_tasks() -> None:
    source = Source([ConnectionError()], ["a", "b", "c"])
    body = stream(source.asynchronous, base=0)

    async def one() -> Any:
        chunk = await anext(body)
        assert current_attempt() is None
        return chunk

    assert [await asyncio.create_task(one()) for _ in range(3)] == ["a", "b", "c"]
    await body.aclose()


def test_context_variables_of_consumer_and_source_are_left_alone() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    def source() -> Iterator[int]:
        for _ in range(3):
            yield variable.get()

    chunks = []
    for number, chunk in enumerate(stream(source), 1):
        chunks.append(chunk)
        variable.set(number)
    assert chunks == [0, 1, 2]

    body = stream(source)
    seen = [contextvars.copy_context().run(next, body) for _ in range(2)]
    assert seen == [3, 3]


def test_the_same_source_twice_is_no_second_attempt() -> None:
    def broken() -> Iterator[str]:
        yield ""
        raise ConnectionError

    once = broken()
    with pytest.raises((TypeError, RetriesExhausted, ConnectionError)):  # an exhausted generator is no complete answer
        list(stream(lambda: once, base=0))


def test_errors_and_marks_survive_pickling(play: Play) -> None:
    played = play(Source(["a", ConnectionError("mine")]))
    again = pickle.loads(pickle.dumps(played.error))
    assert (again.contents, again.delivered, str(again)) == (1, ("a",), str(played.error))
    assert isinstance(again.__cause__, ConnectionError)
    assert pickle.loads(pickle.dumps(Restarted(2, 3))) == Restarted(2, 3)
    copied = copy.copy(StreamTruncated(3))
    assert (copied.contents, str(copied)) == (3, str(StreamTruncated(3)))


def test_an_interruption_survives_pickling_with_chunks_that_do_not(play: Play) -> None:
    played = play(Source([threading.Lock(), ConnectionError()]))
    assert isinstance(played.error, StreamInterrupted)
    again = pickle.loads(pickle.dumps(played.error))
    assert (type(again), again.contents) == (StreamInterrupted, 1)


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "objects", "signs of life"])
def test_a_long_stream_does_not_grow(kind: str) -> None:
    def source(chunks: int) -> Iterator[Any]:
        yield "a"
        for number in range(chunks):
            yield {"text": f"{number:0100}", "objects": (number,)}.get(kind, "")

    def most(chunks: int) -> int:
        gc.collect()
        tracemalloc.start()
        try:
            for _ in stream(lambda: source(chunks), deadline=None):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = most(12_000), most(24_000)  # what an error remembers is full after 10,000 of them
    assert many - few < 50_000, (few, many)


@pytest.mark.parametrize("text", ["", "a"])
def test_what_an_error_remembers_is_bounded_however_little_each_content_is(text: str) -> None:
    events = StreamEvents(text=lambda _: text)
    remembered: list[int] = []
    for chunks in (150_000, 200_000):
        source = itertools.chain(itertools.repeat("chunk", chunks), map(failing, [1]))
        with pytest.raises(StreamInterrupted) as caught:
            for _ in stream(lambda: source, events=events, deadline=None):  # noqa: B023  # it is called at once
                pass
        assert caught.value.contents == chunks
        remembered.append(len(caught.value.delivered))
    assert remembered[0] == remembered[1]


def failing(_: object) -> Any:
    raise ConnectionError


async def test_streams_that_were_read_and_left_leave_nothing_behind() -> None:
    async def some(number: int) -> None:
        for _ in range(number):
            async with aclosing(stream(ab_async)) as body:
                assert await anext(body) == "a"
            assert [chunk async for chunk in stream(Source([ConnectionError()], ["a"]).asynchronous, base=0)] == ["a"]

    await some(20)
    gc.collect()
    before = len(gc.get_objects())
    await some(200)
    gc.collect()
    assert len(gc.get_objects()) - before < 100


class Big:
    """Something that a stream was given, or that its source holds."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def ending(end: str) -> None:
    """What a source does behind its first chunk."""
    if end == "broken":
        raise ConnectionError


@pytest.mark.parametrize("decorated", [True, False])
@pytest.mark.parametrize("end", ["exhausted", "broken", "closed"])
@pytest.mark.usefixtures("no_collector")
def test_a_blocking_stream_that_is_over_frees_its_function_and_arguments_at_once(end: str, decorated: bool) -> None:
    def use() -> list[weakref.ref[Any]]:
        big = Big()

        def source(given: Big) -> Iterator[str]:
            yield "a"
            ending(end)
            yield "b"

        body: Any = retry_sync()(source)(big) if decorated else stream(functools.partial(source, big))
        assert next(body) == "a"
        if end == "closed":
            body.close()
        elif end == "broken":
            with pytest.raises(StreamInterrupted):
                next(body)
        else:
            assert list(body) == ["b"]
        return [weakref.ref(big), weakref.ref(source)]

    assert [one() for one in use()] == [None, None]


@pytest.mark.parametrize("decorated", [True, False])
@pytest.mark.parametrize("end", ["exhausted", "broken", "closed"])
@pytest.mark.usefixtures("no_collector")
async def test_so_does_an_async_one(end: str, decorated: bool) -> None:
    async def use() -> list[weakref.ref[Any]]:
        big = Big()

        async def source(given: Big) -> AsyncIterator[str]:
            yield "a"
            ending(end)
            yield "b"

        body: Any = retry()(source)(big) if decorated else stream(functools.partial(source, big))
        assert await anext(body) == "a"
        if end == "closed":
            await body.aclose()
        elif end == "broken":
            with pytest.raises(StreamInterrupted):
                await anext(body)
        else:
            assert [chunk async for chunk in body] == ["b"]
        return [weakref.ref(big), weakref.ref(source)]

    found = await use()
    await asyncio.sleep(0)
    assert [one() for one in found] == [None, None]


def test_large_chunks_that_are_no_text_are_not_all_remembered() -> None:
    size = 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(StreamInterrupted) as caught:
            for _ in stream(lambda: itertools.chain((bytearray(size) for _ in range(300)), map(failing, [1]))):
                pass
        assert tracemalloc.get_traced_memory()[1] < 10 * size
    finally:
        tracemalloc.stop()
    assert caught.value.contents == 300
    assert len(caught.value.delivered) < 10


# ---- mistakes in what tells the meaning of a chunk -------------------------------------------------------------------


class Mistake(TimeoutError):
    """A mistake of the caller's own that looks like a failure of the service."""


def mistaken(rule: str, at: int = 1) -> StreamEvents:
    """Events with a rule that fails at the chunk with this number."""
    asked = itertools.count(1)

    def broken(_: object) -> Any:
        if next(asked) == at:
            raise Mistake
        return None if rule in ("error", "text") else rule == "content"

    rules: dict[str, Any] = {rule: broken}
    return StreamEvents(**rules)


@pytest.mark.parametrize("rule", ["content", "ends", "text", "error"])
def test_a_mistake_in_a_rule_leaves_as_it_is_and_is_no_failure_of_the_service(play: Play, rule: str) -> None:
    service = Upstream("service", max_concurrency=1, breaker=CircuitBreaker(1, 10.0))
    source = Source(["a", "b"])
    played = play(source, upstream=service, events=mistaken(rule), max_attempts=3)
    assert (played.chunks, type(played.error), played.now) == ([], Mistake, 0.0)
    assert (source.opened, source.closed) == (1, 1)
    snapshot = service.snapshot()
    assert snapshot.breaker is not None
    assert (snapshot.breaker.state, snapshot.breaker.calls, snapshot.breaker.openings) == ("closed", 0, 0)
    assert (snapshot.failures, snapshot.successes) == ({}, 0)
    assert at_rest(service)


@pytest.mark.parametrize("mode", ["raise", "restart"])
@pytest.mark.parametrize("rule", ["content", "ends", "text", "error"])
def test_after_content_it_interrupts_and_is_no_failure_of_the_service_either(play: Play, rule: str, mode: str) -> None:
    service = Upstream("service", max_concurrency=1, breaker=CircuitBreaker(1, 10.0))
    source = Source(["a", "b"])
    played = play(source, upstream=service, events=mistaken(rule, at=2), max_attempts=3, after_content=mode)
    assert (played.chunks, type(played.error), played.now) == (["a"], StreamInterrupted, 0.0)
    assert played.error is not None
    assert type(played.error.__cause__) is Mistake
    assert (source.opened, source.closed) == (1, 1)
    snapshot = service.snapshot()
    assert snapshot.breaker is not None
    assert (snapshot.breaker.state, snapshot.failures) == ("closed", {})
    assert at_rest(service)


# ---- closing, from the inside ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("end", ["closed", "exhausted", "broken"])
def test_an_interrupt_in_one_close_leaves_once_all_else_is_closed(end: str, interrupt: type[BaseException]) -> None:
    closed: list[str] = []

    class Inner:
        def __init__(self) -> None:
            self.steps = iter(["a"] if end == "exhausted" else ["a", "b"])

        def __iter__(self) -> Inner:
            return self

        def __next__(self) -> str:
            chunk = next(self.steps)
            if end == "broken" and chunk == "b":
                raise ConnectionError
            return chunk

        def close(self) -> None:
            closed.append("inner")
            raise interrupt

    class Outer:
        def __iter__(self) -> Inner:
            return Inner()

        def close(self) -> None:
            closed.append("outer")

    body: Any = stream(Outer)
    assert next(body) == "a"
    with pytest.raises(interrupt):
        body.close() if end == "closed" else next(body)
    assert closed == ["inner", "outer"]


def test_a_source_that_its_consumer_closes_ends_inside_its_attempt(play: Play) -> None:
    seen: list[Any] = []

    class Seeing(Source):
        def note_the_end(self) -> None:
            attempt, left = current_attempt(), current_deadline()
            seen.append((attempt and attempt.number, left is not None))

        def blocking(self, *arguments: Any) -> Generator[Any, None, str]:
            try:
                yield from ("a", "b")
            finally:
                self.note_the_end()
            return "returned"

        async def asynchronous(self, *arguments: Any) -> AsyncGenerator[Any]:
            try:
                yield "a"
                yield "b"
            finally:
                self.note_the_end()

    played = play(Seeing([]), take=1, after=lambda: seen.append(current_attempt()))
    assert (played.chunks, played.error) == (["a"], None)
    assert seen == [(1, True), None]


# ---- what is taken for something else --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [retry, retry_sync])
def test_a_limit_of_streams_for_a_single_call_names_the_one_of_calls(form: Any) -> None:
    with pytest.raises(TypeError, match=r"total_timeout= is for streams: .*for the whole call use deadline="):
        form(lambda: None, total_timeout=3)


async def test_a_generator_instead_of_a_function_is_told_in_terms_of_streams() -> None:
    for given in (ab_async(), ab()):
        with pytest.raises(
            TypeError, match=r"generator.*function.* stream\(|function, not .*generator.* stream\("
        ) as caught:
            stream(given)  # type: ignore[call-overload]
        assert "retry(" not in str(caught.value)
