"""T25: the hint is the wait, not a floor below some huge default of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, Policy, RetriesExhausted
from forbear.testing import FakeTime, Flaky
from foreign import answer

Form = Callable[..., Any]


@pytest.mark.parametrize("dice", [0.0, 0.5, 0.999_999])
def test_a_second_is_a_second(form: Form, dice: float) -> None:
    for error in (ApiError(429, retry_after=1), answer(429, {"Retry-After": "1"}), answer(503, {"Retry-After": "1"})):
        with FakeTime(rng=lambda: dice) as clock:
            assert form(Flaky(error, "done")) == "done"
            assert clock.sleeps == [1.0]


def test_it_stays_one_while_the_backoff_has_not_grown_beyond_it(form: Form) -> None:
    with FakeTime(rng=lambda: 0.999) as clock:
        with pytest.raises(RetriesExhausted):
            form(Flaky(then=ApiError(429, retry_after=5)))
        assert clock.sleeps == [5.0] * 4
        assert max(Policy().schedule()) <= 5.0


def test_a_backoff_that_has_grown_beyond_it_still_protects_the_server(form: Form) -> None:
    with FakeTime(rng=lambda: 0.999) as clock:
        with pytest.raises(RetriesExhausted):
            form(Flaky(then=ApiError(429, retry_after=1)))
        assert clock.sleeps == [1.0, 1.0, pytest.approx(1.998), pytest.approx(3.996)]


def test_of_two_refusals_each_has_its_own_wait(form: Form) -> None:
    with FakeTime(rng=lambda: 0.5) as clock:
        assert form(Flaky(ApiError(429, retry_after=9), ApiError(429, retry_after=3), ApiError(429), "done")) == "done"
        assert clock.sleeps == [9.0, 3.0, 1.0]
