"""Deadlines that bind everything below them: `with deadline(3.0):`.

Decided here: what a block grants to the calls inside. A nested block can only tighten; the asyncio form also cuts code
that knows nothing of deadlines. Prevents layers that each grant themselves a full timeout of their own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from forbear._runtime.on_asyncio import NEEDS_ASYNCIO, Slot, arm, disarm
from forbear._runtime.scope import Scope, around, deadline_in, world_of
from forbear._runtime.world import REAL, World
from forbear.core.deadline import ends_at, remaining, tightened
from forbear.core.validation import Seconds, optional_seconds, seconds
from forbear.errors import DeadlineExceeded

# The block's own cut comes this much after its deadline: calls inside end at the deadline by themselves, with an error
# that tells more. Seconds.
_GRACE = 0.01


class Deadline:
    """An instant by which something must end: a budget of time that can only shrink.

    `seconds` from now on `clock`, which must be monotonic.
    """

    __slots__ = ("_at", "_clock")

    def __init__(self, seconds_from_now: Seconds, *, clock: Callable[[], float] = REAL.clock) -> None:
        self._clock = clock
        self._at = clock() + seconds("seconds", seconds_from_now)

    @classmethod
    def at(cls, instant: float, clock: Callable[[], float]) -> Self:
        """The deadline at an instant of `clock`."""
        made = cls(0.0, clock=clock)
        made._at = instant
        return made

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return remaining(self._at, self._clock())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining() <= 0

    def __repr__(self) -> str:
        return f"<Deadline in {self.remaining():.3f} s>"


def deadline(duration: Seconds | None, margin: Seconds = 0.0) -> DeadlineBlock:
    """All calls inside the block end within `duration` seconds, or within what an outer block leaves.

    `with deadline(3.0):` binds the calls inside; `async with deadline(3.0):` also cuts whatever else runs there and
    then raises DeadlineExceeded, a TimeoutError. Both give the `Deadline` that now holds, None where there is none.
    `margin` seconds are kept back for answering. `duration` None adds nothing but the margin to what holds outside.
    Raises ValueError for a negative duration.
    """
    return DeadlineBlock(duration, margin)


class DeadlineBlock:
    """The block that `deadline` makes. It can be entered once at a time."""

    __slots__ = (
        "_began_at",
        "_duration",
        "_margin",
        "_scope",
        "cancelling",
        "task",
        "timed_out",
        "timer",
        "world",
    )

    def __init__(self, duration: Seconds | None, margin: Seconds = 0.0) -> None:
        self._duration = optional_seconds("duration", duration)
        self._margin = seconds("margin", margin, endless=False)
        self._scope: Scope | None = None
        self.world: World = REAL
        self.timer: Slot | None = None
        self.task: asyncio.Task[Any] | None = None
        self.cancelling = 0
        self.timed_out = False
        self._began_at = 0.0

    def __enter__(self) -> Deadline | None:
        if self._scope is not None:
            raise RuntimeError("this deadline block is in use: write a new deadline(...) for each block")
        outer = around()
        self.world = world_of(outer)
        now = self._began_at = self.world.clock()
        at = tightened(ends_at(now, self._duration), deadline_in(self.world, outer, now), self._margin)
        self._scope = Scope(self.world, at, outer)
        self._scope.enter()
        return None if at == math.inf else Deadline.at(at, self.world.clock)

    def __exit__(self, *_: object) -> None:
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.end()

    async def __aenter__(self) -> Deadline | None:
        granted = self.__enter__()
        try:
            limit = math.inf if granted is None else granted.remaining() + _GRACE
            if not arm(self, limit, self.world.clock(), self.world):
                raise RuntimeError(NEEDS_ASYNCIO)
        except BaseException:
            self.__exit__()
            raise
        return granted

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__()
        cancelled_too = disarm(self)
        if self.timed_out and not cancelled_too and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise DeadlineExceeded("deadline", 0, None, elapsed=self.world.clock() - self._began_at) from error


def current_deadline() -> Deadline | None:
    """The deadline that holds here, the tightest of all around; None where there is none."""
    scope = around()
    if scope is None or scope.deadline_at == math.inf:
        return None
    return Deadline.at(scope.deadline_at, scope.world.clock)
