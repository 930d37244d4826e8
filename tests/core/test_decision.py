"""Retry after which delay, or stop for which reason."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError
from typing import Any, get_args

import pytest

from forbear.core.backoff import Jitter, decorrelated
from forbear.core.decision import INTERRUPTED, Retry, Stop, StopReason, decide, refusal
from forbear.core.failure import Failure
from forbear.core.policy import Policy

NEVER = Failure(transient=False)
UNSAFE = Failure(transient=True, safe_to_retry=False)


def hinted(seconds: float | None) -> Failure:
    return Failure(transient=True, retry_after=seconds)


AGAIN = hinted(None)


def ask(
    failure: Failure = AGAIN, completed: int = 1, *, remaining: float = 60.0, dice: float = 1.0, **settings: Any
) -> Retry | Stop:
    settings.setdefault("base", 1.0)
    return decide(Policy(**settings), failure, completed_attempts=completed, remaining=remaining, random=dice)


# ---- the order of the rules --------------------------------------------------------------------------------------


def test_a_failure_that_may_pass_is_retried_after_the_drawn_wait() -> None:
    assert ask() == Retry(1.0, "backoff")
    assert ask(completed=3, dice=0.25) == Retry(1.0, "backoff")
    assert ask(dice=0.0) == Retry(0.0, "backoff")


def test_unsafe_comes_first_then_permanent_then_the_number_of_attempts_then_the_deadline() -> None:
    both = Failure(transient=False, safe_to_retry=False)
    assert ask(both, 5, remaining=0.0) == Stop("unsafe")
    assert ask(NEVER, 5, remaining=0.0) == Stop("permanent")
    assert ask(AGAIN, 5, remaining=0.0) == Stop("max_attempts")
    assert ask(AGAIN, 4, remaining=0.0) == Stop("deadline")


def test_the_last_attempt_is_the_one_with_the_number_of_attempts_allowed() -> None:
    assert isinstance(ask(completed=2, max_attempts=3), Retry)
    assert ask(completed=3, max_attempts=3) == Stop("max_attempts")
    assert ask(completed=4, max_attempts=3) == Stop("max_attempts")
    assert ask(completed=1, max_attempts=1) == Stop("max_attempts")


def test_uncounted_attempts_never_run_out() -> None:
    assert ask(completed=10**400, max_attempts=None) == Retry(30.0, "backoff")


@pytest.mark.parametrize(
    ("failure", "completed", "answer"),
    [(UNSAFE, 9, Stop("unsafe")), (NEVER, 9, Stop("permanent")), (AGAIN, 3, Stop("max_attempts")), (AGAIN, 2, None)],
)
def test_a_refusal_can_be_known_before_the_dice_are_thrown(failure: Failure, completed: int, answer: object) -> None:
    assert refusal(Policy(max_attempts=3), failure, completed) == answer
    assert refusal(Policy(max_attempts=None), AGAIN, 10**9) is None


# ---- the deadline ------------------------------------------------------------------------------------------------


def test_a_wait_and_the_minimum_attempt_after_it_must_fit_exactly_equal_is_enough() -> None:
    assert ask(remaining=1.5, minimum_attempt=0.5) == Retry(1.0, "backoff")
    assert ask(remaining=1.4999, minimum_attempt=0.5) == Stop("deadline")


def test_a_wait_that_leaves_no_time_at_all_is_not_begun() -> None:
    assert ask(remaining=1.0) == Stop("deadline")
    assert ask(remaining=1.0001) == Retry(1.0, "backoff")
    assert ask(remaining=0.0, dice=0.0) == Stop("deadline")


def test_a_minimum_attempt_too_short_to_count_does_not_hide_that_no_time_is_left() -> None:
    assert ask(remaining=1.0, minimum_attempt=1e-20) == Stop("deadline")


def test_no_deadline_leaves_room_for_any_wait() -> None:
    assert ask(hinted(1e9), remaining=math.inf, minimum_attempt=1e9) == Retry(1e9, "hint")


def test_a_hint_that_does_not_fit_ends_the_call() -> None:
    assert ask(hinted(120)) == Stop("deadline")


# ---- hints -------------------------------------------------------------------------------------------------------


def test_a_hint_is_a_floor_under_the_backoff() -> None:
    assert ask(hinted(7.0)) == Retry(7.0, "hint")
    assert ask(hinted(0.25)) == Retry(1.0, "backoff")
    assert ask(hinted(1.0)) == Retry(1.0, "hint")


def test_the_cap_limits_the_backoff_but_never_a_hint() -> None:
    assert ask(hinted(7.0), cap=2.0) == Retry(7.0, "hint")
    assert ask(hinted(7.0), cap=2.0, retry_after="add") == Retry(8.0, "hint")


def test_a_hint_may_be_added_to_the_backoff() -> None:
    assert ask(hinted(7.0), dice=0.5, retry_after="add") == Retry(7.5, "hint")
    assert ask(hinted(0.0), dice=0.5, retry_after="add") == Retry(0.5, "hint")
    assert ask(dice=0.5, retry_after="add") == Retry(0.5, "backoff")


def test_a_hint_may_stand_instead_of_the_backoff_also_where_that_is_longer() -> None:
    assert ask(hinted(0.25), retry_after="instead") == Retry(0.25, "hint")
    assert ask(hinted(0.0), completed=4, retry_after="instead") == Retry(0.0, "hint")
    assert ask(hinted(7.0), retry_after="instead") == Retry(7.0, "hint")
    assert ask(dice=0.5, retry_after="instead") == Retry(0.5, "backoff")


def test_what_stands_instead_of_the_backoff_is_cut_and_spread_like_any_hint() -> None:
    assert ask(hinted(50.0), max_retry_after=0.5, retry_after="instead") == Retry(0.5, "capped hint")
    assert ask(hinted(0.25), dice=0.5, retry_after_jitter=0.25, retry_after="instead") == Retry(0.375, "hint")


def test_a_hint_gets_a_jitter_of_its_own() -> None:
    assert ask(hinted(7.0), dice=0.5, retry_after_jitter=0.25) == Retry(7.125, "hint")
    assert ask(hinted(7.0), dice=0.5, retry_after_jitter=0.25, retry_after="add") == Retry(7.625, "hint")
    assert ask(dice=0.5, retry_after_jitter=0.25) == Retry(0.5, "backoff")


def test_a_hint_beyond_the_most_that_is_obeyed_is_cut_and_that_is_told() -> None:
    assert ask(hinted(50.0), max_retry_after=20.0) == Retry(20.0, "capped hint")
    assert ask(hinted(20.0), max_retry_after=20.0) == Retry(20.0, "hint")
    assert ask(hinted(50.0), max_retry_after=20.0, retry_after="add") == Retry(21.0, "capped hint")
    assert ask(hinted(50.0), max_retry_after=20.0, retry_after_jitter=1.0) == Retry(21.0, "capped hint")


def test_a_cut_hint_below_the_backoff_leaves_the_backoff() -> None:
    assert ask(hinted(50.0), max_retry_after=0.5) == Retry(1.0, "backoff")


# ---- late waits --------------------------------------------------------------------------------------------------

SHORTEN: dict[str, Any] = {"base": 8.0, "late_backoff": "shorten", "minimum_attempt": 0.5}


def test_a_late_backoff_is_cut_so_that_the_minimum_attempt_still_fits() -> None:
    assert ask(remaining=4.0, **SHORTEN) == Retry(3.5, "shortened backoff")
    assert ask(remaining=0.5, **SHORTEN) == Retry(0.0, "shortened backoff")


def test_a_backoff_that_fits_is_not_cut() -> None:
    assert ask(remaining=8.5, **SHORTEN) == Retry(8.0, "backoff")
    assert ask(remaining=math.inf, **SHORTEN) == Retry(8.0, "backoff")


def test_what_leaves_no_room_for_the_minimum_attempt_cannot_be_cut() -> None:
    assert ask(remaining=0.25, **SHORTEN) == Stop("deadline")
    assert ask(remaining=0.25, dice=0.0, **SHORTEN) == Stop("deadline")
    assert ask(remaining=0.0, **SHORTEN) == Stop("deadline")


def test_a_cut_that_would_leave_no_time_at_all_is_not_made() -> None:
    assert ask(remaining=4.0, **{**SHORTEN, "minimum_attempt": 1e-20}) == Stop("deadline")


def test_a_hint_is_never_cut() -> None:
    assert ask(hinted(9.0), remaining=9.25, **SHORTEN) == Stop("deadline")
    assert ask(hinted(1.0), remaining=9.25, retry_after="add", **SHORTEN) == Stop("deadline")
    assert ask(hinted(9.0), remaining=9.5, **SHORTEN) == Retry(9.0, "hint")
    assert ask(hinted(3.0), remaining=3.25, retry_after="instead", **SHORTEN) == Stop("deadline")
    assert ask(hinted(3.0), remaining=3.5, retry_after="instead", **SHORTEN) == Retry(3.0, "hint")


def test_without_shortening_a_late_backoff_ends_the_call() -> None:
    assert ask(remaining=4.0, base=8.0, minimum_attempt=0.5) == Stop("deadline")


# ---- what goes in and comes out ----------------------------------------------------------------------------------


def test_decorrelated_waits_look_at_the_last_one() -> None:
    policy = Policy(backoff=decorrelated(1.0))
    facts: dict[str, Any] = {"completed_attempts": 2, "remaining": 60.0, "random": 1.0}
    assert decide(policy, AGAIN, previous_delay=2.0, **facts) == Retry(6.0, "backoff")
    assert decide(policy, AGAIN, **facts) == Retry(3.0, "backoff")


@pytest.mark.parametrize("failure", [AGAIN, UNSAFE, NEVER])
@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("completed_attempts", 0),
        ("completed_attempts", 1.0),
        ("remaining", -0.1),
        ("remaining", math.nan),
        ("remaining", None),
        ("random", 1.1),
        ("random", -0.1),
        ("random", True),
    ],
)
def test_bad_facts_are_refused_whatever_the_answer_would_be(failure: Failure, name: str, bad: object) -> None:
    facts: dict[str, Any] = {"completed_attempts": 1, "remaining": 60.0, "random": 0.5, name: bad}
    with pytest.raises(ValueError, match=rf"^{name} "):
        decide(Policy(), failure, **facts)


def test_a_negative_rest_is_answered_with_the_correction() -> None:
    with pytest.raises(ValueError, match=r"^remaining is -3: .*pass max\(0, rest\)$"):
        ask(remaining=-3)


def test_answers_are_values() -> None:
    for answer, other in ((Retry(1.0, "hint"), Retry(2.0, "hint")), (Stop("deadline"), Stop("unsafe"))):
        assert pickle.loads(pickle.dumps(answer)) == answer
        assert answer != other
    with pytest.raises(FrozenInstanceError):
        Retry(1.0, "hint").delay = 2.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Stop("deadline").reason = "unsafe"  # type: ignore[misc]


def test_the_reasons_to_stop_are_a_closed_set() -> None:
    assert set(get_args(StopReason)) == {"unsafe", "permanent", "max_attempts", "deadline", "budget", "interrupted"}
    assert Stop("interrupted") == INTERRUPTED


def test_the_jitter_of_the_policy_draws_the_wait() -> None:
    assert ask(dice=0.0, jitter=Jitter("equal")) == Retry(0.5, "backoff")


def test_copies_count_as_attempts_and_not_for_the_backoff() -> None:
    policy = Policy(max_attempts=6, jitter="none", base=1.0)
    failure = Failure(transient=True)
    waits = [decide(policy, failure, completed_attempts=2 * n, remaining=1e9, random=0.5, rounds=n) for n in (1, 2)]
    assert waits == [Retry(1.0, "backoff"), Retry(2.0, "backoff")]
    assert decide(policy, failure, completed_attempts=6, remaining=1e9, random=0.5, rounds=3) == Stop("max_attempts")
