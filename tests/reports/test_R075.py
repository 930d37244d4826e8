"""R075: a trial that ends with an error which the breaker ignores must give its place back."""

from __future__ import annotations

import asyncio

import pytest

from forbear import CircuitOpenError
from forbear.core.breaker_settings import Verdict
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker
from forbear.upstream.breaker_options import verdict_of_outcome


def ignoring_lookups(error: BaseException | None, result: object) -> Verdict:
    return "neutral" if isinstance(error, LookupError) else verdict_of_outcome(error, result)


def broken_rule(error: BaseException | None, result: object) -> Verdict:
    raise ZeroDivisionError


def cooled(time: FakeTime, breaker: CircuitBreaker) -> CircuitBreaker:
    breaker.enter().leave("failure")
    time.advance(30.0)
    return breaker


@pytest.mark.parametrize(
    "ignored", [KeyError(), IndexError(), CircuitOpenError(1.0), asyncio.CancelledError(), KeyboardInterrupt()]
)
@pytest.mark.parametrize("trials", [1, 2])
def test_the_place_comes_back_and_the_next_trial_may_go(ignored: BaseException, trials: int) -> None:
    with FakeTime() as time:
        breaker = cooled(time, CircuitBreaker(1, 30, trials=trials, verdict=ignoring_lookups))
        for _ in range(5):
            with pytest.raises(type(ignored)), breaker:
                raise ignored
            assert breaker.state == "half_open"
            assert breaker.snapshot().trials == 0
        for _ in range(trials):
            with breaker:
                pass
        assert breaker.state == "closed"


def test_a_rule_that_fails_itself_does_not_keep_the_place() -> None:
    with FakeTime() as time:
        breaker = cooled(time, CircuitBreaker(1, 30, verdict=broken_rule))
        with breaker:
            pass
        assert breaker.state == "closed"


async def test_an_async_trial_too() -> None:
    with FakeTime() as time:
        breaker = cooled(time, CircuitBreaker(1, 30, verdict=ignoring_lookups))

        @breaker
        async def miss() -> None:
            raise KeyError

        for _ in range(3):
            with pytest.raises(KeyError):
                await miss()
        assert (breaker.state, breaker.retry_in) == ("half_open", 0.0)
