"""What one failed attempt means, as a frozen value."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest

from forbear.core.failure import Failure, Kind


def test_only_whether_it_may_pass_next_time_must_be_said() -> None:
    failure = Failure(transient=True)
    assert failure.safe_to_retry is True
    assert failure.retry_after is None
    assert failure.kind is Kind.UNKNOWN
    assert failure.executed == "maybe"
    assert failure.status is None


@pytest.mark.parametrize("bad", [1, 0, None, "yes"])
def test_flags_must_be_bools(bad: object) -> None:
    with pytest.raises(ValueError, match=r"^transient must be True or False"):
        Failure(transient=bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^safe_to_retry must be True or False"):
        Failure(transient=True, safe_to_retry=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("hint", [2, 2.0, timedelta(seconds=2)])
def test_a_hint_becomes_seconds(hint: float) -> None:
    result = Failure(transient=True, retry_after=hint).retry_after
    assert result == 2.0
    assert type(result) is float


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "5", True])
def test_a_hint_that_is_no_finite_duration_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"^retry_after "):
        Failure(transient=True, retry_after=bad)  # type: ignore[arg-type]


def test_a_hint_of_zero_is_a_hint() -> None:
    assert Failure(transient=True, retry_after=0).retry_after == 0.0


def test_facts_are_passed_by_name() -> None:
    with pytest.raises(TypeError):
        Failure(True)  # type: ignore[call-arg]


def test_a_failure_is_a_value() -> None:
    failure = Failure(transient=True, retry_after=1.5, kind=Kind.RATE_LIMITED, executed="no", status=429)
    for other in (copy.copy(failure), copy.deepcopy(failure), pickle.loads(pickle.dumps(failure))):
        assert other == failure
        assert hash(other) == hash(failure)
    assert failure != Failure(transient=True)
    with pytest.raises(FrozenInstanceError):
        failure.transient = False  # type: ignore[misc]


def test_a_kind_reads_as_plain_words() -> None:
    assert f"{Kind.RATE_LIMITED}" == "rate limited"
    assert Kind("gave up") is Kind.GAVE_UP
    assert all(kind.value == kind.name.lower().replace("_", " ") for kind in Kind)
