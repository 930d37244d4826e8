"""Timers for attempts and blocks under asyncio.

Most attempts end long before their timeout, so a timer of their own for each (a heap entry and a cancelled handle)
is wasted. Here the timers of many calls share slots of 1/128 s: starting and stopping one is an insertion into a
dictionary and a removal. A slot fires late by at most its width and never early; short timers get an exact one.

A timer cancels the task that runs the attempt, as `asyncio.timeout` does, and keeps the same promises: a cancellation
by the caller always wins, and the task's count of pending cancellations is afterwards as it was before.
"""

from __future__ import annotations

import asyncio
from asyncio import current_task
from collections.abc import Callable
from contextvars import Context
from time import monotonic
from typing import Any, Protocol

from forbear._runtime.world import World

running_loop = asyncio._get_running_loop  # noqa: SLF001  # public, despite its name

SLOTS_PER_SECOND = 128
EXACT_BELOW = 0.05  # seconds; a shorter timer would feel the width of a slot
NEEDS_ASYNCIO = "`async with` needs asyncio here; under trio use retry(...) and trio.move_on_after(...)"
_ENDLESS = float("inf")
_LONGEST = 1e9  # seconds, thirty years; what is longer needs no timer, and would overflow
_RESOLUTION = 1e-9  # seconds; the event loop knows no less


class Cut(Protocol):
    """What a timer can cut: a call's attempt, or a block."""

    timer: Slot | None
    task: asyncio.Task[Any] | None
    cancelling: int
    timed_out: bool


class Slot:
    """All that ends between two instants, `opens_at` and `due`, in the order in which it began.

    `wheel` is the one that the slot belongs to, None where it serves only one; `handle` its timer in the event loop.
    """

    __slots__ = ("clock", "cuts", "due", "handle", "opens_at", "wheel")

    def __init__(self, opens_at: float, due: float, clock: Callable[[], float], wheel: Wheel | None = None) -> None:
        self.opens_at = opens_at
        self.due = due
        self.clock = clock
        self.wheel = wheel
        self.cuts: dict[Cut, None] = {}
        self.handle: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop, delay: float) -> None:
        """Fires after so many seconds."""
        # In a context of its own: the current one would keep alive all that its variables hold, this call among them.
        self.handle = loop.call_later(delay, self._fire, loop, context=Context())

    def stop(self) -> None:
        """Nothing ends here any more: without this, long timeouts would leave a timer for each moment behind."""
        if self.handle is not None:
            self.handle.cancel()
        self._close()

    def _close(self) -> None:
        self.opens_at = _ENDLESS  # nobody joins it any more
        if self.wheel is not None:
            self.wheel.slots.pop(self.due, None)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        early = self.due - self.clock()
        if early > _RESOLUTION:  # a loop may round a timer down
            self.start(loop, early)
            return
        self._close()
        ended, self.cuts = self.cuts, {}
        for cut in ended:
            cut.timed_out = True
            if cut.task is not None:
                cut.task.cancel()


class Wheel:
    """The shared slots of one event loop, by the instant when they are due; it lives and dies with its loop.

    `last` is the slot that was used last: calls that begin together mostly end in the same one.
    """

    __slots__ = ("last", "slots")

    def __init__(self) -> None:
        self.slots: dict[float, Slot] = {}
        self.last = Slot(_ENDLESS, _ENDLESS, monotonic)

    def slot_for(self, loop: asyncio.AbstractEventLoop, ends_at: float, clock: Callable[[], float]) -> Slot:
        """The slot for what ends at an instant on `clock`, which is the loop's."""
        number = int(ends_at * SLOTS_PER_SECOND) + 1
        due = number / SLOTS_PER_SECOND
        slot = self.slots.get(due)
        if slot is None:
            slot = self.slots[due] = Slot((number - 1) / SLOTS_PER_SECOND, due, clock, self)
            slot.start(loop, due - clock())
        left, self.last = self.last, slot
        if not left.cuts and left is not slot:
            left.stop()
        return slot


def arm(cut: Cut, limit: float, now: float, world: World) -> bool:
    """Cuts the running task `limit` seconds after `now` on the world's clock, unless a disarm comes first.

    Infinity: never. False, and nothing done, where no asyncio loop runs. The driver must disarm whatever happens.
    """
    loop: Any = running_loop()
    if loop is None:
        return False
    task = current_task(loop)
    if task is None:
        raise RuntimeError("this needs a task to run in: start it with asyncio.run() or asyncio.create_task()")
    cut.timed_out = False
    cut.task = task
    cut.cancelling = task.cancelling()
    if EXACT_BELOW <= limit < _LONGEST and world.coarse:
        ends_at = now + limit
        try:
            wheel = loop._forbear_wheel  # noqa: SLF001  # ours
        except AttributeError:
            wheel = loop._forbear_wheel = Wheel()  # noqa: SLF001
        slot = wheel.last
        if not slot.opens_at <= ends_at < slot.due:
            slot = wheel.slot_for(loop, ends_at, world.timer_clock)
        slot.cuts[cut] = None
        cut.timer = slot
    else:
        cut.timer = None if limit >= _LONGEST else _own_slot(loop, cut, limit, world)
    return True


def disarm(cut: Cut) -> bool:
    """The attempt is over. Whether its task has been cancelled by others since it began, and has not taken it back.

    Where the timer had fired, its own cancellation is taken back: the driver sees `timed_out`.
    """
    task = cut.task
    disarm_in_time(cut)
    if task is None:  # it has been disarmed before
        return False
    if cut.timed_out:
        task.uncancel()
    return task.cancelling() > cut.cancelling


def disarm_in_time(cut: Cut) -> None:
    """The attempt is over before its timer fired."""
    slot = cut.timer
    cut.timer = cut.task = None
    if slot is not None:
        cuts = slot.cuts
        cuts.pop(cut, None)
        if not cuts and (slot.wheel is None or slot.wheel.last is not slot):
            slot.stop()


def made_of_cancellation(error: Exception) -> bool:
    """Whether an attempt has turned a cancellation into this error.

    That its task counts one more cancellation than before is not enough: a task group whose child has failed (before
    Python 3.13) and some libraries' timeouts leave one behind. Timeouts are made of cancellations by their nature.
    """
    if isinstance(error, TimeoutError):
        return False
    seen, origin = 0, error.__cause__ or error.__context__
    while origin is not None and seen < 32:
        if isinstance(origin, asyncio.CancelledError):
            return True
        origin, seen = origin.__cause__ or origin.__context__, seen + 1
    return False


def _own_slot(loop: asyncio.AbstractEventLoop, cut: Cut, limit: float, world: World) -> Slot:
    if world.attach is not None:
        world.attach(loop)
    slot = Slot(_ENDLESS, world.timer_clock() + limit, world.timer_clock)
    slot.start(loop, limit)
    slot.cuts[cut] = None
    return slot
