"""What one call may do: attempts, timeouts, deadline, backoff. Frozen, checked once, printable and picklable.

Decided here: the defaults with their reasons, and which settings contradict each other. Must never know a function,
a clock or a service. Prevents settings that look harmless and retry for ever, or never.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from forbear.core.backoff import Backoff, BackoffLike, Jitter, as_backoff, as_jitter, exponential
from forbear.core.validation import Seconds, count, optional_seconds, seconds

MAX_ATTEMPTS = 5  # with doubling waits from half a second this spans about 7 s, longer than most restarts
ATTEMPT_TIMEOUT = 10.0  # above the 99th percentile of common HTTP APIs, well below a person's patience
DEADLINE = 60.0  # the longest that common gateways and workers wait for an answer
BASE = 0.5  # seconds; long enough for a load balancer to notice a dead server
CAP = 30.0  # seconds; a longer wait answers an outage no better and only delays the return

_SUMMED = 10_000  # waits that `worst_case` adds up one by one

RetryAfterMode = Literal["floor", "add", "instead"]
LateBackoff = Literal["stop", "shorten"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What one call may do. All durations are seconds (a `timedelta` is accepted); None means "no limit".

    max_attempts: how often the function may run, the first time included. None: as often as the deadline allows.
    attempt_timeout: how long one attempt may take.
    deadline: how long the whole call may take, its waits included.
    base, cap: the first bound of the exponential backoff, and its last.
    backoff: another recipe instead: a `Backoff`, a list of seconds, or a function of the attempt number.
    jitter: "full", "equal", "none", "decorrelated" or `proportional(p)`; None: what the backoff brings along.
    minimum_attempt: the time that an attempt needs to be worth starting.
    retry_after: "floor": wait at least the server's hint; "add": the hint and the backoff on top; "instead": the hint
        and no backoff, even where that is longer.
    retry_after_jitter: up to so many seconds are added to a hint, so that clients do not all return at once.
    max_retry_after: cuts the server's hint. None: a hint is obeyed or, if it does not fit, ends the call.
    late_backoff: "stop": give up when the next wait does not fit; "shorten": cut a backoff (never a hint) so that an
        attempt of `minimum_attempt` still fits.

    Raises ValueError, with the correction, for settings that make no sense.
    """

    max_attempts: int | None = MAX_ATTEMPTS
    attempt_timeout: float | None = ATTEMPT_TIMEOUT
    deadline: float | None = DEADLINE
    base: float = BASE
    cap: float = CAP
    backoff: Backoff | None = None
    jitter: Jitter | None = None
    minimum_attempt: float = 0.0
    retry_after: RetryAfterMode = "floor"
    retry_after_jitter: float = 0.0
    max_retry_after: float | None = None
    late_backoff: LateBackoff = "stop"
    waits: Backoff = field(init=False, repr=False, compare=False)

    if TYPE_CHECKING:  # what may be passed; what is kept is what the fields say

        def __init__(
            self,
            *,
            max_attempts: int | None = ...,
            attempt_timeout: Seconds | None = ...,
            deadline: Seconds | None = ...,
            base: Seconds = ...,
            cap: Seconds = ...,
            backoff: BackoffLike | None = ...,
            jitter: Jitter | str | None = ...,
            minimum_attempt: Seconds = ...,
            retry_after: RetryAfterMode = ...,
            retry_after_jitter: Seconds = ...,
            max_retry_after: Seconds | None = ...,
            late_backoff: LateBackoff = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        _set(self, "max_attempts", None if self.max_attempts is None else count("max_attempts", self.max_attempts))
        _set(self, "attempt_timeout", optional_seconds("attempt_timeout", self.attempt_timeout, zero=False))
        _set(self, "deadline", optional_seconds("deadline", self.deadline))
        for name in ("base", "cap", "minimum_attempt", "retry_after_jitter"):
            _set(self, name, seconds(name, getattr(self, name), endless=False))
        _set(self, "max_retry_after", optional_seconds("max_retry_after", self.max_retry_after))
        _set(self, "backoff", None if self.backoff is None else as_backoff(self.backoff))
        _set(self, "jitter", None if self.jitter is None else as_jitter(self.jitter))
        _one_of("retry_after", self.retry_after, ("floor", "add", "instead"))
        _one_of("late_backoff", self.late_backoff, ("stop", "shorten"))
        self._refuse_contradictions()
        waits = self.backoff or exponential(self.base, cap=self.cap)
        _set(self, "waits", waits if self.jitter is None else waits.with_jitter(self.jitter))

    def _refuse_contradictions(self) -> None:
        if self.backoff is not None and (self.base, self.cap) != (BASE, CAP):
            raise ValueError(
                "base= and cap= belong to the default backoff; beside backoff= write for example "
                "backoff=exponential(0.2, cap=2.0)"
            )
        if self.late_backoff == "shorten" and self.minimum_attempt == 0:
            raise ValueError(
                "late_backoff='shorten' cuts a wait so that one more attempt fits: "
                "say how long that takes with minimum_attempt=0.1 (seconds)"
            )
        if self.max_attempts is None and self.deadline is None:
            raise ValueError("max_attempts=None and deadline=None together retry for ever: set one of them")

    def replace(self, **changes: Any) -> Policy:
        """A copy with some fields changed. A new `backoff` takes the place of `base` and `cap`, and the reverse."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        if changes.get("backoff") is not None:
            kept.update(base=BASE, cap=CAP, jitter=None)
        elif not changes.keys().isdisjoint(("base", "cap")):
            kept["backoff"] = None
        return Policy(**{**kept, **changes})

    def bound(self, attempt: int) -> float:
        """The upper bound in seconds of the backoff wait after attempt number `attempt` (from 1)."""
        return self.waits.bound(count("attempt", attempt))

    def schedule(self, attempts: int | None = None) -> tuple[float, ...]:
        """The bounds in seconds of the waits between the first `attempts` attempts (default: all of them)."""
        total = attempts if attempts is not None else self.max_attempts
        if total is None:
            raise ValueError("max_attempts is None, so the schedule has no end: ask for a part with schedule(10)")
        return tuple(map(self.waits.bound, range(1, count("attempts", total))))

    def worst_case(self) -> float:
        """The longest in seconds that a call can take without its deadline and without hints of the server.

        Infinite where an attempt may take for ever or attempts are not counted.
        """
        if self.attempt_timeout is None or self.max_attempts is None:
            return math.inf
        total = self.max_attempts * self.attempt_timeout
        for attempt in range(1, self.max_attempts):
            if self.waits.settled(attempt):  # the rest is a product, however many attempts there are
                return total + self.waits.bound(attempt) * (self.max_attempts - attempt)
            if attempt > _SUMMED:  # growing so slowly that its end is as good as its sum
                return total + self.waits.bound(self.max_attempts) * (self.max_attempts - attempt)
            total += self.waits.bound(attempt)
        return total


def _set(policy: Policy, name: str, value: object) -> None:
    object.__setattr__(policy, name, value)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, not {value!r}")
