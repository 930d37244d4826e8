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
_ENDLESS = float("inf")
_RESOLUTION = 1e-9  # seconds; the event loop knows no less
EXACT_BELOW = 0.05  # seconds; a shorter timer would feel the width of a slot


class Cut(Protocol):
    """What a timer can cut: a call's attempt, or a block."""

    timer: Slot | None
    task: asyncio.Task[Any] | None
    cancelling: int
    timed_out: bool


class Slot:
    """All that ends at one instant, in the order in which it began. `handle` is set where a slot serves only one."""

    __slots__ = ("clock", "cuts", "due", "handle")

    def __init__(self, due: float, clock: Callable[[], float]) -> None:
        self.due = due
        self.clock = clock
        self.cuts: dict[Cut, None] = {}
        self.handle: asyncio.TimerHandle | None = None


def loop_for_block() -> asyncio.AbstractEventLoop:
    """The loop that an `async with` block of ours runs on. Raises RuntimeError, with the way out, if there is none."""
    loop = running_loop()
    if loop is None:
        raise RuntimeError("`async with` needs asyncio here; under trio use retry(...) and trio.move_on_after(...)")
    return loop


def arm(cut: Cut, loop: asyncio.AbstractEventLoop, limit: float, now: float, world: World) -> None:
    """Cuts the running task `limit` seconds after `now` on the world's clock, unless a disarm comes first.

    Infinity: never. The driver must disarm whatever happens.
    """
    task = current_task(loop)
    if task is None:
        raise RuntimeError("this needs a task to run in: start it with asyncio.run() or asyncio.create_task()")
    cut.timed_out = False
    cut.task = task
    cut.cancelling = task.cancelling()
    if EXACT_BELOW <= limit < _ENDLESS and world.coarse:
        number = int((now + limit) * SLOTS_PER_SECOND) + 1
        try:
            slot = loop._forbear_slots[number]  # type: ignore[attr-defined]  # noqa: SLF001  # ours
        except (AttributeError, KeyError):
            slot = _new_shared_slot(loop, number, world)
        slot.cuts[cut] = None
        cut.timer = slot
    else:
        cut.timer = None if limit == _ENDLESS else _own_slot(loop, cut, limit, world)


def disarm(cut: Cut) -> None:
    """The attempt is over, in whatever way. Raises CancelledError where a cancellation by the caller got lost in it.

    Where the timer had fired and only the timer, its cancellation is taken back: the driver sees `timed_out` and
    must report a timeout.
    """
    task = cut.task
    disarm_in_time(cut)
    if task is None:  # the timer could not be started
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


def _new_shared_slot(loop: Any, number: int, world: World) -> Slot:
    slots: dict[int, Slot] | None = getattr(loop, "_forbear_slots", None)
    if slots is None:
        slots = loop._forbear_slots = {}  # noqa: SLF001  # lives and dies with its loop; nothing of ours is bound to it
    slot = slots[number] = Slot(number / SLOTS_PER_SECOND, world.timer_clock)
    loop.call_later(slot.due - world.timer_clock(), _fire_shared, loop, slots, number)
    return slot


def _own_slot(loop: asyncio.AbstractEventLoop, cut: Cut, limit: float, world: World) -> Slot:
    if world.attach is not None:
        world.attach(loop)
    slot = Slot(world.timer_clock() + limit, world.timer_clock)
    slot.handle = loop.call_later(limit, _fire, loop, slot)
    slot.cuts[cut] = None
    return slot


def _fire_shared(loop: asyncio.AbstractEventLoop, slots: dict[int, Slot], number: int) -> None:
    slot = slots[number]
    early = slot.due - slot.clock()
    if early > _RESOLUTION:  # a loop may round a timer down
        loop.call_later(early, _fire_shared, loop, slots, number)
        return
    del slots[number]
    _cut_all(slot)


def _fire(loop: asyncio.AbstractEventLoop, slot: Slot) -> None:
    early = slot.due - slot.clock()
    if early > _RESOLUTION:
        slot.handle = loop.call_later(early, _fire, loop, slot)
        return
    _cut_all(slot)


def _cut_all(slot: Slot) -> None:
    while slot.cuts:
        cut, _ = slot.cuts.popitem()
        cut.timed_out = True
        if cut.task is not None:
            cut.task.cancel()
