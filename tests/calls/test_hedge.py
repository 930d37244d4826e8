"""`hedge`: the first answer wins, whatever else was sent is ended, and no copy is sent that a guard speaks against."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
import trio

from forbear import (
    ApiError,
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    Hedge,
    RateLimiter,
    ResultRejected,
    RetriesExhausted,
    RetryBudget,
    RetryError,
    RetryState,
    Upstream,
    attempts,
    current_attempt,
    current_deadline,
    deadline,
    hedge,
    llm_retry,
    retry,
    retry_call,
    retry_sync,
)
from forbear.core.events import AttemptEnded, CallEnded, Event
from forbear.core.hedge import SAVED
from forbear.errors import UsageError
from forbear.testing import FakeTime, Flaky, Hang, record_events

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Make = Callable[..., Upstream]
NO_LIMIT: dict[str, Any] = {"deadline": None, "attempt_timeout": None}


@pytest.fixture
async def fake() -> AsyncGenerator[FakeTime]:
    """Virtual time; when the test is over no task but its own may be left."""
    with FakeTime() as time:
        yield time
        assert len(asyncio.all_tasks()) == 1


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes upstreams, of whose capacity nothing may be taken when the test is over."""
    made: list[Upstream] = []

    def upstream(**options: Any) -> Upstream:
        made.append(Upstream("service", **{"breaker": CircuitBreaker(failure_threshold=1000), **options}))
        return made[-1]

    yield upstream
    for one in made:
        assert at_rest(one)


def at_rest(upstream: Upstream) -> bool:
    snapshot = upstream.snapshot()
    trials = 0 if snapshot.breaker is None else snapshot.breaker.trials
    return (snapshot.in_flight, snapshot.waiting, snapshot.waiting_retries, trials) == (0, 0, 0, 0)


class Server:
    """Answers each request by script: seconds until its outcome, and the outcome. Notes what became of each."""

    def __init__(self, *script: tuple[float, Any], then: tuple[float, Any] | None = None) -> None:
        self.script, self.then = script, then
        self.began: list[float] = []
        self.ended: dict[int, str] = {}
        self.numbers: list[int] = []
        self.clock: Callable[[], float] = asyncio.get_running_loop().time

    async def __call__(self, *_: Any) -> Any:
        number = len(self.began)
        self.began.append(round(self.clock(), 6))
        attempt = current_attempt()
        assert attempt is not None
        self.numbers.append(attempt.number)
        if number >= len(self.script) and self.then is None:
            raise AssertionError(f"request {number + 1} of {len(self.script)}")
        seconds, outcome = self.script[number] if number < len(self.script) else self.then  # type: ignore[misc]
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.ended[number] = "cancelled"
            raise
        self.ended[number] = "done"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


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


# ---- the first answer --------------------------------------------------------------------------------------------


async def test_a_quick_answer_needs_no_copy(fake: FakeTime) -> None:
    server = Server((0.1, "first"))
    assert await hedge(server, delay=0.2) == "first"
    assert server.began == [0.0]
    assert fake.now == pytest.approx(0.1)


async def test_a_slow_one_gets_a_copy_whose_answer_returns_at_once(fake: FakeTime) -> None:
    server = Server((5.0, "first"), (0.05, "second"))
    assert await hedge(server, delay=0.2) == "second"
    assert fake.now == pytest.approx(0.25)
    assert server.began == pytest.approx([0.0, 0.2])
    assert server.ended == {1: "done", 0: "cancelled"}


async def test_the_first_may_still_win(fake: FakeTime) -> None:
    server = Server((0.3, "first"), (5.0, "second"))
    assert await hedge(server, delay=0.2) == "first"
    assert fake.now == pytest.approx(0.3)
    assert server.ended == {0: "done", 1: "cancelled"}


async def test_more_copies_follow_each_other_at_the_same_distance(fake: FakeTime) -> None:
    server = Server((5.0, 1), (5.0, 2), (5.0, 3), (0.1, 4))
    assert await hedge(server, delay=0.2, max_copies=4) == 4
    assert server.began == pytest.approx([0.0, 0.2, 0.4, 0.6])
    assert [server.ended[number] for number in range(4)] == ["cancelled"] * 3 + ["done"]
    assert fake.now == pytest.approx(0.7)


@pytest.mark.parametrize("copies", [2, 3])
async def test_no_more_copies_than_allowed(fake: FakeTime, copies: int) -> None:
    server = Server(then=(1.0, "done"))
    assert await hedge(server, delay=0.01, max_copies=copies) == "done"
    assert len(server.began) == copies


async def test_without_a_delay_all_begin_together(fake: FakeTime) -> None:
    server = Server((5.0, 1), (1.0, 2), (5.0, 3))
    assert await hedge(server, delay=0, max_copies=3) == 2
    assert server.began == [0.0, 0.0, 0.0]
    assert fake.now == pytest.approx(1.0)


async def test_losers_have_ended_when_the_answer_is_there(fake: FakeTime) -> None:
    log: list[str] = []

    async def fn() -> str:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number == 2:
            return "second"
        try:
            await asyncio.sleep(9)
        finally:
            await asyncio.sleep(0.03)
            log.append("cleaned up")
        raise AssertionError

    assert await hedge(fn, delay=0.2) == "second"
    assert log == ["cleaned up"]
    assert fake.now == pytest.approx(0.23)


@pytest.mark.parametrize("stubborn", [1, 2])
@pytest.mark.parametrize("brings", ["an answer", "an error", "its cancellation"])
async def test_a_loser_that_does_not_end_is_not_waited_for_and_not_lost(
    fake: FakeTime, make: Make, stubborn: int, brings: str
) -> None:
    upstream, ended = make(), list[int]()
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def fn() -> str:
        attempt = current_attempt()
        assert attempt is not None
        number = attempt.number
        if number != stubborn:
            await asyncio.sleep(0.4 if number == 1 else 0.2)
            return "done"
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            await asyncio.sleep(3)
            ended.append(number)
            if brings == "its cancellation":
                raise
        if brings == "an error":
            raise ConnectionError
        return "late"

    assert await upstream.retry(fn, hedge=0.2, **NO_LIMIT) == "done"
    assert fake.now == pytest.approx(0.5)
    assert ended == []
    assert upstream.snapshot().in_flight == 1, "the one that has not ended still keeps its place"
    await asyncio.sleep(2.8)
    assert upstream.snapshot().in_flight == 1
    await asyncio.sleep(0.2)
    assert ended == [stubborn]
    assert upstream.snapshot().in_flight == 0
    gc.collect()
    assert told == []


# ---- failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["failure first", "success first"])
async def test_an_answer_beats_a_failure_of_the_same_tick(fake: FakeTime, order: str) -> None:
    for error in (ConnectionError(), ApiError(400)):
        gate = asyncio.get_running_loop().create_future()

        async def fn(gate: asyncio.Future[None] = gate, error: Exception = error) -> str:
            attempt = current_attempt()
            assert attempt is not None
            await gate
            if (attempt.number == 1) == (order == "failure first"):
                raise error
            return "answer"

        task = asyncio.create_task(hedge(fn, delay=0.1))
        await asyncio.sleep(0.2)
        gate.set_result(None)
        assert await task == "answer"


async def test_two_answers_of_the_same_tick_are_both_told_and_one_returns(fake: FakeTime, make: Make) -> None:
    upstream = make()
    server = Server((0.3, "first"), (0.2, "second"))
    with record_events() as events:
        assert await upstream.hedge(server, delay=0.1) in ("first", "second")
    assert sorted(shape(events)[:-1]) == [(1, "success"), (2, "success")]
    assert shape(events)[-1] == ("success", 2)
    assert (upstream.snapshot().successes, upstream.snapshot().hedges) == (2, 1)


async def test_a_failure_that_may_pass_sends_the_next_copy_at_once(fake: FakeTime) -> None:
    server = Server((0.1, ConnectionError()), (0.1, "second"))
    assert await hedge(server, delay=5) == "second"
    assert server.began == pytest.approx([0.0, 0.1])
    assert fake.now == pytest.approx(0.2)


async def test_it_does_so_while_another_copy_is_under_way(fake: FakeTime) -> None:
    server = Server((0.5, ConnectionError()), (0.3, ConnectionError()), (0.6, "third"))
    assert await hedge(server, delay=0.1, max_copies=3) == "third"
    assert server.began == pytest.approx([0.0, 0.1, 0.2])  # the third was due before the second had failed
    server = Server((5.0, "first"), (0.01, ConnectionError()), (0.6, "third"))
    assert await hedge(server, delay=0.5, max_copies=3) == "third"
    assert [round(began - server.began[0], 6) for began in server.began] == pytest.approx([0.0, 0.5, 0.51])


async def test_where_the_server_asks_for_a_pause_no_copy_is_sent(fake: FakeTime) -> None:
    server = Server((0.05, ApiError(503, retry_after=2.0)), (0.05, "next round"))
    assert await hedge(server, delay=0.1, jitter="none") == "next round"
    assert server.began == pytest.approx([0.0, 2.05])
    assert len(fake.sleeps) == 1


async def test_a_pause_asked_of_one_ends_no_other(fake: FakeTime) -> None:
    server = Server((0.5, "first"), (0.05, ApiError(503, retry_after=2.0)), (9.0, "never"))
    assert await hedge(server, delay=0.1, max_copies=3) == "first"
    assert server.began == pytest.approx([0.0, 0.1])
    assert fake.now == pytest.approx(0.5)


@pytest.mark.parametrize("number", [0, 1])
async def test_a_failure_that_can_not_pass_ends_all(fake: FakeTime, number: int) -> None:
    error = ApiError(400)
    script: list[tuple[float, Any]] = [(9.0, "slow"), (9.0, "slow")]
    script[number] = (0.3, error)
    server = Server(*script)
    with record_events() as events, pytest.raises(ApiError) as caught:
        await hedge(server, delay=0.1)
    assert caught.value is error
    assert fake.now == pytest.approx(0.3 if number == 0 else 0.4)
    assert server.ended[1 - number] == "cancelled"
    assert shape(events) == [(number + 1, "failure"), (2 - number, "cancelled"), ("permanent", 2)]


async def test_if_all_fail_the_firsts_error_leaves_and_the_history_is_in_order(fake: FakeTime) -> None:
    first, second, third = ConnectionError("1"), ApiError(500), ApiError(503)
    server = Server((0.5, first), (0.1, second), (0.1, third))
    with pytest.raises(RetriesExhausted) as caught:
        await hedge(server, delay=0.1, max_copies=3, max_attempts=3)
    error = caught.value
    assert error.__cause__ is error.last_error is first
    assert error.attempts == 3
    assert [(one.number, one.status) for one in error.history] == [(1, None), (2, 500), (3, 503)]
    assert [one.elapsed for one in error.history] == pytest.approx([0.5, 0.1, 0.1])
    assert error.elapsed == pytest.approx(0.5)


async def test_then_comes_the_wait_and_the_next_round(fake: FakeTime) -> None:
    server = Server((0.3, ConnectionError()), (0.1, ConnectionError()), (0.7, "late"), (0.1, "fourth"))
    with record_events() as events:
        assert await hedge(server, delay=0.1, backoff=[2.0], jitter="none") == "fourth"
    assert server.began == pytest.approx([0.0, 0.1, 2.3, 2.4])
    assert server.numbers == [1, 2, 3, 4]
    assert fake.sleeps == [2.0]
    assert shape(events) == [
        (2, "failure"), (1, "failure"), ("wait", 1), (4, "success"), (3, "cancelled"), ("success", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), [(3.0, 7.0), (7.0, 3.0), (None, 4.0), (4.0, None)])
async def test_the_longest_pause_that_was_asked_for_counts(
    fake: FakeTime, one: float | None, other: float | None
) -> None:
    server = Server((0.3, ApiError(503, retry_after=one)), (0.1, ApiError(503, retry_after=other)), (0.0, "done"))
    assert await hedge(server, delay=0.1, backoff=[0.1], jitter="none", retry_after_jitter=0) == "done"
    assert fake.sleeps == [max(one or 0.0, other or 0.0)]


async def test_the_final_error_tells_the_longest_pause(fake: FakeTime) -> None:
    server = Server((0.3, ApiError(503, retry_after=3)), (0.1, ApiError(503, retry_after=500)))
    with pytest.raises(DeadlineExceeded) as caught:
        await hedge(server, delay=0.1)
    assert (caught.value.hint, caught.value.attempts) == (500, 2)


@pytest.mark.parametrize(("allowed", "rounds"), [(1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2]), (5, [2, 2, 1])])
async def test_copies_count_as_attempts(fake: FakeTime, allowed: int, rounds: list[int]) -> None:
    server = Server(then=(1.0, ConnectionError()))
    with pytest.raises(RetriesExhausted) as caught:
        await hedge(server, delay=0.1, max_attempts=allowed, backoff=[10.0], jitter="none")
    assert caught.value.attempts == len(server.began) == allowed
    assert server.numbers == list(range(1, allowed + 1))
    assert [sum(10.5 * number <= at < 10.5 * (number + 1) for at in server.began) for number in range(len(rounds))] == (
        rounds
    )


async def test_a_retry_that_only_ever_has_a_delay_too_long_is_a_plain_retry(fake: FakeTime) -> None:
    server = Server((0.1, ConnectionError()), (0.1, "second"))
    assert await hedge(server, delay=1e300, max_attempts=5) == "second"
    assert fake.sleeps == []  # the copy goes at once, it is no retry


# ---- limits of time ----------------------------------------------------------------------------------------------


async def test_each_copy_has_its_own_attempt_timeout(fake: FakeTime) -> None:
    server = Server((9.0, "never"), (0.9, "second"))
    timeouts: list[float | None] = []

    async def fn() -> Any:
        attempt = current_attempt()
        assert attempt is not None
        timeouts.append(attempt.timeout)
        return await server()

    assert await hedge(fn, delay=0.5, attempt_timeout=1.0, deadline=None) == "second"
    assert timeouts == pytest.approx([1.0, 1.0])
    assert fake.now == pytest.approx(1.4)
    assert server.ended == {0: "cancelled", 1: "done"}


async def test_if_all_are_too_slow_the_call_is_too(fake: FakeTime) -> None:
    server = Server(then=(9.0, "never"))
    with pytest.raises(RetriesExhausted) as caught:
        await hedge(server, delay=0.5, attempt_timeout=1.0, max_attempts=2)
    assert isinstance(caught.value.last_error, TimeoutError)
    assert "attempt 1 took longer than attempt_timeout=1 s" in str(caught.value.last_error)
    assert fake.now == pytest.approx(1.5, abs=0.02)


@pytest.mark.parametrize("ambient", [False, True])
@pytest.mark.parametrize("timeout", [None, 1.1])
@pytest.mark.parametrize("ends", ["never", "in failure"])
async def test_one_deadline_covers_all_copies_rounds_and_waits(
    fake: FakeTime, ambient: bool, timeout: float | None, ends: str
) -> None:
    server = Server(then=(1e6, None) if ends == "never" else (0.4, ConnectionError()))
    with pytest.raises(DeadlineExceeded) as caught:
        async with deadline(5.0 if ambient else None):
            await hedge(
                server, delay=0.3, max_attempts=10**6, backoff=[0.7], attempt_timeout=timeout,
                deadline=None if ambient else 5.0,
            )  # fmt: skip
    assert 4.0 <= fake.now <= 5.02
    assert max(server.began) < 5.0
    assert caught.value.attempts == len(server.began) > 1


async def test_no_copy_begins_with_too_little_time(fake: FakeTime) -> None:
    server = Server(then=(9.0, "never"))
    with pytest.raises(DeadlineExceeded):
        await hedge(server, delay=0.5, deadline=1.0, minimum_attempt=0.6)
    assert server.began == [0.0]


async def test_the_ambient_deadline_holds_inside_the_copies(fake: FakeTime) -> None:
    left: list[float] = []

    async def fn() -> str:
        granted = current_deadline()
        assert granted is not None
        left.append(granted.remaining())
        await asyncio.sleep(0.3)
        return "done"

    async with deadline(2.0):
        assert await hedge(fn, delay=0.1, deadline=30) == "done"
    assert left == pytest.approx([2.0, 1.9])


# ---- what a copy sees --------------------------------------------------------------------------------------------

seen: ContextVar[str] = ContextVar("seen", default="nothing")


async def test_copies_share_a_key_and_have_numbers_of_their_own(fake: FakeTime) -> None:
    keys: list[str] = []
    numbers: list[int] = []

    async def fn() -> str:
        attempt = current_attempt()
        assert attempt is not None
        numbers.append(attempt.number)
        keys.append(attempt.idempotency_key)
        await asyncio.sleep(0.5)
        keys.append(attempt.idempotency_key)
        if attempt.number < 4:
            raise ConnectionError
        return "done"

    assert await hedge(fn, delay=0.1) == "done"
    assert numbers == [1, 2, 3, 4]
    assert len(keys) >= 7
    assert len(set(keys)) == 1
    other: list[str] = []

    async def again() -> None:
        attempt = current_attempt()
        assert attempt is not None
        other.append(attempt.idempotency_key)

    await hedge(again, delay=0.1)
    assert other != keys[:1]


async def test_a_key_that_only_the_copy_asks_for_is_the_calls(fake: FakeTime) -> None:
    keys: dict[int, str] = {}

    async def fn() -> str:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number != 1:
            keys[attempt.number] = attempt.idempotency_key
            raise ConnectionError
        await asyncio.sleep(0.5)
        raise ConnectionError

    with pytest.raises(RetriesExhausted):
        await hedge(fn, delay=0.1, max_attempts=4)
    assert set(keys) == {2, 3, 4}
    assert len(set(keys.values())) == 1


async def test_copies_see_the_callers_context_and_not_each_others(fake: FakeTime) -> None:
    found: list[str] = []

    async def fn() -> str:
        found.append(seen.get())
        seen.set("a copy's own")
        await asyncio.sleep(0.5)
        return "done"

    seen.set("the caller's")
    assert await hedge(fn, delay=0.1, max_copies=3) == "done"
    assert found == ["the caller's"] * 3
    assert seen.get() == "the caller's"
    assert current_attempt() is None


async def test_methods_lambdas_partials_and_plain_functions_work(fake: FakeTime) -> None:
    class Client:
        def __init__(self) -> None:
            self.calls = 0

        @hedge(delay=0.1)
        async def get(self, url: str, *, verb: str = "GET") -> str:
            self.calls += 1
            await asyncio.sleep(0.5 if self.calls == 1 else 0.1)
            return f"{verb} {url} {self.calls}"

    client = Client()
    assert await client.get("/a", verb="PUT") == "PUT /a 2"
    server = Server((5.0, 1), (0.1, 2))
    assert await hedge(lambda: server(), delay=0.1) == 2  # noqa: PLW0108  # the lambda is the point
    server = Server((5.0, 1), (0.1, 2))

    @retry(hedge=0.1)
    def plain() -> Any:
        return server()

    assert await plain() == 2
    server = Server((5.0, 1), (0.1, 2))
    assert await retry_call(server, "argument", retry_options={"hedge": 0.1}) == 2
    server = Server((5.0, 1), (0.1, 2))
    assert await llm_retry(hedge=0.1)(lambda: server())() == 2  # noqa: PLW0108


async def test_a_hedge_inside_a_hedge(fake: FakeTime) -> None:
    server = Server((5.0, 1), (5.0, 2), (5.0, 3), (0.1, 4), then=(5.0, 5))
    assert await hedge(lambda: hedge(server, delay=0.1), delay=0.15) == 4
    assert fake.now == pytest.approx(0.35)
    assert set(server.ended.values()) <= {"cancelled", "done"}
    assert len(server.ended) == len(server.began)


# ---- rules and hooks of the caller -------------------------------------------------------------------------------


async def test_an_answer_that_is_refused_does_not_win(fake: FakeTime) -> None:
    server = Server((0.5, "good"), (0.1, "bad"))
    assert await hedge(server, delay=0.2, retry_if_result=lambda result: result == "bad") == "good"
    assert fake.now == pytest.approx(0.5)
    server = Server((0.1, "bad"), (0.1, "good"))
    assert await hedge(server, delay=5.0, retry_if_result=lambda result: result == "bad") == "good"
    assert server.began[1] - server.began[0] == pytest.approx(0.1)


async def test_if_all_are_refused_the_first_is_the_last_result(fake: FakeTime) -> None:
    server = Server((0.5, "one"), (0.1, "two"))
    with pytest.raises(RetriesExhausted) as caught:
        await hedge(server, delay=0.2, max_attempts=2, retry_if_result=lambda _: True, reraise=True)
    assert isinstance(caught.value.last_error, ResultRejected)
    assert caught.value.last_result == "one"


async def test_of_a_good_and_a_bad_answer_in_the_same_tick_the_good_one_wins(fake: FakeTime) -> None:
    for script in (((0.3, "bad"), (0.2, "good")), ((0.3, "good"), (0.2, "bad"))):
        assert await hedge(Server(*script), delay=0.1, retry_if_result=lambda result: result == "bad") == "good"


@pytest.mark.parametrize("number", [0, 1])
async def test_a_mistake_in_a_rule_leaves_at_once_and_everything_comes_back(
    fake: FakeTime, make: Make, number: int
) -> None:
    upstream = make(max_concurrency=4)
    script: list[tuple[float, Any]] = [(9.0, "slow"), (9.0, "slow")]
    script[number] = (0.2, "answer")

    def broken(_: object) -> bool:
        raise ZeroDivisionError

    with record_events() as events, pytest.raises(ZeroDivisionError):
        await upstream.retry(Server(*script), hedge=0.1, retry_if_result=broken)
    assert fake.now == pytest.approx(0.2 if number == 0 else 0.3)
    assert upstream.snapshot().in_flight == 0
    assert [event.reason for event in events.ends] == ["permanent"]
    assert events[-1] == events.ends[0]


async def test_on_retry_is_told_of_rounds_and_not_of_copies(fake: FakeTime) -> None:
    told: list[tuple[int, str]] = []
    server = Server((0.3, ConnectionError()), (0.1, ApiError(500)), (0.1, "done"))

    async def hook(state: RetryState) -> None:
        await asyncio.sleep(0.1)
        told.append((state.attempt, state.error_type))

    assert await hedge(server, delay=0.1, on_retry=hook) == "done"
    assert told == [(1, "ConnectionError")]


async def test_reraise_raises_the_firsts_error_with_its_mark(fake: FakeTime) -> None:
    first = ConnectionError()
    server = Server((0.3, first), (0.1, ApiError(500)))
    with pytest.raises(ConnectionError) as caught:
        await hedge(server, delay=0.1, max_attempts=2, reraise=True)
    assert caught.value is first
    assert any("gave up after attempt 2" in note for note in first.__notes__)


async def test_an_outer_retry_does_not_repeat_what_a_hedge_gave_up(fake: FakeTime) -> None:
    for reraise in (False, True):
        server = Server(then=(0.1, ConnectionError()))
        with pytest.raises((RetryError, ConnectionError)):
            await retry(lambda: hedge(server, delay=0.05, max_attempts=2, reraise=reraise), max_attempts=3)  # noqa: B023
        assert len(server.began) == 2


async def test_each_copy_has_one_event_and_the_call_one_at_the_end(fake: FakeTime) -> None:
    server = Server((5.0, 1), (0.1, 2))
    with record_events() as events:
        await hedge(server, delay=0.2)
    assert shape(events) == [(2, "success"), (1, "cancelled"), ("success", 2)]
    assert [event.elapsed for event in events.attempts] == pytest.approx([0.1, 0.3])
    assert events.ends[0].elapsed == pytest.approx(0.3)


# ---- cancellation ------------------------------------------------------------------------------------------------


async def two_steps(_: float) -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def hook(_: object) -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


STEPS = 70  # iterations of the loop that the scenario below takes at most, and some more


@pytest.mark.parametrize("twice", [None, 0, 1, 2])
@pytest.mark.parametrize("ends_slowly", [False, True])
@pytest.mark.parametrize("wins", [False, True])
def test_a_cancellation_leaves_wherever_it_meets_the_call_and_nothing_stays_behind(
    run: Run, twice: int | None, ends_slowly: bool, wins: bool
) -> None:
    upstream = Upstream("service", breaker=CircuitBreaker(1000), max_concurrency=10, budget=None, adaptive=False)
    running: set[object] = set()

    async def fn() -> str:
        attempt = current_attempt()
        assert attempt is not None
        number, mark = attempt.number, object()
        running.add(mark)
        try:
            for _ in range(4 if number % 2 else 2):
                await asyncio.sleep(0)
        finally:
            try:
                if ends_slowly:
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
            finally:
                running.discard(mark)
        if wins and number == 4:
            return "done"
        raise ConnectionError

    async def cancel_after(steps: int) -> bool:
        with record_events() as events:
            task = asyncio.create_task(
                upstream.retry(
                    fn, hedge=Hedge(0.0), max_attempts=4, on_retry=hook, sleep=two_steps, rng=lambda: 1.0, reraise=True
                )
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            if task.done():
                return False
            started = len(upstream.snapshot().failures)
            task.cancel()
            asked = 1
            if twice is not None:
                for _ in range(twice):
                    await asyncio.sleep(0)
                asked += task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            assert task.cancelling() == asked
            assert started <= 1
            for _ in range(4):  # for those that take their time to end
                await asyncio.sleep(0)
        assert running == set()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert at_rest(upstream)
        assert [event.reason for event in events.ends] in ([], ["cancelled"])
        assert steps == 0 or [event.reason for event in events.ends] == ["cancelled"]
        return True

    async def all_steps() -> list[bool]:
        return [await cancel_after(steps) for steps in range(STEPS)]

    met = run(all_steps())
    assert sum(met) >= 8, "the scenario must have been met at its copies, its hook and its wait"
    assert not met[-1], "and it must come to its own end within the steps"


async def test_a_cancellation_while_a_loser_ends_leaves_and_is_told(fake: FakeTime, make: Make) -> None:
    upstream = make()

    async def fn() -> str:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number == 2:
            return "second"
        try:
            await asyncio.sleep(9)
        finally:
            await asyncio.sleep(0.05)
        raise AssertionError

    with record_events() as events:
        task = asyncio.create_task(upstream.retry(fn, hedge=0.1))
        await asyncio.sleep(0.12)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1
        await asyncio.sleep(0.1)
    assert shape(events) == [(2, "success"), (1, "cancelled"), ("cancelled", 2)]


async def test_a_call_that_is_cancelled_cancels_its_copies_once_and_waits_no_longer_than_for_losers(
    fake: FakeTime,
) -> None:
    cancelled: list[float] = []

    async def fn() -> None:
        until = asyncio.get_running_loop().time() + 3
        while (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                cancelled.append(fake.now)

    task = asyncio.create_task(hedge(fn, delay=0.1))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fake.now == pytest.approx(0.6)
    assert cancelled == pytest.approx([0.5, 0.5])
    await asyncio.sleep(3)


async def test_a_timeout_around_it_is_the_callers(fake: FakeTime) -> None:
    server = Server(then=(9.0, "never"))
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(0.5):
            await hedge(server, delay=0.2)
    assert not isinstance(caught.value, RetryError)
    assert set(server.ended.values()) == {"cancelled"}
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert current_attempt() is None


async def test_an_attempt_that_cancels_itself_cancels_the_call(fake: FakeTime, make: Make) -> None:
    upstream = make()

    async def fn() -> None:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number == 2:
            raise asyncio.CancelledError
        await asyncio.sleep(9)

    with pytest.raises(asyncio.CancelledError):
        await upstream.retry(fn, hedge=0.1)
    assert fake.now == pytest.approx(0.1)
    await asyncio.sleep(0)
    assert upstream.snapshot().in_flight == 0


async def test_a_loser_that_turns_its_cancellation_into_an_error_is_no_failure(fake: FakeTime, make: Make) -> None:
    upstream = make()

    async def fn() -> str:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number == 2:
            return "second"
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            raise ConnectionError from None
        raise AssertionError

    assert await upstream.retry(fn, hedge=0.1) == "second"
    assert upstream.snapshot().failures == {}


# ---- with a service around ---------------------------------------------------------------------------------------


async def test_every_place_comes_back(fake: FakeTime, make: Make) -> None:
    upstream = make(max_concurrency=2, requests_per_minute=6000, burst=100)
    server = Server((5.0, 1), (0.1, 2))
    inside: list[int] = []

    async def fn() -> Any:
        result = await server()
        inside.append(upstream.snapshot().in_flight)
        return result

    assert await upstream.hedge(fn, delay=0.1) == 2
    assert inside == [2]
    assert upstream.snapshot().in_flight == 0


@pytest.mark.parametrize("how", ["open", "half-open", "forced"])
async def test_no_copy_while_the_breaker_is_not_closed(fake: FakeTime, how: str) -> None:
    breaker = CircuitBreaker(failure_threshold=1, recovery_time=10)
    upstream, keep, server = Upstream("service", breaker=breaker), Hedge(0.2), Server((1.0, "first"), (0.1, "second"))

    async def fail() -> None:
        with pytest.raises((RetryError, CircuitOpenError)):
            await upstream.retry(Flaky(ConnectionError()).asynchronous, max_attempts=1)

    if how == "half-open":
        await fail()
        await asyncio.sleep(20)
    with record_events() as events:
        task = asyncio.create_task(upstream.retry(server, hedge=keep))
        await asyncio.sleep(0.1)
        if how == "forced":
            breaker.force_open()
        elif how == "open":
            await fail()
        assert breaker.state == {"half-open": "half_open", "open": "open", "forced": "forced_open"}[how]
        assert await task == "first", "what is under way goes on"
    assert [event.reason for event in events.ends if event.call == "Server"] == ["success"]
    assert len(server.began) == 1
    assert keep.sent == 0
    assert keep.snapshot().balance == pytest.approx(SAVED)
    assert keep.suppressed >= 1
    assert at_rest(upstream)


async def test_no_copy_while_the_service_has_asked_for_a_pause(fake: FakeTime, make: Make) -> None:
    upstream, server, keep = make(), Server((2.0, "first"), (0.1, "second")), Hedge(0.2)
    task = asyncio.create_task(upstream.retry(server, hedge=keep))
    await asyncio.sleep(0.1)
    with pytest.raises(RetryError):
        await upstream.retry(Flaky(ApiError(429, retry_after=30)).asynchronous, max_attempts=1)
    assert upstream.snapshot().cooling > 10
    assert await task == "first"
    assert len(server.began) == 1
    assert keep.sent == 0
    assert keep.suppressed >= 1


@pytest.mark.parametrize(
    "options",
    [{"max_concurrency": 1}, {"requests_per_minute": 1, "burst": 1}, {"tokens_per_minute": 60, "burst": 60}],
)
async def test_no_copy_where_the_limits_leave_no_place(fake: FakeTime, make: Make, options: dict[str, Any]) -> None:
    upstream, server, keep = make(**options), Server((1.0, "first"), (0.1, "second")), Hedge(0.2)
    call: Any = {"tokens": 60} if "tokens_per_minute" in options else {}
    before = upstream.snapshot().budget
    assert await upstream.retry(server, hedge=keep, **call) == "first"
    assert len(server.began) == 1
    assert keep.sent == 0
    assert keep.suppressed >= 1
    assert before is not None
    assert upstream.snapshot().budget == pytest.approx(before + 0.1), "what a copy has paid that was not sent is back"
    assert upstream.snapshot().waiting == 0


async def test_no_copy_pushes_in_before_those_who_wait(fake: FakeTime, make: Make) -> None:
    upstream, keep = make(max_concurrency=2), Hedge(0.3)
    server = Server((1.0, "first"), then=(0.1, "copy"))
    order: list[str] = []

    async def other() -> None:
        order.append("other")
        await asyncio.sleep(0.25)

    hedged = asyncio.create_task(upstream.retry(server, hedge=keep))
    await asyncio.sleep(0.1)
    others = [asyncio.create_task(upstream.retry(other)) for _ in range(4)]
    assert await hedged == "first"
    await asyncio.gather(*others)
    assert order == ["other"] * 4
    assert keep.sent == 0


@pytest.mark.parametrize("when_empty", ["stop", "wait"])
async def test_no_copy_while_the_retry_budget_is_empty(fake: FakeTime, make: Make, when_empty: Any) -> None:
    upstream = make(budget=RetryBudget(initial=0.5, earned=0, when_empty=when_empty))
    server, keep = Server((1.0, "first"), (0.1, "second")), Hedge(0.2)
    with record_events() as events:
        assert await upstream.retry(server, hedge=keep) == "first"
    assert len(server.began) == 1
    assert (keep.sent, keep.snapshot().balance) == (0, SAVED)
    assert keep.suppressed >= 1
    assert shape(events) == [(1, "success"), ("success", 1)]
    assert upstream.snapshot().budget == pytest.approx(0.5)


async def test_a_copy_pays_as_a_retry_and_earns_it_back_by_winning(fake: FakeTime, make: Make) -> None:
    upstream = make(budget=RetryBudget(initial=5, earned=0))
    assert await upstream.retry(Server((5.0, 1), (0.1, 2)), hedge=0.1) == 2
    assert upstream.snapshot().budget == pytest.approx(5.0)
    assert await upstream.retry(Server((0.3, 1), (5.0, 2)), hedge=0.1) == 1
    assert upstream.snapshot().budget == pytest.approx(4.0)


@pytest.mark.parametrize("guard", ["budget", "breaker", "limiter"])
async def test_single_guards_hold_copies_back_as_well(fake: FakeTime, guard: str) -> None:
    breaker = CircuitBreaker()
    each: dict[str, dict[str, Any]] = {
        "budget": {"budget": RetryBudget(initial=0, earned=0)},
        "breaker": {"breaker": breaker},
        "limiter": {"limiter": RateLimiter(requests_per_minute=1, burst=1)},
    }
    server, keep = Server((1.0, "first"), (0.1, "second")), Hedge(0.2)

    async def fn() -> Any:
        if guard == "breaker":
            breaker.force_open()
        return await server()

    assert await retry(fn, hedge=keep, **each[guard]) == "first"
    assert len(server.began) == 1
    assert keep.suppressed >= 1


async def test_a_suppressed_copy_is_asked_for_again_a_delay_later(fake: FakeTime, make: Make) -> None:
    upstream, server, keep = make(max_concurrency=2), Server((5.0, "first"), (0.1, "second")), Hedge(0.3)
    blocker = asyncio.create_task(upstream.retry(Flaky(Hang(0.5, None)).asynchronous))
    assert await upstream.retry(server, hedge=keep) == "second"
    await blocker
    assert server.began == pytest.approx([0.0, 0.6])
    assert (keep.sent, keep.won, keep.suppressed) == (1, 1, 1)


@pytest.mark.parametrize("why", ["budget", "max_attempts", "balance"])
def test_a_copy_that_is_due_at_once_and_may_not_be_sent_does_not_keep_the_loop_busy(why: str) -> None:
    """Real time, as virtual time stands still while anything runs."""
    used_up = Hedge(0.0)
    each: dict[str, dict[str, Any]] = {
        "budget": {"budget": RetryBudget(initial=0, earned=0), "hedge": Hedge(0.0)},
        "max_attempts": {"max_attempts": 1, "hedge": Hedge(0.0)},
        "balance": {"hedge": used_up},
    }
    steps: list[int] = []

    async def main() -> None:
        if why == "balance":
            for _ in range(int(SAVED)):
                await retry(Flaky(ConnectionError(), "x").asynchronous, hedge=used_up, reraise=True)

        loop: Any = asyncio.get_running_loop()
        once = loop._run_once

        def counted() -> None:
            steps.append(1)
            once()

        loop._run_once = counted
        try:
            assert await retry(lambda: asyncio.sleep(0.2, "done"), **each[why]) == "done"
        finally:
            del loop._run_once

    asyncio.run(main())
    assert len(steps) < 50


async def test_the_snapshot_counts_what_was_sent_what_won_and_what_was_wasted(fake: FakeTime, make: Make) -> None:
    upstream = make()
    for script in (((5.0, 1), (0.1, 2)), ((0.5, 1), (5.0, 2)), ((0.1, 1), (0.0, 2))):
        await upstream.retry(Server(*script), hedge=0.2)
    snapshot = upstream.snapshot()
    assert (snapshot.hedges, snapshot.hedges_won) == (2, 1)
    assert snapshot.hedges_suppressed == 0
    assert snapshot.hedges_wasted == pytest.approx(0.3 + 0.3)
    keep = Hedge(0.2)
    await retry(Server((5.0, 1), (0.1, 2)), hedge=keep)
    found = keep.snapshot()
    assert (found.sent, found.won, found.suppressed, found.delay) == (1, 1, 0, 0.2)
    assert [found.wasted, found.balance] == pytest.approx([0.3, SAVED - 0.95])
    assert pickle.loads(pickle.dumps(found)) == found


async def test_all_calls_of_a_service_learn_together(fake: FakeTime, make: Make) -> None:
    upstream = make()

    @upstream.retry(hedge=True)
    async def one() -> None:
        await asyncio.sleep(0.1)

    for _ in range(50):
        await one()
        await upstream.retry(Flaky(Hang(0.1, None)).asynchronous, hedge=True)
    server = Server((5.0, "first"), (0.05, "second"))
    assert await upstream.hedge(server) == "second"
    assert server.began[1] - server.began[0] == pytest.approx(0.1, rel=0.02)
    server = Server((1.0, "first"))
    assert await upstream.hedge(server, max_extra_load=0.1) == "first", "other settings learn by themselves"
    other = Upstream("another")
    assert await other.hedge(Server((1.0, "first"))) == "first"


async def test_a_decorated_function_and_a_hedge_that_is_kept_learn_too(fake: FakeTime) -> None:
    for option in (True, Hedge()):
        seconds = [0.1]

        @retry(hedge=option)
        async def fn(seconds: list[float] = seconds) -> int:
            attempt = current_attempt()
            assert attempt is not None
            await asyncio.sleep(seconds[0] if attempt.number == 1 else 0.01)
            return attempt.number

        assert {await fn() for _ in range(100)} == {1}
        seconds[0] = 9.0
        assert await fn() == 2


async def test_what_was_learned_is_of_one_clock(fake: FakeTime) -> None:
    keep = Hedge(min_samples=1)
    await retry(Flaky(Hang(0.1, None)).asynchronous, hedge=keep)
    assert keep.snapshot().delay == pytest.approx(0.1, rel=0.02)
    with FakeTime():
        assert keep.snapshot().delay is None


async def test_where_it_only_observes_copies_are_sent(fake: FakeTime, make: Make) -> None:
    upstream = make(
        observe_only=True, max_concurrency=1, budget=RetryBudget(initial=0, earned=0), breaker=CircuitBreaker(1)
    )
    assert upstream.breaker is not None
    upstream.breaker.force_open()
    assert await upstream.retry(Server((5.0, "first"), (0.1, "second")), hedge=0.1) == "second"
    assert upstream.snapshot().in_flight == 0


async def test_a_half_open_breaker_is_decided_by_its_trial_alone(fake: FakeTime) -> None:
    breaker = CircuitBreaker(failure_threshold=1, recovery_time=10)
    upstream = Upstream("service", breaker=breaker)
    with pytest.raises(RetryError):
        await upstream.retry(Flaky(ConnectionError()).asynchronous, max_attempts=1)
    with pytest.raises(CircuitOpenError):
        await upstream.retry(Server((0.1, "never")), hedge=0.01)
    await asyncio.sleep(20)
    assert await upstream.retry(Server((1.0, "trial"), (0.1, "second")), hedge=0.2) == "trial"
    assert breaker.state == "closed"
    assert await upstream.retry(Server((1.0, "first"), (0.1, "second")), hedge=0.2) == "second"


async def test_losers_are_no_failures_for_the_breaker_and_failures_are(fake: FakeTime) -> None:
    breaker = CircuitBreaker(failure_threshold=2)
    upstream = Upstream("service", breaker=breaker)
    for _ in range(5):
        await upstream.retry(Server((5.0, 1), (0.1, 2)), hedge=0.1)
    assert breaker.snapshot().state == "closed"
    with pytest.raises((RetryError, CircuitOpenError)):
        await upstream.retry(Server(then=(0.3, ConnectionError())), hedge=0.1, max_attempts=2)
    assert breaker.snapshot().state == "open"
    assert at_rest(upstream)


async def test_a_rule_for_tokens_that_fails_for_the_copy_does_not_end_what_is_under_way(
    fake: FakeTime, make: Make
) -> None:
    upstream, asked = make(tokens_per_minute=6000, budget=RetryBudget(initial=5, earned=0)), list[int]()

    def tokens() -> int:
        asked.append(1)
        if len(asked) > 1:
            raise ZeroDivisionError
        return 1

    assert await upstream.retry(Server((1.0, "first"), (0.1, "second")), hedge=0.2, tokens=tokens) == "first"
    assert upstream.snapshot().budget == 5.0


async def test_a_service_counts_the_copies_that_were_due_and_not_sent(fake: FakeTime) -> None:
    upstream = Upstream("service", max_concurrency=1, adaptive=False)
    assert await upstream.retry(Server((1.0, "first")), hedge=0.2) == "first"
    snapshot = upstream.snapshot()
    assert (snapshot.hedges, snapshot.hedges_suppressed) == (0, 1)


# ---- forms that can't hedge --------------------------------------------------------------------------------------


async def no_arguments() -> None: ...


# What their types forbid already.
any_attempts: Any = attempts
any_retry: Any = retry
any_hedge: Any = hedge
AnyHedge: Any = Hedge


@pytest.mark.parametrize(
    ("form", "kind", "said"),
    [
        (lambda: retry_sync(lambda: 1, hedge=0.1), TypeError, "a blocking call can't be cancelled"),
        (lambda: retry_sync(hedge=True), TypeError, "use retry or hedge with an async function"),
        (lambda: any_attempts(hedge=0.1), TypeError, "a block can't run twice"),
        (lambda: retry(no_arguments, hedge=0.1, idempotent=False), ValueError, "says that this does harm"),
        (lambda: hedge(delay=0.1, idempotent=False), ValueError, "idempotent=False"),
        (lambda: any_retry(hedge=Hedge), ValueError, r"write hedge=Hedge\(\)"),
        (lambda: hedge(no_arguments, hedge=0.1), TypeError, "has a hedge already"),
        (lambda: hedge(hedge=Hedge()), TypeError, r"or hedge=Hedge\(\.\.\.\) to retry"),
        (lambda: any_retry(hedge=-1), ValueError, "hedge is -1"),
        (lambda: any_retry(hedge="fast"), ValueError, r"hedge must be seconds, True or a Hedge\(\.\.\.\), not str"),
        (lambda: any_retry(hedge_delay=0.1), TypeError, r"use hedge \(seconds\)"),
        (lambda: AnyHedge(percentile=95), TypeError, r"use max_extra_load \(1 - percentile\)"),
        (lambda: AnyHedge(max_hedges=1), TypeError, r"use max_copies"),
        (lambda: Hedge(max_copies=1), ValueError, "leave hedge= out"),
        (lambda: any_hedge(0.2), TypeError, "hedge needs a function, not float"),
        (lambda: any_hedge(percentile=0.95), TypeError, r"use max_extra_load \(1 - percentile\)"),
    ],
)
def test_what_can_not_work_is_refused_with_the_correction(form: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        form()


async def test_a_function_that_is_blocking_after_all_is_told(fake: FakeTime) -> None:
    @retry(hedge=0.1)
    def blocking() -> int:
        return 1

    with pytest.raises(UsageError, match="can't be awaited"):
        await blocking()  # type: ignore[misc]


def test_under_trio_it_is_told_what_to_do() -> None:
    @retry(hedge=0.1)
    async def fn() -> None: ...

    with pytest.raises(RuntimeError, match="needs asyncio: its copies are tasks; under trio leave hedge= out"):
        trio.run(fn)


async def test_no_hedge_is_none(fake: FakeTime) -> None:
    for option in (None, False):
        assert await retry(Server((5.0, "first")), hedge=option) == "first"


def test_a_hedge_is_copied_and_pickled_with_its_settings_and_without_its_state() -> None:
    keep = Hedge(0.2, max_extra_load=0.1, max_copies=3, min_samples=7)
    asyncio.run(retry(Flaky("done").asynchronous, hedge=keep))
    for twin in (copy.copy(keep), copy.deepcopy(keep), pickle.loads(pickle.dumps(keep))):
        assert twin is not keep
        assert twin.settings == keep.settings
        assert twin.snapshot().balance == SAVED
    assert repr(keep) == "<Hedge after 0.2 s, at most 10% more load>"
    assert repr(Hedge()) == "<Hedge after a learned delay, at most 5% more load>"


# ---- the loop and the collector ----------------------------------------------------------------------------------


def test_on_every_loop_the_answer_comes_and_nothing_is_left(run: Run) -> None:
    ended: list[int] = []

    async def fn() -> int:
        attempt = current_attempt()
        assert attempt is not None
        try:
            await asyncio.sleep(10 if attempt.number == 1 else 0.001)
        finally:
            ended.append(attempt.number)
        return attempt.number

    async def main() -> None:
        for delay in (0.005, 0.06):
            assert await hedge(fn, delay=delay) == 2
        results = await asyncio.gather(*(hedge(fn, delay=0.01, max_extra_load=1.0) for _ in range(50)))
        assert results == [2] * 50
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(RetryError):
            await hedge(lambda: asyncio.sleep(10), delay=0.005, attempt_timeout=0.02, max_attempts=2)

    run(main())
    assert sorted(ended) == [1] * 52 + [2] * 52


@pytest.mark.parametrize("hedged", [False, True])
@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_loop_that_is_closed_under_it_leaves_no_place_taken_and_no_noise(
    hedged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", noise.append)
    upstream = Upstream("service", breaker=CircuitBreaker(), max_concurrency=5)
    options: dict[str, Any] = {"hedge": 0.005} if hedged else {}
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        tasks.append(asyncio.create_task(upstream.retry(never, **NO_LIMIT, **options)))
        await asyncio.sleep(0.03)
        assert upstream.snapshot().in_flight == 1 + hedged

    tasks: list[asyncio.Task[Any]] = []
    loop.run_until_complete(main())
    loop.close()
    tasks.clear()
    del loop, main
    gc.collect()
    assert upstream.snapshot().in_flight == 0
    assert [one.exc_value for one in noise] == []


async def test_a_call_that_is_closed_ends_its_copies(fake: FakeTime, make: Make) -> None:
    upstream, server = make(), Server(then=(1.0, "done"))
    coroutine = upstream.retry(server, hedge=0.0)
    coroutine.send(None)
    await asyncio.sleep(0.1)
    coroutine.close()
    await asyncio.sleep(5)
    assert upstream.snapshot().in_flight == 0
    assert current_attempt() is None


class Big:
    """Something that a frame holds."""


@pytest.fixture
def no_collector() -> Generator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("reraise", [False, True])
@pytest.mark.parametrize("fails", ["all", "for good", "after losing", "by timeout", "too late"])
@pytest.mark.usefixtures("no_collector")
def test_the_frames_of_an_attempt_die_with_its_error(fails: str, reraise: bool) -> None:
    alive: list[weakref.ref[Big]] = []
    at_waits: list[int] = []

    async def fn() -> str:
        attempt = current_attempt()
        assert attempt is not None
        big = Big()
        alive.append(weakref.ref(big))
        if fails == "after losing" and attempt.number == 2:
            return "second"
        try:
            slow = fails in ("after losing", "by timeout", "too late")
            await asyncio.sleep(9 if slow else 0.003 * attempt.number)
        except asyncio.CancelledError:
            if fails == "after losing":
                raise ConnectionError from None
            raise
        raise (ApiError(400) if fails == "for good" else ConnectionError())

    async def slept(_: float) -> None:
        await asyncio.sleep(0)
        at_waits.append(sum(one() is not None for one in alive))

    async def main() -> None:
        try:
            await retry(
                fn, hedge=0.001, max_attempts=4, sleep=slept, reraise=reraise, backoff=[0.001],
                attempt_timeout=0.01 if fails == "by timeout" else 50, deadline=0.04 if fails == "too late" else 60,
            )  # fmt: skip
        except Exception as error:
            failed.append(type(error))
        await asyncio.sleep(0)
        assert [one() for one in alive if one() is not None] == []

    failed: list[type[Exception]] = []
    asyncio.run(main())
    assert bool(failed) == (fails != "after losing")
    assert len(alive) >= 2
    assert all(left == 0 for left in at_waits)


@pytest.mark.usefixtures("no_collector")
def test_an_answer_is_not_kept_alive() -> None:
    async def fn() -> Big:
        attempt = current_attempt()
        assert attempt is not None
        await asyncio.sleep(9 if attempt.number == 1 else 0)
        return Big()

    async def main() -> None:
        answer = await hedge(fn, delay=0.001)
        found = weakref.ref(answer)
        del answer
        await asyncio.sleep(0)
        assert found() is None

    asyncio.run(main())


# ---- calls that are written where they are made ------------------------------------------------------------------


class Slow:
    """Takes so many seconds for each request, and counts them."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.requests = 0

    async def __call__(self) -> None:
        self.requests += 1
        await asyncio.sleep(self.seconds)


async def test_copies_of_calls_written_at_one_place_are_bounded_together_and_of_two_places_apart(
    fake: FakeTime,
) -> None:
    one, other = Slow(), Slow()
    for _ in range(200):
        await hedge(lambda: one(), delay=0.01, **NO_LIMIT)  # noqa: PLW0108  # the lambda is the point
    copies = one.requests - 200
    assert SAVED <= copies <= SAVED + 0.05 * 200
    for _ in range(10):
        await hedge(lambda: other(), delay=0.01, **NO_LIMIT)  # noqa: PLW0108
    assert other.requests == 20
    for _ in range(20):
        await hedge(lambda: one(), delay=0.01, **NO_LIMIT)  # noqa: PLW0108
    assert one.requests == 200 + copies + 40  # with the same function, but written elsewhere


async def test_calls_without_a_delay_learn_where_they_are_written(fake: FakeTime) -> None:
    quick = Slow()

    async def here() -> None:
        await hedge(lambda: quick(), **NO_LIMIT)  # noqa: PLW0108  # the lambda is the point

    async def there() -> None:
        await hedge(lambda: quick(), **NO_LIMIT)  # noqa: PLW0108

    for _ in range(100):
        await here()
    assert quick.requests == 100
    quick.seconds = 9.0
    await there()
    assert quick.requests == 101
    began = fake.now
    await here()
    assert quick.requests == 103
    assert fake.now - began == pytest.approx(9.0)


# ---- what stays of an attempt ------------------------------------------------------------------------------------


@pytest.mark.parametrize("winner", [1, 2])
async def test_a_task_that_the_winner_has_started_is_in_no_attempt_once_the_call_is_over(
    fake: FakeTime, winner: int
) -> None:
    seen: list[tuple[bool, bool]] = []
    tasks: list[asyncio.Task[None]] = []

    async def in_the_background() -> None:
        for _ in range(2):
            seen.append((current_attempt() is not None, current_deadline() is not None))
            await asyncio.sleep(1)

    async def fn() -> int:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number == winner:
            tasks.append(asyncio.create_task(in_the_background()))
            await asyncio.sleep(0.01)
            return attempt.number
        await asyncio.sleep(9)
        return 0

    assert await hedge(fn, delay=0.1, deadline=30) == winner
    assert current_attempt() is None
    await asyncio.gather(*tasks)
    assert seen == [(True, True), (False, False)]


async def test_a_copy_that_was_due_counts_once_as_suppressed_however_often_it_is_looked_at(
    fake: FakeTime, make: Make
) -> None:
    upstream, slow = make(max_concurrency=1, adaptive=False), Slow()
    held = Hedge(0.01)
    for count in range(1, 4):
        await upstream.retry(slow, hedge=held)
        assert (held.snapshot().sent, held.snapshot().suppressed) == (0, count)
    assert slow.requests == 3


async def test_waits_grow_by_rounds_whatever_number_the_copies_have(fake: FakeTime) -> None:
    told: list[tuple[int, float]] = []
    server = Server(then=(0.0, ConnectionError()))
    with pytest.raises(RetriesExhausted) as caught:
        await hedge(
            server, delay=5.0, max_attempts=8, base=0.01, jitter="none",
            on_retry=lambda state: told.append((state.attempt, round(state.delay, 9))),
        )  # fmt: skip
    assert told == [(1, 0.01), (3, 0.02), (5, 0.04)]
    assert fake.sleeps == pytest.approx([0.01, 0.02, 0.04])
    assert caught.value.attempts == 8
