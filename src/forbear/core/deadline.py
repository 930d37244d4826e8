"""Arithmetic of instants: how much time is left, and how much of it one attempt may have.

An instant is a number on some clock, infinity where there is no end. Must never know which clock. Prevents attempts
that outlive the caller, and inner layers that grant themselves more time than the outer one has.
"""

from __future__ import annotations

import math


def ends_at(now: float, duration: float | None) -> float:
    """The instant `duration` seconds from now; infinity for None."""
    return math.inf if duration is None else now + duration


def tightened(own: float, ambient: float, margin: float = 0.0) -> float:
    """The earlier of two instants, less `margin` seconds that are kept back for answering."""
    return min(own, ambient) - margin


def remaining(deadline_at: float, now: float) -> float:
    """Seconds left, never negative, infinite where there is no end."""
    return max(0.0, deadline_at - now)


def attempt_limit(attempt_timeout: float | None, left: float) -> float:
    """Seconds that an attempt may take which begins with `left` seconds to the deadline. May be infinite."""
    return left if attempt_timeout is None else min(attempt_timeout, left)
