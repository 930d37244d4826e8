"""A bucket that refills, and a strict window."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from forbear.core.meters import NEGLIGIBLE, Bucket, Meter, Window


def meters(rate: float = 0.5, capacity: float = 5.0) -> list[Meter]:
    """Both kinds, with the same rate and the same capacity."""
    return [Bucket(rate, capacity, 0.0), Window(capacity, capacity / rate)]


# ---- both --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [0, 1])
def test_a_new_meter_is_full_and_lets_out_what_it_holds_at_once(kind: int) -> None:
    meter = meters()[kind]
    assert meter.left(0.0) == 5.0
    for left in (4.0, 3.0, 2.0, 1.0, 0.0):
        assert meter.wait(1.0, 0.0) == 0.0
        meter.take(1.0, 0.0)
        assert meter.left(0.0) == left
    assert meter.wait(1.0, 0.0) > 0.0


@pytest.mark.parametrize("kind", [0, 1])
def test_what_costs_nothing_never_waits_while_nothing_is_owed(kind: int) -> None:
    meter = meters()[kind]
    meter.take(5.0, 0.0)
    assert meter.wait(0.0, 0.0) == 0.0
    meter.take(0.0, 0.0)
    assert meter.left(0.0) == 0.0


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("given", "left"), [(1.5, 3.5), (3.0, 5.0), (9.0, 5.0), (0.0, 2.0), (-1.5, 0.5), (-4.0, -2.0)])
def test_what_was_not_used_comes_back_but_never_more_than_all_and_what_was_used_besides_is_taken(
    kind: int, given: float, left: float
) -> None:
    meter = meters()[kind]
    meter.take(3.0, 0.0)
    meter.give(given, 0.0, 0.0)
    assert meter.left(0.0) == left


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("said", "left"), [(5.0, 4.0), (4.0, 4.0), (1.0, 1.0), (0.0, 0.0), (-2.0, -2.0)])
def test_a_server_that_says_less_is_believed_and_one_that_says_more_is_not(kind: int, said: float, left: float) -> None:
    meter = meters()[kind]
    meter.take(1.0, 0.0)
    meter.lower(said, 0.0)
    assert meter.left(0.0) == left


@pytest.mark.parametrize("kind", [0, 1])
def test_nonsense_of_a_server_changes_nothing(kind: int) -> None:
    meter = meters()[kind]
    meter.lower(math.nan, 0.0)
    meter.lower(math.inf, 0.0)
    assert meter.left(0.0) == 5.0


@pytest.mark.parametrize("kind", [0, 1])
def test_time_may_stand_still_or_be_read_late(kind: int) -> None:
    meter = meters()[kind]
    meter.left(100.0)
    meter.take(2.0, 100.0)
    assert meter.left(99.0) == meter.left(100.0) == 3.0


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("later", [1e3, 1e9, 1e300])
def test_after_however_long_a_pause_it_is_full_and_no_fuller(kind: int, later: float) -> None:
    meter = meters()[kind]
    meter.take(5.0, 0.0)
    assert meter.left(later) == 5.0


@pytest.mark.parametrize("kind", [0, 1])
def test_many_small_takes_and_gives_leave_no_rest(kind: int) -> None:
    meter = meters(rate=1.0, capacity=100.0)[kind]
    for n in range(30_000):
        now = n * 0.01
        meter.take(0.1, now)
        meter.give(0.1, now, now)
    assert meter.left(299.99) == pytest.approx(100.0, abs=100.0 * NEGLIGIBLE)


# ---- the bucket --------------------------------------------------------------------------------------------------


def test_a_bucket_keeps_fractions() -> None:
    bucket = Bucket(0.5, 5.0, 0.0)
    bucket.take(5.0, 0.0)
    assert [bucket.left(now) for now in (0.5, 1.0, 1.25, 1.25, 9.0, 10.0, 11.0)] == [
        0.25, 0.5, 0.625, 0.625, 4.5, 5.0, 5.0
    ]  # fmt: skip


def test_a_bucket_that_is_asked_often_refills_as_one_that_is_not() -> None:
    asked, left_alone = Bucket(1 / 3, 100.0, 0.0), Bucket(1 / 3, 100.0, 0.0)
    for bucket in (asked, left_alone):
        bucket.take(100.0, 0.0)
    for n in range(100_000):
        asked.left(n / 1000)
    assert asked.left(100.0) == pytest.approx(left_alone.left(100.0), abs=1e-9)


@pytest.mark.parametrize(
    ("taken", "amount", "wait"),
    [(0.0, 5.0, 0.0), (3.0, 2.0, 0.0), (3.0, 3.0, 2.0), (5.0, 0.25, 0.5), (7.0, 1.0, 6.0), (7.0, 0.0, 4.0)],
)
def test_one_waits_in_a_bucket_until_what_is_missing_has_refilled(taken: float, amount: float, wait: float) -> None:
    bucket = Bucket(0.5, 5.0, 0.0)
    bucket.take(taken, 0.0)
    assert bucket.wait(amount, 0.0) == wait
    assert bucket.wait(amount, wait) == 0.0


def test_what_is_larger_than_the_bucket_goes_when_it_is_full_and_leaves_a_debt() -> None:
    bucket = Bucket(0.5, 5.0, 0.0)
    assert bucket.wait(20.0, 0.0) == 0.0
    bucket.take(20.0, 0.0)
    assert bucket.left(0.0) == -15.0
    assert bucket.wait(1.0, 0.0) == 32.0
    assert bucket.wait(20.0, 0.0) == 40.0


def test_rounding_keeps_nobody_waiting() -> None:
    bucket = Bucket(0.5, 5.0, 0.0)
    bucket.take(4.0 * NEGLIGIBLE, 0.0)
    assert bucket.wait(5.0, 0.0) == 0.0
    bucket.take(4.0 * NEGLIGIBLE, 0.0)
    assert bucket.wait(5.0, 0.0) > 0.0


@pytest.mark.parametrize(
    ("total", "last", "wait"),
    [(5.0, 1.0, 0.0), (6.0, 1.0, 2.0), (0.0, 0.0, 0.0), (20.0, 20.0, 0.0), (40.0, 20.0, 40.0), (21.0, 1.0, 32.0)],
)
def test_the_wait_of_the_last_of_many_is_known_where_they_go_one_after_the_other(
    total: float, last: float, wait: float
) -> None:
    assert Bucket(0.5, 5.0, 0.0).predicted(total, last, 0.0) == wait


# ---- the window --------------------------------------------------------------------------------------------------


def test_what_was_taken_counts_for_the_length_of_the_window_and_not_a_moment_longer() -> None:
    window = Window(5.0, 10.0)
    window.take(2.0, 0.0)
    window.take(3.0, 4.0)
    assert [window.left(now) for now in (4.0, 9.99, 10.0, 13.99, 14.0)] == [0.0, 0.0, 2.0, 2.0, 5.0]


@pytest.mark.parametrize(
    ("amount", "wait"), [(0.0, 0.0), (1.0, 0.0), (1.5, 5.0), (3.0, 5.0), (3.5, 8.0), (5.0, 8.0), (6.0, 10.0)]
)
def test_one_waits_in_a_window_until_enough_of_what_was_taken_is_too_old_to_count(amount: float, wait: float) -> None:
    window = Window(5.0, 10.0)
    window.take(2.0, 0.0)
    window.take(2.0, 3.0)
    assert window.wait(amount, 5.0) == wait


def test_what_can_never_fit_is_told_to_wait_for_a_whole_window_again_and_again() -> None:
    window = Window(5.0, 10.0)
    assert window.wait(5.1, 0.0) == window.wait(5.1, 10.0) == 10.0


def test_a_minute_of_quota_does_not_leave_twice_in_one_minute() -> None:
    window, gone = Window(5.0, 10.0), list[float]()
    now = 0.0
    while now < 100.0:
        now += window.wait(1.0, now)
        window.take(1.0, now)
        gone.append(now)
    assert gone == [10.0 * (n // 5) for n in range(len(gone))]


def test_those_who_book_ahead_count_from_the_instant_that_they_are_told() -> None:
    window, told = Window(5.0, 10.0), list[float]()
    for _ in range(12):
        told.append(window.wait(1.0, 0.0))
        window.take(1.0, 0.0)
    assert told == [0.0] * 5 + [10.0] * 5 + [20.0] * 2
    assert [window.left(now) for now in (0.0, 10.0, 20.0, 30.0)] == [-7.0, -2.0, 3.0, 5.0]


def test_those_who_book_ahead_in_different_sizes_never_fill_a_window_twice() -> None:
    window, sends = Window(10.0, 10.0), list[tuple[float, float]]()
    for amount in (6.0, 6.0, 1.0, 6.0, 10.0, 3.0):
        sends.append((window.wait(amount, 0.0), amount))
        window.take(amount, 0.0)
    assert sends == [(0.0, 6.0), (10.0, 6.0), (10.0, 1.0), (20.0, 6.0), (30.0, 10.0), (40.0, 3.0)]


def test_what_is_given_back_comes_off_that_which_was_taken_then() -> None:
    window = Window(10.0, 10.0)
    for instant in (0.0, 3.0, 6.0):
        window.take(3.0, instant)
    window.give(2.0, 7.0, 3.0)
    assert [window.left(now) for now in (7.0, 10.0, 13.0, 16.0)] == [3.0, 6.0, 7.0, 10.0]


def test_several_that_were_taken_at_one_instant_can_all_be_given_back() -> None:
    window = Window(6.0, 10.0)
    window.take(3.0, 1.0)
    window.take(1.0, 1.0)
    window.give(3.0, 1.0, 1.0)
    window.give(1.0, 1.0, 1.0)
    assert window.left(1.0) == 6.0


def test_what_has_left_the_window_can_not_be_given_back_any_more() -> None:
    window = Window(5.0, 10.0)
    window.take(3.0, 0.0)
    window.take(3.0, 8.0)
    window.give(3.0, 11.0, 0.0)
    assert window.left(11.0) == 2.0
    empty = Window(5.0, 10.0)
    empty.give(3.0, 0.0, 0.0)
    assert empty.left(0.0) == 5.0


def test_what_was_used_besides_counts_from_now_on_also_beyond_the_limit() -> None:
    window = Window(5.0, 10.0)
    window.take(4.0, 0.0)
    window.give(-3.0, 2.0, 0.0)
    assert window.wait(1.0, 2.0) == 8.0
    assert [window.left(now) for now in (2.0, 10.0, 11.9, 12.0)] == [-2.0, 2.0, 2.0, 5.0]


def test_what_is_noted_late_stands_before_what_was_booked_ahead() -> None:
    window = Window(5.0, 10.0)
    for _ in range(2):
        window.take(5.0, 0.0)  # the second one for the instant 10
    window.give(-1.0, 2.0, 0.0)
    assert [entry[0] for entry in window.taken] == [0.0, 2.0, 10.0]
    assert [window.left(now) for now in (2.0, 10.0, 12.0, 20.0)] == [-6.0, -1.0, 0.0, 5.0]


def test_a_limit_of_exactly_one_lets_one_out_per_window() -> None:
    window = Window(1.0, 7.0)
    window.take(1.0, 2.0)
    assert window.wait(1.0, 2.0) == 7.0
    assert window.wait(1.0, 9.0) == 0.0


@pytest.mark.parametrize(
    ("total", "wait"), [(0.0, 0.0), (1.0, 0.0), (2.0, 0.125), (5.0, 0.125), (6.0, 10.0), (11.0, 20.0), (12.0, 20.125)]
)
def test_the_least_wait_of_the_last_of_many_follows_what_is_in_the_window_round_after_round(
    total: float, wait: float
) -> None:
    window = Window(5.0, 10.0)
    window.take(4.0, 0.0)
    assert window.predicted(total, 1.0, 9.875) == wait


def test_fractions_that_add_up_to_the_limit_fit() -> None:
    window = Window(1.0, 10.0)
    for _ in range(10):
        assert window.wait(0.1, 0.0) == 0.0
        window.take(0.1, 0.0)
    assert window.wait(0.1, 0.0) == 10.0


def test_an_empty_window_keeps_no_rest_of_the_fractions_that_were_in_it() -> None:
    window = Window(1.0, 10.0)
    for _ in range(3):
        window.take(0.1, 0.0)
    assert window.left(10.0) == 1.0
    assert window.spent == 0.0


@pytest.mark.parametrize(("limit", "length"), [(1e-6, 60.0), (1e9, 60.0), (1.0, 1e-9), (1.0, 1e9)])
def test_huge_and_tiny_windows_hold_their_limit_and_no_more(limit: float, length: float) -> None:
    window = Window(limit, length)
    window.take(limit, 0.0)
    assert window.wait(limit, 0.0) == length
    assert window.wait(limit, length) == 0.0
    assert window.predicted(3 * limit, limit, length) == 2 * length


@pytest.mark.parametrize("rate", [1e-6 / 60, 1e9 / 60])
def test_huge_and_tiny_rates_let_each_one_go_in_its_turn(rate: float) -> None:
    bucket, now, gone = Bucket(rate, 1.0, 0.0), 0.0, list[float]()
    for _ in range(10):
        now += bucket.wait(1.0, now)
        bucket.take(1.0, now)
        gone.append(now)
    assert [later - earlier for earlier, later in pairwise(gone)] == pytest.approx([1 / rate] * 9, rel=1e-6)
