"""Functions of the attempt number that give seconds to wait, in retryhop's names.

Decided here: only the names. The growth is forbear's, so no attempt number overflows.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from forbear.core.backoff import Backoff as Recipe
from forbear.core.backoff import Jitter
from forbear.core.growth import Exponential, Linear, Listed
from forbear.core.validation import number, seconds

Backoff = Callable[[int], float]


def constant(delay: float = 1.0) -> Backoff:
    """`delay` seconds each time. Raises ValueError for a negative delay."""
    return _function(Recipe(growth=Listed((_seconds("delay", delay),))))


def linear(start: float = 1.0, step: float = 1.0, max_delay: float = 60.0) -> Backoff:
    """`start` seconds, then `step` more each time, up to `max_delay`. Raises ValueError for anything negative."""
    growth = Linear(_seconds("start", start), _seconds("step", step))
    return _function(Recipe(growth=growth, cap=_seconds("max_delay", max_delay)))


def exponential(base: float = 0.5, factor: float = 2.0, max_delay: float = 30.0, jitter: bool = True) -> Backoff:
    """`base` seconds, each time `factor` times as long, up to `max_delay`; `jitter` draws a wait between 0 and that.

    Raises ValueError for a negative duration, and for a factor below 1.
    """
    factor = number("factor", float(factor))
    if factor < 1:
        raise ValueError(f"factor is {factor:g}: waits that shrink are refused, so 1 is the least")
    return _function(
        Recipe(
            growth=Exponential(_seconds("base", base), factor),
            cap=_seconds("max_delay", max_delay),
            jitter=Jitter("full" if jitter else "none"),
        )
    )


def _seconds(name: str, value: float) -> float:
    return seconds(name, float(value))  # numbers of other libraries too


def _function(recipe: Recipe) -> Backoff:
    """The recipe as a function; the dice are those of `random`, which a program may have seeded."""
    drawn = recipe.jitter.kind != "none"

    def wait(attempt: int) -> float:
        return recipe.delay(attempt, random.random() if drawn else 1.0)

    return wait
