"""How long to wait before the next attempt: an upper bound that grows, and a draw below it.

Decided here: the bound after the n-th attempt, and the delay that a random number picks from it. A backoff is a
frozen recipe without a memory, so one object serves any number of calls at once. Whatever the attempt number
(10**9 included), an answer takes constant time and never overflows; a delay never exceeds its cap, and the jitter
never collapses at the cap, where in an outage all clients end and must not meet.

Must never know a clock or a source of random numbers. Prevents synchronised retries, which turn a short outage
into a long one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from forbear.core.growth import Custom, Exponential, Linear, Listed
from forbear.core.validation import Seconds, number, seconds, share

JitterKind = Literal["full", "equal", "none", "decorrelated", "proportional", "whole"]


_NAMED: tuple[JitterKind, ...] = ("full", "equal", "none", "decorrelated")
_KINDS: tuple[JitterKind, ...] = (*_NAMED, "proportional", "whole")


@dataclass(frozen=True, slots=True)
class Jitter:
    """Which part of the way up to the bound the dice decide.

    "full": from 0; "equal": from half of it; "none": nothing; "decorrelated": from the base up to three times the
    last delay; "proportional": `amount` to both sides of the undrawn value; "whole": as full, rounded down to a whole
    number (of milliseconds, in `decide_retry`).
    """

    kind: JitterKind
    amount: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"jitter must be one of {', '.join(map(repr, _KINDS))}, not {self.kind!r}")
        object.__setattr__(self, "amount", share("the amount of jitter", self.amount))


_BY_NAME: dict[str, Jitter] = {kind: Jitter(kind) for kind in _NAMED}
_NONE = Jitter("none")


def proportional(amount: float) -> Jitter:
    """Jitter of `amount` (0 to 1) to both sides: 0.1 gives 90 % to 110 %, never above the cap."""
    return Jitter("proportional", share("proportional(amount)", amount))


def as_jitter(value: Jitter | str) -> Jitter:
    """A `Jitter` from its name or itself."""
    if isinstance(value, Jitter):
        return value
    if value not in _NAMED:
        raise ValueError(f"jitter must be one of {', '.join(map(repr, _BY_NAME))} or proportional(0.1), not {value!r}")
    return _BY_NAME[value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """A recipe for waits. Make one with `exponential`, `linear`, `constant`, `decorrelated` or `from_list`.

    `growth(n)` is the undrawn wait after the n-th attempt in seconds, `cap` the most a wait may be.
    """

    growth: Exponential | Linear | Listed | Custom
    cap: float = math.inf
    jitter: Jitter = _NONE

    def __post_init__(self) -> None:
        if self.jitter.kind == "decorrelated" and not isinstance(self.growth, Exponential):
            raise ValueError('jitter="decorrelated" has a growth of its own: use backoff=decorrelated(base, cap=...)')

    def bound(self, attempt: int) -> float:
        """The upper bound in seconds of the wait after attempt number `attempt` (from 1), jitter included."""
        if self.jitter.kind == "decorrelated":
            return self._spread(attempt)
        raw = self.growth(attempt)
        if self.jitter.kind == "proportional":
            raw *= 1.0 + self.jitter.amount
        return min(self.cap, raw)

    def delay(self, attempt: int, random: float, previous: float | None = None) -> float:
        """The wait in seconds after attempt number `attempt`.

        `random` lies in [0, 1]; `previous` is the last backoff wait of this call, None before the first (only
        decorrelated jitter looks at it). The driver must wait this long, then make the attempt.
        """
        low, high = self._range(attempt, previous)
        if math.isinf(high):
            return high  # never: there is nothing to draw below it
        # Clamped, as the sum may lie a bit above its end.
        drawn = min(low + (high - low) * random, high, self.bound(attempt))
        return float(math.floor(drawn)) if self.jitter.kind == "whole" else drawn

    def settled(self, attempt: int) -> bool:
        """Whether the bound stays what it is from attempt number `attempt` on."""
        match self.growth:
            case Listed(delays):
                return attempt >= len(delays)
            case Custom():
                return False
            case _:
                return self.bound(attempt) == self.bound(attempt + 1)

    def with_jitter(self, jitter: Jitter) -> Backoff:
        """The same growth and cap with another jitter."""
        return replace(self, jitter=jitter)

    def _range(self, attempt: int, previous: float | None) -> tuple[float, float]:
        kind, cap = self.jitter.kind, self.cap
        raw = self.growth(attempt)
        high = min(cap, raw)
        match kind:
            case "full" | "whole":
                return 0.0, high
            case "equal":
                return high / 2, high
            case "none":
                return high, high
            case "proportional":
                return high * (1.0 - self.jitter.amount), min(cap, raw * (1.0 + self.jitter.amount))
            case _:  # decorrelated
                base = self.growth(1)
                low = base if base < cap else cap / 3.0  # a base at the cap must not end all spread
                return low, min(cap, 3.0 * max(low, previous or 0.0))

    def _spread(self, attempt: int) -> float:
        """Decorrelated waits at most triple each time, whatever the factor of the growth."""
        return min(self.cap, Exponential(self.growth(1), 3.0)(attempt + 1))


BackoffLike = Backoff | Sequence[Seconds] | Callable[[int], float]


def exponential(
    base: Seconds = 0.5, *, factor: float = 2.0, cap: Seconds = 30.0, jitter: Jitter | str = "full"
) -> Backoff:
    """Waits with the bounds base, base·factor, base·factor² ... up to `cap` (seconds); full jitter by default."""
    factor = number("factor", factor)
    if not 1.0 <= factor < math.inf:
        raise ValueError(f"factor is {factor:g}: waits that shrink (below 1) or jump to infinity are refused")
    growth = Exponential(seconds("base", base, endless=False), factor)
    return Backoff(growth=growth, cap=seconds("cap", cap, endless=False), jitter=as_jitter(jitter))


def decorrelated(base: Seconds = 0.5, *, cap: Seconds = 30.0) -> Backoff:
    """Each wait is drawn between `base` and three times the last one, up to `cap` (seconds).

    After AWS's "decorrelated jitter", but scaled inside the cap, so that waits stay spread there.
    """
    return exponential(base, cap=cap, jitter="decorrelated")


def linear(start: Seconds = 1.0, step: Seconds = 1.0, *, cap: Seconds = 60.0, jitter: Jitter | str = "full") -> Backoff:
    """Waits with the bounds start, start+step, start+2·step ... up to `cap` (seconds); full jitter by default."""
    growth = Linear(seconds("start", start, endless=False), seconds("step", step, endless=False))
    return Backoff(growth=growth, cap=seconds("cap", cap, endless=False), jitter=as_jitter(jitter))


def constant(delay: Seconds = 1.0, *, jitter: Jitter | str = "none") -> Backoff:
    """The same wait each time (seconds), exactly, unless `jitter` says otherwise. Meant for polling."""
    growth = Listed((seconds("delay", delay, endless=False),))
    return Backoff(growth=growth, jitter=as_jitter(jitter))


def from_list(delays: Sequence[Seconds], *, jitter: Jitter | str = "none") -> Backoff:
    """The given waits in seconds, one after the other; the last one repeats."""
    checked = tuple(seconds(f"backoff[{i}]", delay, endless=False) for i, delay in enumerate(delays))
    if not checked:
        raise ValueError("a list of delays needs at least one; for no wait at all pass backoff=[0]")
    return Backoff(growth=Listed(checked), jitter=as_jitter(jitter))


def as_backoff(value: BackoffLike) -> Backoff:
    """A `Backoff` from one, a list or tuple of seconds, or a function of the attempt number that gives seconds."""
    if isinstance(value, Backoff):
        return value
    if isinstance(value, (list, tuple)):
        return from_list(value)
    if callable(value):
        return Backoff(growth=Custom(value))
    raise ValueError(
        f"backoff must be a Backoff, a list of seconds or a function, not {type(value).__name__}; "
        "for the same wait each time write backoff=constant(2.0)"
    )
