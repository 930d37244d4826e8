"""`backoff_delay`: one wait of the default backoff, for those who write the loop themselves."""

from __future__ import annotations

from forbear._runtime.world import REAL, Clock
from forbear.core.backoff import exponential
from forbear.core.validation import Seconds, count


def backoff_delay(attempt: int, base: Seconds = 0.5, cap: Seconds = 30.0, rng: Clock = REAL.random) -> float:
    """Seconds to wait after attempt number `attempt` (from 1): uniform in [0, min(cap, base · 2^(attempt−1))).

    `rng` gives a number in [0, 1). Raises ValueError for an attempt below 1 or a negative duration.
    """
    return exponential(base, cap=cap).delay(count("attempt", attempt), rng())
