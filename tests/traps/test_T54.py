"""T54: during a trial a permanent error (400) proves neither that the service is well nor that it is not."""

from __future__ import annotations

import pytest

from forbear import ApiError, CircuitOpenError, classify
from forbear.core.breaker_settings import Verdict
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker
from forbear.upstream.breaker_options import verdict_of_outcome


def by_classification(error: BaseException | None, result: object) -> Verdict:
    return breaker_settings.verdict_of(classify(error)) if isinstance(error, ApiError) else verdict_of_outcome(error)


breaker_settings = CircuitBreaker().settings


def answer(breaker: CircuitBreaker, status: int) -> None:
    with pytest.raises(ApiError), breaker:
        raise ApiError(status)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_it_gives_the_place_back_and_the_next_call_is_the_trial(status: int) -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(1, 30, verdict=by_classification)
        answer(breaker, 503)
        time.advance(30.0)
        for _ in range(3):
            answer(breaker, status)
            assert breaker.state == "half_open"
            assert breaker.retry_in == 0.0
        answer(breaker, 503)
        assert breaker.state == "open"
        time.advance(30.0)
        with breaker:
            pass
        assert breaker.state == "closed"


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_while_it_is_closed_it_is_an_answer(status: int) -> None:
    breaker = CircuitBreaker(2, verdict=by_classification)
    for _ in range(5):
        answer(breaker, 503)
        answer(breaker, status)
    assert breaker.state == "closed"


def test_a_rate_limit_is_neither_unless_it_is_chosen() -> None:
    breaker = CircuitBreaker(2, verdict=by_classification)
    for status in (503, 429, 429, 429):
        answer(breaker, status)
    assert breaker.state == "closed"
    answer(breaker, 503)
    assert breaker.state == "open"
    with pytest.raises(CircuitOpenError):
        breaker.enter()
