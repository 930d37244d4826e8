"""How much time is left, and how much of it one attempt may have."""

from __future__ import annotations

import math

import pytest

from forbear.core.deadline import attempt_limit, ends_at, remaining, tightened


@pytest.mark.parametrize(
    ("now", "duration", "end"), [(100.0, 5.0, 105.0), (100.0, 0.0, 100.0), (100.0, None, math.inf), (-3.0, 1.0, -2.0)]
)
def test_a_duration_ends_so_much_later_than_now(now: float, duration: float | None, end: float) -> None:
    assert ends_at(now, duration) == end


def test_the_tighter_of_two_instants_counts() -> None:
    assert tightened(10.0, 7.0) == 7.0
    assert tightened(7.0, 10.0) == 7.0
    assert tightened(math.inf, 10.0) == 10.0
    assert tightened(math.inf, math.inf, 2.0) == math.inf


def test_a_margin_is_kept_back_from_the_tighter_instant_whoever_set_it() -> None:
    assert tightened(10.0, 7.0, 0.5) == 6.5
    assert tightened(7.0, 10.0, 0.5) == 6.5


@pytest.mark.parametrize(
    ("deadline_at", "now", "left"), [(10.0, 4.0, 6.0), (10.0, 10.0, 0.0), (10.0, 11.0, 0.0), (math.inf, 1e9, math.inf)]
)
def test_the_time_left_is_never_negative(deadline_at: float, now: float, left: float) -> None:
    assert remaining(deadline_at, now) == left


@pytest.mark.parametrize(
    ("timeout", "left", "limit"),
    [(10.0, 60.0, 10.0), (10.0, 3.0, 3.0), (None, 3.0, 3.0), (None, math.inf, math.inf), (10.0, 0.0, 0.0)],
)
def test_an_attempt_gets_its_timeout_or_what_is_left(timeout: float | None, left: float, limit: float) -> None:
    assert attempt_limit(timeout, left) == limit
