"""The decision in a form without types: dictionaries in milliseconds, for callers that keep their policy as data.

A thin dress over `decide`: what is special here is the validation of untyped input, jitter in whole milliseconds, and
the name "attempts" for that reason. Must never hold a rule of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from forbear.core.backoff import Backoff, Jitter
from forbear.core.decision import Stop, decide
from forbear.core.failure import Failure
from forbear.core.growth import Exponential
from forbear.core.policy import Policy
from forbear.core.validation import count, number


def decide_retry(
    failure: Mapping[str, Any],
    completed_attempts: int,
    remaining_ms: float,
    random_value: float,
    policy: Mapping[str, Any],
) -> dict[str, Any]:
    """`{"retry": True, "delay_ms": ...}` or `{"retry": False, "reason": "unsafe"|"permanent"|"attempts"|"deadline"}`.

    `failure` has `transient`, `safe_to_retry` and perhaps `retry_after_ms`; `policy` has `max_attempts`,
    `base_delay_ms`, `max_delay_ms` and `minimum_attempt_ms`. `random_value` lies in [0, 1). Raises ValueError for
    invalid input, even where the answer would be not to retry.
    """
    answer = decide(
        _policy(policy),
        _failure(failure),
        completed_attempts=completed_attempts,
        remaining=_milliseconds("remaining_ms", remaining_ms),
        random=_below_one(random_value),
    )
    if isinstance(answer, Stop):
        return {"retry": False, "reason": "attempts" if answer.reason == "max_attempts" else answer.reason}
    return {"retry": True, "delay_ms": int(answer.delay) if answer.delay.is_integer() else answer.delay}


def _failure(data: Mapping[str, Any]) -> Failure:
    hint = data.get("retry_after_ms")
    return Failure(
        transient=_of(data, "transient"),
        safe_to_retry=_of(data, "safe_to_retry"),
        retry_after=None if hint is None else _milliseconds("retry_after_ms", hint),
    )


def _policy(data: Mapping[str, Any]) -> Policy:
    minimum = _milliseconds("minimum_attempt_ms", _of(data, "minimum_attempt_ms"))
    if minimum == 0:
        raise ValueError("minimum_attempt_ms is 0: say how long an attempt needs to be worth starting")
    base = _milliseconds("base_delay_ms", _of(data, "base_delay_ms"))
    cap = _milliseconds("max_delay_ms", _of(data, "max_delay_ms"))
    return Policy(
        max_attempts=count("max_attempts", _of(data, "max_attempts")),
        attempt_timeout=None,
        deadline=None,
        backoff=Backoff(growth=Exponential(base, 2.0), cap=cap, jitter=Jitter("whole")),
        minimum_attempt=minimum,
    )


def _of(data: Mapping[str, Any], key: str) -> Any:
    if key not in data:
        raise ValueError(f"{key} is missing")
    return data[key]


def _below_one(value: object) -> float:
    result = number("random_value", value)
    if not 0 <= result < 1:
        raise ValueError(f"random_value is {result:g}; it must lie in [0, 1)")
    return result


def _milliseconds(name: str, value: object) -> float:
    result = number(name, value)
    if not 0 <= result < math.inf:
        raise ValueError(f"{name} is {result:g}; it must be finite and not negative")
    return result
