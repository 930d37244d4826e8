"""Tells those who listen what a call does. Where nobody listens it costs a look at an empty list.

A listener's own errors are logged by type and place, and never change a call.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forbear.core.events import AttemptEnded, CallEnded, EndReason, Event, Outcome
from forbear.core.run import Run
from forbear.errors import type_name

if TYPE_CHECKING:
    from forbear._runtime.call import Plan

logger = logging.getLogger("forbear")


def tell(plan: Plan, event: Event) -> None:
    """Tells an event to all listeners."""
    for listener in tuple(plan.listeners):
        try:
            listener(event)
        except Exception as mistake:
            log_mistake("a listener", mistake)


def tell_attempt(plan: Plan, run: Run, outcome: Outcome, now: float, error: BaseException | None = None) -> None:
    """One event per attempt."""
    if plan.listeners:
        event = AttemptEnded(
            call=plan.name,
            attempt=run.number,
            max_attempts=run.policy.max_attempts,
            outcome=outcome,
            elapsed=max(0.0, now - run.attempt_at),
            remaining=run.left(now),
            error_type=None if error is None else type_name(error),
            error=error,
        )
        tell(plan, event)


def tell_end(
    plan: Plan,
    run: Run,
    reason: EndReason,
    now: float,
    error: BaseException | None = None,
    *,
    attempts: int | None = None,
) -> None:
    """One event per call. `attempts` where it is not the number of the current one."""
    if plan.listeners:
        event = CallEnded(
            call=plan.name,
            reason=reason,
            attempts=run.completed if attempts is None else attempts,
            elapsed=max(0.0, now - run.started_at),
            waited=run.waited,
            error_type=None if error is None else type_name(error),
        )
        tell(plan, event)


def log_unsafe(name: str, error: BaseException, why: str) -> None:
    """Says why a failure that may pass was not retried: silence here costs hours of search."""
    logger.warning("%s not retried after %s: %s", name, type_name(error), why)


def log_mistake(who: str, mistake: Exception) -> None:
    """Reports a hook's own error by its type and place. Its text, and the failure it was told of, may hold secrets."""
    place = mistake.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
    logger.error("%s raised %s%s; the call goes on", who, type_name(mistake), where)
