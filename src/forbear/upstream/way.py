"""One call's way through the guards of its service.

Decided here: their order. A retry pays its budget, waits for its place in line, and asks the breaker last, when it
would go; what was taken on the way goes back when a later guard refuses. Waits are no attempts: no attempt timeout runs
in them, and they obey the deadline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forbear._runtime.call import Call, calls_around
from forbear._runtime.line import Line, Ticket
from forbear._runtime.passage import Standing
from forbear._runtime.steps import no_place, refused
from forbear.core.breaker_settings import Verdict
from forbear.core.failure import Failure
from forbear.core.rate import NOTHING, ONE, Cost
from forbear.core.room import Place, Room
from forbear.errors import CircuitOpenError
from forbear.upstream.cost import tokens_of

if TYPE_CHECKING:  # a blocking call must not load what only async code needs
    from forbear.upstream.breaker import Lease
    from forbear.upstream.budget import RetryBudget
    from forbear.upstream.guards import Guards

COPY = 1.0  # what a hedge costs of the retry budget
_LONGER = 0.05  # seconds by which a pause must grow to be worth asking everyone in line whether they can outlast it


class Way:
    """One call's way through the guards."""

    __slots__ = ("budget_line", "call", "cost", "guards", "lease", "line", "owed", "paid", "place", "worth")

    def __init__(self, guards: Guards, call: Call) -> None:
        self.guards = guards
        self.call = call
        clock = call.world.clock
        own = guards.clock or clock  # a limiter may count by a clock of its own
        self.line: Line[Cost, Place] | None = None if guards.entrance is None else guards.entrance.on(own)
        self.budget_line: Line[float, float] | None = None if guards.budget is None else guards.budget.line(clock)
        self.cost: Cost | None = None
        self.place: Place | None = None
        self.lease: Lease | None = None
        self.owed = 0.0  # what the retry that comes costs, while it is not paid
        self.paid = 0.0  # what it has paid, and gets back if it is not sent
        self.worth = 0.0  # what it has paid, or should have; earned back when it succeeds

    # ---- before an attempt -------------------------------------------------------------------------------------------

    def admission(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], ticket: Callable[..., Ticket[Any, Any]]
    ) -> Generator[Standing, None, None]:
        """Admits the attempt that begins now. See `Passage`."""
        if self.cost is None:
            self.cost = self._cost(args, kwargs)
        self._refuse_if_shut()
        if self.owed and self.budget_line is not None:
            self.paid = yield from self._stand(self.budget_line, self.owed, ticket)
            self.worth, self.owed = self.owed, 0.0
        if self.line is not None:
            self.place = yield from self._stand(self.line, self.cost, ticket)
        try:
            self._enter_breaker()
        except BaseException:
            self._untake()
            raise
        self.paid = 0.0  # it goes: what it has paid is spent, whatever comes of it

    def copied(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Admits a copy of an attempt that is under way, if it need not wait and nothing speaks against it.

        It pays as a retry does, and what it has paid is lost if it loses.
        """
        guards, line = self.guards, self.line
        if (
            guards.breaker is not None
            and not guards.observe_only
            and guards.breaker.state not in ("closed", "disabled")
        ):
            return False
        if self.budget_line is not None:
            paid = self._budget().pay(self.budget_line, COPY)
            if paid is None and not guards.observe_only:
                return False
            self.paid, self.worth = paid or 0.0, COPY
        if line is not None:
            try:
                self.cost = self._cost(args, kwargs)
            except BaseException:
                self.refund()
                raise
            ticket: Ticket[Cost, Place] = Ticket(self.cost, -math.inf)
            if guards.observe_only:
                self.place = self._watch(line, self.cost)
            elif line.join(ticket) is not None:
                self.refund()
                return False
            else:
                self.place = ticket.place
        try:
            self.lease = None if guards.breaker is None else guards.breaker.enter()
        except CircuitOpenError:
            if not guards.observe_only:
                self._untake()
                self.refund()
                return False
        self.paid = 0.0
        return True

    def _cost(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Cost:
        tokens = tokens_of(self.guards.tokens, args, kwargs)
        return self.guards.rates.cost(tokens) if self.guards.rates is not None else ONE

    def _stand(
        self, line: Line[Any, Any], cost: Any, make: Callable[..., Ticket[Any, Any]]
    ) -> Generator[Standing, None, Any]:
        """A place, after as long a wait as it takes."""
        counts = self.guards.counts
        if self.guards.observe_only:
            return self._watch(line, cost)
        if line is self.line and (self._is_inside() or self._on_foreign_clock(line)):
            return (yield from self._book(line, cost, make))
        ticket = make(cost, self._deadline_on(line))
        needed = line.join(ticket)
        if needed is None and not ticket.settled:
            if counts is not None:
                counts.held += 1
            try:
                yield line, ticket
            except BaseException:
                self._abandon(line, ticket)
                raise
            if ticket.place is None or line.clock() >= ticket.deadline_at:
                needed = 0.0
        if ticket.refusal is not None:
            raise self._refused(ticket.refusal())
        if needed is not None:
            self._abandon(line, ticket)
            if counts is not None:
                counts.too_late += 1
            raise no_place(self.call, needed or line.time_of(cost), self._holder(line, cost))
        return ticket.place

    def _holder(self, line: Line[Any, Any], cost: Any) -> str:
        """Who holds the call back, and why."""
        if line is self.budget_line:
            return f"{self.guards.name} (its retry budget is empty)"
        return f"{self.guards.name} ({line.act(lambda now: _room(line).why(cost, now))})"

    def _book(
        self, line: Line[Any, Any], cost: Any, make: Callable[..., Ticket[Any, Any]]
    ) -> Generator[Standing, None, Any]:
        """A place that is taken now, and a wait until the limits allow it; for who can't stand in the line itself."""
        wait = line.time_of(cost)
        clock = self.call.world.clock
        if wait and line.clock() + wait >= self._deadline_on(line):
            raise no_place(self.call, wait, self._holder(line, cost))
        ticket: Ticket[Any, Any] = Ticket(cost)
        line.force(ticket)
        try:
            if wait:
                yield Line(line.room, clock), make(cost, clock() + wait)
        except BaseException:
            self._abandon(line, ticket)
            raise
        return ticket.place

    def _on_foreign_clock(self, line: Line[Any, Any]) -> bool:
        """Whether waiting does not move the clock that the limiter counts by."""
        return line.clock != self.call.world.clock

    def _deadline_on(self, line: Line[Any, Any]) -> float:
        """The last instant, on the line's clock, at which the attempt is worth beginning."""
        call = self.call
        run, clock = call.run, call.world.clock
        ends_at = run.deadline_at if line.clock == clock else line.clock() + run.deadline_at - clock()
        return ends_at - run.policy.minimum_attempt

    def _watch(self, line: Line[Any, Any], cost: Any) -> Any:
        """A place without a wait. It is counted what would have been, and what would have been refused takes nothing
        of the limits.
        """
        counts = self.guards.counts
        wait = line.wait_of(cost)
        # A place that somebody must leave first may come at any time.
        late = 0 < wait < math.inf and line.clock() + wait >= self._deadline_on(line)
        if counts is not None:
            counts.too_late += late
            counts.held += wait > 0 and not late
        return line.force(Ticket(NOTHING if late and line is self.line else cost))

    def _is_inside(self) -> bool:
        """Whether a call around this one has its place already.

        To wait behind others for a place that the outer call may hold would be to wait for ever. It keeps the limits of
        rate, but neither the limit on concurrency nor its turn.
        """
        ways = (call.passage for call in calls_around(self.call))
        return any(isinstance(way, Way) and way.line is self.line and way.place is not None for way in ways)

    def _abandon(self, line: Line[Any, Any], ticket: Ticket[Any, Any]) -> None:
        """Nobody waits for the ticket any more: what it got goes back."""
        if not line.leave(ticket):
            return
        place = ticket.place
        if line is self.budget_line and place is not None:
            self._budget().give_back(line, place)
        else:
            line.act(lambda now: line.room.untake(place, now))  # type: ignore[attr-defined]

    def _refuse_if_shut(self) -> None:
        refusal = self.shut()
        if refusal is not None:
            raise self._refused(refusal)

    def _enter_breaker(self) -> None:
        breaker = self.guards.breaker
        if breaker is None:
            return
        try:
            self.lease = breaker.enter()
        except CircuitOpenError as refusal:
            if not self.guards.observe_only:
                raise self._refused(refusal) from refusal.__cause__
            if self.guards.counts is not None:
                self.guards.counts.shut_out += 1

    def _refused(self, refusal: Exception) -> Exception:
        if self.guards.counts is not None:
            self.guards.counts.shut_out += 1
        self.refund()
        return refused(self.call, refusal)

    # ---- after an attempt --------------------------------------------------------------------------------------------

    def succeeded(self, result: object) -> None:
        """The attempt has returned."""
        guards, place = self.guards, self._take_place()
        if place is not None and self.line is not None:
            room, reader, attempt, clock = _room(self.line), guards.reader, self.call.run, self.line.clock
            used = None if reader is None or guards.rates is None else reader.tokens(result)
            limits = () if reader is None else reader.limits(result)

            def settle(now: float) -> None:
                room.succeeded(place, used, now)
                if limits:
                    room.correct(limits, now)
                if guards.counts is not None:
                    guards.counts.succeeded(attempt, clock, now)

            self.line.act(settle)
        self._leave_breaker("success")
        if guards.budget is not None and self.budget_line is not None:
            guards.budget.earn(self.budget_line, self.worth)
            self.paid = self.worth = 0.0

    def failed(self, error: BaseException, failure: Failure, random: float, *, cut: bool) -> None:
        """The attempt has failed."""
        guards, place = self.guards, self._take_place()
        self.paid = self.worth = 0.0
        most = self.call.run.policy.max_retry_after
        if most is not None and failure.retry_after is not None and failure.retry_after > most:
            failure = replace(failure, retry_after=most)  # who believes in no longer wait asks nobody else for one
        if place is not None and self.line is not None:
            room, attempt, clock = _room(self.line), self.call.run, self.line.clock
            limits = () if guards.reader is None else guards.reader.limits(error)

            def settle(now: float) -> float:
                before = room.cool_until
                if cut:
                    room.cancelled(place, now)
                else:
                    room.failed(place, failure, now, random)
                room.correct(limits, now)
                if guards.counts is not None:
                    guards.counts.failed(failure.kind, attempt, clock, now)
                return room.cool_until if room.cool_until > before + _LONGER else 0.0

            self._send_away(self.line.act(settle))
        if guards.breaker is not None:
            self._leave_breaker("neutral" if cut else guards.breaker.settings.verdict_of(failure))
        self._send_away_if_shut()

    def handed_over(self) -> Callable[[], None]:
        """What the attempt has taken belongs to somebody else from now on, who gives it back by calling this."""
        other = Way(self.guards, self.call)
        other.place, other.lease = self._take_place(), self.lease
        self.lease = None
        return other.dropped

    def stepped_out(self) -> None:
        """What runs from here on, in this context, is no part of the attempt."""
        if self.lease is not None:
            self.lease.detach()

    def stepped_in(self) -> None:
        """What runs from here on, in this context, is part of the attempt again."""
        if self.lease is not None:
            self.lease.attach()

    def dropped(self) -> None:
        """The attempt was cancelled, or has not begun."""
        place = self._take_place()
        if place is not None and self.line is not None:
            room, counts, attempt, clock = _room(self.line), self.guards.counts, self.call.run, self.line.clock

            def settle(now: float) -> None:
                room.cancelled(place, now)
                if counts is not None:
                    counts.cut(attempt, clock, now)

            self.line.act(settle)
        self._leave_breaker("neutral")

    def undone(self) -> None:
        """The attempt has not begun after all."""
        self._untake()
        self._leave_breaker("neutral")

    def _send_away(self, cool_until: float) -> None:
        """Those who can't outlast a pause that has just begun need not wait for its end."""
        line = self.line
        if cool_until and line is not None:
            line.refuse(lambda ticket: ticket.deadline_at <= cool_until)

    def _send_away_if_shut(self) -> None:
        """Those in line would only find the circuit open. A limiter's line is shared with others, whom it may spare."""
        breaker, line = self.guards.breaker, self.line
        if breaker is None or line is None or self.guards.counts is None or not len(line):
            return
        shut_for = breaker.shut_for()
        if shut_for is not None and not self.guards.observe_only:
            line.refuse(lambda _: True, lambda: breaker.refusal(shut_for))

    # ---- the budget, and the breaker between two attempts ------------------------------------------------------------

    def pay(self, failure: Failure) -> bool:
        """Takes a retry's place in the budget; False where there is none and the call must stop."""
        budget, line = self.guards.budget, self.budget_line
        if budget is None or line is None:
            return True
        cost = budget.settings.cost(failure.kind)
        paid = budget.pay(line, cost)
        if paid is not None:
            self.paid, self.worth, self.owed = paid, cost, 0.0
            return True
        if self.guards.counts is not None:
            self.guards.counts.unpaid += 1
        if budget.settings.when_empty == "wait" and not self.guards.observe_only:
            self.owed = cost
        return budget.settings.when_empty == "wait" or self.guards.observe_only

    def refund(self) -> None:
        """The retry that was paid for does not happen."""
        paid, self.paid, self.worth, self.owed = self.paid, 0.0, 0.0, 0.0
        if paid and self.budget_line is not None:
            self._budget().give_back(self.budget_line, paid)

    def shut(self) -> CircuitOpenError | None:
        """The error that a retry would only meet; None where the circuit lets it through."""
        breaker = self.guards.breaker
        shut_for = None if breaker is None or self.guards.observe_only else breaker.shut_for()
        return None if breaker is None or shut_for is None else breaker.refusal(shut_for)

    def _budget(self) -> RetryBudget:
        budget = self.guards.budget
        if budget is None:
            raise RuntimeError("there is no budget to give back to")
        return budget

    def _take_place(self) -> Place | None:
        place, self.place = self.place, None
        return place

    def _untake(self) -> None:
        place = self._take_place()
        if place is not None and self.line is not None:
            room = _room(self.line)
            self.line.act(lambda now: room.untake(place, now))

    def _leave_breaker(self, verdict: Verdict) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.leave(verdict)


def _room(line: Line[Cost, Place]) -> Room:
    room = line.room
    if not isinstance(room, Room):
        raise TypeError("this line leads to no room")
    return room
