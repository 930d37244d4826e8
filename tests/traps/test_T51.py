"""T51: a late result of a call that began in an earlier state changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from forbear import CircuitOpenError
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker

OUTCOMES = [None, OSError()]


async def slow(breaker: CircuitBreaker, seconds: float, error: Exception | None) -> None:
    async with breaker:
        await asyncio.sleep(seconds)
        if error is not None:
            raise error


@pytest.mark.parametrize("error", OUTCOMES)
@pytest.mark.parametrize("ends_at", [10.0, 35.0, 45.0])
async def test_a_call_from_before_the_outage(error: Exception | None, ends_at: float) -> None:
    """It ends while the circuit is open, while a trial runs, and when the circuit is closed again."""
    with FakeTime():
        breaker = CircuitBreaker(1, 30)
        late = asyncio.create_task(slow(breaker, ends_at, error))
        await asyncio.sleep(0)
        breaker.enter().leave("failure")
        await asyncio.sleep(32.0)
        trial = asyncio.create_task(slow(breaker, 8.0, None))
        await asyncio.sleep(4.0)
        assert late.done() == (ends_at < 36.0)
        assert breaker.state == "half_open"
        with pytest.raises(CircuitOpenError):
            breaker.enter()
        await asyncio.gather(late, trial, return_exceptions=True)
        assert breaker.state == "closed"
        assert breaker.snapshot().consecutive_failures == 0


@pytest.mark.parametrize("error", OUTCOMES)
async def test_a_trial_of_an_earlier_round_does_not_end_this_one(error: Exception | None) -> None:
    with FakeTime():
        breaker = CircuitBreaker(1, 30, trials=2)
        breaker.enter().leave("failure")
        await asyncio.sleep(30.0)
        late = asyncio.create_task(slow(breaker, 35.0, error))
        await asyncio.gather(slow(breaker, 1.0, OSError()), return_exceptions=True)
        assert breaker.state == "open"
        await asyncio.sleep(30.0)
        running = [asyncio.create_task(slow(breaker, 10.0, None)) for _ in range(2)]
        await asyncio.sleep(5.0)
        assert late.done()
        assert breaker.state == "half_open"
        assert breaker.snapshot().trials == 2
        await asyncio.gather(late, *running, return_exceptions=True)
        assert breaker.state == "closed"


@pytest.mark.parametrize("error", OUTCOMES)
async def test_a_trial_that_outlived_its_lease_is_still_news_of_today(error: Exception | None) -> None:
    """Answers may take longer than a lease lasts. It is its place that is lost, and not its word."""
    with FakeTime():
        breaker = CircuitBreaker(1, 30, trial_timeout=10)
        breaker.enter().leave("failure")
        await asyncio.sleep(30.0)
        late = asyncio.create_task(slow(breaker, 15.0, error))
        await asyncio.sleep(10.0)
        newer = asyncio.create_task(slow(breaker, 9.0, None))
        await asyncio.sleep(7.0)
        assert late.done()
        assert breaker.state == ("closed" if error is None else "open")
        await asyncio.gather(late, newer, return_exceptions=True)
        assert breaker.state == ("closed" if error is None else "open")  # the newer one is of the generation before
