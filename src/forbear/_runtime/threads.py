"""How a thread waits in a line.

Decided here: what wakes it; the first in line keeps the timer for all. Must never decide who goes, or load an event
loop.
"""

from __future__ import annotations

import math
import threading
from typing import Any

from forbear._runtime.line import C, Line, P, Ticket
from forbear._runtime.world import LOOK_AFTER, LOOK_AGAIN, REAL, World, blocking_sleep
from forbear.core.meters import NEGLIGIBLE


class ThreadTicket(Ticket[C, P]):
    """Waits in a thread."""

    __slots__ = ("_event",)

    def __init__(self, cost: C, deadline_at: float = math.inf) -> None:
        super().__init__(cost, deadline_at)
        self._event = threading.Event()

    def can_lead(self) -> bool:
        """A thread leaves the line when it goes."""
        return True

    def wake(self) -> None:
        """Lets the thread go on."""
        self._event.set()

    def lead(self, line: Line[Any, Any]) -> None:  # noqa: ARG002  # it asks the line itself
        """The thread's own wait ends when that is due."""
        self._event.set()

    def wait(self, line: Line[Any, Any], world: World) -> None:
        """Waits until it is settled or its deadline has come, in this thread."""
        while not self.settled:
            self._event.clear()
            now, due_at = line.clock(), line.due_at(self)
            if self.deadline_at - now <= NEGLIGIBLE:
                return
            if due_at - now <= NEGLIGIBLE or line.overdue(now):
                line.pump()
            elif not self.settled:
                # Whoever keeps the timer waits for it; the others look now and then whether it is kept.
                until = due_at if due_at < math.inf else now + LOOK_AFTER
                self._rest(min(until, self.deadline_at) - now, line, world)

    def _rest(self, left: float, line: Line[Any, Any], world: World) -> None:
        if line.clock is not REAL.clock and world.sleep is not blocking_sleep:  # a test's time, which may move at once
            before = line.clock()
            if line.due_at(self) < math.inf:
                world.sleep(left)
            if line.clock() > before:
                return
            left = LOOK_AGAIN
        self._event.wait(min(left, threading.TIMEOUT_MAX))
