"""The bound of each wait, the draw below it, and how a recipe for waits is made."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from forbear.core.backoff import (
    Backoff,
    Jitter,
    as_backoff,
    as_jitter,
    constant,
    decorrelated,
    exponential,
    from_list,
    linear,
    proportional,
)
from forbear.core.growth import Custom, Exponential, Linear, Listed


def bounds(backoff: Backoff, count: int) -> list[float]:
    return [backoff.bound(attempt) for attempt in range(1, count + 1)]


def delays(backoff: Backoff, attempt: int, *dice: float, previous: float | None = None) -> list[float]:
    return [backoff.delay(attempt, random, previous) for random in dice]


def squares(attempt: int) -> float:
    return float(attempt * attempt)


# ---- bounds ------------------------------------------------------------------------------------------------------


def test_exponential_bounds_double_up_to_the_cap() -> None:
    assert bounds(exponential(), 9) == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_exponential_bounds_grow_by_the_factor() -> None:
    assert bounds(exponential(1, factor=3, cap=20), 5) == [1, 3, 9, 20, 20]
    assert bounds(exponential(1, factor=1), 3) == [1, 1, 1]


def test_a_cap_below_the_base_limits_the_first_wait_too() -> None:
    assert bounds(exponential(5, cap=2), 3) == [2, 2, 2]


def test_a_base_of_zero_never_waits() -> None:
    assert bounds(exponential(0), 3) == [0, 0, 0]
    assert exponential(0).bound(10**400) == 0


def test_linear_bounds_grow_by_the_step_up_to_the_cap() -> None:
    assert bounds(linear(), 3) == [1, 2, 3]
    assert bounds(linear(1, 2, cap=4), 4) == [1, 3, 4, 4]
    assert linear().bound(100) == 60


def test_a_constant_wait_is_exactly_the_same_each_time() -> None:
    assert bounds(constant(), 2) == [1, 1]
    assert delays(constant(30), 7, 0.0, 0.5, 1.0) == [30, 30, 30]


def test_listed_waits_come_in_their_order_and_the_last_one_repeats() -> None:
    backoff = from_list([1, 5, 3])
    assert bounds(backoff, 5) == [1, 5, 3, 3, 3]
    assert backoff.bound(10**400) == 3


@pytest.mark.parametrize("attempt", [10**9, 10**400])
def test_attempt_numbers_beyond_all_floats_give_the_cap(attempt: int) -> None:
    assert exponential(0.5, cap=30).bound(attempt) == 30
    assert linear(1, 1, cap=60).bound(attempt) == 60
    assert decorrelated(0.5, cap=30).bound(attempt) == 30
    assert exponential(0.5, cap=30).delay(attempt, 0.5) == 15


@pytest.mark.parametrize("growth", [Exponential(0.5, 2.0), Linear(1.0, 1.0)])
def test_a_growth_beyond_all_floats_is_infinite(growth: Callable[[int], float]) -> None:
    assert growth(10**400) == math.inf


def test_the_bound_of_proportional_jitter_includes_the_upper_side_but_not_beyond_the_cap() -> None:
    assert bounds(exponential(1, cap=3, jitter=proportional(0.25)), 3) == [1.25, 2.5, 3]


def test_the_bound_of_decorrelated_jitter_triples() -> None:
    assert bounds(decorrelated(1, cap=30), 5) == [3, 9, 27, 30, 30]


def test_the_factor_of_the_growth_does_not_change_decorrelated_bounds() -> None:
    assert bounds(exponential(1, factor=10, cap=30, jitter="decorrelated"), 3) == [3, 9, 27]


# ---- draws -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jitter", "expected"),
    [
        ("full", [0, 2, 8]),
        ("equal", [4, 5, 8]),
        ("none", [8, 8, 8]),
        (proportional(0.25), [6, 7, 10]),
        (Jitter("whole"), [0, 2, 8]),
    ],
)
def test_the_dice_pick_from_the_range_of_the_jitter(jitter: Jitter | str, expected: list[float]) -> None:
    assert delays(exponential(1, jitter=jitter), 4, 0.0, 0.25, 1.0) == expected


def test_jitter_is_full_unless_said_otherwise_and_none_for_exact_waits() -> None:
    assert exponential().jitter == linear().jitter == Jitter("full")
    assert constant().jitter == from_list([1]).jitter == Jitter("none")
    assert Backoff(growth=Custom(squares)).jitter == Jitter("none")


def test_whole_jitter_rounds_down_to_a_whole_number() -> None:
    backoff = exponential(10, jitter=Jitter("whole"))
    assert delays(backoff, 1, 0.199, 0.2, 0.99) == [1, 2, 9]
    assert type(backoff.delay(1, 0.5)) is float


def test_proportional_jitter_stays_below_the_cap_and_keeps_its_width_there() -> None:
    backoff = exponential(8, cap=8, jitter=proportional(0.25))
    assert delays(backoff, 1, 0.0, 0.5, 1.0) == [6, 7, 8]
    assert delays(backoff, 50, 0.0, 0.5, 1.0) == [6, 7, 8]


def test_proportional_jitter_around_a_value_just_below_the_cap_is_cut_on_the_upper_side_only() -> None:
    assert delays(constant(8, jitter=proportional(0.5)), 1, 0.0, 1.0) == [4, 12]
    assert delays(Backoff(growth=Listed((8.0,)), cap=9.0, jitter=proportional(0.5)), 1, 0.0, 1.0) == [4, 9]


def test_decorrelated_waits_lie_between_the_base_and_three_times_the_last_wait() -> None:
    backoff = decorrelated(1, cap=30)
    assert delays(backoff, 1, 0.0, 0.5, 1.0) == [1, 2, 3]
    assert delays(backoff, 2, 0.0, 0.5, 1.0, previous=3.0) == [1, 5, 9]
    assert delays(backoff, 2, 0.0, 1.0, previous=0.25) == [1, 3]


def test_decorrelated_waits_stay_spread_at_the_cap() -> None:
    assert delays(decorrelated(2, cap=30), 9, 0.0, 0.5, 1.0, previous=30.0) == [2, 16, 30]


def test_a_base_above_the_cap_is_cut_for_decorrelated_waits_too() -> None:
    assert (decorrelated(50, cap=30).delay(1, 0.0), decorrelated(50, cap=30).delay(1, 1.0)) == (10, 30)


def test_the_previous_wait_matters_to_decorrelated_jitter_only() -> None:
    assert exponential(1).delay(2, 0.5, 1000.0) == exponential(1).delay(2, 0.5) == 1


# ---- making one --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "equal", "none", "decorrelated"])
def test_a_jitter_is_known_by_its_name(kind: str) -> None:
    assert as_jitter(kind).kind == kind
    assert as_jitter(as_jitter(kind)) is as_jitter(kind)


@pytest.mark.parametrize("name", ["Full", "", "proportional", "whole"])
def test_an_unknown_jitter_is_answered_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"'full', 'equal', 'none', 'decorrelated' or proportional\(0\.1\), not "):
        as_jitter(name)


@pytest.mark.parametrize("amount", [-0.1, 1.1, math.nan])
def test_proportional_jitter_takes_a_share(amount: float) -> None:
    with pytest.raises(ValueError, match=r"^proportional\(amount\) "):
        proportional(amount)
    assert proportional(0.1) == Jitter("proportional", 0.1)


@pytest.mark.parametrize("factor", [0.99, 0, -2, math.inf])
def test_a_factor_that_shrinks_or_explodes_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match=r"^factor is .*refused$"):
        exponential(factor=factor)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (exponential, "base"),
        (lambda bad: exponential(cap=bad), "cap"),
        (decorrelated, "base"),
        (lambda bad: decorrelated(cap=bad), "cap"),
        (linear, "start"),
        (lambda bad: linear(step=bad), "step"),
        (lambda bad: linear(cap=bad), "cap"),
        (lambda bad: from_list([1, bad]), r"backoff\[1\]"),
    ],
)
def test_settings_must_be_finite_durations(make: Callable[[float], Backoff], name: str) -> None:
    for bad in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"^{name} "):
            make(bad)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf])
def test_a_constant_wait_must_be_finite(bad: float) -> None:
    with pytest.raises(ValueError, match=r"is -1|must be"):
        constant(bad)


def test_timedeltas_are_taken_wherever_seconds_are() -> None:
    half, minute = timedelta(seconds=0.5), timedelta(minutes=1)
    assert exponential(half, cap=minute) == exponential(0.5, cap=60)
    assert decorrelated(half, cap=minute) == decorrelated(0.5, cap=60)
    assert linear(half, half, cap=minute) == linear(0.5, 0.5, cap=60)
    assert constant(half) == constant(0.5)
    assert from_list([half, minute]) == from_list([0.5, 60])


def test_an_empty_list_of_waits_is_answered_with_the_correction() -> None:
    with pytest.raises(ValueError, match=r"for no wait at all pass backoff=\[0\]$"):
        from_list([])
    assert from_list([0]).delay(3, 1.0) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: linear(jitter="decorrelated"),
        lambda: constant(jitter="decorrelated"),
        lambda: as_backoff(squares).with_jitter(as_jitter("decorrelated")),
    ],
)
def test_decorrelated_jitter_fits_no_other_growth(make: Callable[[], Backoff]) -> None:
    with pytest.raises(ValueError, match=r"use backoff=decorrelated\(base, cap=\.\.\.\)$"):
        make()


def test_a_jitter_of_no_known_kind_never_gives_a_wait() -> None:
    with pytest.raises((TypeError, ValueError)):
        Backoff(growth=Exponential(1.0, 2.0), jitter=Jitter("half")).delay(1, 0.5)  # type: ignore[arg-type]


def test_with_jitter_keeps_growth_and_cap() -> None:
    backoff = exponential(1, factor=3, cap=7)
    changed = backoff.with_jitter(as_jitter("none"))
    assert (changed.growth, changed.cap, changed.jitter) == (backoff.growth, 7, Jitter("none"))
    assert backoff.jitter == Jitter("full")


def test_a_backoff_is_taken_as_it_is() -> None:
    backoff = linear()
    assert as_backoff(backoff) is backoff


@pytest.mark.parametrize("value", [[1, 2], (1, 2)])
def test_a_list_or_a_tuple_of_seconds_is_a_backoff(value: object) -> None:
    assert as_backoff(value) == from_list([1, 2])


def test_a_function_of_the_attempt_number_is_a_backoff() -> None:
    assert bounds(as_backoff(squares), 3) == [1, 4, 9]
    assert delays(as_backoff(squares), 3, 0.0, 1.0) == [9, 9]


@pytest.mark.parametrize("value", [2.0, "exponential", None, {"base": 1}])
def test_what_is_no_backoff_is_answered_with_the_correction(value: object) -> None:
    with pytest.raises(ValueError, match=rf"not {type(value).__name__};.*write backoff=constant\(2\.0\)$"):
        as_backoff(value)


@pytest.mark.parametrize("returned", [-1, math.nan, "1", None, True])
def test_a_function_that_returns_no_duration_is_named(returned: object) -> None:
    def odd(attempt: int) -> object:
        return returned

    with pytest.raises(ValueError, match=r"backoff function .*odd returned for attempt 3 "):
        as_backoff(odd).bound(3)


def test_a_function_object_without_a_name_is_named_by_its_type() -> None:
    class Shrinking:
        def __call__(self, attempt: int) -> float:
            return -float(attempt)

    with pytest.raises(ValueError, match=r"backoff function Shrinking returned for attempt 2 is -2"):
        as_backoff(Shrinking()).bound(2)


def test_a_function_may_return_a_timedelta() -> None:
    assert as_backoff(lambda attempt: timedelta(seconds=attempt)).bound(2) == 2


# ---- as a value --------------------------------------------------------------------------------------------------

RECIPES = [exponential(), decorrelated(), linear(jitter="equal"), constant(2, jitter=proportional(0.1)), from_list([1])]


@pytest.mark.parametrize("backoff", [*RECIPES, as_backoff(squares)])
def test_a_backoff_survives_copying_and_pickling(backoff: Backoff) -> None:
    for other in (copy.copy(backoff), copy.deepcopy(backoff), pickle.loads(pickle.dumps(backoff))):
        assert other == backoff
        assert hash(other) == hash(backoff)
        assert bounds(other, 3) == bounds(backoff, 3)


def test_different_recipes_are_different_values() -> None:
    assert len({*RECIPES, exponential()}) == len(RECIPES)


def test_a_recipe_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        exponential().cap = 1.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Jitter("full").kind = "none"  # type: ignore[misc]


def test_a_repr_shows_the_whole_recipe() -> None:
    assert repr(exponential(1, cap=2)) == (
        "Backoff(growth=Exponential(base=1.0, factor=2.0), cap=2.0, jitter=Jitter(kind='full', amount=0.0))"
    )


# ---- where a bound has come to rest -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backoff", "before", "rest"),
    [
        (exponential(1, cap=4), 2, 3),
        (linear(1, 1, cap=4), 3, 4),
        (from_list([1, 2, 3]), 2, 3),
        (constant(1), None, 1),
        (exponential(1, factor=1), None, 1),
        (decorrelated(1, cap=9), 1, 2),
    ],
)
def test_a_bound_is_settled_from_where_it_stays_what_it_is(backoff: Backoff, before: int | None, rest: int) -> None:
    assert backoff.settled(rest)
    assert backoff.settled(rest + 1)
    assert before is None or not backoff.settled(before)


def test_a_function_is_never_known_to_be_settled() -> None:
    assert not as_backoff(lambda _: 1.0).settled(10**9)


def test_a_wait_without_end_is_no_number_to_draw_from() -> None:
    never = Backoff(growth=Linear(math.inf, 0.0), jitter=Jitter("full"))
    assert [never.delay(1, dice) for dice in (0.0, 0.5, 1.0)] == [math.inf] * 3


def test_a_draw_never_lies_above_its_bound_by_the_rounding_of_a_sum() -> None:
    backoff = from_list([1.14], jitter=proportional(0.69))
    assert backoff.delay(1, 1.0) <= backoff.bound(1)
    spread = decorrelated(0.1)
    assert spread.delay(2, 1.0, spread.delay(1, 1.0)) <= spread.bound(2)


@pytest.mark.parametrize(("kind", "amount"), [("half", 0.0), ("proportional", 1.5), ("proportional", -0.1)])
def test_a_jitter_that_makes_no_sense_is_refused_when_it_is_made(kind: Any, amount: float) -> None:
    with pytest.raises(ValueError, match="jitter"):
        Jitter(kind, amount)
