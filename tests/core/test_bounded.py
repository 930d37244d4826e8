"""The decision in dictionaries and milliseconds: what its dress adds to the one decision."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from forbear.core.bounded import decide_retry

POLICY = {"max_attempts": 3, "base_delay_ms": 200, "max_delay_ms": 1000, "minimum_attempt_ms": 300}
FAILURE = {"transient": True, "safe_to_retry": True}
HUGE = {**POLICY, "max_attempts": 10**401}


def ask(completed: Any = 1, remaining: Any = 5000, dice: Any = 0.5, *, policy: Any = POLICY, **failure: Any) -> Any:
    return decide_retry({**FAILURE, **failure}, completed, remaining, dice, policy)


def test_an_answer_has_exactly_its_two_keys() -> None:
    assert ask() == {"retry": True, "delay_ms": 100}
    assert ask(3) == {"retry": False, "reason": "attempts"}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"safe_to_retry": False, "transient": False, "completed": 9, "remaining": 0}, "unsafe"),
        ({"transient": False, "completed": 9, "remaining": 0}, "permanent"),
        ({"completed": 9, "remaining": 0}, "attempts"),
        ({"remaining": 0}, "deadline"),
    ],
)
def test_reasons_to_stop_in_their_order(facts: dict[str, Any], reason: str) -> None:
    assert ask(**facts) == {"retry": False, "reason": reason}


def test_the_drawn_part_is_rounded_down_to_whole_milliseconds() -> None:
    assert ask(dice=0.9999) == {"retry": True, "delay_ms": 199}
    assert type(ask(dice=0.9999)["delay_ms"]) is int


def test_the_bound_of_the_drawn_part_doubles_up_to_the_most() -> None:
    waits = [ask(completed, policy=HUGE)["delay_ms"] for completed in (1, 2, 3, 4, 5)]
    assert waits == [100, 200, 400, 500, 500]


def test_a_hint_is_given_back_as_it_came() -> None:
    assert ask(retry_after_ms=700.5)["delay_ms"] == 700.5
    whole = ask(retry_after_ms=700.0)["delay_ms"]
    assert (whole, type(whole)) == (700, int)


def test_any_mapping_will_do() -> None:
    assert decide_retry(MappingProxyType(FAILURE), 1, 5000, 0.5, MappingProxyType(POLICY))["delay_ms"] == 100


@pytest.mark.parametrize("completed", [10**9, 10**400])
def test_any_attempt_number_is_answered_at_once(completed: int) -> None:
    assert ask(completed, policy=HUGE) == {"retry": True, "delay_ms": 500}


@pytest.mark.parametrize("key", POLICY)
def test_a_missing_setting_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=rf"^{key} is missing$"):
        ask(policy={name: value for name, value in POLICY.items() if name != key})


@pytest.mark.parametrize("key", FAILURE)
def test_a_missing_fact_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=rf"^{key} is missing$"):
        decide_retry({name: value for name, value in FAILURE.items() if name != key}, 1, 5000, 0.5, POLICY)


@pytest.mark.parametrize("bad", [-1, float("inf")])
def test_a_number_of_milliseconds_is_finite_and_not_negative(bad: float) -> None:
    for ask_badly in (
        lambda: ask(remaining=bad),
        lambda: ask(retry_after_ms=bad),
        lambda: ask(policy={**POLICY, "base_delay_ms": bad}),
        lambda: ask(policy={**POLICY, "max_delay_ms": bad}),
        lambda: ask(policy={**POLICY, "minimum_attempt_ms": bad}),
    ):
        with pytest.raises(ValueError, match=r"_ms is .*; it must be finite and not negative$"):
            ask_badly()


def test_an_attempt_that_needs_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^minimum_attempt_ms is 0: say how long"):
        ask(policy={**POLICY, "minimum_attempt_ms": 0})


@pytest.mark.parametrize("bad", [-0.001, 1, 1.5])
def test_the_dice_lie_below_one(bad: float) -> None:
    with pytest.raises(ValueError, match=r"^random_value is .*; it must lie in \[0, 1\)$"):
        ask(dice=bad)
    assert ask(dice=0) == {"retry": True, "delay_ms": 0}
