"""After how long a copy is worth sending, and how many have been earned."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from forbear.core.hedge import GENERATION, SAVED, STALE, HedgeSettings, Hedging


def hedging(**settings: Any) -> Hedging:
    return Hedging(HedgeSettings(**settings), 0.0)


# ---- the delay ---------------------------------------------------------------------------------------------------


def test_a_delay_that_was_given_holds_from_the_start_whatever_happens() -> None:
    state = hedging(delay=0.2)
    assert state.delay(0.0) == 0.2
    for _ in range(1000):
        state.record(9.0, 1.0)
    assert state.delay(1e6) == 0.2


def test_nothing_is_known_until_there_are_enough_samples() -> None:
    state = hedging()
    for number in range(99):
        state.record(0.01 * (number + 1), 1.0)
        assert state.delay(1.0) is None
    state.record(1.0, 1.0)
    assert state.delay(1.0) == pytest.approx(0.95, rel=0.02)


def test_how_many_are_enough_can_be_chosen() -> None:
    state = hedging(min_samples=1)
    assert state.delay(0.0) is None
    state.record(0.5, 0.0)
    assert state.delay(0.0) == pytest.approx(0.5, rel=0.02)


def test_one_in_twenty_takes_longer_than_the_learned_delay() -> None:
    state = hedging()
    times = [1.03 ** ((number * 37) % 200) / 100 for number in range(200)]
    for time in times:
        state.record(time, 1.0)
    delay = state.delay(1.0)
    assert delay is not None
    assert sum(time > delay for time in times) == pytest.approx(10, abs=1)


def test_another_share_gives_another_delay() -> None:
    state = hedging(max_extra_load=0.5)
    for number in range(1, 101):
        state.record(number, 1.0)
    assert state.delay(1.0) == pytest.approx(50, rel=0.02)


def test_it_is_computed_anew_after_sixteen_more() -> None:
    state = hedging(min_samples=1, max_extra_load=0.01)
    state.record(0.1, 0.0)
    first = state.delay(0.0)
    for _ in range(15):
        state.record(5.0, 0.0)
        assert state.delay(0.0) == first
    state.record(5.0, 0.0)
    assert state.delay(0.0) == pytest.approx(5.0, rel=0.02)


def test_a_new_generation_begins_after_thirty_seconds_and_the_one_before_still_counts() -> None:
    state = hedging(min_samples=10, max_extra_load=0.5)
    for _ in range(10):
        state.record(1.0, 0.0)
    assert state.delay(GENERATION) == pytest.approx(1.0, rel=0.02)
    for _ in range(21):
        state.record(0.1, GENERATION + 1)
    assert state.delay(GENERATION + 1) == pytest.approx(0.1, rel=0.02)
    assert state.delay(2 * GENERATION) == pytest.approx(0.1, rel=0.02)
    for _ in range(9):  # were the first generation still there, they would not decide yet
        state.record(7.0, 2 * GENERATION + 1)
    for _ in range(13):
        state.record(7.0, 2 * GENERATION + 1)
    assert state.delay(2 * GENERATION + 1) == pytest.approx(7.0, rel=0.02)


def test_a_generation_with_too_few_samples_goes_on_until_it_is_stale() -> None:
    state = hedging(min_samples=10)
    for _ in range(9):
        state.record(1.0, 0.0)
    assert state.delay(STALE - 1) is None
    state.record(1.0, STALE - 1)
    assert state.delay(STALE - 1) == pytest.approx(1.0, rel=0.02)


def test_what_is_stale_is_forgotten_after_one_more_time() -> None:
    state = hedging(min_samples=10)
    for _ in range(10):
        state.record(1.0, 0.0)
    assert state.delay(STALE) == pytest.approx(1.0, rel=0.02)
    assert state.delay(2 * STALE) is None


def test_after_a_very_long_pause_nothing_is_known_at_once() -> None:
    state = hedging(min_samples=10)
    for _ in range(10):
        state.record(1.0, 0.0)
    assert state.delay(2 * STALE) is None
    state.record(3.0, 2 * STALE)
    assert state.delay(2 * STALE) is None


def test_a_slow_failure_counts_and_a_quick_one_does_not() -> None:
    state = hedging(min_samples=10, max_extra_load=0.5)
    state.failed(100.0, 0.0)
    for _ in range(9):
        state.record(1.0, 0.0)
        state.failed(100.0, 0.0)
    assert state.delay(0.0) is None, "before the usual time is known, failures teach nothing"
    state.record(1.0, 0.0)
    known = state.delay(0.0)
    assert known is not None
    for _ in range(100):
        state.failed(known * 0.99, 0.0)
    assert state.delay(0.0) == known
    for _ in range(16):
        state.failed(30.0, 0.0)
    assert state.delay(0.0) == pytest.approx(30.0, rel=0.02)


def test_with_a_delay_that_was_given_failures_are_weighed_against_it() -> None:
    state = hedging(delay=0.5)
    for latency in (0.1, 0.5, 0.6):
        state.failed(latency, 0.0)
    assert state._lately.total(0.0) == 2  # nothing else shows it: the delay is given


# ---- what has been earned ----------------------------------------------------------------------------------------


def test_thirty_copies_may_be_sent_at_the_start_and_then_one_for_twenty_successes() -> None:
    state = hedging()
    assert [state.take() for _ in range(32)] == [True] * 30 + [False] * 2
    assert state.balance == 0.0
    for _ in range(19):
        state.succeeded()
        assert not state.take()
    state.succeeded()
    assert state.take(), "twenty times a twentieth is one, whatever the rounding"
    assert not state.take()
    assert state.balance == pytest.approx(0.0, abs=1e-12)


def test_no_more_than_thirty_are_saved_up() -> None:
    state = hedging(max_extra_load=1.0)
    for _ in range(50):
        state.succeeded()
    assert state.balance == SAVED
    state.give_back()
    assert state.balance == SAVED


def test_what_was_not_sent_is_there_again() -> None:
    state = hedging()
    assert state.take()
    assert state.balance == SAVED - 1
    state.give_back()
    assert state.balance == SAVED


def test_a_refused_copy_costs_nothing() -> None:
    state = hedging(max_extra_load=0.5)
    for _ in range(int(SAVED)):
        state.take()
    state.succeeded()
    assert not state.take()
    assert state.balance == 0.5


# ---- settings ----------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_that_are_documented() -> None:
    assert HedgeSettings() == HedgeSettings(delay=None, max_extra_load=0.05, max_copies=2, min_samples=100)
    assert (SAVED, GENERATION, STALE) == (30.0, 30.0, 600.0)


def test_a_delay_may_be_a_timedelta_zero_or_endless() -> None:
    long: Any = timedelta(milliseconds=200)
    assert HedgeSettings(delay=long).delay == 0.2
    assert HedgeSettings(delay=0).delay == 0.0
    assert HedgeSettings(delay=math.inf).delay is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delay": -0.1}, r"^delay is -0\.1: a duration is never negative"),
        ({"delay": "0.1"}, r"^delay must be a number, not str$"),
        ({"delay": True}, r"^delay must be a number, not bool$"),
        ({"delay": math.nan}, r"^delay must be a number, not NaN$"),
        ({"max_extra_load": 0}, r"^max_extra_load is 0: it is a share, above 0 and at most max_copies - 1; 0\.05 is"),
        ({"max_extra_load": -0.05}, r"^max_extra_load is -0\.05: it is a share"),
        ({"max_extra_load": 5}, r"^max_extra_load is 5: it is a share.* 0\.05 is 5 %$"),
        ({"max_extra_load": 1.01}, r"^max_extra_load is 1\.01"),
        ({"max_extra_load": 2.5, "max_copies": 3}, r"^max_extra_load is 2\.5"),
        ({"max_extra_load": math.inf}, r"^max_extra_load is inf"),
        ({"max_extra_load": "5%"}, r"^max_extra_load must be a number, not str$"),
        ({"max_copies": 1}, r"^max_copies counts the first one too, so 2 is the least.*leave hedge= out$"),
        ({"max_copies": 0}, r"^max_copies is 0: it counts attempts, the first included"),
        ({"max_copies": 2.0}, r"^max_copies must be a whole number, not float$"),
        ({"min_samples": 0}, r"^min_samples is 0"),
        ({"min_samples": True}, r"^min_samples must be a whole number, not bool$"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_correction(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        HedgeSettings(**options)


def test_more_copies_allow_more_load() -> None:
    assert HedgeSettings(max_extra_load=2, max_copies=3).max_extra_load == 2.0
    assert HedgeSettings(max_extra_load=1).max_extra_load == 1.0


def test_settings_are_a_frozen_value_that_can_be_a_key() -> None:
    whole: Any = 1
    assert hash(HedgeSettings(delay=whole)) == hash(HedgeSettings(delay=1.0))
    assert HedgeSettings(delay=whole) == HedgeSettings(delay=1.0)
    with pytest.raises(FrozenInstanceError):
        HedgeSettings().delay = 3.0  # type: ignore[misc]
