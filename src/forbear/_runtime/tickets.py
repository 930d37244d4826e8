"""How a task waits in a line, under asyncio or trio.

Decided here: what wakes it, from whatever thread; the first in line keeps the timer for all. Must never decide who
goes. Prevents waits that block an event loop, or outlive it.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from contextvars import Context
from typing import Any

from forbear._runtime.line import C, Line, P, Ticket
from forbear._runtime.on_asyncio import arm, disarm, disarm_in_time
from forbear._runtime.world import LOOK_AFTER, LOOK_AGAIN, REAL, World, blocking_sleep
from forbear.core.meters import NEGLIGIBLE

_SAME_INSTANT = 1e-6  # seconds


class LoopTicket(Ticket[C, P]):
    """Waits in a task of the asyncio loop that runs here. Its deadline is kept by the timers of attempts."""

    __slots__ = ("_due_at", "_future", "_handle", "_loop", "cancelling", "task", "timed_out", "timer")

    def __init__(self, cost: C, deadline_at: float = math.inf) -> None:
        super().__init__(cost, deadline_at)
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._handle: asyncio.TimerHandle | None = None
        self._due_at = math.inf
        self.timer: Any = None
        self.task: Any = None
        self.cancelling = 0
        self.timed_out = False

    def alive(self) -> bool:
        """Whether its loop can still run it."""
        return not self._loop.is_closed()

    def can_lead(self) -> bool:
        """Whether its loop runs now, and will keep a timer."""
        return self._loop.is_running()

    async def wait(self, line: Line[Any, Any], world: World) -> None:
        """Waits until it is settled or its deadline has come. A cancellation by others leaves at once."""
        if self.deadline_at < math.inf:
            now = line.clock()
            if now >= self.deadline_at:
                return
            arm(self, self.deadline_at - now, now, world)
        try:
            await self._future
        except asyncio.CancelledError:
            if disarm(self) or not self.timed_out:
                raise
        finally:  # also where the collector ends the task, whose loop may be closed
            disarm_in_time(self)
            self._put_down()

    def wake(self) -> None:
        """Lets the task go on."""
        self._in_loop(self._go_on)

    def lead(self, line: Line[Any, Any]) -> None:
        """A timer of its loop serves the line when that is due."""
        self._in_loop(self._start, line)

    def _go_on(self) -> None:
        self._put_down()
        if not self._future.done():
            self._future.set_result(None)

    def _put_down(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _start(self, line: Line[Any, Any]) -> None:
        due_at = line.due_at(self) - line.clock() + self._loop.time()
        if self._future.done() or (self._handle is not None and self._due_at <= due_at + _SAME_INSTANT):
            return  # an earlier timer looks again
        self._put_down()
        if due_at < math.inf:
            self._due_at = due_at
            # In a context of its own, which keeps nobody's variables alive.
            self._handle = self._loop.call_at(due_at, self._fire, line, context=Context())

    def _fire(self, line: Line[Any, Any]) -> None:
        self._handle = None
        line.pump()

    def _in_loop(self, action: Callable[..., None], *args: Any) -> None:
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001  # public, despite its name
            action(*args)
            return
        try:
            self._loop.call_soon_threadsafe(action, *args)
        except RuntimeError:  # closed; whoever serves the line next finds that out
            return


class TrioTicket(Ticket[C, P]):
    """Waits in a task of the trio run that is under way here."""

    __slots__ = ("_event", "_token")

    def __init__(self, cost: C, deadline_at: float = math.inf) -> None:
        super().__init__(cost, deadline_at)
        trio = running_trio()
        self._event = trio.Event()
        self._token = trio.lowlevel.current_trio_token()

    def can_lead(self) -> bool:
        """A trio run ends only when all its tasks have."""
        return True

    async def wait(self, line: Line[Any, Any], world: World) -> None:
        """Waits until it is settled or its deadline has come."""
        while not self.settled:
            self._event = running_trio().Event()
            now, due_at = line.clock(), line.due_at(self)
            if self.deadline_at - now <= NEGLIGIBLE:
                return
            if due_at - now <= NEGLIGIBLE or line.overdue(now):
                line.pump()
            elif not self.settled:
                until = due_at if due_at < math.inf else now + LOOK_AFTER
                await self._rest(min(until, self.deadline_at) - now, line, world)

    async def _rest(self, left: float, line: Line[Any, Any], world: World) -> None:
        if line.clock is not REAL.clock and world.sleep is not blocking_sleep:  # a test's time, which trio doesn't know
            before = line.clock()
            if line.due_at(self) < math.inf:
                world.sleep(left)
            left = LOOK_AGAIN if line.clock() <= before else 0.0
        with running_trio().move_on_after(left):
            await self._event.wait()

    def wake(self) -> None:
        """Lets the task go on."""
        self._in_trio(self._look)

    def lead(self, line: Line[Any, Any]) -> None:  # noqa: ARG002  # it asks the line itself
        """The task's own wait ends when that is due."""
        self._in_trio(self._look)

    def _look(self) -> None:
        self._event.set()

    def _in_trio(self, action: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(action)
        except sys.modules["trio"].RunFinishedError:
            return


def async_ticket(world: World) -> Callable[..., LoopTicket[Any, Any] | TrioTicket[Any, Any]]:
    """The kind of ticket that an async call needs here. A test's time takes over the loop that runs."""
    loop = asyncio._get_running_loop()  # noqa: SLF001  # public, despite its name
    if loop is None:
        return TrioTicket
    if world.attach is not None:
        world.attach(loop)
    return LoopTicket


def running_trio() -> Any:
    """The trio that runs here. Raises RuntimeError where nothing does."""
    trio = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_run():
        raise RuntimeError("no event loop runs here: start the program with asyncio.run(main()) or trio.run(main)")
    return trio
