"""The copies of one attempt that race for the answer.

Decided here: whether another copy may be sent now, what each of them has taken and gives back, and which one decides.
Nothing that speaks against a copy ever ends one that is under way. How copies run is the business of the driver.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from typing import Any

from forbear._runtime.call import Call
from forbear._runtime.passage import Hedge
from forbear._runtime.scope import current
from forbear._runtime.source import Source
from forbear._runtime.steps import accept, follow, judged
from forbear._runtime.telling import log_mistake, tell_attempt, tell_end
from forbear._runtime.world import Clock
from forbear.core.failure import Failure, Kind
from forbear.core.hedge import Hedging

SAME_INSTANT = 1e-9  # seconds; an event loop knows no less
LOOK_AGAIN = 0.01  # seconds at least between two looks whether a copy may be sent now
NEEDS_ASYNCIO = "hedging needs asyncio: its copies are tasks; under trio leave hedge= out"


class Copy:
    """One of the copies of an attempt. `call` is the call itself for the first one, else one of its own beside it.

    answer: a future of what it brings; task: what makes it; source: of a stream. settled: the guards have learned how
    it went. stopped: it has been cancelled. error: with what it has failed. failure: what that means; None for a
    mistake in a caller's rule.
    """

    __slots__ = ("answer", "began_at", "call", "ended_at", "error", "failure", "settled", "source", "stopped", "task")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.began_at = call.run.attempt_at
        self.ended_at = math.inf
        self.answer: Any = None
        self.task: Any = None
        self.error: Exception | None = None
        self.failure: Failure | None = None
        self.source: Source | None = None
        self.settled = self.stopped = False


class Race:
    """All copies of one attempt of a call. `before` is the context in which the call began."""

    __slots__ = (
        "_args", "_before", "_clock", "_delay", "_due_at", "_suppressed", "call", "copies", "hedge",
        "winner",
    )  # fmt: skip

    def __init__(self, call: Call, before: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if call.plan.hedge is None:
            raise RuntimeError("this plan has no hedge")
        self.call, self._before, self._args = call, before, (args, kwargs)
        self.hedge: Hedge = call.plan.hedge
        self._clock: Clock = call.world.clock
        self._delay: float | None = self.hedge.ask(self._clock, Hedging.delay)
        self._due_at = math.inf
        self.copies: list[Copy] = []
        self.winner: Copy | None = None
        self._suppressed = False  # the copy that is due: it is counted once, however often it is looked at

    def first(self) -> Copy:
        """The first copy, which begins now."""
        copy = Copy(self.call)
        self.copies.append(copy)
        self._wait_for_next(copy.began_at)
        return copy

    def wait(self) -> float | None:
        """Seconds until another copy is due; None where none will be."""
        if self._due_at == math.inf or len(self.copies) >= self.hedge.settings.max_copies:
            return None
        left = self._due_at - self._clock()
        return left if left > SAME_INSTANT else 0.0

    def next(self) -> tuple[Copy, Context] | None:
        """Another copy, where one is due and may be sent: it begins now, in this context."""
        wait, run, now = self.wait(), self.call.run, self._clock()
        if wait is None or wait > 0:
            return None
        self._wait_for_next(now)
        most, left = run.policy.max_attempts, run.left(now)
        if (most is not None and run.completed >= most) or left <= max(0.0, run.policy.minimum_attempt):
            self._due_at = math.inf
            return None
        sent = self._sent(now)
        self._count(sent=sent is not None, suppressed=sent is None and not self._suppressed)
        self._suppressed = sent is None
        if sent is None:
            self._due_at = max(self._due_at, now + LOOK_AGAIN)
        return sent

    def _sent(self, now: float) -> tuple[Copy, Context] | None:
        """A copy, unless its cost has not been earned or a guard speaks against it."""
        if not self.hedge.ask(self._clock, lambda state, _now: state.take()):
            return None
        call, around = _beside(self.call, now), self._before.copy()
        admitted = False
        try:
            admitted = around.run(_admitted, call, *self._args)
        except Exception as mistake:  # in the caller's own `tokens`
            log_mistake("tokens", mistake)
        finally:
            if not admitted:
                self.call.run.copies -= 1
                self.hedge.ask(self._clock, lambda state, _now: state.give_back())
        if not admitted:
            return None
        copy = Copy(call)
        self.copies.append(copy)
        return copy, around

    def _wait_for_next(self, now: float) -> None:
        self._due_at = math.inf if self._delay is None else now + self._delay

    # ---- how they end ------------------------------------------------------------------------------------------------

    def won(self, copy: Copy, result: Any) -> bool:
        """Whether the race is over as this copy has an answer that the caller takes, or the first part of a stream."""
        if self.call.plan.stream is None:
            try:
                accept(copy.call, result)
            except Exception as refused:
                self.lost_to(copy, refused)
                return False
        copy.settled, self.winner = True, copy
        now = self._clock()
        latency = now - copy.began_at

        def learn(state: Hedging, at: float) -> None:
            state.record(latency, at)
            state.succeeded()

        self.hedge.ask(self._clock, learn)
        self._count(won=copy is not self.copies[0])
        return True

    def lost_to(self, copy: Copy, error: Exception) -> bool:
        """A copy has failed. Whether that ends the race.

        If not, the next copy is due at once; where the server has asked for a pause there will be none.
        """
        copy.error, copy.settled = error, True
        copy.ended_at = now = self._clock()
        run = copy.call.run
        if run.mistake is error:
            if copy.call.passage is not None:
                copy.call.passage.dropped()
            return True
        copy.failure = judged(copy.call, error)
        latency = now - copy.began_at
        self.hedge.ask(self._clock, lambda state, at: state.failed(latency, at))
        if run.of is not None:
            self.call.run.remember(run, error, copy.failure, now)
        if copy.failure.kind is Kind.CONFLICT and not all(one.settled for one in self.copies):
            self._due_at = math.inf  # most likely with another copy, which has the same key and is under way
            return False
        if not copy.failure.transient or not copy.failure.safe_to_retry:
            return True
        self._due_at = now if copy.failure.retry_after is None else math.inf
        return False

    def answered_too(self, copy: Copy, result: Any) -> None:
        """A copy that has answered in the same instant as the winner."""
        if copy.source is not None:
            self.left_behind(copy)
            return
        copy.settled = True
        if copy.call.passage is not None:
            copy.call.passage.succeeded(result)
        tell_attempt(copy.call.plan, copy.call.run, "success", self._clock())

    def left_behind(self, copy: Copy) -> None:
        """A copy that nobody needs any more, and that is cancelled now."""
        copy.settled = True
        now = self._clock()
        latency = max(0.0, now - copy.began_at)
        self.hedge.ask(self._clock, lambda state, at: state.record(latency, at))
        self._count(wasted=latency)
        if copy.source is None or not copy.source.over:  # else it has told that it is complete
            tell_attempt(copy.call.plan, copy.call.run, "cancelled", now)

    def freed(self, copy: Copy) -> Callable[[], None]:
        """What gives back all that a cancelled copy has taken, once it has ended; the call may go on meanwhile."""
        passage = copy.call.passage
        return _nothing if passage is None else passage.handed_over()

    def follows(self, copy: Copy) -> bool:
        """All have failed, or one for good, which is this one. Whether another attempt follows: see `follow`."""
        error, failure = copy.error, copy.failure
        try:
            if error is None or failure is None:
                tell_end(self.call.plan, self.call.run, "permanent", self._clock(), error)
                return False
            if failure.transient and failure.safe_to_retry:
                hints = [one.failure.retry_after for one in self.copies if one.failure and one.failure.retry_after]
                failure = replace(failure, retry_after=max(hints)) if hints else failure
            return follow(self.call, error, failure, ended_at=copy.ended_at)
        finally:
            del error, copy

    def ended_well(self) -> None:
        """The call is over, with an answer."""
        tell_end(self.call.plan, self.call.run, "success", self._clock())

    def end(self) -> None:
        """Forgets the copies: their errors hold frames, and those hold us."""
        for copy in self.copies:
            copy.task = copy.answer = copy.error = copy.source = None
            if copy.call is not self.call and not (copy is self.winner and self.call.plan.stream is not None):
                copy.call.ended = True
        self.copies, self.winner = [], None

    def _count(self, *, sent: bool = False, won: bool = False, suppressed: bool = False, wasted: float = 0.0) -> None:
        hedge = self.hedge

        def count(_state: Hedging, _now: float) -> None:
            hedge.sent += sent
            hedge.won += won
            hedge.suppressed += suppressed
            hedge.wasted += wasted

        hedge.ask(self._clock, count)


def _nothing() -> None:
    """There was nothing to give back."""


def _beside(call: Call, now: float) -> Call:
    """A call for a copy of this one's attempt."""
    beside = Call()
    beside.plan, beside.outer, beside.started_at = call.plan, call.outer, call.started_at
    beside.made, beside.passage, beside.ended = call.run.copy(now), None, False
    beside.task = beside.timer = None
    return beside


def _admitted(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the guards let a copy through, in the context in which it will run."""
    current.set(call)
    if call.plan.gate is None:
        return True
    call.passage = call.plan.gate.open(call)
    return call.passage.copied(args, kwargs)
