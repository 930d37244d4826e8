"""The steps between two attempts that are not waiting, shared by the blocking and the asyncio driver.

Decided here: which error leaves, who is told, and what is freed before a wait. The drivers add only how they wait.
"""

from __future__ import annotations

import sys
from inspect import CO_ITERABLE_COROUTINE
from types import FrameType, GeneratorType
from typing import Any

from forbear._runtime.call import Call, calls_around, drop
from forbear._runtime.scope import current
from forbear._runtime.telling import log_mistake, log_unsafe, tell, tell_attempt, tell_end
from forbear.core.decision import Retry
from forbear.core.failure import Failure, Kind
from forbear.core.run import Pending, Run
from forbear.errors import GaveUp, GiveUpReason, ResultRejected, mark


def accept(call: Call, result: object) -> None:
    """Lets a result pass, or raises ResultRejected where the plan refuses it. The guards learn of a success."""
    rejects = call.plan.rejects
    if rejects is not None:
        try:
            refused = rejects(result)
        except Exception as mistake:
            call.run.mistake = mistake  # the function has succeeded: it must not be repeated for this
            raise
        if refused:
            raise ResultRejected(result)
    if call.passage is not None:
        call.passage.succeeded(result)
    if call.plan.listeners:
        now = call.world.clock()
        tell_attempt(call.plan, call.run, "success", now)
        if call.plan.hedge is None:  # else the call ends when its other copies have
            tell_end(call.plan, call.run, "success", now)


def fail(call: Call, error: Exception) -> bool:
    """The attempt ended with `error`: True where a wait follows, False where the error itself must leave as it is.

    The wait is then in `call.run.pending`. Raises RetryError, caused by `error`, where the call is given up.
    """
    if call.run.mistake is error:
        call.run.mistake = None
        tell_end(call.plan, call.run, "permanent", call.world.clock(), error)
        return False
    return follow(call, error, judged(call, error))


def judged(call: Call, error: Exception) -> Failure:
    """What the error that an attempt has ended with means; the guards and the listeners learn of it."""
    plan, run, world, passage = call.plan, call.run, call.world, call.passage
    now = world.clock()
    failure = plan.judge(error, call, world.wall())
    if passage is not None:
        # Cut at the deadline before a whole attempt's time was over: it says nothing about the service. Were it
        # counted, a line that grows would let the limit fall, and a limit that falls the line grow.
        cut = failure.kind is Kind.TIMEOUT and run.cut_short(plan.first_limit, now)
        passage.failed(error, failure, world.random(), cut=cut)
    tell_attempt(plan, run, "failure", now, error)
    return failure


def follow(
    call: Call, error: Exception, failure: Failure, attempt: Run | None = None, ended_at: float | None = None
) -> bool:
    """What follows from a failure: see `fail`. A retry has its place in the budget then.

    `attempt`: the copy that has failed, where it is not the call's own run, and when it did, where that was earlier.
    """
    plan, run, world = call.plan, call.run, call.world
    now = world.clock()
    try:
        refused = run.refusal(failure) is not None
        paid = call.passage is None or refused or call.passage.pay(failure)
        random = 0.0 if refused else world.random()
        answer = run.failed(error, failure, now, random, paid=paid, attempt=attempt, ended_at=ended_at)
        if isinstance(answer, Retry):
            if call.passage is not None:
                _leave_if_shut(call, error, now)
            run.pending = Pending(error, answer, failure)
            return True
    except BaseException:  # a backoff or dice of the caller's own may fail
        _refund(call)
        raise
    _refund(call)
    run.previous_error = None  # the call is over, and the frames in its traceback must not keep it alive
    tell_end(plan, run, answer.reason, now, error)
    if answer.reason == "unsafe":
        log_unsafe(plan.name, error, run.forbidden or plan.unsafe)
    if answer.reason == "permanent" or answer.reason == "unsafe" or answer.reason == "interrupted":
        return False
    if not _leaves_marked(call, error, answer.reason, now, run.completed):
        raise run.given_up(answer.reason, error, now, run.completed) from error
    return False


def _refund(call: Call) -> None:
    """A retry that was paid for does not happen."""
    if call.passage is not None:
        call.passage.refund()


def _leave_if_shut(call: Call, error: Exception, now: float) -> None:
    """Raises CircuitOpenError where a retry would only find the circuit open."""
    passage = call.passage
    shut = None if passage is None else passage.shut()
    if passage is not None and shut is not None:
        tell_end(call.plan, call.run, "circuit", now, error)
        raise shut from error


def refused(call: Call, refusal: Exception) -> Exception:
    """`refusal` of an attempt that was about to begin, with the failure before it as its cause; it ends the call."""
    run = call.run
    refusal.__cause__, run.previous_error = run.previous_error, None
    tell_end(call.plan, run, "circuit", call.world.clock(), refusal.__cause__, attempts=run.number - 1)
    return refusal


def no_place(call: Call, needed: float, held_by: str) -> Exception:
    """The error of an attempt that can't begin in time: `held_by` has a place in `needed` seconds at the earliest."""
    run, now = call.run, call.world.clock()
    error, run.previous_error = run.previous_error, None
    run.hint = max(needed, run.hint or 0.0)
    tell_end(call.plan, run, "deadline", now, error, attempts=run.number - 1)
    if error is not None and _leaves_marked(call, error, "deadline", now, run.number - 1):
        return error  # type: ignore[return-value]  # only an Exception is retried
    return run.given_up("deadline", error, now, run.number - 1, held_by=held_by)


def admitted(call: Call, since: float) -> None:
    """The attempt may begin, after a wait for its place that began at `since`."""
    run = call.run
    run.attempt_at = call.world.clock()
    run.waited += max(0.0, run.attempt_at - since)


def _leaves_marked(call: Call, error: BaseException, reason: GiveUpReason, now: float, attempts: int) -> bool:
    """Whether the error itself is to leave a call that is given up after so many attempts; it is marked then."""
    plan, run = call.plan, call.run
    if not plan.reraise or isinstance(error, ResultRejected):
        return False
    fact = GaveUp(
        reason=reason,
        attempts=attempts,
        elapsed=now - run.started_at,
        waited=run.waited,
        by=plan,
        within=calls_around(call),
    )
    mark(error, fact)
    return True


def taken(call: Call) -> Pending:
    """The failure that the wait which begins is for; from here on only the driver's wait knows it."""
    run = call.run
    pending, run.pending = run.pending, None
    run.previous_error = None  # during the wait one failure is alive, no more
    if pending is None:
        raise RuntimeError("no attempt has failed")
    return pending


def before_wait(call: Call, pending: Pending) -> Any:
    """Tells the hooks about the wait that begins; what `on_retry` returned, which may be an awaitable."""
    plan = call.plan
    if plan.on_retry is None and not plan.listeners:
        return None
    state = call.run.state(plan.name, pending, call.world.clock())
    tell(plan, state)
    if plan.on_retry is None:
        return None
    try:
        return plan.on_retry(state)
    except Exception as mistake:
        log_mistake("on_retry", mistake)
        return None


def check_time(call: Call, error: BaseException, needed: float = 0.0) -> float:
    """The instant now. Raises DeadlineExceeded where a wait of `needed` seconds would end too late for an attempt."""
    run, now = call.run, call.world.clock()
    if run.left(now) <= needed:
        tell_end(call.plan, call.run, "deadline", now, error)
        if not _leaves_marked(call, error, "deadline", now, run.completed):
            raise run.given_up("deadline", error, now, run.completed) from error
        try:
            raise error
        finally:
            del error  # a frame must not keep alive what it raises
    return now


def resume(call: Call, pending: Pending) -> None:
    """The wait is over: the next attempt begins, if there is time left for it."""
    call.run.resumed(pending, check_time(call, pending.error))


def left_by(call: Call, leaving: BaseException) -> None:
    """Before `leaving`, which is no Exception, goes on its way."""
    if isinstance(leaving, GeneratorExit) and current.get() is not call:
        # A coroutine that nobody finished is closed by the garbage collector, in whatever context that runs: the
        # scope there is not ours to reset.
        call.outer = current.get()


def not_sent(call: Call, leaving: BaseException) -> None:
    """The call ends in a wait, with `leaving`: the retry that it had paid for is not made."""
    if call.passage is not None:
        call.passage.refund()
    if not isinstance(leaving, Exception):
        cancelled(call, waiting=True)


def cancelled(call: Call, *, waiting: bool) -> None:
    """The caller cancelled: an event for those who listen, and nothing else. It is no failure."""
    drop(call)
    if call.plan.listeners:
        now = call.world.clock()
        if not waiting:
            tell_attempt(call.plan, call.run, "cancelled", now)
        tell_end(call.plan, call.run, "cancelled", now)


def late(call: Call, cause: BaseException | None = None) -> TimeoutError:
    """The error of an attempt that its timer has ended; it says which limit that was."""
    run = call.run
    own = run.policy.attempt_timeout
    if run.stream is not None:
        text = run.stream.late(run.number)
    elif own is not None and own <= run.limit * (1 + 1e-9):  # of equal limits, whatever the rounding, the attempt's
        text = f"attempt {run.number} took longer than attempt_timeout={own:g} s"
    else:
        text = f"attempt {run.number} was cut at the deadline, {run.limit:.3g} s after it began"
    error = TimeoutError(text)
    error.__cause__ = cause
    return error


def let_go(error: BaseException, handled: BaseException | None = None, *, block: bool = False) -> None:
    """Frees the frames of an error that is about to be superseded, and all that their locals hold.

    What the caller was handling when it made the call hangs on the error as its context; it is not ours. It began in a
    frame of the caller's. A block's own errors do so too; there it is `handled`.
    """
    callers = set[FrameType]() if block else _frames_of_callers()
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    # The error of an attempt that was cut has never been raised; what it was cut with is ours.
    ours = (error, error.__cause__ if error.__traceback__ is None else None)
    while todo and len(seen) < 1_024:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        trace = one.__traceback__
        if one is handled or (one not in ours and trace is not None and trace.tb_frame in callers):
            continue
        one.with_traceback(None)
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions


def _frames_of_callers() -> set[FrameType]:
    """The frames that run now, without forbear's own."""
    found: set[FrameType] = set()
    frame = sys._getframe()  # noqa: SLF001  # public, despite its name
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("forbear."):
            found.add(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return found


def is_awaitable(value: object) -> bool:
    """Whether `await` would take the value."""
    if isinstance(value, GeneratorType):  # made by types.coroutine
        return bool(value.gi_code.co_flags & CO_ITERABLE_COROUTINE)
    return hasattr(type(value), "__await__")
