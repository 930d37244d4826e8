"""Laws of the policy: a value that can be changed, copied, compared, printed and added up."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.core.backoff import (
    Backoff,
    Custom,
    Exponential,
    Jitter,
    Linear,
    Listed,
    as_backoff,
    as_jitter,
    decorrelated,
    exponential,
    from_list,
    linear,
    proportional,
)
from forbear.core.policy import BASE, CAP, Policy

law = settings(max_examples=200, deadline=None)

durations = st.floats(0.0, 1e12)
grid = st.integers(0, 2**12).map(lambda n: n / 64)  # to a 64th of a second: floats are exact
above_zero = st.integers(1, 2**12).map(lambda n: n / 64)
shares = st.integers(1, 64).map(lambda n: n / 64)
jitters = st.one_of(st.sampled_from(["full", "equal", "none"]).map(as_jitter), shares.map(proportional))


def zigzag(attempt: int) -> float:
    """A recipe of a user that goes up and down."""
    return 5.0 if attempt % 2 else 0.25


backoffs = st.one_of(
    st.builds(lambda base, cap: exponential(base, cap=cap), durations, durations),
    st.builds(lambda base, cap: decorrelated(base, cap=cap), durations, durations),
    st.builds(lambda start, step, cap: linear(start, step, cap=cap), durations, durations, durations),
    st.lists(durations, min_size=1, max_size=4).map(from_list),
    st.just(as_backoff(zigzag)),
)

# What a field may hold, where it does not depend on another one.
FREE: dict[str, st.SearchStrategy[Any]] = {
    "max_attempts": st.integers(1, 10**9),
    "attempt_timeout": st.none() | st.floats(0.001, 1e9),
    "deadline": st.none() | durations,
    "jitter": st.none() | jitters,
    "minimum_attempt": st.floats(0.001, 1e9),
    "retry_after": st.sampled_from(["floor", "add"]),
    "retry_after_jitter": durations,
    "max_retry_after": st.none() | durations,
    "late_backoff": st.sampled_from(["stop", "shorten"]),
}


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy."""
    free = draw(st.fixed_dictionaries(FREE))
    if draw(st.booleans()):
        return Policy(**free, base=draw(durations), cap=draw(durations))
    return Policy(**{**free, "jitter": None}, backoff=draw(backoffs))


# ---- as a value --------------------------------------------------------------------------------------------------


def same(one: Policy, other: Policy) -> bool:
    return one == other and hash(one) == hash(other) and one.waits == other.waits and repr(one) == repr(other)


@law
@given(policies())
def test_a_policy_survives_copying_and_pickling(policy: Policy) -> None:
    assert same(copy.copy(policy), policy)
    assert same(copy.deepcopy(policy), policy)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert same(pickle.loads(pickle.dumps(policy, protocol)), policy)


@law
@given(policies())
def test_a_policy_that_is_changed_in_nothing_is_the_same(policy: Policy) -> None:
    assert same(policy.replace(), policy)


@law
@given(policies(), st.data())
def test_a_change_and_its_reverse_give_the_policy_back(policy: Policy, data: st.DataObject) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(FREE.keys() - {"jitter"}))))
    changes = {name: data.draw(FREE[name]) for name in sorted(names)}
    changed = policy.replace(**changes)
    assert all(getattr(changed, name) == value for name, value in changes.items())
    assert changed.waits == policy.waits
    assert same(changed.replace(**{name: getattr(policy, name) for name in names}), policy)


@law
@given(policies(), backoffs)
def test_the_newest_recipe_wins(policy: Policy, backoff: Backoff) -> None:
    assert policy.replace(backoff=backoff).waits == backoff
    plain = policy.replace(jitter=None)
    assert plain.replace(backoff=backoff).replace(base=1.0).waits == exponential(1.0, cap=CAP)
    assert plain.replace(backoff=backoff).replace(cap=7.0).waits == exponential(BASE, cap=7.0)
    assert plain.replace(backoff=backoff).replace(backoff=None).waits == exponential(BASE, cap=CAP)


@law
@given(policies(), st.data())
def test_policies_that_differ_in_a_setting_are_not_equal(policy: Policy, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FREE.keys() - {"jitter"})))
    value = data.draw(FREE[name])
    assert (policy.replace(**{name: value}) == policy) == (value == getattr(policy, name))


NAMES: dict[str, object] = {
    "Policy": Policy, "Backoff": Backoff, "Jitter": Jitter, "Exponential": Exponential, "Linear": Linear,
    "Listed": Listed, "Custom": Custom, "inf": math.inf,
}  # fmt: skip


@law
@given(policies().filter(lambda policy: policy.waits != as_backoff(zigzag)))
def test_a_repr_is_what_the_policy_could_be_made_with(policy: Policy) -> None:
    assert same(eval(repr(policy), {"__builtins__": {}}, NAMES), policy)


# ---- the worst case ----------------------------------------------------------------------------------------------

grid_waits = st.one_of(
    st.builds(lambda base, cap: exponential(base, cap=cap), grid, grid),
    st.builds(lambda base, cap: decorrelated(base, cap=cap), grid, grid),
    st.builds(lambda start, step, cap: linear(start, step, cap=cap), grid, grid, grid),
    st.builds(
        lambda base, cap, share: exponential(base, cap=cap, jitter=proportional(share)), grid, above_zero, shares
    ),
    st.lists(grid, min_size=1, max_size=4).map(from_list),
    st.just(as_backoff(zigzag)),
)


def added_up(policy: Policy) -> Fraction:
    assert policy.max_attempts is not None
    assert policy.attempt_timeout is not None
    return sum(map(Fraction, policy.schedule()), policy.max_attempts * Fraction(policy.attempt_timeout))


@law
@given(grid_waits, st.integers(1, 50), above_zero)
def test_the_worst_case_is_every_timeout_and_every_bound(backoff: Backoff, attempts: int, timeout: float) -> None:
    policy = Policy(backoff=backoff, max_attempts=attempts, attempt_timeout=timeout)
    assert Fraction(policy.worst_case()) == added_up(policy)


@law
@given(grid, st.integers(1, 50), above_zero)
def test_the_worst_case_of_a_capped_recipe_that_goes_up_and_down_is_never_too_low(
    cap: float, attempts: int, timeout: float
) -> None:
    backoff = Backoff(growth=Custom(zigzag), cap=cap)
    policy = Policy(backoff=backoff, max_attempts=attempts, attempt_timeout=timeout)
    assert policy.worst_case() >= added_up(policy)


@law
@given(policies(), st.integers(1, 20))
def test_the_schedule_is_one_bound_after_the_other(policy: Policy, attempts: int) -> None:
    bounds = tuple(map(policy.bound, range(1, attempts)))
    assert policy.schedule(attempts) == policy.replace(max_attempts=attempts).schedule() == bounds


class Steps:
    """Counts the functions that are called, and ends a run that calls more of them than is allowed."""

    def __init__(self, allowed: int) -> None:
        self.left = allowed

    def __call__(self, _frame: object, event: str, _argument: object) -> None:
        self.left -= event == "call"
        if self.left < 0:
            raise AssertionError("more calls of functions than a constant number")


def within(allowed: int, ask: Callable[[], float]) -> float:
    """What `ask` gives, if it gets there by calling so many functions."""
    before = sys.getprofile()
    sys.setprofile(Steps(allowed))
    try:
        return ask()
    finally:
        sys.setprofile(before)


@law
@given(above_zero, grid, above_zero, st.sampled_from([10**9, 10**12]))
def test_the_worst_case_of_ever_so_many_attempts_is_found_at_once(
    base: float, cap: float, timeout: float, attempts: int
) -> None:
    for backoff, growing in ((exponential(base, cap=cap), 15), (decorrelated(base, cap=cap), 10)):
        policy = Policy(backoff=backoff, max_attempts=attempts, attempt_timeout=timeout)
        assert policy.bound(growing) == cap
        exact = sum(map(Fraction, policy.schedule(growing))) + (attempts - growing) * Fraction(cap)
        longest = within(200, policy.worst_case)
        assert Fraction(longest) == exact + attempts * Fraction(timeout)


def test_the_step_counter_ends_a_run_that_counts() -> None:
    with pytest.raises(AssertionError, match=r"more calls of functions"):
        within(200, lambda: sum(map(zigzag, range(10**9))))


@law
@given(policies(), st.sampled_from([10**9, 10**400]))
def test_the_bound_of_any_attempt_is_found_at_once(policy: Policy, attempt: int) -> None:
    assert within(20, lambda: policy.bound(attempt)) <= policy.waits.cap
