"""How long attempts took: to two percent, in little memory, and only lately."""

from __future__ import annotations

from typing import Any

import pytest

from forbear.core.latencies import Lately, Latencies


def latencies(*seconds: float) -> Latencies:
    made = Latencies()
    for one in seconds:
        made.add(one)
    return made


# ---- how long attempts took --------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency", [1e-5, 1.3e-4, 0.003, 0.05, 0.999, 1.0, 1.02, 7.5, 600.0, 86_400.0])
def test_a_latency_is_known_to_two_percent_and_never_as_shorter(latency: float) -> None:
    known = latencies(latency).exceeded_by(0.05)
    assert latency * (1 - 1e-9) <= known <= latency * 1.02 * (1 + 1e-9)


@pytest.mark.parametrize("latency", [0.0, -1.0, 1e-9])
def test_what_took_no_time_counts_as_the_shortest_there_is(latency: float) -> None:
    assert latencies(latency).exceeded_by(0.05) == pytest.approx(1e-5, rel=0.03)


@pytest.mark.parametrize(
    ("share", "slower"),
    [(0.01, 1), (0.05, 5), (0.049, 4), (0.1, 10), (0.5, 50), (0.99, 99)],
)
def test_the_share_is_exact(share: float, slower: int) -> None:
    """Of a hundred latencies, all in buckets of their own, as many take longer as the share says."""
    times = [1.05**number for number in range(100)]
    delay = latencies(*times).exceeded_by(share)
    assert sum(time > delay for time in times) == slower


def test_equals_are_not_split() -> None:
    times = [0.1] * 94 + [2.0] * 6
    assert latencies(*times).exceeded_by(0.05) == pytest.approx(2.0, rel=0.02)
    times = [0.1] * 95 + [2.0] * 5
    assert latencies(*times).exceeded_by(0.05) == pytest.approx(0.1, rel=0.02)


def test_where_all_may_take_longer_the_delay_is_zero_and_of_nothing_too() -> None:
    assert latencies(1.0, 2.0).exceeded_by(1.0) == 0.0
    assert latencies().exceeded_by(0.05) == 0.0


def test_two_records_become_one_and_stay_as_they_are() -> None:
    one, other = latencies(0.1, 0.1, 5.0), latencies(0.1, 20.0)
    both = one.merged(other)
    assert (both.total, one.total, other.total) == (5, 3, 2)
    assert both.exceeded_by(0.2) == pytest.approx(5.0, rel=0.02)
    assert both.exceeded_by(0.4) == pytest.approx(0.1, rel=0.02)
    assert one.exceeded_by(0.1) == pytest.approx(5.0, rel=0.02)
    both.add(0.1)
    assert (one.total, other.total) == (3, 2)


def test_memory_is_bounded_by_the_range_and_not_by_the_number() -> None:
    known = Latencies()
    for number in range(20_000):
        known.add(0.1 + number * 0.0001)  # 0.1 to 2.1 seconds: a factor of 21
    assert known.total == 20_000
    assert len(known._counts) <= 156, "each bucket is 2 % wider than the one before"


# ---- what is old ----------------------------------------------------------------------------------------------------

GENERATION, STALE = 30.0, 600.0


def lately(**settings: Any) -> Lately:
    given: dict[str, Any] = {"share": 0.5, "enough": 10, "generation": GENERATION, "stale": STALE, **settings}
    return Lately(0.0, **given)


def filled(count: int, latency: float = 1.0, now: float = 0.0) -> Lately:
    made = lately()
    for _ in range(count):
        made.add(latency, now)
    return made


def test_a_full_generation_is_kept_beside_the_next_one_and_then_forgotten() -> None:
    known = filled(10)
    for _ in range(10):
        known.add(5.0, GENERATION)
    assert known.total(GENERATION) == 20
    known.add(7.0, 2 * GENERATION)
    assert known.total(2 * GENERATION) == 11
    assert known.all(2 * GENERATION).exceeded_by(0.99) == pytest.approx(5.0, rel=0.02), "the first one is gone"


def test_a_generation_lasts_its_time_however_full_it_is() -> None:
    known = filled(100)
    known.add(2.0, GENERATION - 0.1)
    assert known._lately.total == 101
    known.add(2.0, GENERATION)
    assert (known._lately.total, known._before.total) == (1, 101)


def test_a_generation_that_is_not_full_goes_on_until_it_is_stale() -> None:
    known = filled(9)
    known.add(1.0, STALE - 1)
    assert known._before.total == 0
    known = filled(9)
    known.add(1.0, STALE)
    assert (known._lately.total, known._before.total) == (1, 9)
    assert known.total(2 * STALE) == 1


def test_after_two_times_the_stale_time_nothing_is_left() -> None:
    assert filled(50).total(2 * STALE - 1) == 50
    assert filled(50).total(2 * STALE) == 0
    assert filled(50).all(2 * STALE).total == 0
    assert filled(50).usual(2 * STALE) == 0.0


def test_the_usual_time_is_that_of_the_share_and_of_nothing_zero() -> None:
    known = lately(share=0.1)
    assert known.usual(0.0) == 0.0
    for number in range(1, 101):
        known.add(float(number), 0.0)
    assert known.usual(0.0) == pytest.approx(90.0, rel=0.02)


def test_the_usual_time_is_computed_anew_after_sixteen_more_or_with_a_new_generation() -> None:
    known = filled(10)
    first = known.usual(0.0)
    for _ in range(15):
        known.add(5.0, 0.0)
        assert known.usual(0.0) == first
    known.add(5.0, 0.0)
    assert known.usual(0.0) == pytest.approx(5.0, rel=0.02)
    known = filled(10)
    assert known.usual(0.0) == first
    for _ in range(11):
        known.add(5.0, GENERATION)
    assert known.usual(GENERATION) == pytest.approx(5.0, rel=0.02)


def test_what_is_given_out_is_a_copy() -> None:
    known = filled(10)
    copy = known.all(0.0)
    copy.add(9.0)
    known.add(1.0, 0.0)
    assert (copy.total, known.total(0.0)) == (11, 11)
    assert known.all(0.0).exceeded_by(0.0) == pytest.approx(1.0, rel=0.02)
