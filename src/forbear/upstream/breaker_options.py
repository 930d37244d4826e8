"""What a `CircuitBreaker` takes by name, and what an outcome means to one that nobody has told anything else."""

from __future__ import annotations

from typing import TypedDict

from forbear.core.breaker_settings import RateLimited, Verdict
from forbear.core.validation import Seconds
from forbear.errors import CircuitOpenError, RetryError


class BreakerOptions(TypedDict, total=False):
    """What `CircuitBreaker` takes by name; the defaults and their reasons are those of `BreakerSettings`."""

    failure_rate: float | None
    minimum_calls: int
    window: Seconds
    growth: float
    max_recovery_time: Seconds
    jitter: float
    trials: int
    trial_timeout: Seconds
    rate_limited: RateLimited


# Names that users of other libraries try first.
MEANT = {
    "fail_max": "failure_threshold",
    "reset_timeout": "recovery_time",
    "recovery_timeout": "recovery_time",
    "timeout": "recovery_time",
    "expected_exception": "verdict, a function of the error and the result",
}


def verdict_of_outcome(error: BaseException | None, _result: object = None) -> Verdict:
    """What the end of a call says about the service, where nothing else is known of its errors.

    An Exception is a failure. What is none (a cancellation, Ctrl-C) says nothing, and neither does a refusal of
    forbear's own: `CircuitOpenError`, or a `RetryError` without an attempt. With attempts, the last error decides.
    """
    if error is None:
        return "success"
    if isinstance(error, RetryError):
        return "neutral" if error.last_error is None else verdict_of_outcome(error.last_error)
    return "neutral" if isinstance(error, CircuitOpenError) or not isinstance(error, Exception) else "failure"
