"""Laws of the wait: never above its cap, spread even there, exact where it can be, and as quick for any attempt.

Attempt numbers go beyond all floats: an answer that counted its way up to one would never come. Where results are
compared to the last bit, durations are multiples of 1/64 and dice of 2^-20, for which floats are exact.
"""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.core.backoff import (
    Backoff,
    Jitter,
    as_backoff,
    as_jitter,
    decorrelated,
    exponential,
    from_list,
    linear,
    proportional,
)

law = settings(max_examples=200, deadline=None)

FAR = 10**400
attempts = st.one_of(st.integers(1, 80), st.integers(1, 10**10), st.sampled_from([10**9, 10**18, FAR - 1, FAR]))
dice = st.floats(0.0, 1.0)
durations = st.floats(0.0, 1e12)
factors = st.floats(1.0, 1e6)

grid = st.integers(0, 2**16).map(lambda n: n / 64)  # up to 17 minutes
above_zero = st.integers(1, 2**16).map(lambda n: n / 64)
shares = st.integers(1, 64).map(lambda n: n / 64)
grid_dice = st.integers(0, 2**20).map(lambda n: n / 2**20)


def zigzag(attempt: int) -> float:
    """A recipe of a user that goes up and down."""
    return 5.0 if attempt % 2 else 0.25


def recipes(
    seconds: st.SearchStrategy[float], factor: st.SearchStrategy[float], jitters: st.SearchStrategy[Jitter]
) -> st.SearchStrategy[Backoff]:
    """Any growth, made of these durations, with any of these kinds of jitter."""
    growths = st.one_of(
        st.builds(lambda base, by, cap: exponential(base, factor=by, cap=cap), seconds, factor, seconds),
        st.builds(lambda start, step, cap: linear(start, step, cap=cap), seconds, seconds, seconds),
        st.lists(seconds, min_size=1, max_size=5).map(from_list),
        st.just(as_backoff(zigzag)),
    )
    return st.builds(Backoff.with_jitter, growths, jitters)


simple_jitters = st.sampled_from(["full", "equal", "none"]).map(as_jitter)
all_but_decorrelated = st.one_of(simple_jitters, shares.map(proportional), st.just(Jitter("whole")))


# ---- never above -------------------------------------------------------------------------------------------------


@law
@given(recipes(durations, factors, simple_jitters), attempts, dice)
def test_a_wait_lies_between_zero_and_its_bound_which_never_exceeds_the_cap(
    backoff: Backoff, attempt: int, random: float
) -> None:
    assert 0.0 <= backoff.delay(attempt, random) <= backoff.bound(attempt) <= backoff.cap


@law
@given(recipes(grid, st.sampled_from([1.0, 2.0, 4.0]), all_but_decorrelated), attempts, dice)
def test_the_same_holds_for_every_jitter_without_a_memory(backoff: Backoff, attempt: int, random: float) -> None:
    assert 0.0 <= backoff.delay(attempt, random) <= backoff.bound(attempt) <= backoff.cap


@law
@given(grid, grid, attempts, dice, st.none() | grid)
def test_a_decorrelated_wait_lies_between_the_base_and_the_cap(
    base: float, cap: float, attempt: int, random: float, previous: float | None
) -> None:
    low = base if base < cap else cap / 3  # a base at the cap must not end all spread
    assert low <= decorrelated(base, cap=cap).delay(attempt, random, previous) <= cap


@law
@given(grid, grid, st.lists(grid_dice, min_size=1, max_size=20))
def test_no_chain_of_decorrelated_waits_exceeds_its_bounds(base: float, cap: float, throws: list[float]) -> None:
    backoff, wait, longest = decorrelated(base, cap=cap), None, None
    for attempt, random in enumerate(throws, start=1):
        wait = backoff.delay(attempt, random, wait)
        longest = backoff.delay(attempt, 1.0, longest)
        assert wait <= longest == backoff.bound(attempt)


@law
@given(recipes(durations, factors, simple_jitters), attempts, st.none() | durations)
def test_a_jitter_without_a_memory_does_not_look_at_the_last_wait(
    backoff: Backoff, attempt: int, previous: float | None
) -> None:
    assert backoff.delay(attempt, 0.75, previous) == backoff.delay(attempt, 0.75)


@law
@given(
    st.one_of(
        st.builds(lambda base, by, cap: exponential(base, factor=by, cap=cap), durations, factors, durations),
        st.builds(lambda start, step, cap: linear(start, step, cap=cap), durations, durations, durations),
        st.builds(lambda base, cap: decorrelated(base, cap=cap), durations, durations),
    ),
    attempts,
    attempts,
)
def test_bounds_never_shrink(backoff: Backoff, one: int, other: int) -> None:
    assert backoff.bound(min(one, other)) <= backoff.bound(max(one, other))


# ---- spread at the cap -------------------------------------------------------------------------------------------

AT_THE_CAP = st.sampled_from([10**3, 10**9, FAR])


@law
@given(
    st.one_of(st.sampled_from(["full", "equal"]).map(as_jitter), shares.map(proportional)),
    above_zero,
    above_zero,
    AT_THE_CAP,
    st.sets(grid_dice, min_size=2, max_size=2),
)
def test_different_dice_give_different_waits_at_the_cap(
    jitter: Jitter, base: float, cap: float, attempt: int, throws: set[float]
) -> None:
    backoff = exponential(base, cap=cap).with_jitter(jitter)
    low, high = sorted(throws)
    assert backoff.bound(attempt) == cap
    assert backoff.delay(attempt, low) < backoff.delay(attempt, high) <= cap


@law
@given(
    st.sets(above_zero, min_size=2, max_size=2),
    AT_THE_CAP,
    st.none() | grid,
    st.sets(grid_dice, min_size=2, max_size=2),
)
def test_different_dice_give_different_decorrelated_waits_at_the_cap(
    base_and_cap: set[float], attempt: int, previous: float | None, throws: set[float]
) -> None:
    base, cap = sorted(base_and_cap)
    backoff = decorrelated(base, cap=cap)
    low, high = sorted(throws)
    assert backoff.bound(attempt) == cap
    assert backoff.delay(attempt, low, previous) < backoff.delay(attempt, high, previous) <= cap


@law
@given(recipes(durations, factors, simple_jitters), attempts, dice, dice)
def test_a_greater_throw_never_gives_a_shorter_wait(backoff: Backoff, attempt: int, one: float, other: float) -> None:
    assert backoff.delay(attempt, min(one, other)) <= backoff.delay(attempt, max(one, other))


# ---- exact -------------------------------------------------------------------------------------------------------


@law
@given(durations, durations, st.integers(1, 1024))
def test_the_exponential_bound_is_exact_as_far_as_floats_reach(base: float, cap: float, attempt: int) -> None:
    exact = min(Fraction(cap), Fraction(base) * 2 ** (attempt - 1))
    assert Fraction(exponential(base, cap=cap).bound(attempt)) == exact


@law
@given(st.floats(1e-200, 1e12), durations, st.integers(1024, FAR))
def test_beyond_that_the_exponential_bound_is_the_cap(base: float, cap: float, attempt: int) -> None:
    assert exponential(base, cap=cap).bound(attempt) == cap


@law
@given(grid, st.integers(1, 7), grid, st.integers(1, 16))
def test_the_exponential_bound_is_exact_for_whole_factors(base: float, factor: int, cap: float, attempt: int) -> None:
    exact = min(Fraction(cap), Fraction(base) * factor ** (attempt - 1))
    assert Fraction(exponential(base, factor=factor, cap=cap).bound(attempt)) == exact


@law
@given(grid, grid, grid, st.integers(1, 10**9))
def test_the_linear_bound_is_exact(start: float, step: float, cap: float, attempt: int) -> None:
    exact = min(Fraction(cap), Fraction(start) + Fraction(step) * (attempt - 1))
    assert Fraction(linear(start, step, cap=cap).bound(attempt)) == exact


@law
@given(grid, grid, st.integers(1, 18))
def test_the_decorrelated_bound_is_exact(base: float, cap: float, attempt: int) -> None:
    assert Fraction(decorrelated(base, cap=cap).bound(attempt)) == min(Fraction(cap), Fraction(base) * 3**attempt)


@law
@given(st.lists(durations, min_size=1, max_size=5), attempts)
def test_a_listed_wait_is_the_listed_one(waits: list[float], attempt: int) -> None:
    assert from_list(waits).delay(attempt, 0.5) == (waits[attempt - 1] if attempt <= len(waits) else waits[-1])


@law
@given(grid, grid, st.integers(1, 30), grid_dice)
def test_full_jitter_is_the_share_of_the_bound_that_the_dice_say(
    base: float, cap: float, attempt: int, random: float
) -> None:
    backoff = exponential(base, cap=cap)
    exact = Fraction(backoff.bound(attempt)) * Fraction(random)
    assert Fraction(backoff.delay(attempt, random)) == exact
    assert backoff.with_jitter(Jitter("whole")).delay(attempt, random) == math.floor(exact)


@law
@given(grid, grid, st.integers(1, 30), grid_dice)
def test_equal_jitter_is_half_the_bound_and_a_share_of_the_other_half(
    base: float, cap: float, attempt: int, random: float
) -> None:
    backoff = exponential(base, cap=cap, jitter="equal")
    assert Fraction(backoff.delay(attempt, random)) == Fraction(backoff.bound(attempt)) * (1 + Fraction(random)) / 2


@law
@given(grid, grid, shares, st.integers(1, 20))
def test_proportional_jitter_reaches_as_far_to_both_sides_but_not_beyond_the_cap(
    base: float, cap: float, share: float, attempt: int
) -> None:
    backoff = exponential(base, cap=cap).with_jitter(proportional(share))
    undrawn = Fraction(base) * 2 ** (attempt - 1)
    assert Fraction(backoff.delay(attempt, 0.0)) == min(undrawn, Fraction(cap)) * (1 - Fraction(share))
    assert Fraction(backoff.delay(attempt, 1.0)) == min(undrawn * (1 + Fraction(share)), Fraction(cap))
