"""When a circuit breaker opens, and for how long, and what an attempt's failure says about the service's health.

Decided here: the defaults with their reasons, which settings contradict each other, and which failures are signs of an
outage. Must never know a state or a clock. Prevents a breaker that never opens, or opens for what is no outage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from forbear.core.failure import Failure, Kind
from forbear.core.growth import Exponential
from forbear.core.validation import Seconds, count, number, seconds, share

FAILURE_THRESHOLD = 5  # in a row: rare by chance while most calls pass, soon reached while none does
MINIMUM_CALLS = 20  # a share of fewer calls is chance
WINDOW = 60.0  # seconds; long enough for 20 calls of a quiet client, short enough to be about now
RECOVERY_TIME = 30.0  # seconds; about what a restart takes
MAX_RECOVERY_TIME = 300.0  # seconds; the latest that the end of a long outage is noticed
TRIAL_TIMEOUT = 60.0  # seconds; longer than an attempt and its timeout

# "permanent": an error which shows that the service did answer (400). "neutral": says nothing (a cancellation).
Verdict = Literal["success", "failure", "permanent", "neutral"]
RateLimited = Literal["neutral", "failure"]

VERDICTS: tuple[Verdict, ...] = ("success", "failure", "permanent", "neutral")


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When a breaker opens, and for how long. Durations are seconds (a `timedelta` is accepted).

    failure_threshold: opens after so many failed attempts in a row; None: however many.
    failure_rate: opens when a failure makes this share of the last `window` seconds' calls failed ones, if there were
        at least `minimum_calls`; None: whatever the share. One dead part of many fails a small share only, and shutting
        out the healthy rest for it does more harm than good: half is a good choice, a tenth is not.
    recovery_time: how long it stays open before trials are let through.
    growth, max_recovery_time: each opening that follows a failed trial lasts `growth` times as long, up to a maximum.
    jitter: each opening lasts up to this share longer (0 to 1), so that many clients do not come back at once.
    trials: how many trials may run at once, and how many must succeed to close it. One failure opens it again.
    trial_timeout: how long a trial keeps its place. Give more than a call may take: what a trial brings later is void.
    rate_limited: what a 429 counts as. It is a sign of a service that works; "failure" makes it one of an outage.

    Raises ValueError, with the correction, for settings that make no sense.
    """

    failure_threshold: int | None = FAILURE_THRESHOLD
    failure_rate: float | None = None
    minimum_calls: int = MINIMUM_CALLS
    window: float = WINDOW
    recovery_time: float = RECOVERY_TIME
    growth: float = 1.0
    max_recovery_time: float = MAX_RECOVERY_TIME
    jitter: float = 0.0
    trials: int = 1
    trial_timeout: float = TRIAL_TIMEOUT
    rate_limited: RateLimited = "neutral"

    if TYPE_CHECKING:  # what may be passed; what is kept is what the fields say

        def __init__(
            self,
            *,
            failure_threshold: int | None = ...,
            failure_rate: float | None = ...,
            minimum_calls: int = ...,
            window: Seconds = ...,
            recovery_time: Seconds = ...,
            growth: float = ...,
            max_recovery_time: Seconds = ...,
            jitter: float = ...,
            trials: int = ...,
            trial_timeout: Seconds = ...,
            rate_limited: RateLimited = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.failure_threshold is None and self.failure_rate is None:
            raise ValueError("failure_threshold=None and failure_rate=None together never open: set one of them")
        for name in ("failure_threshold", "minimum_calls", "trials"):
            value = getattr(self, name)
            _set(self, name, value if value is None and name == "failure_threshold" else count(name, value))
        _set(self, "failure_rate", None if self.failure_rate is None else _rate(self.failure_rate))
        for name in ("window", "trial_timeout", "recovery_time", "max_recovery_time"):
            _set(self, name, _span(name, getattr(self, name)))
        _set(self, "growth", _growth(self.growth))
        _set(self, "jitter", share("jitter", self.jitter))
        _set(self, "max_recovery_time", _most(self.max_recovery_time, self.recovery_time))
        if self.rate_limited not in ("neutral", "failure"):
            raise ValueError(f"rate_limited must be 'neutral' or 'failure', not {self.rate_limited!r}")

    def open_for(self, openings: int, random: float) -> float:
        """How long the n-th opening in a row (from 1) lasts, in seconds. `random` lies in [0, 1]."""
        grown = min(self.max_recovery_time, Exponential(self.recovery_time, self.growth)(openings))
        return grown * (1.0 + self.jitter * random)

    def verdict_of(self, failure: Failure) -> Verdict:
        """What a classified failure says about the service's health."""
        match failure.kind:
            case Kind.RATE_LIMITED | Kind.QUOTA_SPENT:
                return self.rate_limited
            case Kind.CANCELLED | Kind.GAVE_UP | Kind.POOL_FULL:
                return "neutral"
            case Kind.REJECTED_RESULT:
                return "success"  # the service has answered; a poll that goes on is no outage
            case Kind.CONFLICT:
                return "permanent"  # may pass next time, and yet it is an answer
            case Kind.INSECURE:
                return "failure"  # no retry helps, but nobody has answered
            case _:
                return "failure" if failure.transient else "permanent"


def _set(settings: BreakerSettings, name: str, value: object) -> None:
    object.__setattr__(settings, name, value)


def _rate(value: object) -> float:
    rate = share("failure_rate", value)
    if rate == 0:
        raise ValueError("failure_rate is 0, which every call reaches; for the first failure write failure_threshold=1")
    return rate


def _span(name: str, value: object) -> float:
    result = seconds(name, value, endless=False)
    if result == 0 and name in ("window", "trial_timeout"):
        raise ValueError(f"{name} is 0 s, in which nothing can happen; give the seconds that it lasts")
    return result


def _growth(value: object) -> float:
    growth = number("growth", value)
    if not 1.0 <= growth < math.inf:
        raise ValueError(
            f"growth is {growth:g}: it multiplies the recovery time, so 1 (the same each time) is the least"
        )
    return growth


def _most(most: float, first: float) -> float:
    if most < first and most != MAX_RECOVERY_TIME:
        raise ValueError(f"max_recovery_time is {most:g}, less than recovery_time={first:g}: give at least that")
    return max(most, first)
