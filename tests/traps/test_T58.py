"""T58: a retry against an open circuit must end at once, and not sleep through its attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import CircuitOpenError
from forbear.testing import FakeTime, Flaky
from forbear.upstream.breaker import CircuitBreaker

Form = Callable[..., Any]


def test_forced_open_it_ends_at_once(form: Form) -> None:
    with FakeTime() as time:
        breaker, fn = CircuitBreaker(5, 60), Flaky(then="done")
        breaker.force_open()
        with pytest.raises(CircuitOpenError) as caught:
            form(fn, max_attempts=3, breaker=breaker)
        assert fn.calls == 0
        assert time.sleeps == []
        assert time.now == 0.0
        assert caught.value.retry_in == 60.0


def test_opened_by_others_it_ends_at_once_and_says_when_to_come_back(form: Form) -> None:
    with FakeTime() as time:
        breaker, fn = CircuitBreaker(1, 60), Flaky(then="done")
        breaker.enter().leave("failure")
        time.advance(20.0)
        with pytest.raises(CircuitOpenError) as caught:
            form(fn, max_attempts=3, breaker=breaker)
        assert (fn.calls, time.sleeps) == (0, [])
        assert caught.value.retry_in == 40.0
        time.advance(40.0)
        assert form(fn, max_attempts=3, breaker=breaker) == "done"


def test_a_rule_that_retries_everything_does_not_retry_a_refusal(form: Form) -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(5, 60)
        breaker.force_open()
        with pytest.raises(CircuitOpenError):
            form(Flaky(then="done"), max_attempts=3, retryable=lambda _: True, breaker=breaker)
        assert time.sleeps == []
