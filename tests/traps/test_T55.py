"""T55: attempts are counted, not calls, and a circuit that opens stops the retry loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, CircuitOpenError, RetryError
from forbear.testing import FakeTime, Flaky
from forbear.upstream.breaker import CircuitBreaker

Form = Callable[..., Any]


def test_at_a_threshold_of_five_the_service_gets_five_requests(form: Form) -> None:
    with FakeTime():
        breaker, fn = CircuitBreaker(5), Flaky(then=ApiError(503))
        for _ in range(5):
            with pytest.raises((CircuitOpenError, RetryError)):
                form(fn, max_attempts=3, base=0.01, breaker=breaker)
        assert fn.calls == 5
        assert breaker.state == "open"


def test_a_call_that_opens_the_circuit_itself_ends_with_it_and_keeps_the_error(form: Form) -> None:
    with FakeTime() as time:
        breaker, fn = CircuitBreaker(2), Flaky(then=ApiError(503))
        with pytest.raises(CircuitOpenError) as caught:
            form(fn, max_attempts=10, base=0.01, breaker=breaker)
        assert fn.calls == 2
        assert isinstance(caught.value.__cause__, ApiError)
        assert len(time.sleeps) == 1


def test_attempts_that_succeed_in_the_end_begin_the_count_anew(form: Form) -> None:
    with FakeTime():
        breaker = CircuitBreaker(3)
        for _ in range(5):
            assert form(Flaky(ApiError(503), ApiError(503), "done"), max_attempts=3, breaker=breaker) == "done"
        assert breaker.state == "closed"
