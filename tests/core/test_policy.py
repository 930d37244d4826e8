"""What one call may do: defaults, checks, contradictions, and what can be computed from it."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from forbear.core.backoff import Jitter, as_jitter, constant, decorrelated, exponential, from_list, linear
from forbear.core.policy import Policy


def squares(attempt: int) -> float:
    return float(attempt * attempt)


def test_the_defaults_are_those_that_are_documented() -> None:
    policy = Policy()
    assert (policy.max_attempts, policy.attempt_timeout, policy.deadline) == (5, 10.0, 60.0)
    assert (policy.base, policy.cap, policy.minimum_attempt) == (0.5, 30.0, 0.0)
    assert (policy.retry_after, policy.retry_after_jitter, policy.max_retry_after) == ("floor", 0.0, None)
    assert policy.late_backoff == "stop"
    assert policy.backoff is policy.jitter is None
    assert policy.waits == exponential(0.5, cap=30.0, jitter="full")


# ---- checks ------------------------------------------------------------------------------------------------------

DURATIONS = [
    "attempt_timeout", "deadline", "base", "cap", "minimum_attempt", "retry_after_jitter", "max_retry_after",
]  # fmt: skip


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_may_be_a_timedelta_and_becomes_a_float(name: str) -> None:
    assert getattr(Policy(**{name: timedelta(seconds=7)}), name) == 7.0
    assert type(getattr(Policy(**{name: 7}), name)) is float


@pytest.mark.parametrize("bad", [-1, math.nan, "5", True])
@pytest.mark.parametrize("name", DURATIONS)
def test_a_bad_duration_is_refused_by_its_name(name: str, bad: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name} "):
        Policy(**{name: bad})


@pytest.mark.parametrize("name", ["base", "cap", "minimum_attempt", "retry_after_jitter"])
def test_a_wait_is_never_endless(name: str) -> None:
    for bad in (math.inf, None):
        with pytest.raises(ValueError, match=rf"^{name} must be "):
            Policy(**{name: bad})


@pytest.mark.parametrize("name", ["attempt_timeout", "deadline", "max_retry_after"])
def test_infinity_means_no_limit(name: str) -> None:
    assert getattr(Policy(**{name: math.inf}), name) is None


def test_an_attempt_needs_some_time_but_a_deadline_may_be_now() -> None:
    with pytest.raises(ValueError, match=r"^attempt_timeout is 0.*pass None for no limit$"):
        Policy(attempt_timeout=0)
    assert Policy(deadline=0).deadline == 0.0
    assert Policy(max_retry_after=0).max_retry_after == 0.0


@pytest.mark.parametrize("bad", [0, -1, 2.0, "3", True])
def test_a_bad_number_of_attempts_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"^max_attempts "):
        Policy(max_attempts=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "choices"), [("retry_after", "'floor' or 'add' or 'instead'"), ("late_backoff", "'stop' or 'shorten'")]
)
def test_an_unknown_mode_is_answered_with_the_known_ones(name: str, choices: str) -> None:
    for bad in ("Floor", "", None, 1):
        with pytest.raises(ValueError, match=rf"^{name} must be {choices}, not "):
            Policy(**{name: bad})


def test_known_modes_are_accepted() -> None:
    assert Policy(retry_after="add").retry_after == "add"
    assert Policy(retry_after="instead").retry_after == "instead"
    assert Policy(late_backoff="shorten", minimum_attempt=0.1).late_backoff == "shorten"


def test_shortening_without_a_minimum_attempt_is_refused() -> None:
    with pytest.raises(ValueError, match=r"say how long that takes with minimum_attempt=0\.1 \(seconds\)$"):
        Policy(late_backoff="shorten")


def test_no_limit_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"retry for ever: set one of them$"):
        Policy(max_attempts=None, deadline=None)
    assert Policy(max_attempts=None).max_attempts is None
    assert Policy(deadline=None).deadline is None


@pytest.mark.parametrize("beside", [{"base": 1.0}, {"cap": 5.0}, {"base": 1.0, "cap": 5.0}])
def test_base_and_cap_beside_another_backoff_are_refused(beside: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"^base= and cap= belong to the default backoff"):
        Policy(backoff=linear(), **beside)  # type: ignore[arg-type]


def test_settings_are_passed_by_name() -> None:
    with pytest.raises(TypeError):
        Policy(3)  # type: ignore[call-arg]


# ---- waits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"), [(linear(), linear()), ([1, 2], from_list([1, 2])), (squares, Policy(backoff=squares).backoff)]
)
def test_another_recipe_takes_the_place_of_the_default_one(given: Any, kept: object) -> None:
    policy = Policy(backoff=given)
    assert policy.backoff == kept
    assert policy.waits == kept


def test_what_is_no_recipe_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^backoff must be a Backoff"):
        Policy(backoff=2.0)  # type: ignore[arg-type]


def test_a_jitter_changes_the_recipe_and_none_keeps_what_it_brings_along() -> None:
    assert Policy(jitter="equal").waits == exponential(0.5, cap=30.0, jitter="equal")  # type: ignore[arg-type]
    assert Policy(backoff=constant(1), jitter=Jitter("full")).waits == constant(1, jitter="full")
    assert Policy(backoff=constant(1)).waits.jitter == Jitter("none")
    assert Policy(jitter=as_jitter("decorrelated")).waits == decorrelated(0.5, cap=30.0)


def test_an_unknown_jitter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^jitter must be one of"):
        Policy(jitter="half")  # type: ignore[arg-type]


def test_the_bound_of_a_wait_is_that_of_the_recipe() -> None:
    assert [Policy().bound(n) for n in (1, 2, 7, 10**9)] == [0.5, 1.0, 30.0, 30.0]
    with pytest.raises(ValueError, match=r"^attempt is 0"):
        Policy().bound(0)


def test_the_schedule_has_one_wait_fewer_than_attempts() -> None:
    assert Policy().schedule() == (0.5, 1.0, 2.0, 4.0)
    assert Policy().schedule(3) == (0.5, 1.0)
    assert Policy(max_attempts=1).schedule() == ()


def test_the_schedule_of_uncounted_attempts_has_to_be_asked_for_in_parts() -> None:
    endless = Policy(max_attempts=None)
    with pytest.raises(ValueError, match=r"ask for a part with schedule\(10\)$"):
        endless.schedule()
    assert endless.schedule(2) == (0.5,)
    with pytest.raises(ValueError, match=r"^attempts is 0"):
        endless.schedule(0)


@pytest.mark.parametrize(
    ("policy", "longest"),
    [
        (Policy(), 5 * 10.0 + 7.5),
        (Policy(max_attempts=1), 10.0),
        (Policy(max_attempts=10), 10 * 10.0 + 31.5 + 3 * 30.0),
        (Policy(max_attempts=1000), 1000 * 10.0 + 31.5 + (1000 - 1 - 6) * 30.0),
        (Policy(max_attempts=3, backoff=linear(1, 1)), 3 * 10.0 + 1.0 + 2.0),
        (Policy(max_attempts=4, backoff=from_list([1, 5])), 4 * 10.0 + 1.0 + 5.0 + 5.0),
        (Policy(max_attempts=3, cap=0.0), 3 * 10.0),
        (Policy(attempt_timeout=None), math.inf),
        (Policy(max_attempts=None), math.inf),
    ],
)
def test_the_worst_case_is_every_timeout_and_every_bound(policy: Policy, longest: float) -> None:
    assert policy.worst_case() == longest


def test_the_deadline_does_not_change_the_worst_case() -> None:
    assert Policy(deadline=1.0).worst_case() == Policy(deadline=None).worst_case() == 57.5


# ---- replace -----------------------------------------------------------------------------------------------------


def test_replace_changes_what_is_named_and_keeps_the_rest() -> None:
    policy = Policy(max_attempts=3, base=1.0, jitter=Jitter("none"))
    changed = policy.replace(deadline=5)
    assert (changed.deadline, changed.max_attempts, changed.base, changed.jitter) == (5.0, 3, 1.0, Jitter("none"))
    assert policy.deadline == 60.0


def test_a_new_backoff_takes_the_place_of_base_cap_and_jitter() -> None:
    policy = Policy(base=1.0, cap=5.0, jitter=Jitter("none"))
    assert policy.replace(backoff=[1, 2]) == Policy(backoff=from_list([1, 2]))
    assert policy.replace(backoff=linear(), jitter="equal").waits == linear(jitter="equal")


def test_a_new_base_or_cap_takes_the_place_of_the_backoff() -> None:
    policy = Policy(backoff=linear(), jitter=Jitter("equal"))
    assert policy.replace(base=1.0).waits == exponential(1.0, cap=30.0, jitter="equal")
    assert policy.replace(cap=5.0).waits == exponential(0.5, cap=5.0, jitter="equal")


def test_no_backoff_gives_the_default_one_back() -> None:
    assert Policy(backoff=linear()).replace(backoff=None) == Policy()
    assert Policy(backoff=linear()).replace(backoff=None, base=1.0) == Policy(base=1.0)


def test_replacing_checks_like_making() -> None:
    with pytest.raises(ValueError, match=r"^base= and cap= belong"):
        Policy().replace(backoff=linear(), base=1.0)
    with pytest.raises(ValueError, match=r"^max_attempts is 0"):
        Policy().replace(max_attempts=0)
    with pytest.raises(TypeError, match="attemps"):
        Policy().replace(attemps=3)


# ---- as a value --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Policy(), Policy(backoff=squares, max_attempts=None), Policy(cap=1, deadline=None)])
def test_a_policy_survives_copying_and_pickling(policy: Policy) -> None:
    for other in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert other == policy
        assert hash(other) == hash(policy)
        assert other.waits == policy.waits


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Policy().deadline = 1.0  # type: ignore[misc]


def test_a_repr_shows_every_setting_once() -> None:
    text = repr(Policy(max_attempts=7, minimum_attempt=0.25))
    assert text.startswith("Policy(max_attempts=7, attempt_timeout=10.0, deadline=60.0, base=0.5, cap=30.0, ")
    assert "minimum_attempt=0.25" in text
    assert "waits" not in text


@pytest.mark.parametrize(
    "policy",
    [
        Policy(max_attempts=10**9, backoff=[1.0]),
        Policy(max_attempts=10**9, base=0.0),
        Policy(max_attempts=10**9, backoff=linear(0.0, 1e-9, cap=60.0)),
    ],
)
def test_the_worst_case_of_a_thousand_million_attempts_is_known_at_once(policy: Policy) -> None:
    assert policy.attempt_timeout is not None
    assert policy.worst_case() >= 10**9 * policy.attempt_timeout


def test_a_growth_too_slow_to_sum_up_is_taken_at_its_end() -> None:
    policy = Policy(max_attempts=20_001, attempt_timeout=1.0, backoff=linear(0.0, 1e-6, cap=60.0))
    exact = 20_001 + sum(1e-6 * n for n in range(20_000))
    assert exact <= policy.worst_case() <= exact + 20_000 * 0.02
