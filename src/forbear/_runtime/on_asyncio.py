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
from typing import Any, Protocol

from forbear._runtime.world import World

running_loop = asyncio._get_running_loop  # noqa: SLF001  # public, despite its name

SLOTS_PER_SECOND = 128
EXACT_BELOW = 0.05  # seconds; a shorter timer would feel the width of a slot
NEEDS_ASYNCIO = "`async with` needs asyncio here; under trio use retry(...) and trio.move_on_after(...)"
_ENDLESS = float("inf")
_RESOLUTION = 1e-9  # seconds; the event loop knows no less


class Cut(Protocol):
    """What a timer can cut: a call's attempt, or a block."""

    timer: Slot | None
    task: asyncio.Task[Any] | None
    cancelling: int
    timed_out: bool


class Slot:
    """All that ends between two instants, `opens_at` and `due`, in the order in which it began.

    `handle` is set where a slot serves only one.
    """

    __slots__ = ("clock", "cuts", "due", "handle", "opens_at")

    def __init__(self, opens_at: float, due: float, clock: Callable[[], float]) -> None:
        self.opens_at = opens_at
        self.due = due
        self.clock = clock
        self.cuts: dict[Cut, None] = {}
        self.handle: asyncio.TimerHandle | None = None


class Wheel:
    """The shared slots of one event loop; it lives and dies with its loop. `last` is the slot that was used last."""

    __slots__ = ("last", "loop", "slots")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.slots: dict[int, Slot] = {}
        self.last = Slot(_ENDLESS, _ENDLESS, loop.time)

    def slot_for(self, ends_at: float, clock: Callable[[], float]) -> Slot:
        """The slot for what ends at an instant on `clock`, which is the loop's."""
        number = int(ends_at * SLOTS_PER_SECOND) + 1
        slot = self.slots.get(number)
        if slot is None:
            due = number / SLOTS_PER_SECOND
            slot = self.slots[number] = Slot((number - 1) / SLOTS_PER_SECOND, due, clock)
            self.loop.call_later(due - clock(), self._fire, number)
        self.last = slot
        return slot

    def _fire(self, number: int) -> None:
        slot = self.slots[number]
        early = slot.due - slot.clock()
        if early > _RESOLUTION:  # a loop may round a timer down
            self.loop.call_later(early, self._fire, number)
            return
        del self.slots[number]
        slot.opens_at = _ENDLESS  # nobody joins it any more
        _cut_all(slot)


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
    if EXACT_BELOW <= limit < _ENDLESS and world.coarse:
        ends_at = now + limit
        try:
            wheel = loop._forbear_wheel  # noqa: SLF001  # ours
        except AttributeError:
            wheel = loop._forbear_wheel = Wheel(loop)  # noqa: SLF001
        slot = wheel.last  # calls that begin together mostly end in the same slot
        if not slot.opens_at <= ends_at < slot.due:
            slot = wheel.slot_for(ends_at, world.timer_clock)
        slot.cuts[cut] = None
        cut.timer = slot
    else:
        cut.timer = None if limit == _ENDLESS else _own_slot(loop, cut, limit, world)
    return True


def disarm(cut: Cut) -> None:
    """The attempt is over, in whatever way. Raises CancelledError where a cancellation by the caller got lost in it.

    Where the timer had fired and only the timer, its cancellation is taken back: the driver sees `timed_out` and
    must report a timeout.
    """
    task = cut.task
    disarm_in_time(cut)
    if task is None:  # it has been disarmed before
        return
    if cut.timed_out:
        task.uncancel()
    if task.cancelling() > cut.cancelling:
        raise asyncio.CancelledError


def disarm_in_time(cut: Cut) -> None:
    """The attempt is over before its timer fired."""
    slot = cut.timer
    cut.timer = cut.task = None
    if slot is not None:
        slot.cuts.pop(cut, None)
        if slot.handle is not None:
            slot.handle.cancel()


def _own_slot(loop: asyncio.AbstractEventLoop, cut: Cut, limit: float, world: World) -> Slot:
    if world.attach is not None:
        world.attach(loop)
    slot = Slot(_ENDLESS, world.timer_clock() + limit, world.timer_clock)
    slot.handle = loop.call_later(limit, _fire_own, loop, slot)
    slot.cuts[cut] = None
    return slot


def _fire_own(loop: asyncio.AbstractEventLoop, slot: Slot) -> None:
    early = slot.due - slot.clock()
    if early > _RESOLUTION:
        slot.handle = loop.call_later(early, _fire_own, loop, slot)
        return
    _cut_all(slot)


def _cut_all(slot: Slot) -> None:
    while slot.cuts:
        cut, _ = slot.cuts.popitem()
        cut.timed_out = True
        if cut.task is not None:
            cut.task.cancel()
