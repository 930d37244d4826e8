"""What a call inherits from the code around it: time left, time itself, and the call it is part of.

One context variable holds the innermost scope. Tasks and copied contexts inherit it, so a deadline set far above binds
every call below, and nothing needs to be passed by hand.
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from typing import TYPE_CHECKING, Union

from forbear._runtime.world import REAL, World

if TYPE_CHECKING:
    from forbear._runtime.call import Call

Ambient = Union["Scope", "Call", None]


class Scope:
    """A block that sets a deadline or a world. `deadline_at` is an instant on the clock of `world`."""

    __slots__ = ("call", "deadline_at", "ended", "outer", "world")

    def __init__(self, world: World, deadline_at: float, outer: Ambient) -> None:
        self.world = world
        self.deadline_at = deadline_at
        self.outer = outer
        self.call: Call | None = None if outer is None else outer.call
        self.ended = False

    def enter(self) -> None:
        """Holds from now on, in this context."""
        current.set(self)

    def end(self) -> None:
        """Holds no longer. Where another block has begun since, that one goes on; a foreign context is left alone."""
        self.ended = True
        if current.get() is self:
            outer = self.outer
            while isinstance(outer, Scope) and outer.ended:
                outer = outer.outer
            current.set(outer)


current: ContextVar[Ambient] = ContextVar("forbear_scope", default=None)


def around() -> Ambient:
    """The scope that holds here. What has ended holds no longer, also for a task that was started in it."""
    scope = current.get()
    while scope is not None and scope.ended:
        scope = scope.outer
    return scope


def world_of(outer: Ambient) -> World:
    """The world that code in this scope lives in."""
    return REAL if outer is None else outer.world


def deadline_in(world: World, outer: Ambient, now: float) -> float:
    """The ambient deadline as an instant on the clock of `world`, where it is `now`; infinity if there is none."""
    if outer is None or outer.deadline_at == math.inf:
        return math.inf
    if outer.world.clock == world.clock:
        return outer.deadline_at
    return now + outer.deadline_at - outer.world.clock()
