"""How waits grow from attempt to attempt, before any cap and any dice.

Decided here: the undrawn wait after the n-th attempt, in constant time and without overflow, whatever n is. Must never
know a cap or a jitter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from forbear.core.validation import seconds


@dataclass(frozen=True, slots=True)
class Exponential:
    """base · factor^(n−1)"""

    base: float
    factor: float

    def __call__(self, attempt: int) -> float:
        """Seconds after attempt number `attempt`."""
        if self.base == 0.0 or self.factor == 1.0:
            return self.base
        try:
            return self.base * math.pow(self.factor, attempt - 1)
        except OverflowError:
            return self._beyond(attempt)

    def _beyond(self, attempt: int) -> float:
        """Where the power alone overflows; times a tiny base it may not."""
        half = (attempt - 1) // 2
        try:
            return self.base * math.pow(self.factor, half) * math.pow(self.factor, attempt - 1 - half)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
class Linear:
    """start + step · (n−1)"""

    start: float
    step: float

    def __call__(self, attempt: int) -> float:
        """Seconds after attempt number `attempt`."""
        if self.step == 0.0:
            return self.start
        try:
            return self.start + self.step * (attempt - 1)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
class Listed:
    """The n-th of the given delays; the last one repeats."""

    delays: tuple[float, ...]

    def __call__(self, attempt: int) -> float:
        """Seconds after attempt number `attempt`."""
        return self.delays[min(attempt, len(self.delays)) - 1]


@dataclass(frozen=True, slots=True)
class Custom:
    """Whatever the user's function says, checked."""

    function: Callable[[int], float]

    def __call__(self, attempt: int) -> float:
        """Seconds after attempt number `attempt`. Raises ValueError for what is no duration."""
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return seconds(f"the delay that backoff function {name} returned for attempt {attempt}", self.function(attempt))
