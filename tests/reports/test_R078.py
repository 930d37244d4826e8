"""R078: a breaker inside a retry counts attempts and ends it early, one around it counts calls; both keep their trials.

The order is what is written: `retry(fn, breaker=breaker)` asks before each attempt; `@breaker` over `@retry` asks once
for the whole call.
"""

from __future__ import annotations

import asyncio

import pytest

from forbear import ApiError, CircuitOpenError, RetryError, retry
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker


class Service:
    """Sick until told otherwise; each request takes a second."""

    def __init__(self) -> None:
        self.requests = 0
        self.well = False

    async def request(self) -> str:
        self.requests += 1
        await asyncio.sleep(1.0)
        if not self.well:
            raise ApiError(503)
        return "done"


async def cooled() -> CircuitBreaker:
    breaker = CircuitBreaker(1, 30)
    breaker.enter().leave("failure")
    await asyncio.sleep(30.0)
    return breaker


@pytest.mark.parametrize("well", [True, False])
async def test_inside_fifty_callers_with_three_attempts_make_one_trial(well: bool) -> None:
    with FakeTime() as time:
        breaker, service = await cooled(), Service()
        service.well = well

        async def caller() -> str:
            return await retry(service.request, max_attempts=3, base=0.01, breaker=breaker)

        ended = await asyncio.gather(*(caller() for _ in range(50)), return_exceptions=True)
        assert service.requests == 1
        assert sum(isinstance(one, CircuitOpenError) for one in ended) == (49 if well else 50)
        assert breaker.state == ("closed" if well else "open")
        assert time.sleeps == []


@pytest.mark.parametrize("well", [True, False])
async def test_outside_the_whole_retry_is_the_trial_and_counts_once(well: bool) -> None:
    with FakeTime():
        breaker, service = await cooled(), Service()
        service.well = well

        @breaker
        @retry(max_attempts=3, base=0.01)
        async def caller() -> str:
            return await service.request()

        ended = await asyncio.gather(*(caller() for _ in range(50)), return_exceptions=True)
        assert service.requests == (1 if well else 3)
        assert sum(isinstance(one, CircuitOpenError) for one in ended) == 49
        assert sum(isinstance(one, RetryError) for one in ended) == (0 if well else 1)
        assert breaker.state == ("closed" if well else "open")


async def test_inside_each_attempt_counts_and_the_loop_ends_as_the_circuit_opens() -> None:
    with FakeTime() as time:
        breaker, service = CircuitBreaker(2, 30), Service()
        with pytest.raises(CircuitOpenError) as caught:
            await retry(service.request, max_attempts=10, base=10.0, jitter="none", breaker=breaker)
        assert service.requests == 2
        assert isinstance(caught.value.__cause__, ApiError)
        assert time.sleeps == [10.0]


async def test_inside_and_outside_at_once_the_outer_one_counts() -> None:
    with FakeTime():
        breaker, service = await cooled(), Service()
        service.well = True
        guarded = breaker(lambda: retry(service.request, max_attempts=3, breaker=breaker))
        assert await guarded() == "done"
        assert breaker.state == "closed"
