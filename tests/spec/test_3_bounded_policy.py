"""The cases of the bounded policy: the pure decision in dictionaries and milliseconds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from forbear import decide_retry

POLICY = {"max_attempts": 3, "base_delay_ms": 200, "max_delay_ms": 1000, "minimum_attempt_ms": 300}
TRANSIENT = {"transient": True, "safe_to_retry": True}


def ask(failure: dict[str, Any], completed: Any, remaining: Any, dice: Any = 0.5, **policy: Any) -> dict[str, Any]:
    return decide_retry(failure, completed, remaining, dice, {**POLICY, **policy})


def wait(delay_ms: float) -> dict[str, Any]:
    return {"retry": True, "delay_ms": delay_ms}


def stop(reason: str) -> dict[str, Any]:
    return {"retry": False, "reason": reason}


@pytest.mark.parametrize(
    ("failure", "completed", "remaining", "expected"),
    [
        (TRANSIENT, 1, 2000, wait(100)),
        (TRANSIENT, 2, 2000, wait(200)),
        (TRANSIENT, 3, 2000, stop("attempts")),
        ({**TRANSIENT, "transient": False}, 1, 2000, stop("permanent")),
        ({**TRANSIENT, "safe_to_retry": False}, 1, 2000, stop("unsafe")),
        ({**TRANSIENT, "retry_after_ms": 700}, 1, 2000, wait(700)),
        ({**TRANSIENT, "retry_after_ms": 700}, 1, 900, stop("deadline")),
        (TRANSIENT, 1, 399, stop("deadline")),
        (TRANSIENT, 1, 400, wait(100)),
    ],
)
def test_decision(failure: dict[str, Any], completed: int, remaining: int, expected: dict[str, Any]) -> None:
    assert ask(failure, completed, remaining) == expected


def test_unsafe_comes_before_permanent_and_attempts() -> None:
    assert ask({"transient": False, "safe_to_retry": False}, 3, 0) == stop("unsafe")
    assert ask({"transient": False, "safe_to_retry": True}, 3, 0) == stop("permanent")
    assert ask(TRANSIENT, 3, 0) == stop("attempts")


def test_a_hint_of_none_is_no_hint_and_a_long_one_is_not_capped() -> None:
    assert ask({**TRANSIENT, "retry_after_ms": None}, 1, 2000) == wait(100)
    assert ask({**TRANSIENT, "retry_after_ms": 1500}, 1, 2000) == wait(1500)


def test_jitter_is_whole_milliseconds() -> None:
    answer = ask(TRANSIENT, 1, 2000, 0.333)
    assert answer == wait(66)
    assert isinstance(answer["delay_ms"], int)
    assert ask(TRANSIENT, 1, 2000, 0) == wait(0)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, -math.inf, True, "5", None, 10**400])
@pytest.mark.parametrize("key", ["base_delay_ms", "max_delay_ms", "minimum_attempt_ms"])
def test_bad_durations_of_a_policy_are_refused(key: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=key):
        ask(TRANSIENT, 1, 2000, **{key: bad})


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True, "5", None])
def test_bad_remaining_time_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="remaining_ms"):
        ask(TRANSIENT, 1, bad)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True, "5"])
def test_a_bad_hint_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="retry_after_ms"):
        ask({**TRANSIENT, "retry_after_ms": bad}, 1, 2000)


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "1", None])
def test_bad_counts_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="completed_attempts"):
        ask(TRANSIENT, bad, 2000)
    with pytest.raises(ValueError, match="max_attempts"):
        ask(TRANSIENT, 1, 2000, max_attempts=bad)


@pytest.mark.parametrize("bad", [-0.1, 1, 1.0, math.nan, True, "0.5", None])
def test_bad_dice_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="random_value"):
        ask(TRANSIENT, 1, 2000, bad)


def test_a_minimum_attempt_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="minimum_attempt_ms"):
        ask(TRANSIENT, 1, 2000, minimum_attempt_ms=0)


@pytest.mark.parametrize("bad", [0, 1, "yes", None])
@pytest.mark.parametrize("key", ["transient", "safe_to_retry"])
def test_flags_must_be_bools(key: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=key):
        ask({**TRANSIENT, key: bad}, 1, 2000)


@pytest.mark.parametrize("key", ["transient", "safe_to_retry"])
def test_a_missing_flag_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        ask({name: value for name, value in TRANSIENT.items() if name != key}, 1, 2000)


@pytest.mark.parametrize("key", POLICY)
def test_a_missing_setting_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        decide_retry(TRANSIENT, 1, 2000, 0.5, {name: value for name, value in POLICY.items() if name != key})


def test_invalid_input_raises_even_where_nothing_would_be_retried() -> None:
    with pytest.raises(ValueError, match="remaining_ms"):
        ask({"transient": False, "safe_to_retry": False}, 1, -1)
    with pytest.raises(ValueError, match="random_value"):
        ask(TRANSIENT, 3, 2000, 2.0)
