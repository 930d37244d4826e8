"""The line in front of a service's room, on whatever clock its calls live.

Decided here: that instants of two clocks do not mix: each clock (the real one, a test's) has a room of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic
from weakref import WeakSet

from forbear._runtime.call import Call, calls_here
from forbear._runtime.line import MADE_UP_FOR, C, Line, P, RoomLike
from forbear._runtime.world import Clock
from forbear.core.room import Room

MOST_CLOCKS = 8


class Entrance(Generic[C, P]):
    """Makes the room when it is first needed, so that nothing is bound to a clock or a loop before."""

    __slots__ = ("__weakref__", "_last", "_lines", "_lock", "_made_up_for", "_make")

    def __init__(self, make: Callable[[float], RoomLike[C, P]], *, strict: bool = False) -> None:
        self._make = make
        self._made_up_for = 0.0 if strict else MADE_UP_FOR  # whoever goes late must count from then
        self._lines: dict[Clock, Line[C, P]] = {}
        self._last: Line[C, P] | None = None
        self._lock = threading.Lock()
        _all.add(self)

    def on(self, clock: Clock) -> Line[C, P]:
        """The line whose instants this clock gives."""
        line = self._last
        if line is None or line.clock is not clock:
            line = self._lines.get(clock) or self._made(clock)
            self._last = line
        return line

    def _made(self, clock: Clock) -> Line[C, P]:
        made = Line(self._make(clock()), clock, made_up_for=self._made_up_for)
        with self._lock:
            line = self._lines.setdefault(clock, made)
            if len(self._lines) > MOST_CLOCKS:  # a clock for each call would fill memory
                idle = [known for known, one in self._lines.items() if one is not line and not len(one)]
                for known in idle[:1]:
                    del self._lines[known]
        return line

    def busy(self) -> bool:
        """Whether an attempt is under way or waits."""
        return any(len(line) or _under_way(line) for line in tuple(self._lines.values()))

    def forget_those_elsewhere(self) -> None:
        """In a forked child: the threads and tasks that waited here are in the parent, with the attempts of theirs."""
        self._lock = threading.Lock()
        for line in self._lines.values():
            line.forget_those_elsewhere()
            room: object = line.room
            if isinstance(room, Room) and room.concurrency is not None:
                room.concurrency.keep({number for call in calls_here() for number in _attempts(call, line)})


def _under_way(line: Line[Any, Any]) -> int:
    room: object = line.room
    return room.concurrency.under_way if isinstance(room, Room) and room.concurrency is not None else 0


def _attempts(call: Call, line: Line[Any, Any]) -> tuple[int, ...]:
    """The number of the attempt that the call has under way in the room behind the line, if it has one."""
    way: Any = call.passage
    return (way.place.attempt,) if way is not None and way.line is line and way.place is not None else ()


_all: WeakSet[Entrance[Any, Any]] = WeakSet()


def _after_fork() -> None:
    for entrance in tuple(_all):
        entrance.forget_those_elsewhere()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
