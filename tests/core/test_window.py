"""How many calls succeeded and failed lately."""

from __future__ import annotations

import sys
import time

import pytest

from forbear.core.window import BUCKETS, Window


def filled(length: float = 10.0, *, at: float = 0.0, good: int = 0, bad: int = 0) -> Window:
    window = Window(length)
    for _ in range(good):
        window.record(True, at)
    for _ in range(bad):
        window.record(False, at)
    return window


def test_an_empty_window_has_no_calls_and_no_failures() -> None:
    assert Window(10.0).calls(5.0) == 0
    assert Window(10.0).failure_rate(5.0) == 0.0


def test_calls_and_the_share_of_failures_are_counted() -> None:
    window = filled(good=3, bad=1)
    assert window.calls(0.0) == 4
    assert window.failure_rate(0.0) == 0.25
    assert filled(bad=2).failure_rate(0.0) == 1.0


def test_a_call_is_forgotten_when_the_window_has_passed_over_it() -> None:
    assert filled(good=1).calls(9.999) == 1
    assert filled(good=1).calls(10.0) == 0


@pytest.mark.parametrize("later", [0.0, 0.3, 0.999])
def test_it_is_forgotten_at_most_one_bucket_too_early(later: float) -> None:
    width = 10.0 / BUCKETS
    window = filled(good=1)  # the first bucket begins at 0
    window.record(False, later * width)
    kept_until = [step / 100 for step in range(2000) if window.calls(step / 100) == 2][-1]
    assert kept_until >= later * width + 10.0 - width - 0.01
    assert window.calls(later * width + 10.0) == 0


def test_failures_are_forgotten_with_their_calls() -> None:
    window = filled(bad=4)
    window.record(True, 5.0)
    assert window.failure_rate(5.0) == 0.8
    assert window.failure_rate(10.0) == 0.0
    assert window.calls(10.0) == 1
    assert window.calls(15.0) == 0


def test_buckets_are_used_again_round_after_round() -> None:
    window = Window(10.0)
    for second in range(100):
        window.record(second % 2 == 0, float(second))
        assert window.calls(float(second)) == min(second + 1, 10)
    assert window.failure_rate(99.0) == 0.5


def test_a_gap_shorter_than_the_window_forgets_only_what_is_too_old() -> None:
    window = filled(good=1)
    window.record(False, 4.0)
    window.record(False, 8.0)
    assert window.calls(12.5) == 2
    assert window.calls(14.5) == 1
    assert window.calls(18.5) == 0


@pytest.mark.parametrize("jump", [10.0, 1e6, 1e300, sys.float_info.max])
def test_time_may_jump_however_far(jump: float) -> None:
    window = filled(good=5, bad=5)
    assert window.calls(jump) == 0
    window.record(False, jump)
    assert window.calls(jump) == 1
    assert window.failure_rate(jump) == 1.0


def test_time_may_stand_still_and_a_late_reader_counts_as_now() -> None:
    window = filled(at=100.0, good=50)
    window.record(False, 99.5)
    window.record(False, 0.0)
    assert window.calls(100.0) == 52
    assert window.calls(0.0) == 52


def test_a_window_too_narrow_for_the_clock_does_no_harm() -> None:
    window = Window(1e-300)
    window.record(True, 1e9)
    assert window.calls(1e9) == 1
    assert window.calls(1e9 + 1) == 0


def test_cleared_it_is_as_new() -> None:
    window = filled(at=50.0, good=3, bad=3)
    window.clear()
    assert window.calls(50.0) == 0
    assert window.failure_rate(50.0) == 0.0
    window.record(True, 51.0)
    assert window.calls(60.9) == 1
    assert window.calls(61.0) == 0


def test_the_number_of_buckets_may_be_chosen() -> None:
    window = Window(10.0, buckets=1)
    window.record(True, 0.0)
    window.record(True, 9.0)
    assert window.calls(9.9) == 2
    assert window.calls(10.0) == 0


def test_neither_memory_nor_the_cost_of_a_record_grows() -> None:
    window = Window(10.0)
    began = time.process_time()
    for call in range(50_000):
        window.record(True, call / 100)
        window.record(False, call * 1e6)
    assert time.process_time() - began < 5.0  # a few microseconds each
    held = [getattr(window, name) for name in Window.__slots__]
    assert sum(len(one) for one in held if isinstance(one, list)) == 2 * BUCKETS
