"""One call on its way: what it was asked to do, where it stands, and the timer that guards its attempt.

Most calls succeed at once, and such a call pays only for what it used: the run, with its record of attempts, is made at
the first failure, or when somebody asks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from forbear._runtime.passage import Gate, Hedge, Passage
from forbear._runtime.scope import Ambient, around, deadline_in, world_of
from forbear._runtime.telling import tell_end
from forbear._runtime.world import Sleep, World
from forbear.core.deadline import attempt_limit, ends_at, tightened
from forbear.core.events import Event, RetryState
from forbear.core.failure import Failure
from forbear.core.policy import Policy
from forbear.core.run import Run
from forbear.core.stream import StreamSettings

monotonic = time.monotonic
_making = threading.Lock()


def _after_fork() -> None:
    """In a forked child a lock that another thread held at that moment would stay held for ever."""
    global _making  # noqa: PLW0603
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that one decorated function, block or call was asked to do. Frozen and shared by all its calls.

    judge: what an error means for a call, at an instant of the wall clock. rejects: whether a result
    counts as a failure. on_retry: told before each wait; may return an awaitable. world: how the options change the
    world. listeners: told every event. gate: the guards of the service that is called. stream: how a stream is handed
    over; None where the call is none. hedge: when a slow attempt gets a second copy. unsafe: why a failure that may
    pass is not retried where it is not safe to.

    plain: nothing about time was changed. first_limit: seconds for the first attempt of a call with nothing around it.
    checks: whether somebody wants to know that an attempt has succeeded.
    """

    name: str
    policy: Policy
    judge: Callable[[Exception, Call, float], Failure]
    rejects: Callable[[Any], bool] | None = None
    on_retry: Callable[[RetryState], Any] | None = None
    reraise: bool = False
    world: Callable[[World], World] | None = None
    sleep: Sleep | None = None
    listeners: Sequence[Callable[[Event], None]] = ()
    gate: Gate | None = None
    hedge: Hedge | None = None
    stream: StreamSettings | None = None
    unsafe: str = "the call is marked idempotent=False, and the server may have acted"
    plain: bool = field(init=False)
    first_limit: float = field(init=False)
    checks: bool = field(init=False)

    def __post_init__(self) -> None:
        policy = self.policy
        attempt_timeout = policy.attempt_timeout if self.stream is None else self.stream.first_timeout
        limit = attempt_limit(attempt_timeout, ends_at(0.0, policy.deadline))
        object.__setattr__(self, "first_limit", limit)
        object.__setattr__(self, "plain", self.world is None and limit > 0)
        object.__setattr__(self, "checks", self.rejects is not None or self.gate is not None)


class Call:
    """One call under a plan. `outer` is the scope around it, `made` its run once there is one, `passage` its way
    through the plan's gate; the rest belongs to the attempt's timer.
    """

    __slots__ = ("cancelling", "ended", "made", "outer", "passage", "plan", "started_at", "task", "timed_out", "timer")

    plan: Plan
    outer: Ambient
    started_at: float
    made: Run | None
    passage: Passage | None
    ended: bool
    timer: Any
    task: Any
    cancelling: int
    timed_out: bool

    @property
    def call(self) -> Call:
        """Itself: every scope names the call it belongs to."""
        return self

    @property
    def run(self) -> Run:
        """Where the call stands."""
        if self.made is None:
            policy = self.plan.policy
            made = Run(policy, self.started_at, ends_at(self.started_at, policy.deadline))
            with _making:  # threads of one attempt must not make two; nothing is made under it: the collector may come
                if self.made is None:
                    self.made = made
        return self.made

    @property
    def world(self) -> World:
        """The time and the dice of this call."""
        world, changed = world_of(self.outer), self.plan.world
        return world if changed is None else changed(world)

    @property
    def deadline_at(self) -> float:
        """The instant by which everything below must end, on the clock of `world`."""
        return self.run.deadline_at


def open_call(plan: Plan, outer: Ambient) -> Call:
    """A call that begins now. Raises DeadlineExceeded where no time is left for a first attempt."""
    call = Call()
    call.plan = plan
    call.outer = outer
    call.made = call.passage = None
    call.ended = False
    if outer is None and plan.plain:
        call.started_at = monotonic()
    else:
        open_inside(call)
    return call


def open_inside(call: Call) -> None:
    """Obeys what is around the call and has not ended: a deadline, another world, a test's cap on attempts."""
    while call.outer is not None and call.outer.ended:
        call.outer = call.outer.outer
    world, policy = call.world, call.plan.policy
    now = call.started_at = world.clock()
    cap = world.max_attempts
    if cap is not None:
        policy = replace(policy, max_attempts=cap if policy.max_attempts is None else min(cap, policy.max_attempts))
    deadline_at = tightened(ends_at(now, policy.deadline), deadline_in(world, call.outer, now))
    run = call.made = Run(policy, now, deadline_at)
    if run.left(now) <= 0:
        tell_end(call.plan, run, "deadline", now, attempts=0)
        raise run.given_up("deadline", None, now, 0)


def go_on(call: Call, outer: Ambient) -> Call:
    """A call that began in blocking code and goes on where its awaitable is awaited: the scope there holds from now on.

    What has been tried counts; an attempt that has not failed yet begins anew with its awaitable.
    """
    run = call.made
    if run is None or run.number == 1:
        anew = open_call(call.plan, outer)
        if run is not None and run.key is not None:
            anew.run.key = run.key
        return anew
    call.outer = outer
    while call.outer is not None and call.outer.ended:
        call.outer = call.outer.outer
    world = call.world
    run.attempt_at = world.clock()
    run.deadline_at = min(run.deadline_at, deadline_in(world, outer, run.attempt_at))
    return call


def passage_of(call: Call) -> Passage:
    """The call's way through its plan's gate, the same for all attempts."""
    if call.passage is None:
        if call.plan.gate is None:
            raise RuntimeError("a call without a gate needs no passage")
        call.passage = call.plan.gate.open(call)
    return call.passage


def drop(call: Call) -> None:
    """The attempt has ended without a verdict, or has not begun: what it has taken goes back."""
    if call.passage is not None:
        call.passage.dropped()


def undone(call: Call) -> Call:
    """The call, whose attempt begins elsewhere and is admitted anew there: what it has taken is there again."""
    if call.passage is not None:
        call.passage.undone()
    return call


def calls_here() -> tuple[Call, ...]:
    """The calls that the code which runs here is part of, the nearest first."""
    scope = around()
    call = None if scope is None else scope.call
    return () if call is None else (call, *calls_around(call))


def calls_around(call: Call) -> tuple[Call, ...]:
    """The calls that this one is part of, the nearest first."""
    found: list[Call] = []
    outer = None if call.outer is None else call.outer.call
    while outer is not None:
        found.append(outer)
        outer = None if outer.outer is None else outer.outer.call
    return tuple(found)
