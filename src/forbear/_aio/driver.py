"""Carries decisions out under asyncio: awaits the function, cuts an attempt that takes too long, sleeps, raises.

No task is made: an attempt runs in the caller's own task, so context, task groups and `asyncio.timeout` work as if
forbear were not there. A cancellation by the caller leaves at once, whatever it races with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from forbear._runtime.call import Call, Plan, open_call
from forbear._runtime.on_asyncio import arm, disarm, disarm_in_time
from forbear._runtime.scope import current
from forbear._runtime.steps import (
    accept,
    before_wait,
    cancelled,
    check_time,
    fail,
    is_awaitable,
    let_go,
    log_mistake,
    resume,
)  # fmt: skip
from forbear._runtime.world import REAL
from forbear.core.decision import Retry
from forbear.core.failure import Failure

_NO_KWARGS: dict[str, Any] = {}
_enter, _leave = current.get, current.set


def guard(plan: Plan, fn: Callable[..., Awaitable[Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """`fn` under the plan, as a coroutine function."""
    listeners, checked, first_limit = plan.listeners, plan.rejects is not None, plan.first_limit

    async def guarded(*args: Any, **kwargs: Any) -> Any:
        # A call may wait for minutes, beside 20,000 others: it keeps no empty dictionary and few variables.
        kwargs = kwargs or _NO_KWARGS
        call = open_call(plan, _enter())
        _leave(call)
        try:
            while True:
                try:
                    if call.made is None:
                        arm(call, first_limit, call.started_at, REAL)
                    else:
                        begin(call)
                    try:
                        result = await fn(*args, **kwargs)
                    except BaseException as caught:
                        translate(call, caught)
                        raise
                    if call.timed_out:
                        ended(call)
                    disarm_in_time(call)
                    if checked or listeners:
                        accept(call, result)
                    return result
                except Exception as error:
                    step = fail(call, error)
                    if step is None:
                        raise
                    await pause(call, error, *step)
        finally:
            _leave(call.outer)

    return guarded


def begin(call: Call) -> None:
    """Starts the timer of the attempt that begins now."""
    run = call.made
    if run is None:
        arm(call, call.plan.first_limit, call.started_at, REAL)
    else:
        arm(call, run.limit, run.attempt_at, call.world)


def ended(call: Call) -> None:
    """The attempt has returned. Raises TimeoutError where it swallowed its cancellation: what it brings is too late."""
    if call.timed_out:
        disarm(call)
        raise late(call)
    disarm_in_time(call)


async def pause(call: Call, error: Exception, answer: Retry, failure: Failure) -> None:
    """Tells the hooks, waits, and makes the call ready for the next attempt. Raises DeadlineExceeded if it is late."""
    try:
        told = before_wait(call, error, answer, failure)
        if is_awaitable(told):
            await heard(told)
        if call.plan.on_retry is not None:
            check_time(call, error, answer.delay)
        let_go(error)
        slept = (call.plan.sleep or call.world.async_sleep or asyncio.sleep)(answer.delay)
        if is_awaitable(slept):
            await slept
        if asyncio.current_task().cancelling() > call.cancelling:  # type: ignore[union-attr]  # arm() has checked it
            await asyncio.sleep(0)  # a sleep that did not suspend: the cancellation is delivered here
        resume(call, error, answer)
    except asyncio.CancelledError:
        cancelled(call, waiting=True)
        raise


async def heard(told: Awaitable[Any]) -> None:
    """Waits for an async hook, whose own errors never change the call."""
    try:
        await told
    except Exception as mistake:
        log_mistake("on_retry", mistake)


def translate(call: Call, caught: BaseException) -> None:
    """What an attempt that ended with `caught` really means, where that is another error; returns where it is not."""
    try:
        disarm(call)
    except asyncio.CancelledError as lost:
        cancelled(call, waiting=False)
        if isinstance(caught, asyncio.CancelledError):
            return
        raise lost from caught
    if call.timed_out and isinstance(caught, (asyncio.CancelledError, Exception)):
        raise late(call) from caught
    if isinstance(caught, asyncio.CancelledError):
        cancelled(call, waiting=False)


def late(call: Call) -> TimeoutError:
    """The error of an attempt that its timer has ended; it says which limit that was."""
    run = call.run
    if run.policy.attempt_timeout == run.limit:
        return TimeoutError(f"attempt {run.number} took longer than attempt_timeout={run.limit:g} s")
    return TimeoutError(f"attempt {run.number} was cut at the deadline, {run.limit:.3g} s after it began")
