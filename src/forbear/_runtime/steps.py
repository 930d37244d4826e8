"""The steps between two attempts that are not waiting, shared by the blocking and the asyncio driver.

Decided here: which error leaves, who is told, and what is freed before a wait. The drivers add only how they wait.
"""

from __future__ import annotations

import logging
from typing import Any

from forbear._runtime.call import Call
from forbear._runtime.scope import current
from forbear.core.decision import Retry, refusal
from forbear.core.events import AttemptEnded, CallEnded, EndReason, Event, Outcome
from forbear.core.run import Pending
from forbear.errors import ResultRejected, mark, marks, type_name

logger = logging.getLogger("forbear")


def accept(call: Call, result: object) -> None:
    """Lets a result pass, or raises ResultRejected where the plan refuses it."""
    rejects = call.plan.rejects
    if rejects is not None and rejects(result):
        raise ResultRejected(result)
    if call.plan.listeners:
        now = call.world.clock()
        _tell_attempt(call, "success", now)
        _tell_end(call, "success", now)


def fail(call: Call, error: Exception) -> bool:
    """The attempt ended with `error`: True where a wait follows, False where the error itself must leave as it is.

    The wait is then in `call.run.pending`. Raises RetryError, caused by `error`, where the call is given up.
    """
    plan, run, world = call.plan, call.run, call.world
    now = world.clock()
    failure = plan.judge(error, call.marks)
    random = world.random() if refusal(run.policy, failure, run.number) is None else 0.0
    answer = run.failed(error, failure, now, random)
    _tell_attempt(call, "failure", now, error)
    if isinstance(answer, Retry):
        run.pending = Pending(error, answer, failure)
        return True
    _tell_end(call, answer.reason, now, error)
    if answer.reason == "permanent" or answer.reason == "unsafe":
        return False
    if plan.reraise and not isinstance(error, ResultRejected):
        mark(error, answer.reason, run.number, now - run.started_at, run.waited)
        return False
    raise run.given_up(answer.reason, error, now, run.number) from error


def taken(call: Call) -> Pending:
    """The failure that the wait which begins is for; from here on only the driver's wait knows it."""
    run = call.run
    pending, run.pending = run.pending, None
    if pending is None:
        raise RuntimeError("no attempt has failed")
    return pending


def before_wait(call: Call, pending: Pending) -> Any:
    """Tells the hooks about the wait that begins; what `on_retry` returned, which may be an awaitable."""
    plan = call.plan
    if plan.on_retry is None and not plan.listeners:
        return None
    state = call.run.state(plan.name, pending, call.world.clock())
    _tell(call, state)
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
        _tell_end(call, "deadline", now, error)
        raise run.given_up("deadline", error, now, run.number) from error
    return now


def resume(call: Call, pending: Pending) -> None:
    """The wait is over: the next attempt begins, if there is time left for it."""
    call.run.resumed(pending, check_time(call, pending.error))
    call.marks = marks.latest


def left_by(call: Call, leaving: BaseException) -> None:
    """Before `leaving`, which is no Exception, goes on its way."""
    if isinstance(leaving, GeneratorExit) and current.get() is not call:
        # A coroutine that nobody finished is closed by the garbage collector, in whatever context that runs: the
        # scope there is not ours to reset.
        call.outer = current.get()


def cancelled(call: Call, *, waiting: bool) -> None:
    """The caller cancelled: an event for those who listen, and nothing else. It is no failure."""
    if call.plan.listeners:
        now = call.world.clock()
        if not waiting:
            _tell_attempt(call, "cancelled", now)
        _tell_end(call, "cancelled", now)


def late(call: Call, cause: BaseException | None = None) -> TimeoutError:
    """The error of an attempt that its timer has ended; it says which limit that was."""
    run = call.run
    if run.policy.attempt_timeout == run.limit:
        text = f"attempt {run.number} took longer than attempt_timeout={run.limit:g} s"
    else:
        text = f"attempt {run.number} was cut at the deadline, {run.limit:.3g} s after it began"
    error = TimeoutError(text)
    error.__cause__ = cause
    return error


def let_go(error: BaseException) -> None:
    """Frees the frames of an error that is about to be superseded, and all that their locals hold."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo and len(seen) < 64:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions


def is_awaitable(value: object) -> bool:
    """Whether `await` would take the value."""
    return hasattr(type(value), "__await__")


def log_mistake(who: str, mistake: Exception) -> None:
    """Reports a hook's own error by its type and place. Its text, and the failure it was told of, may hold secrets."""
    place = mistake.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
    logger.error("%s raised %s%s; the call goes on", who, type_name(mistake), where)


def _tell_attempt(call: Call, outcome: Outcome, now: float, error: BaseException | None = None) -> None:
    if call.plan.listeners:
        run = call.run
        event = AttemptEnded(
            call=call.plan.name,
            attempt=run.number,
            max_attempts=run.policy.max_attempts,
            outcome=outcome,
            elapsed=max(0.0, now - run.attempt_at),
            remaining=run.left(now),
            error_type=None if error is None else type_name(error),
            error=error,
        )
        _tell(call, event)


def _tell_end(call: Call, reason: EndReason, now: float, error: BaseException | None = None) -> None:
    if call.plan.listeners:
        run = call.run
        event = CallEnded(
            call=call.plan.name,
            reason=reason,
            attempts=run.number,
            elapsed=max(0.0, now - run.started_at),
            waited=run.waited,
            error_type=None if error is None else type_name(error),
        )
        _tell(call, event)


def _tell(call: Call, event: Event) -> None:
    for listener in tuple(call.plan.listeners):
        try:
            listener(event)
        except Exception as mistake:
            log_mistake("a listener", mistake)
