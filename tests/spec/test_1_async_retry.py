"""The cases of the async retry: one attempt at a time, waits that grow, one deadline for everything."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from forbear import ApiError, RetryError, backoff_delay, is_retryable, retry


class Counter:
    """A fake clock: sleeping only adds to it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, delay: float) -> None:
        self.sleeps.append(delay)
        self.now += delay


def script(*outcomes: object):
    """An async function whose calls end as listed; the last outcome repeats."""
    calls: list[int] = []

    async def fn() -> object:
        calls.append(1)
        outcome = outcomes[min(len(calls), len(outcomes)) - 1]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    fn.calls = calls  # type: ignore[attr-defined]
    return fn


async def call(fn, time: Counter, rng=lambda: 1.0, **options):
    return await retry(fn, sleep=time.sleep, clock=time.clock, rng=rng, **options)


async def test_two_failures_then_a_result() -> None:
    time, fn = Counter(), script(ApiError(503), ApiError(429), "done")
    assert await call(fn, time) == "done"
    assert len(fn.calls) == 3
    assert time.sleeps == [0.5, 1.0]


async def test_a_permanent_error_is_raised_at_once_as_the_same_object() -> None:
    error = ApiError(400)
    time, fn = Counter(), script(error, ApiError(503))
    with pytest.raises(ApiError) as caught:
        await call(fn, time)
    assert caught.value is error
    assert len(fn.calls) == 1
    assert time.sleeps == []


@pytest.mark.parametrize(
    "error", [TimeoutError(), ConnectionResetError(), ApiError(408), ApiError(429), ApiError(500), ApiError(503)]
)
def test_what_may_pass_next_time_is_retryable(error: Exception) -> None:
    assert is_retryable(error)


@pytest.mark.parametrize("error", [*map(ApiError, (400, 401, 403, 404, 422)), ValueError()])
def test_what_can_never_pass_is_not_retryable(error: Exception) -> None:
    assert not is_retryable(error)


async def test_waits_double_up_to_the_cap_and_none_follows_the_last_attempt() -> None:
    time, fn = Counter(), script(ApiError(500))
    with pytest.raises(RetryError) as caught:
        await call(fn, time, max_attempts=8, base=0.5, cap=4, deadline=1e9)
    error = caught.value
    assert (error.reason, error.attempts, len(fn.calls)) == ("max_attempts", 8, 8)
    assert time.sleeps == [0.5, 1, 2, 4, 4, 4, 4]
    assert isinstance(error.last_error, ApiError)
    assert error.__cause__ is error.last_error


async def test_waits_are_drawn_below_their_bounds() -> None:
    time, fn = Counter(), script(ApiError(500))
    with pytest.raises(RetryError):
        await call(fn, time, rng=random.Random(7).random, max_attempts=8, base=0.5, cap=4, deadline=1e9)
    bounds = [0.5, 1, 2, 4, 4, 4, 4]
    assert len(time.sleeps) == 7
    assert all(0 <= slept < bound for slept, bound in zip(time.sleeps, bounds, strict=True))
    assert len(set(time.sleeps)) == 7


async def test_the_deadline_ends_the_call_before_a_wait_that_cannot_fit() -> None:
    time, fn = Counter(), script(ApiError(503))
    with pytest.raises(RetryError) as caught:
        await call(fn, time, max_attempts=10, base=1, cap=100, deadline=10)
    assert (caught.value.reason, caught.value.attempts, len(fn.calls)) == ("deadline", 4, 4)
    assert time.sleeps == [1, 2, 4]
    assert time.now == 7


async def test_a_hint_is_waited_for_where_the_dice_say_zero() -> None:
    time = Counter()
    assert await call(script(ApiError(429, retry_after=7), "done"), time, rng=lambda: 0.0) == "done"
    assert time.sleeps == [7.0]


async def test_a_hint_is_a_floor_under_the_backoff() -> None:
    time = Counter()
    fn = script(ApiError(429, retry_after=0.2), ApiError(429, retry_after=3.0), "done")
    assert await call(fn, time) == "done"
    assert time.sleeps == [0.5, 3.0]


async def test_a_hint_beyond_the_deadline_ends_the_call_without_a_wait() -> None:
    time = Counter()
    with pytest.raises(RetryError) as caught:
        await call(script(ApiError(429, retry_after=120)), time, deadline=60)
    assert (caught.value.reason, caught.value.attempts, caught.value.hint) == ("deadline", 1, 120)
    assert time.sleeps == []


async def test_a_hanging_attempt_is_cancelled_once_and_retried() -> None:
    cancellations, calls = [], []

    async def fn() -> str:
        calls.append(1)
        if len(calls) == 1:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                cancellations.append(1)
                raise
        return "done"

    began = time.monotonic()
    assert await call(fn, Counter(), attempt_timeout=0.02) == "done"
    assert (len(calls), len(cancellations)) == (2, 1)
    assert time.monotonic() - began < 2.5


async def test_an_attempt_gets_no_more_than_the_time_left() -> None:
    began = time.monotonic()
    with pytest.raises(RetryError) as caught:
        await call(lambda: asyncio.sleep(5), Counter(), max_attempts=1, attempt_timeout=10, deadline=0.02)
    assert caught.value.attempts == 1
    assert isinstance(caught.value.last_error, TimeoutError)
    assert time.monotonic() - began < 2.5


def test_an_api_error_reads_as_status_and_message() -> None:
    error = ApiError(429, "slow down", retry_after=2.0)
    assert (error.status, error.retry_after, str(error), str(ApiError(503))) == (429, 2.0, "429 slow down", "503")


@pytest.mark.parametrize(("attempt", "bound"), [(1, 0.5), (2, 1), (3, 2), (4, 4), (5, 8), (6, 16), (7, 30), (8, 30)])
def test_the_bound_of_a_wait_doubles_up_to_the_cap(attempt: int, bound: float) -> None:
    assert backoff_delay(attempt, rng=lambda: 1.0) == bound
    assert backoff_delay(attempt, rng=lambda: 0.0) == 0


async def test_no_attempt_is_made_where_no_time_is_left() -> None:
    fn = script("done")
    with pytest.raises(RetryError) as caught:
        await call(fn, Counter(), deadline=0)
    assert (caught.value.reason, caught.value.attempts, caught.value.last_error) == ("deadline", 0, None)
    assert fn.calls == []


async def test_attempts_that_take_all_the_time_leave_none_for_another() -> None:
    time = Counter()

    async def slow() -> None:
        time.now += 6
        raise ApiError(503)

    with pytest.raises(RetryError) as caught:
        await call(slow, time, base=0.1, deadline=10)
    assert (caught.value.reason, caught.value.attempts) == ("deadline", 2)
