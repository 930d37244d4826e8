"""The line in front of a room: first come, first served, whoever waits in it.

Decided here: who goes next, and whose timer wakes the line. Threads, tasks of several event loops and calls that only
book ahead stand in one line. Only its head waits for an instant; one timer serves however many stand behind it. The
lock is held for a decision, never for a wait. Prevents starvation of large requests, lost wake-ups, and a thousand
timers that race for one place.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from forbear._runtime.world import REAL, World
from forbear.core.meters import NEGLIGIBLE

GRAIN = 1 / 250  # seconds; wake-ups are no denser, so that fast lines are served in batches. Nobody goes early
SOONEST = 1 / 1000  # seconds; an event loop that rounds to milliseconds would fire too early again and again
OVERDUE = 0.05  # seconds after which others look why the line was not served
MADE_UP_FOR = 0.05  # seconds by which a timer may be late and nothing be lost; more at once would be a burst

C = TypeVar("C")  # what an attempt costs
P = TypeVar("P")  # the place that it takes
C_contra = TypeVar("C_contra", contravariant=True)
P_co = TypeVar("P_co", covariant=True)


class RoomLike(Protocol[C_contra, P_co]):
    """What a line stands in front of."""

    def wait(self, cost: C_contra, now: float, /) -> float:
        """Seconds until there is a place; infinite where somebody must leave first."""
        ...

    def predicted(self, total: C_contra, last: C_contra, now: float, /) -> float:
        """The least seconds until `last` may have its place, behind others with which it costs `total`."""
        ...

    def take(self, cost: C_contra, now: float, /) -> P_co:
        """Takes a place."""
        ...


class Ticket(Generic[C, P]):
    """One that stands in a line. How it is woken depends on where it waits; this one does not wait: it books ahead."""

    __slots__ = ("cost", "deadline_at", "place", "refusal", "too_late")

    def __init__(self, cost: C, deadline_at: float = math.inf) -> None:
        self.cost = cost
        self.deadline_at = deadline_at
        self.place: P | None = None
        self.refusal: Callable[[], Exception] | None = None
        self.too_late = False

    @property
    def settled(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.place is not None or self.too_late or self.refusal is not None

    def wait(self, line: Line[Any, Any], world: World) -> Any:
        """Waits until it is settled, or its deadline has come; in async code, gives an awaitable that does."""
        raise NotImplementedError("what only books ahead does not wait")

    def alive(self) -> bool:
        """Whether somebody still waits; an event loop may have been closed under it."""
        return True

    def can_lead(self) -> bool:
        """Whether it can keep the timer for all. What only books ahead can't, nor a task whose loop stands still."""
        return False

    def wake(self) -> None:
        """It is settled. Called from any thread, without a lock."""

    def lead(self, line: Line[Any, Any]) -> None:
        """It keeps the timer: `line.pump()` is due at `line.due_at(self)`. Called from any thread, without a lock."""


class Line(Generic[C, P]):
    """First come, first served. `clock` gives the instants that the room is asked about."""

    __slots__ = (
        "_due_at", "_grain", "_leader", "_lock", "_made_up_for", "_served_at", "_soonest", "_total", "_waiting",
        "_wakes_at", "clock", "room",
    )  # fmt: skip

    def __init__(self, room: RoomLike[C, P], clock: Callable[[], float], *, made_up_for: float = MADE_UP_FOR) -> None:
        self.room = room
        self.clock = clock
        self._made_up_for = made_up_for
        self._lock = threading.RLock()  # the collector may end a coroutine that waits here while it is held
        self._waiting: OrderedDict[Ticket[C, P], None] = OrderedDict()
        self._leader: Ticket[C, P] | None = None
        self._total: Any = None  # what all who wait cost together
        self._grain = GRAIN if clock is REAL.clock else 0.0  # a test's time jumps to the very instant
        self._soonest = SOONEST if clock is REAL.clock else 0.0
        self._served_at = -math.inf
        self._due_at = math.inf  # when the head was to be served
        self._wakes_at = math.inf  # when the leader is to look again

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, ticket: Ticket[C, P]) -> float | None:
        """Takes a place at once if nobody is ahead and there is one, else stands in line.

        None then. Where it could not be served before its deadline it does not stand in line: the seconds that it
        would wait at least.
        """
        with self._lock:
            self._forget_the_dead()
            now = self.clock()
            if not self._waiting and self.room.wait(ticket.cost, now) <= 0:
                ticket.place = self.room.take(ticket.cost, now)
                return None
            total = self._total + ticket.cost if self._waiting else ticket.cost
            if ticket.deadline_at < math.inf:
                predicted = self.room.predicted(total, ticket.cost, now)
                if now + predicted >= ticket.deadline_at:
                    return predicted
            self._total = total
            self._waiting[ticket] = None
            led = self._leader is not None and self._leader.can_lead()
        if not led:
            self.pump()
        return None

    def leave(self, ticket: Ticket[C, P]) -> bool:
        """It does not want to wait any more. True where it has a place by now, which is the caller's to give back."""
        with self._lock:
            self._remove(ticket)
            has_place = ticket.place is not None
            led = self._leader is ticket
        if led:
            self.pump()
        return has_place

    def book(self, ticket: Ticket[C, P]) -> float:
        """Stands in line without waiting: the seconds after which its place is there, which is taken now.

        Nothing is taken where that is later than its deadline; `too_late` tells.
        """
        with self._lock:
            self._forget_the_dead()
            now = self.clock()
            total = self._total + ticket.cost if self._waiting else ticket.cost
            predicted = max(self.room.predicted(total, ticket.cost, now), self.room.wait(ticket.cost, now))
            if predicted > 0 and now + predicted >= ticket.deadline_at:
                ticket.too_late = True
            elif self._waiting:
                self._total = total
                self._waiting[ticket] = None
            else:
                ticket.place = self.room.take(ticket.cost, now)
        return predicted

    def force(self, ticket: Ticket[C, P]) -> P:
        """Takes a place whether there is one or not."""
        with self._lock:
            ticket.place = place = self.room.take(ticket.cost, self.clock())
        return place

    def time_of(self, cost: C) -> float:
        """Seconds until so much may go, behind all who wait, as far as limits and pauses go."""
        with self._lock:
            total = self._total + cost if self._waiting else cost
            return self.room.predicted(total, cost, self.clock())

    def wait_of(self, cost: C) -> float:
        """Seconds that one of this cost would wait if it joined now, at least."""
        with self._lock:
            now = self.clock()
            total = self._total + cost if self._waiting else cost
            return max(self.room.predicted(total, cost, now), self.room.wait(cost, now))

    def needed(self, cost: C) -> float:
        """The least seconds until there is a place of this cost; 0 where that can't be known."""
        with self._lock:
            wait = self.room.wait(cost, self.clock())
        return wait if wait < math.inf else 0.0

    def act(self, change: Callable[[float], Any]) -> Any:
        """Changes the room under the lock, at an instant, and lets in whoever may go now."""
        with self._lock:
            result = change(self.clock())
        if self._waiting:
            self.pump()
        return result

    def pump(self) -> None:
        """Lets in whoever may go now, and has the line woken when the next one may."""
        with self._lock:
            now = self.clock()
            settled, delay = self._serve(now)
            self._wakes_at = now + delay
            self._leader = leader = self._first_that_can_lead()
        for ticket in settled:
            ticket.wake()
        if leader is not None and delay < math.inf:
            leader.lead(self)

    def due_at(self, ticket: Ticket[C, P]) -> float:
        """When `ticket` is to call `pump`; infinity where it does not keep the timer.

        Two threads that have pumped may tell the leader in the other order; what they tell it to read is never old.
        """
        return self._wakes_at if self._leader is ticket else math.inf

    def overdue(self, now: float) -> bool:
        """Whether whoever keeps the timer has missed it: its event loop may be busy, or gone."""
        return now >= self._wakes_at + OVERDUE

    def refuse(self, which: Callable[[Ticket[C, P]], bool], refusal: Callable[[], Exception] | None = None) -> None:
        """Sends those away who need not wait any longer: with an error, made anew for each, or as too late."""
        with self._lock:
            refused = [ticket for ticket in tuple(self._waiting) if which(ticket)]
            for ticket in refused:
                self._remove(ticket)
                ticket.refusal, ticket.too_late = refusal, refusal is None
        for ticket in refused:
            ticket.wake()
        if refused:
            self.pump()

    def _serve(self, now: float) -> tuple[list[Ticket[C, P]], float]:
        """Those who have their place now, and the seconds until the next one may have its own.

        Each takes it at the instant when it was due, so that a timer which fires late costs the others nothing.
        """
        settled: list[Ticket[C, P]] = []
        at = max(min(now, self._due_at), now - self._made_up_for)
        self._due_at = math.inf
        while self._waiting:
            head = next(iter(self._waiting))
            if type(head) is Ticket:  # nobody is ahead of what was booked: those behind wait for what it takes
                head.place = self.room.take(head.cost, at)
            elif head.alive():
                due_at = at + self.room.wait(head.cost, at)
                if due_at - now > NEGLIGIBLE:
                    self._due_at = due_at
                    return settled, max(due_at - now, self._wake_up(now, served=bool(settled)))
                at = due_at
                head.place = self.room.take(head.cost, at)
                settled.append(head)
            self._remove(head)
        return settled, math.inf

    def _wake_up(self, now: float, *, served: bool) -> float:
        """Seconds until the next wake-up may come at the earliest."""
        if served:
            self._served_at = now
        return max(self._served_at + self._grain - now, self._soonest)

    def forget_those_elsewhere(self) -> None:
        """In a forked child: the threads and tasks that waited here are in the parent, and so is who held the lock."""
        self._lock = threading.RLock()
        self._waiting = OrderedDict()
        self._leader = None
        self._due_at = self._wakes_at = math.inf

    def _first_that_can_lead(self) -> Ticket[C, P] | None:
        """Whoever keeps the timer: the head, but where its loop stands still."""
        head = next(iter(self._waiting), None)
        if head is None or head.can_lead():
            return head
        return next((one for one in self._waiting if one.can_lead()), head)

    def _forget_the_dead(self) -> None:
        """Those whose event loop was closed over them hold no places."""
        if self._leader is None or self._leader.alive():
            return
        for ticket in tuple(self._waiting):
            if not ticket.alive():
                self._remove(ticket)
        self._leader = None

    def _remove(self, ticket: Ticket[C, P]) -> None:
        if ticket in self._waiting:  # the collector may have been faster
            del self._waiting[ticket]
            self._total = self._total - ticket.cost
