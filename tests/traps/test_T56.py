"""T56: failures that are returned count, coroutines count when they are awaited, and no lock is held during a call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from forbear import CircuitOpenError
from forbear.core.breaker_settings import Verdict
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker
from forbear.upstream.breaker_options import verdict_of_outcome


def by_status(error: BaseException | None, result: object) -> Verdict:
    return "failure" if result == 503 else verdict_of_outcome(error, result)


def test_a_returned_failure_counts() -> None:
    breaker = CircuitBreaker(3, verdict=by_status)
    reached = []

    @breaker
    def fetch() -> int:
        reached.append(1)
        return 503

    for _ in range(10):
        try:
            assert fetch() == 503
        except CircuitOpenError:
            assert breaker.state == "open"
    assert len(reached) == 3


async def fail() -> None:
    raise OSError


async def give_503() -> int:
    return 503


async def test_a_returned_coroutine_counts_when_it_is_awaited() -> None:
    breaker = CircuitBreaker(2, verdict=by_status)

    @breaker
    def fetch() -> Coroutine[Any, Any, None]:
        return fail()

    fetch_503 = breaker(lambda: give_503())  # noqa: PLW0108  # the lambda is the point
    first = fetch()
    assert breaker.snapshot().consecutive_failures == 0
    with pytest.raises(OSError):
        await first
    assert breaker.snapshot().consecutive_failures == 1
    assert await fetch_503() == 503
    assert breaker.state == "open"
    with pytest.raises(CircuitOpenError):
        await fetch()


async def test_a_trial_that_returns_a_coroutine_holds_its_place_until_the_end() -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(1, 30)
        breaker.enter().leave("failure")
        time.advance(30.0)
        trial = breaker(lambda: asyncio.sleep(5.0))()
        assert breaker.snapshot().trials == 1
        await trial
        assert breaker.state == "closed"


async def test_two_slow_calls_run_side_by_side() -> None:
    breaker = CircuitBreaker(2)
    with FakeTime() as time:
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(breaker(asyncio.sleep)(0.4))
        assert time.now == pytest.approx(0.4)


def test_two_threads_are_inside_at_once() -> None:
    breaker, both = CircuitBreaker(2), threading.Barrier(2)
    met = []
    meet = breaker(lambda: met.append(both.wait(30)))
    threads = [threading.Thread(target=meet) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(met) == [0, 1]
