"""T53: a trial that never comes back must not hold its place for ever."""

from __future__ import annotations

import asyncio

import pytest

from forbear import CircuitOpenError
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker


def cooled(time: FakeTime) -> CircuitBreaker:
    breaker = CircuitBreaker(1, 30)
    breaker.enter().leave("failure")
    time.advance(30.0)
    return breaker


def test_its_place_is_free_after_the_trial_timeout() -> None:
    with FakeTime() as time:
        breaker = cooled(time)
        breaker.enter().detach()
        time.advance(59.9)
        with pytest.raises(CircuitOpenError):
            breaker.enter()
        time.advance(0.1)
        breaker.enter().leave("success")
        assert breaker.state == "closed"


def test_ten_thousand_seconds_later_the_service_is_tried_again() -> None:
    with FakeTime() as time:
        breaker = cooled(time)
        breaker.enter().detach()
        time.advance(10_000.0)
        assert breaker.retry_in == 0.0
        breaker.enter().leave("success")
        assert breaker.state == "closed"


async def test_a_service_that_hangs_is_tried_once_in_each_trial_timeout() -> None:
    with FakeTime() as time:
        breaker = cooled(time)
        reached: list[float] = []

        @breaker
        async def hang() -> None:
            reached.append(time.now)
            await asyncio.sleep(1e6)

        tasks = []
        for _ in range(30):
            tasks.append(asyncio.create_task(hang()))
            await asyncio.sleep(10.0)
        assert reached == [30.0, 90.0, 150.0, 210.0, 270.0]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
