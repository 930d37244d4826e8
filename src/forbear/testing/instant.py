"""A switch for tests that want retries but no waits, and do not care about time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from forbear._runtime.scope import Scope, around, world_of
from forbear.core.validation import count


@contextmanager
def instant_waits(max_attempts: int | None = None) -> Generator[list[float]]:
    """Waits between attempts take no time in the block, and in tasks and copied contexts that start in it.

    Gives the list of the waits that would have been made, in seconds. `max_attempts` caps the attempts of every call;
    1 switches retries off. The clock stays real: for deadlines and timeouts use `FakeTime`.
    """
    waits: list[float] = []

    outer = around()
    cap = None if max_attempts is None else count("max_attempts", max_attempts)
    world = replace(world_of(outer), sleep=waits.append, async_sleep=waits.append, max_attempts=cap)
    deadline_at = float("inf") if outer is None else outer.deadline_at
    scope = Scope(world, deadline_at, outer)
    scope.enter()
    try:
        yield waits
    finally:
        scope.end()
