"""An attempt timeout that measured latencies speak for: above the 99th percentile, and a second attempt fits."""

from __future__ import annotations

import math
import random
import statistics
from datetime import timedelta
from typing import Any

import pytest

from forbear.core.latencies import Latencies
from forbear.core.suggestion import (
    ENOUGH,
    GENERATION,
    NEEDED,
    SHORTEST,
    STALE,
    AnswerTimes,
    suggest_attempt_timeout,
    suggestion,
)


def record(*seconds: float) -> Latencies:
    made = Latencies()
    for one in seconds:
        made.add(one)
    return made


# ---- what is suggested --------------------------------------------------------------------------------------------


def test_even_answers_give_two_and_a_half_medians() -> None:
    assert suggest_attempt_timeout([0.1] * 20) == 0.25
    assert suggest_attempt_timeout([2] * 20) == 5.0


def test_a_slow_tail_gives_the_99th_percentile_with_a_margin() -> None:
    assert suggest_attempt_timeout([0.1] * 196 + [4.0] * 4) == 5.0


def test_one_answer_in_a_hundred_may_be_slower_and_of_fewer_none() -> None:
    assert suggest_attempt_timeout([0.1] * 100 + [4.0]) == 0.25
    assert suggest_attempt_timeout([0.1] * 99 + [4.0]) == 5.0
    assert suggest_attempt_timeout([0.1] * 19 + [4.0]) == 5.0


@pytest.mark.parametrize("count", [20, 21, 50, 99, 100, 101, 150, 1_000])
def test_it_lies_above_the_99th_percentile_and_at_two_and_a_half_medians_at_least(count: int) -> None:
    dice = random.Random(count)
    for _ in range(50):
        times = [dice.lognormvariate(-1.0, dice.uniform(0.05, 1.5)) for _ in range(count)]
        found = suggest_attempt_timeout(times)
        percentile = statistics.quantiles(times, n=100, method="inclusive")[98]
        assert found >= percentile * 1.25
        assert found >= statistics.median(times) * 2.5
        assert f"{found:.2g}" == f"{found:g}" or float(f"{found:.2g}") == found, "two digits"
        assert found <= 1.11 * max(1.25 * max(times), 2.5 * statistics.quantiles(times, n=4)[2])


def test_the_order_does_not_matter_and_any_iterable_will_do() -> None:
    times = [0.01 * number for number in range(1, 61)]
    found = suggest_attempt_timeout(times)
    assert found == suggest_attempt_timeout(reversed(times)) == suggest_attempt_timeout(iter(times))
    assert found == suggest_attempt_timeout(timedelta(seconds=time) for time in times)


@pytest.mark.parametrize(
    ("median", "suggested"),
    [
        (0.0404, 0.11),
        (0.04, 0.1),
        (0.12, 0.3),
        (0.056, 0.14),
        (0.34, 0.85),
        (0.121, 0.31),
        (0.399, 1.0),
        (3.97, 10.0),
        (41, 110.0),
        (48_000, 120e3),
    ],
)
def test_it_is_rounded_up_to_two_digits(median: float, suggested: float) -> None:
    assert repr(suggest_attempt_timeout([median] * 20)) == repr(suggested)


def test_no_timer_is_asked_for_less_than_a_millisecond() -> None:
    assert suggest_attempt_timeout([0.0] * 20) == SHORTEST == 0.001
    assert suggest_attempt_timeout([1e-7] * 20) == 0.001


# ---- the caller's patience ------------------------------------------------------------------------------------------


def test_it_is_at_most_half_of_the_patience() -> None:
    times = [0.4] * 100
    assert suggest_attempt_timeout(times, patience=30) == 1.0
    assert suggest_attempt_timeout(times, patience=2.0) == 1.0
    assert suggest_attempt_timeout(times, patience=1.5) == 0.75
    assert suggest_attempt_timeout(times, patience=timedelta(seconds=1.5)) == 0.75
    assert suggest_attempt_timeout(times, patience=0.8) == 0.4, "the percentile itself is enough"


@pytest.mark.parametrize("patience", [None, math.inf])
def test_an_endless_patience_bounds_nothing(patience: float | None) -> None:
    assert suggest_attempt_timeout([100.0] * 20, patience=patience) == 250.0


def test_a_patience_that_cuts_good_answers_is_refused_with_the_least_that_would_do() -> None:
    times = [0.1] * 90 + [0.913] * 10
    said = (
        r"^patience is 1\.5 s, which leaves 0\.75 s to each of two attempts, and the 99th percentile is about 0\.92 s: "
        r"such a timeout would cut good answers and ask for them again\. Wait at least 1\.84 s in all, or make one "
        r"attempt \(max_attempts=1\) that has all of the time$"
    )
    with pytest.raises(ValueError, match=said):
        suggest_attempt_timeout(times, patience=1.5)
    assert suggest_attempt_timeout(times, patience=1.84) == 0.92


@pytest.mark.parametrize(
    ("patience", "said"),
    [
        (0, r"^patience is 0, which leaves no time at all; pass None for no limit$"),
        (-1, r"^patience is -1: a duration is never negative"),
        (math.nan, r"^patience must be a number, not NaN$"),
        ("3", r"^patience must be a number, not str$"),
        (True, r"^patience must be a number, not bool$"),
    ],
)
def test_a_patience_that_makes_no_sense_is_refused_before_anything_else(patience: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        suggest_attempt_timeout([], patience=patience)


# ---- what is no measurement -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 19])
def test_too_few_are_refused_with_how_many_are_needed_and_why(count: int) -> None:
    said = f"^there are {count} latencies, and 20 are needed: of fewer, chance decides which one is the slowest$"
    with pytest.raises(ValueError, match=said):
        suggest_attempt_timeout([0.1] * count)


@pytest.mark.parametrize(
    ("latency", "said"),
    [
        (
            -0.1,
            r"^latency 2 is -0\.1 s, which no attempt takes: leave out what was not measured, and give what was cut",
        ),
        (math.inf, r"^latency 2 is inf s, which no attempt takes: .* with the time it had taken$"),
        (-math.inf, r"^latency 2 is -inf s"),
        (1e300, r"^latency 2 is 1e\+300 s"),
        (math.nan, r"^latency 2 must be a number, not NaN$"),
        (timedelta(seconds=-1), r"^latency 2 is -1 s"),
        ("0.1", r"^latency 2 must be a number, not str$"),
        (None, r"^latency 2 must be a number, not NoneType$"),
        (True, r"^latency 2 must be a number, not bool$"),
        (10**400, r"^latency 2 is too large$"),
    ],
)
def test_what_is_no_latency_is_refused_at_once(latency: Any, said: str) -> None:
    def measured() -> Any:
        yield from (0.1, latency)
        raise AssertionError("nobody asks for more")

    with pytest.raises(ValueError, match=said):
        suggest_attempt_timeout(measured())


def test_one_number_is_no_list_and_an_upstream_has_its_own() -> None:
    one: Any = 0.3
    said = r"^latencies must be an iterable of seconds, not float; .*: upstream\.suggest_attempt_timeout\(\)$"
    with pytest.raises(TypeError, match=said):
        suggest_attempt_timeout(one)


# ---- from a record --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [0, 1, 2, 3, 10, 60])
@pytest.mark.parametrize("count", [20, 100, 101, 201])
def test_a_record_says_the_same_as_the_list_to_two_percent_and_never_less(slow: int, count: int) -> None:
    times = [0.3] * max(0, count - slow) + [3.1] * min(slow, count)
    exact = suggest_attempt_timeout(times)
    assert exact <= suggestion("it", record(*times), None) <= exact * 1.04  # two percent, and a digit more


def test_a_record_obeys_the_patience_too() -> None:
    assert suggestion("it", record(*[0.4] * 50), 1.5) == 0.75
    with pytest.raises(ValueError, match=r"^patience is 0\.7 s, which leaves 0\.35 s to each"):
        suggestion("it", record(*[0.4] * 50), 0.7)


def test_a_record_of_too_few_says_how_many_there_are() -> None:
    said = (
        r"^it has lately seen 19 attempts that were answered or cut by a timeout, and 20 are needed: of fewer, chance"
    )
    with pytest.raises(ValueError, match=said):
        suggestion("it", record(*[0.1] * (NEEDED - 1)), None)


# ---- what is recorded -----------------------------------------------------------------------------------------------


def test_what_was_cut_counts_where_half_of_the_answers_had_come_by_then() -> None:
    times = AnswerTimes(0.0)
    for _ in range(30):
        times.add(1.0, 0.0)
    times.cut(0.5, 0.0)
    assert times.total(0.0) == 30, "it had no time, so it says nothing"
    times.cut(3.0, 0.0)
    assert times.total(0.0) == 31
    assert times.all(0.0).exceeded_by(0.0) == pytest.approx(3.0, rel=0.02)


def test_while_nothing_is_known_all_that_was_cut_counts() -> None:
    times = AnswerTimes(0.0)
    for _ in range(20):
        times.cut(0.5, 0.0)
    assert suggestion("it", times.all(0.0), None) == pytest.approx(1.25, rel=0.05)


def test_a_timeout_that_cuts_the_slow_ones_does_not_let_the_suggestion_fall() -> None:
    """One answer in twenty takes four seconds, and the attempt timeout is one second."""
    times = AnswerTimes(0.0)
    for number in range(400):
        if number % 20:
            times.add(0.1, 0.0)
        else:
            times.cut(1.0, 0.0)
    assert suggestion("it", times.all(0.0), None) == pytest.approx(1.3, abs=0.05)


def test_a_thousand_of_the_last_minutes_are_enough_and_nothing_is_older_than_two_hours() -> None:
    assert (ENOUGH, GENERATION, STALE) == (1_000, 300.0, 3_600.0)
    times = AnswerTimes(0.0)
    for _ in range(ENOUGH):
        times.add(9.0, 0.0)
    times.add(0.1, GENERATION)
    assert times.total(GENERATION) == ENOUGH + 1
    assert times.total(GENERATION + STALE) == 1
    assert times.total(GENERATION + 2 * STALE) == 0
