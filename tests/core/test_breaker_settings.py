"""When a breaker opens, for how long, and which failures are signs of an outage."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from forbear.core.breaker_settings import MAX_RECOVERY_TIME, VERDICTS, BreakerSettings, Verdict
from forbear.core.failure import PERMITS, Failure, Kind


def failure(kind: Kind) -> Failure:
    return Failure(transient=PERMITS[kind].transient, kind=kind)


def test_the_defaults_open_after_five_failures_in_a_row_for_half_a_minute() -> None:
    usual = BreakerSettings()
    assert (usual.failure_threshold, usual.failure_rate, usual.recovery_time) == (5, None, 30.0)
    assert (usual.trials, usual.growth, usual.jitter, usual.rate_limited) == (1, 1.0, 0.0, "neutral")


def test_durations_may_be_timedeltas() -> None:
    minute = timedelta(minutes=1)
    made = BreakerSettings(window=minute, recovery_time=minute, max_recovery_time=minute, trial_timeout=minute)
    assert (made.window, made.recovery_time, made.max_recovery_time, made.trial_timeout) == (60.0,) * 4


def test_settings_are_frozen_values() -> None:
    made = BreakerSettings(failure_threshold=None, failure_rate=1, window=10)
    assert made == BreakerSettings(failure_threshold=None, failure_rate=1.0, window=10.0)
    assert isinstance(made.failure_rate, float)
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(FrozenInstanceError):
        made.trials = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"failure_threshold": None}, "together never open: set one of them"),
        ({"failure_threshold": 0}, "failure_threshold is 0"),
        ({"failure_threshold": 2.0}, "failure_threshold must be a whole number, not float"),
        ({"failure_threshold": True}, "failure_threshold must be a whole number, not bool"),
        ({"failure_rate": 0}, "for the first failure write failure_threshold=1"),
        ({"failure_rate": 50}, "failure_rate is 50; it must lie between 0 and 1"),
        ({"minimum_calls": 0}, "minimum_calls is 0"),
        ({"minimum_calls": None}, "minimum_calls must be a whole number"),
        ({"trials": 0}, "trials is 0"),
        ({"trials": None}, "trials must be a whole number"),
        ({"window": 0}, "window is 0 s, in which nothing can happen"),
        ({"trial_timeout": 0}, "trial_timeout is 0 s, in which nothing can happen"),
        ({"trial_timeout": math.inf}, "trial_timeout must be finite"),
        ({"recovery_time": -1}, "recovery_time is -1: a duration is never negative"),
        ({"recovery_time": math.nan}, "recovery_time must be a number, not NaN"),
        ({"recovery_time": math.inf}, "recovery_time must be finite"),
        ({"max_recovery_time": "5"}, "max_recovery_time must be a number, not str"),
        ({"max_recovery_time": 5}, "max_recovery_time is 5, less than recovery_time=30: give at least that"),
        ({"growth": 0.5}, r"growth is 0.5: .*so 1 \(the same each time\) is the least"),
        ({"growth": math.inf}, "growth is inf"),
        ({"jitter": 1.5}, "jitter is 1.5; it must lie between 0 and 1"),
        ({"rate_limited": "success"}, "rate_limited must be 'neutral' or 'failure', not 'success'"),
    ],
)
def test_what_makes_no_sense_is_answered_with_the_correction(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        BreakerSettings(**options)


def test_no_recovery_time_at_all_is_allowed() -> None:
    assert BreakerSettings(recovery_time=0).open_for(1, 1.0) == 0.0


# ---- how long it stays open --------------------------------------------------------------------------------------


def test_every_opening_lasts_as_long_unless_it_grows() -> None:
    assert [BreakerSettings().open_for(n, 0.5) for n in (1, 2, 9)] == [30.0] * 3
    growing = BreakerSettings(recovery_time=10.0, growth=2.0, max_recovery_time=70.0)
    assert [growing.open_for(n, 0.5) for n in (1, 2, 3, 4, 10**9, 10**400)] == [10.0, 20.0, 40.0, 70.0, 70.0, 70.0]


def test_the_spread_goes_upward_and_does_not_collapse_at_the_maximum() -> None:
    spread = BreakerSettings(recovery_time=10.0, growth=10.0, max_recovery_time=50.0, jitter=0.5)
    assert [spread.open_for(1, random) for random in (0.0, 0.5, 1.0)] == [10.0, 12.5, 15.0]
    assert [spread.open_for(7, random) for random in (0.0, 0.5, 1.0)] == [50.0, 62.5, 75.0]


def test_a_recovery_time_above_the_usual_maximum_is_kept() -> None:
    assert BreakerSettings(recovery_time=3600.0, growth=2.0).open_for(3, 0.0) == 3600.0
    assert BreakerSettings(growth=2.0).open_for(100, 0.0) == MAX_RECOVERY_TIME


# ---- what failures say -------------------------------------------------------------------------------------------

SAYS: dict[Kind, Verdict] = {
    Kind.RATE_LIMITED: "neutral",
    Kind.QUOTA_SPENT: "neutral",
    Kind.OVERLOADED: "failure",
    Kind.SERVER_ERROR: "failure",
    Kind.TIMEOUT: "failure",
    Kind.CONNECTION_REFUSED: "failure",
    Kind.CONNECTION_LOST: "failure",
    Kind.BAD_ANSWER: "failure",
    Kind.CONFLICT: "permanent",
    Kind.INVALID_REQUEST: "permanent",
    Kind.TOO_LONG: "permanent",
    Kind.CONTENT_REFUSED: "permanent",
    Kind.AUTH: "permanent",
    Kind.INSECURE: "failure",
    Kind.NOT_FOUND: "permanent",
    Kind.REJECTED_RESULT: "success",
    Kind.CANCELLED: "neutral",
    Kind.GAVE_UP: "neutral",
    Kind.POOL_FULL: "neutral",
    Kind.UNKNOWN: "permanent",
}


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_failure_has_its_verdict(kind: Kind) -> None:
    assert BreakerSettings().verdict_of(failure(kind)) == SAYS[kind]
    assert set(SAYS.values()) <= set(VERDICTS)


def test_a_rate_limit_may_count_as_a_failure_by_choice() -> None:
    strict = BreakerSettings(rate_limited="failure")
    assert strict.verdict_of(failure(Kind.RATE_LIMITED)) == "failure"
    assert strict.verdict_of(failure(Kind.QUOTA_SPENT)) == "failure"
    assert strict.verdict_of(failure(Kind.CANCELLED)) == "neutral"


def test_what_the_caller_says_may_pass_is_a_failure() -> None:
    assert BreakerSettings().verdict_of(Failure(transient=True)) == "failure"
