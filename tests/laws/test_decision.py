"""Laws of the decision: the order of its rules, the deadline, hints as floors, and late waits.

Durations are multiples of 1/64 and dice of 2^-10, for which floats are exact: so "equal is enough" and "one step less
is too little" can both be said to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.core.backoff import Jitter, as_jitter, decorrelated, linear, proportional
from forbear.core.decision import Retry, Stop, decide, refusal
from forbear.core.failure import Failure
from forbear.core.policy import Policy

law = settings(max_examples=200, deadline=None)

STEP = 2.0**-20  # finer than anything that is drawn below
grid = st.integers(0, 2**13).map(lambda n: n / 64)
above_zero = st.integers(1, 2**13).map(lambda n: n / 64)
shares = st.integers(1, 64).map(lambda n: n / 64)
dice = st.integers(0, 2**10).map(lambda n: n / 2**10)
times = st.one_of(grid, st.just(math.inf))
completed = st.one_of(st.integers(1, 6), st.sampled_from([10**9, 10**400]))
hints = st.one_of(st.none(), grid)
jitters = st.one_of(st.sampled_from(["full", "equal", "none"]).map(as_jitter), shares.map(proportional))


@st.composite
def policies(draw: st.DrawFn, /, **fixed: Any) -> Policy:
    """Any policy; `late_backoff` is "stop" unless it is fixed."""
    settings: dict[str, Any] = {
        "max_attempts": draw(st.one_of(st.none(), st.integers(1, 8))),
        "jitter": draw(jitters),
        "minimum_attempt": draw(grid),
        "retry_after": draw(st.sampled_from(["floor", "add"])),
        "retry_after_jitter": draw(st.one_of(st.just(0.0), grid)),
        "max_retry_after": draw(hints),
    }
    if draw(st.booleans()):
        settings.update(base=draw(grid), cap=draw(grid))
    else:
        settings["backoff"] = linear(draw(grid), draw(grid), cap=draw(grid))
    return Policy(**{**settings, **fixed})


failures = st.builds(Failure, transient=st.booleans(), safe_to_retry=st.booleans(), retry_after=hints)
passing = st.builds(Failure, transient=st.just(True), retry_after=hints)
hinted = st.builds(Failure, transient=st.just(True), retry_after=grid)
shortening = policies(late_backoff="shorten", minimum_attempt=0.25)


def ask(policy: Policy, failure: Failure, attempt: int, remaining: float, random: float) -> Retry | Stop:
    return decide(policy, failure, completed_attempts=attempt, remaining=remaining, random=random)


def wait(policy: Policy, failure: Failure, attempt: int, random: float) -> float:
    """The wait where time is no matter."""
    answer = ask(policy.replace(max_attempts=None), failure, attempt, math.inf, random)
    assert isinstance(answer, Retry)
    return answer.delay


# ---- the order of the rules --------------------------------------------------------------------------------------


@law
@given(policies() | shortening, failures, completed, times, dice)
def test_the_first_rule_that_applies_decides(
    policy: Policy, failure: Failure, attempt: int, remaining: float, random: float
) -> None:
    rules = [
        (not failure.safe_to_retry, "unsafe"),
        (not failure.transient, "permanent"),
        (policy.max_attempts is not None and attempt >= policy.max_attempts, "max_attempts"),
    ]
    reason = next((reason for applies, reason in rules if applies), None)
    answer = ask(policy, failure, attempt, remaining, random)
    if reason is None:
        assert refusal(policy, failure, attempt) is None
        assert isinstance(answer, Retry) or answer == Stop("deadline")
    else:
        assert answer == refusal(policy, failure, attempt) == Stop(reason)  # type: ignore[arg-type]


JUNK: dict[str, list[object]] = {
    "completed_attempts": [0, -1, 1.0, True, None, "1"],
    "remaining": [-1, -STEP, math.nan, -math.inf, True, None, "1", 10**400],
    "random": [-STEP, 1.0 + STEP, math.nan, math.inf, True, None, "0.5"],
}


@law
@given(policies() | shortening, failures, completed, times, dice, st.data())
def test_a_bad_fact_is_refused_whatever_the_other_facts_are(
    policy: Policy, failure: Failure, attempt: int, remaining: float, random: float, data: st.DataObject
) -> None:
    facts: dict[str, Any] = {"completed_attempts": attempt, "remaining": remaining, "random": random}
    name = data.draw(st.sampled_from(sorted(JUNK)))
    facts[name] = data.draw(st.sampled_from(JUNK[name]))
    with pytest.raises(ValueError, match=rf"^{name} "):
        decide(policy, failure, **facts)


@law
@given(
    st.builds(
        Policy,
        max_attempts=st.none(),
        base=st.floats(0, 1e12),
        cap=st.floats(0, 1e12),
        minimum_attempt=st.floats(0, 1e12),
        retry_after_jitter=st.floats(0, 1e12),
        retry_after=st.sampled_from(["floor", "add"]),
    ),
    st.builds(Failure, transient=st.just(True), retry_after=st.none() | st.floats(0, 1e12)),
    completed,
    st.floats(0, math.inf),
    st.floats(0, 1),
)
def test_any_valid_facts_give_an_answer_that_fits(
    policy: Policy, failure: Failure, attempt: int, remaining: float, random: float
) -> None:
    answer = ask(policy, failure, attempt, remaining, random)
    if isinstance(answer, Retry):
        assert 0.0 <= answer.delay < math.inf
        assert answer.delay < remaining
        assert answer.delay + policy.minimum_attempt <= remaining
    else:
        assert answer == Stop("deadline")


# ---- the deadline ------------------------------------------------------------------------------------------------


@law
@given(policies() | shortening, passing, completed, times, dice)
def test_a_wait_leaves_time_and_enough_of_it_for_the_minimum_attempt(
    policy: Policy, failure: Failure, attempt: int, remaining: float, random: float
) -> None:
    answer = ask(policy.replace(max_attempts=None), failure, attempt, remaining, random)
    if isinstance(answer, Retry) and remaining < math.inf:
        assert Fraction(answer.delay) < Fraction(remaining)
        assert Fraction(answer.delay) + Fraction(policy.minimum_attempt) <= Fraction(remaining)


@law
@given(policies(minimum_attempt=0.25) | policies(minimum_attempt=7.0), passing, completed, dice)
def test_a_wait_that_fits_exactly_is_waited_and_one_step_less_is_too_little(
    policy: Policy, failure: Failure, attempt: int, random: float
) -> None:
    patient = policy.replace(max_attempts=None)
    needed = wait(policy, failure, attempt, random) + policy.minimum_attempt
    assert isinstance(ask(patient, failure, attempt, needed, random), Retry)
    assert ask(patient, failure, attempt, needed - STEP, random) == Stop("deadline")


@law
@given(policies(minimum_attempt=0.0), passing, completed, dice)
def test_without_a_minimum_some_time_must_be_left_all_the_same(
    policy: Policy, failure: Failure, attempt: int, random: float
) -> None:
    patient, delay = policy.replace(max_attempts=None), wait(policy, failure, attempt, random)
    assert ask(patient, failure, attempt, delay, random) == Stop("deadline")
    assert isinstance(ask(patient, failure, attempt, delay + STEP, random), Retry)


@law
@given(policies(), passing, completed, times, times, dice)
def test_more_time_never_changes_a_wait(
    policy: Policy, failure: Failure, attempt: int, one: float, other: float, random: float
) -> None:
    answer = ask(policy, failure, attempt, min(one, other), random)
    if isinstance(answer, Retry):
        assert ask(policy, failure, attempt, max(one, other), random) == answer


# ---- hints -------------------------------------------------------------------------------------------------------


@law
@given(policies(), hinted, completed, times, dice)
def test_a_hint_is_a_floor_unless_it_is_cut_and_the_user_wanted_that(
    policy: Policy, failure: Failure, attempt: int, remaining: float, random: float
) -> None:
    answer, hint = ask(policy.replace(max_attempts=None), failure, attempt, remaining, random), failure.retry_after
    assert hint is not None
    if isinstance(answer, Retry):
        most = math.inf if policy.max_retry_after is None else policy.max_retry_after
        assert answer.delay >= min(hint, most)
        assert (answer.source == "capped hint") <= (hint > most)


@law
@given(policies(), hinted, completed, dice)
def test_a_hint_and_its_jitter_are_a_floor_under_the_drawn_wait_or_added_to_it(
    policy: Policy, failure: Failure, attempt: int, random: float
) -> None:
    drawn = Fraction(policy.waits.delay(attempt, random))
    most = [policy.max_retry_after] if policy.max_retry_after is not None else []
    hint = Fraction(min([failure.retry_after or 0.0, *most])) + Fraction(random) * Fraction(policy.retry_after_jitter)
    expected = hint + drawn if policy.retry_after == "add" else max(hint, drawn)
    assert Fraction(wait(policy, failure, attempt, random)) == expected


@law
@given(policies(), completed, dice)
def test_without_a_hint_the_wait_is_the_drawn_one(policy: Policy, attempt: int, random: float) -> None:
    answer = ask(policy.replace(max_attempts=None), Failure(transient=True), attempt, math.inf, random)
    assert answer == Retry(policy.waits.delay(attempt, random), "backoff")


@law
@given(policies(), hints, hints, completed, times, dice)
def test_a_greater_hint_never_shortens_a_wait_and_never_makes_one_possible(
    policy: Policy, one: float | None, other: float | None, attempt: int, remaining: float, random: float
) -> None:
    low, high = sorted((one, other), key=lambda hint: -1.0 if hint is None else hint)
    less, more = (Failure(transient=True, retry_after=hint) for hint in (low, high))
    assert wait(policy, less, attempt, random) <= wait(policy, more, attempt, random)
    if ask(policy, less, attempt, remaining, random) == Stop("deadline"):
        assert ask(policy, more, attempt, remaining, random) == Stop("deadline")


@law
@given(policies(), hinted, completed, dice)
def test_the_cap_of_the_backoff_never_limits_a_hint(
    policy: Policy, failure: Failure, attempt: int, random: float
) -> None:
    capped = policy.replace(backoff=linear(1.0, 1.0, cap=0.0), max_retry_after=None)
    assert wait(capped, failure, attempt, random) >= (failure.retry_after or 0.0)


# ---- late waits --------------------------------------------------------------------------------------------------


@law
@given(policies(minimum_attempt=0.25), failures, completed, times, dice)
def test_shortening_only_ever_makes_a_stop_into_a_retry(
    policy: Policy, failure: Failure, attempt: int, remaining: float, random: float
) -> None:
    plain = ask(policy, failure, attempt, remaining, random)
    answer = ask(policy.replace(late_backoff="shorten"), failure, attempt, remaining, random)
    if answer != plain:
        assert plain == Stop("deadline")
        assert isinstance(answer, Retry)
        assert answer.source == "shortened backoff"
        assert answer.delay < wait(policy, failure, attempt, random)


@law
@given(shortening, completed, times, st.sampled_from(["any", "only the minimum", "just enough"]), dice)
def test_a_late_backoff_is_cut_to_the_last_moment_wherever_the_minimum_attempt_fits_at_all(
    policy: Policy, attempt: int, time: float, left: str, random: float
) -> None:
    patient, failure = policy.replace(max_attempts=None), Failure(transient=True)
    drawn = wait(policy, failure, attempt, random)
    room = {"any": time - policy.minimum_attempt, "only the minimum": 0.0, "just enough": drawn}[left]
    remaining = room + policy.minimum_attempt
    answer = ask(patient, failure, attempt, remaining, random)
    if room < 0:
        assert answer == Stop("deadline")
    elif drawn <= room:
        assert answer == Retry(drawn, "backoff")
    else:
        assert answer == Retry(room, "shortened backoff")


@law
@given(shortening, hinted, completed, times, dice)
def test_shortening_never_touches_a_hint(
    policy: Policy, failure: Failure, attempt: int, remaining: float, random: float
) -> None:
    plain = policy.replace(late_backoff="stop")
    whole = ask(plain.replace(max_attempts=None), failure, attempt, math.inf, random)
    assert isinstance(whole, Retry)
    if whole.source in {"hint", "capped hint"}:
        assert ask(policy, failure, attempt, remaining, random) == ask(plain, failure, attempt, remaining, random)


# ---- nothing else counts -----------------------------------------------------------------------------------------


@law
@given(policies() | shortening, failures, completed, times, dice, st.none() | grid)
def test_the_same_facts_always_give_the_same_answer(
    policy: Policy, failure: Failure, attempt: int, remaining: float, random: float, previous: float | None
) -> None:
    facts: dict[str, Any] = {"completed_attempts": attempt, "remaining": remaining, "random": random}
    answer = decide(policy, failure, **facts)
    assert decide(policy.replace(deadline=7.0, attempt_timeout=1.0), failure, **facts) == answer
    assert decide(policy, replace(failure, status=503, executed="no"), **facts) == answer
    assert decide(policy, failure, previous_delay=previous, **facts) == answer


@law
@given(above_zero, grid, completed, dice, st.none() | grid)
def test_a_decorrelated_wait_is_drawn_with_the_last_one(
    base: float, cap: float, attempt: int, random: float, previous: float | None
) -> None:
    backoff = decorrelated(base, cap=cap)
    answer = decide(
        Policy(backoff=backoff, max_attempts=None),
        Failure(transient=True),
        completed_attempts=attempt,
        remaining=math.inf,
        random=random,
        previous_delay=previous,
    )
    assert answer == Retry(backoff.delay(attempt, random, previous), "backoff")


@law
@given(policies(jitter=Jitter("none")), passing, completed, times, dice, dice)
def test_without_jitter_the_dice_do_not_matter(
    policy: Policy, failure: Failure, attempt: int, remaining: float, one: float, other: float
) -> None:
    exact = policy.replace(retry_after_jitter=0.0)
    assert ask(exact, failure, attempt, remaining, one) == ask(exact, failure, attempt, remaining, other)
