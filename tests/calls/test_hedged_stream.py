"""A stream with a hedge: the copy that brings the first content goes on alone, and nobody can tell that others ran.

Proven: which copy wins and what becomes of the others, in every mode and at every failure; that what a source has
entered in a task is left in that task; that nothing is read ahead; and that nothing is left behind, wherever it ends.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple

import anyio
import pytest
import trio

from forbear import (
    ApiError,
    CircuitBreaker,
    DeadlineExceeded,
    Hedge,
    Restarted,
    RetriesExhausted,
    RetryState,
    StreamEvents,
    StreamInterrupted,
    Upstream,
    current_attempt,
    current_deadline,
    retry,
    retry_call,
    stream,
)
from forbear._runtime.scope import current
from forbear.core.events import AttemptEnded, CallEnded, Event
from forbear.core.hedge import SAVED
from forbear.errors import UsageError
from forbear.testing import FakeTime, record_events

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Make = Callable[..., Upstream]
MODES = ["raise", "restart", "buffer", "resume"]
QUICK: dict[str, Any] = {"backoff": [2.0], "jitter": "none"}
NO_LIMIT: dict[str, Any] = {"deadline": None, "attempt_timeout": None}


class Wait(NamedTuple):
    """A step of a source that takes so many seconds."""

    seconds: float


class Source:
    """Streams by script, one list of steps for each attempt by its number, the last one for all further ones.

    An error is raised, a `Wait` takes its time; anything else is a chunk. Notes by number what was opened, closed and
    taken, when, and in which tasks.
    """

    def __init__(self, *scripts: list[Any]) -> None:
        self.scripts = scripts
        self.began: dict[int, float] = {}
        self.closed: list[int] = []
        self.taken: list[tuple[int, Any]] = []
        self.tasks: dict[int, list[Any]] = {}
        self.keys: list[str] = []
        self.arguments: list[tuple[Any, ...]] = []

    @property
    def opened(self) -> list[int]:
        return sorted(self.began)

    async def chunks(self, *arguments: Any) -> AsyncGenerator[Any]:
        attempt = current_attempt()
        assert attempt is not None
        number = attempt.number
        self.keys.append(attempt.idempotency_key)
        self.began[number] = round(asyncio.get_running_loop().time(), 6)
        self.arguments.append(arguments)
        here = self.tasks[number] = [asyncio.current_task()]
        try:
            for step in self.scripts[min(number, len(self.scripts)) - 1]:
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                elif isinstance(step, Exception):
                    raise step
                else:
                    self.taken.append((number, step))
                    yield step
                again = current_attempt()
                assert again is not None
                assert again.number == number
                here.append(asyncio.current_task())
        finally:
            here.append(asyncio.current_task())
            self.closed.append(number)


@pytest.fixture
async def fake() -> AsyncGenerator[FakeTime]:
    """Virtual time; when the test is over no other task is left, and the event loop has nothing to complain of."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    with FakeTime() as time:
        yield time
        assert len(asyncio.all_tasks()) == 1
        gc.collect()
        assert told == []


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes upstreams, of whose capacity nothing may be taken when the test is over."""
    made: list[Upstream] = []

    def upstream(**options: Any) -> Upstream:
        made.append(Upstream("service", **{"breaker": CircuitBreaker(1000), **options}))
        return made[-1]

    yield upstream
    assert [at_rest(one) for one in made] == [True] * len(made)


def at_rest(upstream: Upstream) -> bool:
    snapshot = upstream.snapshot()
    trials = 0 if snapshot.breaker is None else snapshot.breaker.trials
    return (snapshot.in_flight, snapshot.waiting, snapshot.waiting_retries, trials) == (0, 0, 0, 0)


def shape(events: list[Event]) -> list[tuple[Any, ...]]:
    """What was told, in short."""
    found: list[tuple[Any, ...]] = []
    for event in events:
        if isinstance(event, AttemptEnded):
            found.append((event.attempt, event.outcome))
        elif isinstance(event, CallEnded):
            found.append((event.reason, event.attempts))
        elif isinstance(event, RetryState):
            found.append(("wait", event.attempt))
    return found


async def played(chunks: Any) -> tuple[list[Any], Exception | None]:
    """What came, and what it ended with."""
    got: list[Any] = []
    try:
        async for chunk in chunks:
            got.append(chunk)  # noqa: PERF401  # what came before an error is looked at too
    except Exception as error:
        return got, error
    return got, None


# ---- which copy goes on ----------------------------------------------------------------------------------------------


async def test_a_quick_first_copy_flows_alone(fake: FakeTime) -> None:
    source = Source(["", Wait(0.05), "a", Wait(3), "b"])
    with record_events() as events:
        assert await played(stream(source.chunks, hedge=Hedge(0.1))) == (["", "a", "b"], None)
    assert (source.opened, source.closed) == ([1], [1])
    assert shape(events) == [(1, "success"), ("success", 1)]


async def test_the_copy_that_brings_the_first_content_goes_on_and_the_other_is_closed(fake: FakeTime) -> None:
    source = Source([Wait(9), "", "x"], ["", Wait(0.05), "a", Wait(3), "b"])
    got: list[Any] = []
    with record_events() as events:
        async for chunk in stream(source.chunks, hedge=Hedge(0.1)):
            if not got:
                assert fake.now == pytest.approx(0.15)
                assert source.closed == [1], "before the consumer sees anything"
            got.append(chunk)
    assert got == ["", "a", "b"]
    assert source.closed == [1, 2]
    assert shape(events) == [(1, "cancelled"), (2, "success"), ("success", 2)]


@pytest.mark.parametrize("form", ["decorated", "decorated upstream", "upstream"])
async def test_so_it_is_in_every_form(fake: FakeTime, make: Make, form: str) -> None:
    source, upstream = Source([Wait(9)], ["", "a", "b"]), make()
    if form == "upstream":
        chunks: Any = upstream.stream(lambda: source.chunks("x"), hedge=0.1)
    else:
        retried: Any = retry if form == "decorated" else upstream.retry

        async def answer(prompt: str) -> AsyncGenerator[Any]:
            async for chunk in source.chunks(prompt):
                yield chunk

        chunks = retried(hedge=Hedge(0.1))(answer)("x")
    assert await played(chunks) == (["", "a", "b"], None)
    assert source.arguments == [("x",), ("x",)]
    gc.collect()
    await asyncio.sleep(0.1)
    assert sorted(source.closed) == [1, 2]


async def test_the_first_may_still_win(fake: FakeTime) -> None:
    source = Source([Wait(0.3), "", "a", "b"], ["", Wait(9), "x"])
    with record_events() as events:
        assert await played(stream(source.chunks, hedge=Hedge(0.1))) == (["", "a", "b"], None)
    assert source.closed == [2, 1]
    assert shape(events) == [(2, "cancelled"), (1, "success"), ("success", 2)]


async def test_start_events_do_not_win(fake: FakeTime) -> None:
    source = Source(["", "", Wait(9), "x"], [Wait(0.5), "", "a"])
    assert await played(stream(source.chunks, hedge=Hedge(0.1))) == (["", "a"], None)
    assert fake.now == pytest.approx(0.6)


async def test_one_that_ends_without_content_is_an_answer(fake: FakeTime) -> None:
    source = Source([Wait(9), "x"], ["", Wait(0.1)])
    assert await played(stream(source.chunks, hedge=Hedge(0.1))) == ([""], None)
    assert sorted(source.closed) == [1, 2]


async def test_with_buffer_the_first_that_is_complete_wins(fake: FakeTime) -> None:
    source = Source(["a", Wait(0.5), "b"], ["c", Wait(0.2), "d"])
    assert await played(stream(source.chunks, hedge=Hedge(0.1), after_content="buffer")) == (["c", "d"], None)
    assert fake.now == pytest.approx(0.3)
    assert source.closed == [2, 1]


@pytest.mark.parametrize("mode", MODES)
async def test_two_contents_of_the_same_instant_are_one_stream(fake: FakeTime, make: Make, mode: str) -> None:
    upstream, source = make(), Source([Wait(0.2), "", "a"], [Wait(0.1), "", "a"])
    options: dict[str, Any] = {"resume": source.chunks} if mode == "resume" else {"after_content": mode}
    with record_events() as events:
        assert await played(upstream.stream(source.chunks, hedge=0.1, **options)) == (["", "a"], None)
    assert sorted(source.closed) == [1, 2]
    assert upstream.snapshot().hedges == 1
    ended = [event.attempt for event in events if isinstance(event, AttemptEnded)]
    assert sorted(ended) == [1, 2], "each is told once"
    assert shape(events)[-1] == ("success", 2)


# ---- failures before content -----------------------------------------------------------------------------------------


async def test_a_failure_before_content_sends_the_next_copy_at_once(fake: FakeTime) -> None:
    source = Source(["", Wait(0.1), ConnectionError()], ["", "a"])
    with record_events() as events:
        assert await played(stream(source.chunks, hedge=Hedge(5.0))) == (["", "a"], None)
    assert source.began == {1: 0.0, 2: 0.1}
    assert fake.sleeps == []
    assert shape(events) == [(1, "failure"), (2, "success"), ("success", 2)]


async def test_a_copy_that_fails_leaves_the_other_alone(fake: FakeTime) -> None:
    source = Source([Wait(0.5), "", "a"], ["", ConnectionError()])
    assert await played(stream(source.chunks, hedge=Hedge(0.1))) == (["", "a"], None)
    assert source.closed == [2, 1]


async def test_if_all_fail_there_is_a_wait_and_a_next_round(fake: FakeTime) -> None:
    source = Source(
        ["", Wait(0.3), ConnectionError()], [Wait(0.1), ConnectionError()], ["", Wait(9), "x"], ["", Wait(0.1), "a"]
    )
    with record_events() as events:
        assert await played(stream(source.chunks, hedge=Hedge(0.1), **QUICK)) == (["", "a"], None)
    assert source.began == pytest.approx({1: 0.0, 2: 0.1, 3: 2.3, 4: 2.4})
    assert fake.sleeps == [2.0]
    assert shape(events) == [
        (2, "failure"), (1, "failure"), ("wait", 1), (3, "cancelled"), (4, "success"), ("success", 4),
    ]  # fmt: skip
    assert source.closed == [2, 1, 3, 4]


async def test_if_all_fail_for_ever_the_first_ones_error_leaves_as_it_would_without_a_stream(fake: FakeTime) -> None:
    error = ConnectionError()
    source = Source(["", Wait(0.3), error], [Wait(0.1), ApiError(503)])
    with record_events() as events:
        got, raised = await played(stream(source.chunks, hedge=Hedge(0.1), max_attempts=2))
    assert got == []
    assert isinstance(raised, RetriesExhausted)
    assert raised.__cause__ is raised.last_error is error
    assert [(one.number, one.status) for one in raised.history] == [(1, None), (2, 503)]
    assert shape(events) == [(2, "failure"), (1, "failure"), ("max_attempts", 2)]


@pytest.mark.parametrize("number", [0, 1])
async def test_a_failure_that_can_not_pass_ends_all(fake: FakeTime, number: int) -> None:
    error = ApiError(400)
    scripts: list[list[Any]] = [["", Wait(9), "x"], ["", Wait(9), "x"]]
    scripts[number] = ["", Wait(0.3), error]
    source = Source(*scripts)
    with record_events() as events:
        assert await played(stream(source.chunks, hedge=Hedge(0.1))) == ([], error)
    assert sorted(source.closed) == [1, 2]
    assert shape(events) == [(number + 1, "failure"), (2 - number, "cancelled"), ("permanent", 2)]


async def test_the_same_object_again_is_refused_as_without_a_hedge(fake: FakeTime) -> None:
    # It would be read by two at once, or be at its end already and make an answer of nothing.
    source = Source(["", Wait(0.2), ConnectionError()])
    once = source.chunks()
    got, error = await played(stream(lambda: once, hedge=Hedge(0.1), **QUICK))
    assert got == []
    assert isinstance(error, UsageError)
    assert "the same async_generator again" in str(error)


# ---- failures after content, of a copy that is not the first ---------------------------------------------------------


def broken_later(*rest: list[Any]) -> Source:
    """The second copy wins, and breaks after its first content."""
    return Source([Wait(9), "x"], ["", "a", Wait(1), ConnectionError()], *rest)


async def test_raise_interrupts_with_what_was_delivered(fake: FakeTime) -> None:
    source = broken_later()
    with record_events() as events:
        got, error = await played(stream(source.chunks, hedge=Hedge(0.1)))
    assert got == ["", "a"]
    assert isinstance(error, StreamInterrupted)
    assert (error.contents, error.delivered, error.__cause__) == (1, ("a",), source.scripts[1][-1])
    assert source.closed == [1, 2]
    assert shape(events) == [(1, "cancelled"), (2, "failure"), ("interrupted", 2)]


async def test_restart_begins_anew_behind_a_mark_with_the_next_number(fake: FakeTime) -> None:
    source = broken_later(["", "b", "c"])
    states: list[RetryState] = []
    with record_events() as events:
        got, error = await played(
            stream(source.chunks, hedge=Hedge(0.1), after_content="restart", on_retry=states.append, **QUICK)
        )
    assert (got, error) == (["", "a", Restarted(3, 1), "", "b", "c"], None)
    assert source.began == pytest.approx({1: 0.0, 2: 0.1, 3: 3.1})
    assert shape(events) == [(1, "cancelled"), (2, "failure"), ("wait", 1), (3, "success"), ("success", 3)]
    assert [(state.delay, state.error) for state in states] == [(2.0, source.scripts[1][-1])]


async def test_a_restart_may_be_won_by_a_copy_too(fake: FakeTime) -> None:
    source = broken_later(["", Wait(9), "x"], ["", "b"])
    with record_events() as events:
        got = await played(stream(source.chunks, hedge=Hedge(0.1), after_content="restart", **QUICK))
    assert got == (["", "a", Restarted(4, 1), "", "b"], None)
    assert shape(events)[3:] == [(3, "cancelled"), (4, "success"), ("success", 4)]
    assert source.closed == [1, 2, 3, 4]


async def test_resume_goes_on_from_what_was_delivered_and_is_raced_for_too(fake: FakeTime) -> None:
    source = broken_later(["", Wait(9), "x"], ["", "b", Wait(1), ConnectionError()], ["", "c"])
    with record_events() as events:
        got = await played(stream(source.chunks, hedge=Hedge(0.1), resume=source.chunks, max_attempts=9, **QUICK))
    assert got == (["", "a", "b", "c"], None)
    assert source.arguments == [(), (), (["a"],), (["a"],), (["a", "b"],)]
    assert shape(events) == [
        (1, "cancelled"), (2, "failure"), ("wait", 1), (3, "cancelled"), (4, "failure"), ("wait", 3), (5, "success"),
        ("success", 5),
    ]  # fmt: skip


async def test_with_buffer_nobody_sees_it(fake: FakeTime) -> None:
    source = Source(["a", Wait(3), ConnectionError()], ["b", Wait(0.1), ConnectionError()], ["", "c", "d"])
    with record_events() as events:
        got = await played(stream(source.chunks, hedge=Hedge(0.1), after_content="buffer", **QUICK))
    assert got == (["", "c", "d"], None)
    assert shape(events) == [(2, "failure"), (1, "failure"), ("wait", 1), (3, "success"), ("success", 3)]


async def test_the_history_names_those_that_failed_and_the_losers_count(fake: FakeTime) -> None:
    source = Source([Wait(9)], ["", "a", ApiError(503)], [Wait(9)], ["", "b", ApiError(500)])
    got, error = await played(stream(source.chunks, hedge=Hedge(0.1), after_content="restart", max_attempts=4, **QUICK))
    assert got == ["", "a", Restarted(4, 1), "", "b"]
    assert isinstance(error, StreamInterrupted)
    assert (error.contents, error.delivered) == (1, ("b",))
    cause = error.__cause__
    assert isinstance(cause, RetriesExhausted)
    assert cause.attempts == 4
    assert [(one.number, one.status) for one in cause.history] == [(2, 503), (4, 500)]
    assert [one.elapsed for one in cause.history] == pytest.approx([0.0, 0.0])
    assert cause.last_error is source.scripts[3][-1]


async def test_one_that_was_the_first_says_so(fake: FakeTime) -> None:
    source = Source([Wait(0.2), "", "a", ConnectionError()], [Wait(9)], ["", "b"])
    with record_events() as events:
        got = await played(stream(source.chunks, hedge=Hedge(0.1), after_content="restart", **QUICK))
    assert got == (["", "a", Restarted(3, 1), "", "b"], None)
    assert shape(events) == [(2, "cancelled"), (1, "failure"), ("wait", 1), (3, "success"), ("success", 3)]


# ---- clocks ----------------------------------------------------------------------------------------------------------


async def test_each_copy_has_its_own_time_to_the_first_content(fake: FakeTime) -> None:
    source = Source([Wait(9), "x"], [Wait(0.9), "a"])
    with record_events() as events:
        assert await played(stream(source.chunks, hedge=Hedge(0.5), first_timeout=1.0)) == (["a"], None)
    assert fake.now == pytest.approx(1.4)
    assert shape(events) == [(1, "failure"), (2, "success"), ("success", 2)]


@pytest.mark.parametrize(
    ("options", "cut_at", "said"),
    [
        ({"gap_timeout": 1.0}, 1.6, "attempt 2 brought no content for gap_timeout=1 s; 1 content had come"),
        ({"total_timeout": 3.0}, 3.5, "attempt 2 took longer than total_timeout=3 s; 1 content had come"),
        ({"total_timeout": 1.2, "gap_timeout": 1.0}, 1.6, "gap_timeout=1 s"),
        ({"total_timeout": 0.9, "gap_timeout": 1.0}, 1.4, "total_timeout=0.9 s"),
    ],
)
async def test_the_clocks_of_the_winner_count_from_its_own_beginning(
    fake: FakeTime, options: dict[str, Any], cut_at: float, said: str
) -> None:
    source = Source([Wait(90), "x"], [Wait(0.1), "a", Wait(90), "b"])
    got, error = await played(stream(source.chunks, hedge=Hedge(0.5), **options))
    assert got == ["a"]
    assert isinstance(error, StreamInterrupted)
    assert isinstance(error.__cause__, TimeoutError)
    assert said in str(error.__cause__)
    assert fake.now == pytest.approx(cut_at)
    assert source.closed == [1, 2]


async def test_the_deadline_cuts_the_winner(fake: FakeTime) -> None:
    source = Source([Wait(90), "x"], [Wait(0.1), "a", Wait(90), "b"])
    got, error = await played(
        stream(source.chunks, hedge=Hedge(0.5), deadline=2.0, attempt_timeout=None, after_content="restart")
    )
    assert got == ["a"]
    assert isinstance(error, StreamInterrupted)
    assert isinstance(error.__cause__, DeadlineExceeded)
    assert fake.now == pytest.approx(2.0)


async def test_a_slow_consumer_is_not_the_streams_fault(fake: FakeTime) -> None:
    source = Source([Wait(90), "x"], ["a", Wait(0.8), "b", Wait(0.8), "c"])
    got: list[str] = []
    async for chunk in stream(source.chunks, hedge=Hedge(0.5), gap_timeout=1.0, deadline=None):
        got.append(chunk)
        await asyncio.sleep(20)
    assert got == ["a", "b", "c"]


@pytest.mark.parametrize("mode", ["raise", "restart", "resume"])
async def test_nothing_is_read_ahead_of_the_consumer(fake: FakeTime, mode: str) -> None:
    source = Source([Wait(9)], ["", "a", "b", "c"])
    options: dict[str, Any] = {"resume": source.chunks} if mode == "resume" else {"after_content": mode}
    got: list[Any] = []
    async for chunk in stream(source.chunks, hedge=Hedge(0.1), **options):
        got.append(chunk)
        await asyncio.sleep(1)
        assert [one for _, one in source.taken] == (got if len(got) > 1 else ["", "a"])
    assert got == ["", "a", "b", "c"]


async def test_nothing_begins_before_a_chunk_is_asked_for(fake: FakeTime) -> None:
    source = Source(["a"])
    chunks = stream(source.chunks, hedge=Hedge(0.1))
    await asyncio.sleep(1)
    assert source.opened == []
    await chunks.aclose()
    assert "make a new one" in str((await played(chunks))[1])
    assert source.opened == []


# ---- what a source has entered ---------------------------------------------------------------------------------------


@asynccontextmanager
async def no_scope() -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def an_anyio_scope() -> AsyncIterator[None]:
    with anyio.CancelScope():
        yield


SCOPES: dict[str, Callable[[], Any]] = {
    "none": no_scope,
    "asyncio.timeout": lambda: asyncio.timeout(50),
    "asyncio.TaskGroup": asyncio.TaskGroup,
    "anyio scope": an_anyio_scope,
    "anyio task group": anyio.create_task_group,
}
WAYS = ["to the end", "failed", "cancelled", "closed", "left"]


@pytest.mark.parametrize(
    ("scope", "way"),
    # A task group makes an error of its own of an early close, with a hedge or without.
    [(scope, way) for scope in SCOPES for way in (WAYS[:3] if "roup" in scope else WAYS)],
)
async def test_what_is_open_over_the_yields_is_left_in_the_task_it_was_entered_in(
    fake: FakeTime, scope: str, way: str
) -> None:
    end: list[Any] = [ConnectionError()] if way == "failed" else []
    source, left = Source([Wait(9), "x"], ["", "a", Wait(0.1), "b", *end]), list[int]()

    async def scoped() -> AsyncGenerator[Any]:
        async with SCOPES[scope]():
            inner = source.chunks()
            try:
                async for chunk in inner:
                    yield chunk
            finally:
                await inner.aclose()
        left.append(1)

    async def consume(got: list[Any]) -> None:
        chunks = stream(scoped, hedge=Hedge(0.1))
        async for chunk in chunks:
            got.append(chunk)
            await asyncio.sleep(0.1)
            if way in ("closed", "left") and chunk == "a":
                break
            if way == "cancelled" and chunk == "a":
                waiting.set_result(None)
        if way == "closed":
            await chunks.aclose()

    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    got: list[Any] = []
    task = asyncio.create_task(consume(got))
    if way == "cancelled":
        await waiting
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    [ended] = await asyncio.gather(task, return_exceptions=True)
    expected = {"failed": StreamInterrupted, "cancelled": asyncio.CancelledError}.get(way, type(None))
    assert type(ended) is expected
    del task, ended
    gc.collect()
    await asyncio.sleep(0.1)
    assert got == (["", "a", "b"] if way in ("to the end", "failed") else ["", "a"])
    assert sorted(source.closed) == [1, 2]
    for tasks in source.tasks.values():
        assert len(set(tasks)) == 1
    assert source.tasks[1][0] is not source.tasks[2][0]
    assert left == ([1] if way == "to the end" else [])
    source.tasks.clear()


async def test_a_timeout_of_the_sources_own_is_a_failure(fake: FakeTime) -> None:
    async def source() -> AsyncGenerator[str]:
        async with asyncio.timeout(1):
            yield "a"
            await asyncio.sleep(50)
            yield "never"

    got, error = await played(stream(source, hedge=Hedge(0.1)))
    assert got == ["a"]
    assert isinstance(error, StreamInterrupted)
    assert type(error.__cause__) is TimeoutError
    assert fake.now == pytest.approx(1.0)


@pytest.mark.parametrize("scope", ["asyncio.timeout", "anyio scope", "failing child"])
async def test_one_that_fires_while_the_consumer_is_busy_ends_the_stream_and_is_no_hang(
    fake: FakeTime, scope: str
) -> None:
    @asynccontextmanager
    async def around() -> AsyncIterator[None]:
        if scope == "asyncio.timeout":
            async with asyncio.timeout(1):
                yield
        elif scope == "anyio scope":
            with anyio.fail_after(1):
                yield
        else:
            async with asyncio.TaskGroup() as group:

                async def child() -> None:
                    await asyncio.sleep(1)
                    raise ConnectionError

                group.create_task(child())
                yield

    async def source() -> AsyncGenerator[str]:
        async with around():
            yield "a"
            await asyncio.sleep(50)
            yield "never"

    async def consume() -> None:
        async for chunk in stream(source, hedge=Hedge(0.1)):
            got.append(chunk)
            await asyncio.sleep(2)

    got: list[str] = []
    task = asyncio.create_task(consume())
    done, _ = await asyncio.wait({task}, timeout=60)
    task.cancel()
    await asyncio.wait({task})
    assert done, "the consumer waits for ever"
    assert got == ["a"]
    assert task.cancelled() or task.exception() is not None
    assert fake.now == pytest.approx(2.0)


async def test_a_pump_whose_task_is_cancelled_with_all_others_leaves_no_consumer_waiting(fake: FakeTime) -> None:
    # As programs do at their end, where a consumer that cleans up may ask for what is left.
    source = Source(["a", "b", "c"])
    chunks = stream(source.chunks, hedge=Hedge(0.1))
    assert await anext(chunks) == "a"
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)
    asked = asyncio.ensure_future(anext(chunks))
    done, _ = await asyncio.wait({asked}, timeout=60)
    asked.cancel()
    await asyncio.wait({asked})
    assert done, "it waits for ever"
    assert asked.cancelled() or asked.exception() is not None


VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="nothing")


async def test_context_variables_of_the_source_hold_in_the_source_and_nowhere_else(fake: FakeTime) -> None:
    seen: list[str] = []

    async def source() -> AsyncGenerator[str]:
        attempt = current_attempt()
        assert attempt is not None
        seen.append(f"{attempt.number} finds {VARIABLE.get()}")
        token = VARIABLE.set(f"set by {attempt.number}")
        try:
            if attempt.number == 1:
                await asyncio.sleep(9)
            yield "a"
            seen.append(VARIABLE.get())
            yield "b"
        finally:
            seen.append(f"left {VARIABLE.get()}")
            VARIABLE.reset(token)  # raises in another context

    VARIABLE.set("the consumer's")
    async for chunk in stream(source, hedge=Hedge(0.1)):
        assert VARIABLE.get() == "the consumer's"
        assert current.get() is not None  # FakeTime's
        assert current_attempt() is None
        if chunk == "a":
            VARIABLE.set("changed")
            VARIABLE.set("the consumer's")
    assert seen == [
        "1 finds the consumer's", "2 finds the consumer's", "left set by 1", "set by 2", "left set by 2",
    ]  # fmt: skip


async def test_copies_have_numbers_of_their_own_and_one_key(fake: FakeTime) -> None:
    source = Source([Wait(9)], ["", "a", ConnectionError()], ["b"])
    await played(stream(source.chunks, hedge=Hedge(0.1), after_content="restart", **QUICK))
    assert source.opened == [1, 2, 3]
    assert len(source.keys) == 3
    assert len(set(source.keys)) == 1


# ---- guards ----------------------------------------------------------------------------------------------------------


async def exhausted(chunks: Any) -> None:
    assert [chunk async for chunk in chunks] == ["b", "c"]


async def closed(chunks: Any) -> None:
    await chunks.aclose()


async def failed(chunks: Any) -> None:
    with pytest.raises(StreamInterrupted):
        await played_to_its_error(chunks)


async def played_to_its_error(chunks: Any) -> None:
    async for _ in chunks:
        pass


async def cancelled(chunks: Any) -> None:
    task = asyncio.create_task(played_to_its_error(chunks))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def forgotten(chunks: Any) -> None:
    del chunks


@pytest.mark.parametrize("end", [exhausted, closed, failed, cancelled, forgotten])
async def test_the_winner_has_its_place_until_the_end_and_the_loser_gives_its_own_back(
    fake: FakeTime, make: Make, end: Callable[[Any], Coroutine[Any, Any, None]]
) -> None:
    upstream = make(max_concurrency=2, adaptive=False)
    last: list[Any] = [ConnectionError()] if end is failed else ["c"]
    source = Source([Wait(9)], ["", "a", Wait(1), "b", *last])
    holder = [upstream.stream(source.chunks, hedge=0.1)]
    assert [await anext(holder[0]), await anext(holder[0])] == ["", "a"]
    assert upstream.snapshot().in_flight == 1
    await asyncio.sleep(5)
    assert upstream.snapshot().in_flight == 1
    await end(holder.pop())
    gc.collect()
    await asyncio.sleep(0.1)
    assert upstream.snapshot().in_flight == 0
    assert sorted(source.closed) == [1, 2]


async def test_the_counters_tell_what_copies_did(fake: FakeTime, make: Make) -> None:
    upstream = make()
    for source in (Source([Wait(9)], ["a", "b"]), Source([Wait(0.3), "a"], [Wait(9)]), Source(["a"])):
        await played(upstream.stream(source.chunks, hedge=0.1))
    snapshot = upstream.snapshot()
    assert (snapshot.hedges, snapshot.hedges_won, snapshot.successes) == (2, 1, 3)
    assert snapshot.hedges_wasted == pytest.approx(0.1 + 0.2)
    assert snapshot.failures == {}


@pytest.mark.parametrize("number", [1, 2])
async def test_the_collector_takes_nothing_away_from_a_stream_that_flows(
    fake: FakeTime, make: Make, number: int
) -> None:
    # The copies of the round before are garbage in cycles then, the first of which was under the same call.
    upstream = make(max_concurrency=2, adaptive=False)
    numbers: list[int | None] = []

    async def source() -> AsyncGenerator[str]:
        attempt = current_attempt()
        assert attempt is not None
        await asyncio.sleep(0.2)
        if attempt.number < 3:
            raise ConnectionError
        if attempt.number != number + 2:
            await asyncio.sleep(9)
        for chunk in "abc":
            gc.collect()
            await asyncio.sleep(0.01)
            attempt = current_attempt()
            numbers.append(None if attempt is None else attempt.number)
            yield chunk

    got: list[str] = []
    async for chunk in upstream.stream(source, hedge=0.1, **QUICK):
        gc.collect()
        assert upstream.snapshot().in_flight == 1
        got.append(chunk)
    assert got == ["a", "b", "c"]
    assert numbers == [number + 2] * 3
    assert upstream.snapshot().in_flight == 0


async def test_without_a_second_place_there_is_no_copy(fake: FakeTime, make: Make) -> None:
    upstream, source = make(max_concurrency=1, adaptive=False), Source([Wait(2), "a"], ["x"])
    assert await played(upstream.stream(source.chunks, hedge=0.1)) == (["a"], None)
    assert source.opened == [1]


@pytest.mark.parametrize("mode", ["raise", "restart"])
async def test_failures_of_a_winner_are_the_breakers_business_and_losers_are_not(
    fake: FakeTime, make: Make, mode: Any
) -> None:
    breaker = CircuitBreaker(2)
    upstream = make(breaker=breaker)
    for _ in range(5):
        await played(upstream.stream(Source([Wait(9)], ["a"]).chunks, hedge=0.1))
    assert breaker.state == "closed"
    source = Source([Wait(9)], ["a", ConnectionError()], [Wait(9)], ["a", ConnectionError()])
    await played(upstream.stream(source.chunks, hedge=0.1, after_content=mode, max_attempts=4, **QUICK))
    assert breaker.state == ("open" if mode == "restart" else "closed")


# ---- cancellation ----------------------------------------------------------------------------------------------------


class Log:
    """What the sources of a scenario did. Nothing in it takes time, but each step takes two turns of the loop."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.opened = self.closed = self.entered = self.left = 0
        self.got: list[Any] = []
        self.where = "before"
        self.places: set[str] = set()

    async def turns(self, place: str) -> None:
        self.places.add(place)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class Around:
    """A connection: slow to open, slow to close."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def __aenter__(self) -> AsyncGenerator[str]:
        await self.log.turns("enter")
        self.log.entered += 1
        return self.chunks()

    async def __aexit__(self, *_: object) -> None:
        self.log.left += 1
        await self.log.turns("exit")

    async def chunks(self) -> AsyncGenerator[str]:
        """The first copy is slow; the second breaks: after content, where the mode allows. The third is whole."""
        attempt = current_attempt()
        assert attempt is not None
        number, log = attempt.number, self.log
        log.opened += 1
        try:
            await log.turns("chunk")
            yield ""
            if number == 1:
                for _ in range(60):
                    await log.turns("slow")
                raise ConnectionError
            if number == 2 and log.mode in ("restart", "resume"):
                yield "a"
                await log.turns("chunk")
                raise ConnectionError
            if number == 2:
                raise ConnectionError
            for chunk in "bc":
                yield chunk
                await log.turns("chunk")
        finally:
            log.closed += 1
            await log.turns("close")


async def consume(upstream: Upstream, log: Log) -> None:
    async def wait(_: float) -> None:
        await log.turns("wait")

    options: dict[str, Any] = {"resume": lambda _: Around(log)} if log.mode == "resume" else {"after_content": log.mode}
    log.where = "stream"
    chunks = upstream.stream(lambda: Around(log), hedge=0.0, sleep=wait, rng=lambda: 1.0, base=0.001, **options)
    async with chunks:
        async for chunk in chunks:
            log.got.append(chunk)
            log.where = "consumer"
            await log.turns("consumer")
            log.where = "stream"
    log.where = "after"


async def cancelled_after(turns: int, mode: str, second: int | None = None) -> tuple[Log, bool, list[Event]]:
    """The scenario, cancelled after so many turns of the loop, and again so many later. Whether that met it."""
    log, upstream = Log(mode), Upstream("service", max_concurrency=2, breaker=CircuitBreaker(50), adaptive=False)
    counts: list[int] = []

    async def main() -> None:
        around = current.get()
        try:
            await consume(upstream, log)
        except asyncio.CancelledError:
            counts.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]
            assert current.get() is around
            raise

    with record_events() as events:
        task = asyncio.create_task(main())
        for _ in range(turns):
            await asyncio.sleep(0)
        where = log.where
        met = not task.done()
        task.cancel()
        if second is not None:
            for _ in range(second):
                await asyncio.sleep(0)
            met = met and not task.done()
            task.cancel()
        await asyncio.wait({task})
    if second is not None:  # the source closes by itself, nobody waits for it any more
        for _ in range(200):
            await asyncio.sleep(0)
    case = (turns, second, where)
    log.where = where
    assert (log.closed, log.left) == (log.opened, log.entered), case
    assert at_rest(upstream), case
    assert asyncio.all_tasks() == {asyncio.current_task()}, case
    if met:
        assert task.cancelled(), case
        assert counts == [1 if second is None else 2], case
    return log, met, events


@pytest.mark.parametrize("mode", MODES)
def test_a_cancellation_leaves_at_once_leaves_nothing_and_is_told_once(run: Run, mode: str) -> None:
    async def main() -> None:
        places: set[str] = set()
        for turns in itertools.count(1):
            log, met, events = await cancelled_after(turns, mode)
            places |= log.places
            case = (turns, log.where, shape(events))
            attempts = [event.attempt for event in events if isinstance(event, AttemptEnded)]
            assert len(attempts) == len(set(attempts)), case
            ends = [event.reason for event in events if isinstance(event, CallEnded)]
            if not met:
                assert ends == ["success"], case
                assert log.got[-1] == "c"
                assert places >= {"enter", "chunk", "slow", "close", "exit", "wait", "consumer"}
                assert turns > 40
                return
            if log.where == "consumer":  # to the stream it is a close, or its end was told before
                assert ends in (["closed"], ["success"]), case
            else:
                assert ends == ["cancelled"] or (ends == ["success"] and log.got[-1:] == ["c"]), case
            assert isinstance(events[-1], CallEnded), case

    run(main())


@pytest.mark.parametrize("mode", ["raise", "restart"])
def test_a_second_cancellation_while_the_source_closes_changes_nothing_but_the_wait(run: Run, mode: str) -> None:
    async def main() -> None:
        hits = 0
        for turns in range(1, 70, 3):
            for second in (1, 2, 3, 5):
                log, met, events = await cancelled_after(turns, mode, second)
                if met and log.where == "stream":
                    hits += 1
                    ends = [event.reason for event in events if isinstance(event, CallEnded)]
                    assert len(ends) == 1, (turns, second, shape(events))
        assert hits > 10

    run(main())


async def test_one_in_a_race_cancels_all_copies(fake: FakeTime, make: Make) -> None:
    upstream, source = make(), Source([Wait(9)], [Wait(9)])
    with record_events() as events:
        task = asyncio.create_task(played(upstream.stream(source.chunks, hedge=0.1)))
        await asyncio.sleep(1)
        assert (source.opened, upstream.snapshot().in_flight) == ([1, 2], 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (sorted(source.closed), upstream.snapshot().in_flight) == ([1, 2], 0)
    assert shape(events)[-1] == ("cancelled", 2)
    assert sorted(shape(events)[:-1]) == [(1, "cancelled"), (2, "cancelled")]


# ---- other ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ConnectionError, TimeoutError])
async def test_a_loser_that_fails_at_its_cancellation_is_no_noise(fake: FakeTime, error: type[Exception]) -> None:
    async def source() -> AsyncGenerator[str]:
        attempt = current_attempt()
        assert attempt is not None
        try:
            await asyncio.sleep(9 if attempt.number == 1 else 0)
        except asyncio.CancelledError:
            raise error from None
        yield "a"

    assert await played(stream(source, hedge=Hedge(0.1))) == (["a"], None)


async def test_a_winner_that_fails_at_its_close_is_no_noise(fake: FakeTime, make: Make) -> None:
    upstream = make()

    async def source() -> AsyncGenerator[str]:
        try:
            yield "a"
            await asyncio.sleep(9)
            yield "b"
        finally:
            raise ConnectionError

    async with upstream.stream(source, hedge=0.1) as chunks:
        assert await anext(chunks) == "a"
    task = asyncio.create_task(played(upstream.stream(source, hedge=0.1)))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_close_while_a_chunk_is_waited_for_is_refused_and_harms_nothing(fake: FakeTime) -> None:
    source = Source(["a", Wait(1), "b"])
    chunks = stream(source.chunks, hedge=Hedge(0.1))
    assert await anext(chunks) == "a"
    asked = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(0.1)
    with pytest.raises(RuntimeError, match="already running"):
        await chunks.aclose()
    assert await asked == "b"
    await chunks.aclose()
    assert source.closed == [1]


async def test_two_that_ask_at_once_are_told_and_the_first_gets_its_chunk(fake: FakeTime) -> None:
    source = Source([Wait(9)], ["a", Wait(1), "b"])
    chunks = stream(source.chunks, hedge=Hedge(0.1))
    assert await anext(chunks) == "a"
    asked = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(0.1)
    with pytest.raises(RuntimeError, match="already running"):
        await anext(chunks)
    assert await asked == "b"
    assert await played(chunks) == ([], None)


@pytest.mark.parametrize("taken", [1, 2])
async def test_one_that_is_forgotten_half_read_is_closed_by_the_loop(fake: FakeTime, make: Make, taken: int) -> None:
    upstream, source = make(max_concurrency=2), Source([Wait(9)], ["", "a", "b"])
    chunks = upstream.stream(source.chunks, hedge=0.1)
    with record_events() as events:
        for _ in range(taken):
            await anext(chunks)
        del chunks
        gc.collect()
        await asyncio.sleep(0.1)
    assert source.closed == [1, 2]
    assert shape(events) == [(1, "cancelled"), (2, "success"), ("closed", 2)]


async def test_a_consumer_that_is_closed_from_outside_leaves_no_copy_running(make: Make) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    upstream, source = make(max_concurrency=2), Source(["a", Wait(1), "b"])
    with FakeTime():
        chunks = upstream.stream(source.chunks, hedge=0.1)
        assert await anext(chunks) == "a"
        asking = chunks.__anext__()
        asking.send(None)
        await asyncio.sleep(0.1)
        asking.close()
        del asking, chunks
        gc.collect()
        await asyncio.sleep(5)
        gc.collect()
    assert source.closed == [1]
    assert upstream.snapshot().in_flight == 0
    # The interpreter closes the generator while it is closed; that is told without a hedge too.
    assert [one for one in told if "was destroyed" in one] == []


def test_on_every_loop_it_flows_and_nothing_is_left(run: Run) -> None:
    told: list[Any] = []
    closed: list[int] = []

    async def source() -> AsyncGenerator[int]:
        attempt = current_attempt()
        assert attempt is not None
        try:
            await asyncio.sleep(9 if attempt.number == 1 else 0)
            for chunk in range(5):
                yield chunk
                await asyncio.sleep(0)
        finally:
            closed.append(attempt.number)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        results = await asyncio.gather(*(played(stream(source, hedge=Hedge(0.005))) for _ in range(50)))
        assert results == [([0, 1, 2, 3, 4], None)] * 50  # each has a hedge of its own, which may send a copy
        assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()
        await asyncio.sleep(0)

    run(main())
    assert sorted(closed) == [1] * 50 + [2] * 50
    assert told == []


@pytest.mark.parametrize("ended", ["half read", "waiting", "racing"])
def test_the_end_of_the_loop_closes_what_was_left(run: Run, ended: str) -> None:
    told: list[Any] = []
    upstream = Upstream("service", breaker=CircuitBreaker(), max_concurrency=5)
    closed: list[int] = []

    async def source() -> AsyncGenerator[str]:
        try:
            await asyncio.sleep(60 if ended == "racing" else 0)
            yield "a"
            await asyncio.sleep(60)
            yield "b"
        finally:
            closed.append(1)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        chunks = upstream.stream(source, hedge=0.005)
        kept.append(chunks)
        if ended == "half read":
            await anext(chunks)
            return
        kept.append(asyncio.create_task(played(chunks)))
        await asyncio.sleep(0.02)

    kept: list[Any] = []
    run(main())
    kept.clear()
    gc.collect()
    assert closed == ([1, 1] if ended == "racing" else [1])
    assert at_rest(upstream)
    assert told == []


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_loop_that_is_closed_under_it_leaves_no_place_taken_and_no_noise(
    waiting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", noise.append)
    upstream = Upstream("service", breaker=CircuitBreaker(), max_concurrency=5)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)

    async def source() -> AsyncGenerator[str]:
        yield "a"
        await asyncio.get_running_loop().create_future()
        yield "b"

    async def main() -> None:
        chunks = upstream.stream(source, hedge=0.005, **NO_LIMIT)
        kept.append(chunks)
        await anext(chunks)
        if waiting:
            kept.append(asyncio.create_task(played(chunks)))
            await asyncio.sleep(0.01)
        assert upstream.snapshot().in_flight == 1

    kept: list[Any] = []
    loop.run_until_complete(main())
    loop.close()
    kept.clear()
    del loop, main
    gc.collect()
    assert upstream.snapshot().in_flight == 0
    assert [one.exc_value for one in noise] == []


# ---- what a source is told of its end --------------------------------------------------------------------------------


class Told:
    """A context manager that notes what it was left with."""

    def __init__(self, source: Source, told: list[Any]) -> None:
        self.source, self.told = source, told

    async def __aenter__(self) -> AsyncGenerator[Any]:
        return self.source.chunks()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        assert (kind, trace) == (None, None) if error is None else kind is type(error)
        self.told.append(kind)


@pytest.mark.parametrize("hedge", [None, Hedge(0.1)], ids=["plain", "hedged"])
@pytest.mark.parametrize("end", [exhausted, closed, failed, cancelled])
async def test_its_context_manager_gets_what_has_ended_the_stream(
    fake: FakeTime, end: Callable[[Any], Coroutine[Any, Any, None]], hedge: Hedge | None
) -> None:
    told: list[Any] = []
    last: list[Any] = [ConnectionError()] if end is failed else ["c"]
    source = Source(["a", Wait(1), "b", *last])
    chunks = stream(lambda: Told(source, told), hedge=hedge)
    assert await anext(chunks) == "a"
    await end(chunks)
    expected: dict[Any, Any] = {
        exhausted: None, closed: GeneratorExit, failed: ConnectionError, cancelled: asyncio.CancelledError,
    }  # fmt: skip
    assert told == [expected[end]]


@pytest.mark.parametrize("hedge", [None, Hedge(0.1)], ids=["plain", "hedged"])
@pytest.mark.parametrize("end", ["closed", "failed", "whole"])
async def test_all_that_was_opened_is_closed_though_a_cancellation_comes_in_the_middle(
    fake: FakeTime, end: str, hedge: Hedge | None
) -> None:
    log: list[str] = []

    class Chunks:
        def __init__(self) -> None:
            self.left: list[Any] = ["a", "b"]

        def __aiter__(self) -> Chunks:
            return self

        async def __anext__(self) -> str:
            if self.left:
                return str(self.left.pop(0))
            if end == "failed":
                raise ConnectionError
            raise StopAsyncIteration

        async def aclose(self) -> None:
            log.append("the chunks are closing")
            try:
                await asyncio.sleep(1)
            finally:
                log.append("chunks")

    class Outer:
        async def __aenter__(self) -> Chunks:
            return Chunks()

        async def __aexit__(self, *_: object) -> None:
            await asyncio.sleep(0.5)
            log.append("manager")

    async def consume() -> None:
        async with stream(Outer, hedge=hedge) as chunks:
            async for chunk in chunks:
                if end == "closed" and chunk == "b":
                    break

    task = asyncio.create_task(consume())
    while not log:
        await asyncio.sleep(0.01)
    task.cancel()
    [ended] = await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(2)
    assert isinstance(ended, asyncio.CancelledError)
    assert log == ["the chunks are closing", "chunks", "manager"]


# ---- what can't be hedged --------------------------------------------------------------------------------------------


def blocking() -> Generator[int]:
    yield 1


@pytest.mark.parametrize(
    "form",
    [
        lambda: next(iter(stream(blocking, hedge=Hedge(0.1)))),
        lambda: retry(hedge=Hedge(0.1))(blocking),
        lambda: retry_call(blocking, retry_options={"hedge": Hedge(0.1)}),
        lambda: Upstream("a").retry(hedge=Hedge(0.1))(blocking),
        lambda: next(iter(Upstream("a").stream(blocking, hedge=True))),
    ],
)
def test_a_blocking_stream_is_refused(form: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="hedge= needs an async stream: a blocking one can't be stopped"):
        form()


def test_under_trio_it_is_told_what_to_do() -> None:
    async def source() -> AsyncGenerator[int]:
        yield 1

    async def main() -> None:
        async for _ in stream(source, hedge=Hedge(0.1)):
            pass

    with pytest.raises(RuntimeError, match="needs asyncio: its copies are tasks; under trio leave hedge= out"):
        trio.run(main)


# ---- bodies that are over ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("winner", [1, 2])
@pytest.mark.parametrize("end", ["exhausted", "broken", "closed"])
async def test_one_that_is_over_frees_its_function_and_arguments_without_the_collector(
    fake: FakeTime, end: str, winner: int
) -> None:
    async def use() -> list[weakref.ref[Any]]:
        big = Big()

        async def source(given: Big) -> AsyncGenerator[str]:
            attempt = current_attempt()
            assert attempt is not None
            await asyncio.sleep(9 if attempt.number < winner else 0)
            yield "a"
            if end == "broken":
                raise ConnectionError
            yield "b"

        body = retry(hedge=0.1)(source)(big)
        assert await anext(body) == "a"
        if end == "closed":
            await body.aclose()
        elif end == "broken":
            with pytest.raises(StreamInterrupted):
                await anext(body)
        else:
            assert [chunk async for chunk in body] == ["b"]
        return [weakref.ref(big), weakref.ref(source)]

    gc.collect()
    gc.disable()
    try:
        found = await use()
        await asyncio.sleep(0)
        assert [one() for one in found] == [None, None]
    finally:
        gc.enable()


class Big:
    """Something that a stream was given."""


@pytest.mark.parametrize("number", [2, 3])
async def test_the_collector_leaves_a_later_attempt_its_scope_and_its_place(
    fake: FakeTime, make: Make, number: int
) -> None:
    upstream = make(max_concurrency=5, adaptive=False)
    seen: list[tuple[Any, ...]] = []

    def look() -> tuple[Any, ...]:
        attempt, left = current_attempt(), current_deadline()
        return attempt and attempt.number, left and round(left.remaining() + fake.now, 6), upstream.snapshot().in_flight

    async def source() -> AsyncGenerator[str]:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number < number:
            raise ConnectionError
        for chunk in ("", "a", "b"):  # the first one comes while the race is on
            await asyncio.sleep(0.01)
            seen.append(look())
            gc.collect()
            seen.append(look())
            yield chunk

    chunks, error = await played(upstream.stream(source, hedge=Hedge(5.0), max_attempts=6, deadline=60, **QUICK))
    assert (chunks, error) == (["", "a", "b"], None)
    assert seen == [(number, 60.0, 1)] * 6


@pytest.mark.parametrize("winner", [1, 2])
async def test_a_context_manager_is_left_each_time_a_stream_is_read_to_its_end(fake: FakeTime, winner: int) -> None:
    entered: list[int] = []
    left: list[int] = []

    @asynccontextmanager
    async def connected() -> AsyncIterator[AsyncIterator[str]]:
        attempt = current_attempt()
        assert attempt is not None
        entered.append(attempt.number)
        try:
            yield chunks(attempt.number)
        finally:
            left.append(attempt.number)

    async def chunks(number: int) -> AsyncIterator[str]:
        await asyncio.sleep(9 if number < winner else 0)
        yield "a"
        yield "b"

    for count in range(1, 21):
        assert await played(stream(connected, hedge=Hedge(0.1))) == (["a", "b"], None)
        assert (len(entered), sorted(left)) == (count * winner, sorted(entered))
        assert len(asyncio.all_tasks()) == 1


async def test_one_that_lingers_over_a_restart_gives_back_its_own_place_and_no_other(
    fake: FakeTime, make: Make
) -> None:
    upstream = make(max_concurrency=5, adaptive=False)
    running: set[int] = set()
    short: list[tuple[int, int]] = []
    lingered: list[int] = []

    async def source() -> AsyncGenerator[str]:
        attempt = current_attempt()
        assert attempt is not None
        running.add(attempt.number)
        try:
            if attempt.number == 1:
                try:
                    await asyncio.sleep(10)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.6)
                    lingered.extend(running)
                    raise
            yield "a"
            if attempt.number == 2:
                raise ConnectionError
            await asyncio.sleep(1)
            yield "b"
        finally:
            running.discard(attempt.number)

    async def watch() -> None:
        while True:
            taken = upstream.snapshot().in_flight
            if taken < len(running):
                short.append((taken, len(running)))
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    chunks, error = await played(
        upstream.stream(source, hedge=Hedge(0.05), after_content="restart", backoff=[0.01], jitter="none")
    )
    await asyncio.sleep(1)
    watching.cancel()
    await asyncio.wait([watching])
    assert (chunks, error) == (["a", Restarted(attempt=3, discarded=1), "a", "b"], None)
    assert lingered == [1, 3]
    assert (short, running) == ([], set())
    assert upstream.snapshot().in_flight == 0


@pytest.mark.parametrize("winner", [1, 2])
@pytest.mark.parametrize("rule", ["content", "ends", "text", "error"])
async def test_a_mistake_in_a_rule_leaves_as_it_is_and_is_no_failure_of_the_service(
    fake: FakeTime, make: Make, rule: str, winner: int
) -> None:
    class Mistake(TimeoutError):
        """Looks like a failure of the service."""

    def broken(_: object) -> Any:
        raise Mistake

    rules: dict[str, Any] = {rule: broken}
    upstream = make(max_concurrency=5, adaptive=False, breaker=CircuitBreaker(1))
    source = Source([Wait(9 if winner == 2 else 0), "a", "b"], ["a", "b"])
    options: dict[str, Any] = {"hedge": Hedge(0.1), "events": StreamEvents(**rules), "max_attempts": 4}
    chunks, error = await played(upstream.stream(source.chunks, **options))
    assert (chunks, type(error)) == ([], Mistake)
    assert source.opened == sorted(source.closed) == list(range(1, winner + 1))
    snapshot = upstream.snapshot()
    assert snapshot.breaker is not None
    assert (snapshot.breaker.state, snapshot.breaker.openings) == ("closed", 0)
    assert (snapshot.failures, snapshot.successes) == ({}, 0)


async def test_copies_of_streams_written_at_one_place_are_bounded_together(fake: FakeTime) -> None:
    opened: list[int] = []

    async def source() -> AsyncGenerator[str]:
        opened.append(1)
        await asyncio.sleep(1)
        yield "a"

    for _ in range(200):
        chunks = stream(lambda: source(), hedge=0.01, **NO_LIMIT)  # noqa: PLW0108  # the lambda is the point
        assert await played(chunks) == (["a"], None)
    assert SAVED <= len(opened) - 200 <= SAVED + 0.05 * 200


@pytest.mark.parametrize("winner", [1, 2])
async def test_a_task_that_the_source_has_started_is_in_no_attempt_once_the_stream_is_over(
    fake: FakeTime, winner: int
) -> None:
    seen: list[tuple[bool, bool]] = []
    tasks: list[asyncio.Task[None]] = []

    async def in_the_background() -> None:
        for _ in range(2):
            seen.append((current_attempt() is not None, current_deadline() is not None))
            await asyncio.sleep(1)

    async def source() -> AsyncGenerator[str]:
        attempt = current_attempt()
        assert attempt is not None
        await asyncio.sleep(9 if attempt.number < winner else 0)
        tasks.append(asyncio.create_task(in_the_background()))
        await asyncio.sleep(0.01)
        yield "a"

    assert await played(stream(source, hedge=Hedge(0.1), deadline=30)) == (["a"], None)
    await asyncio.gather(*tasks)
    assert seen == [(True, True), (False, False)]
