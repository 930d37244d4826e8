"""Carries decisions out in async code: awaits the function, cuts an attempt that takes too long, sleeps, raises.

asyncio and whatever runs on it is served here; under trio the call goes on in `trio_driver`. No task is made: an
attempt runs in the caller's own task, so context, task groups and `asyncio.timeout` work as if forbear were not there.
A cancellation by the caller leaves at once, whatever it races with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from forbear._aio import trio_driver
from forbear._aio.waiting import pause
from forbear._runtime.call import Call, Plan, open_call
from forbear._runtime.on_asyncio import arm, disarm, disarm_in_time, running_loop
from forbear._runtime.scope import current
from forbear._runtime.steps import accept, cancelled, fail, late, left_by
from forbear._runtime.world import REAL

_NO_KWARGS: dict[str, Any] = {}
_enter, _leave = current.get, current.set


def guard(plan: Plan, fn: Callable[..., Awaitable[Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """`fn` under the plan, as a coroutine function."""

    async def guarded(*args: Any, **kwargs: Any) -> Any:
        # A call may wait for minutes, beside 20,000 others: it keeps no empty dictionary and few variables.
        kwargs = kwargs or _NO_KWARGS
        call = open_call(plan, _enter())
        _leave(call)
        try:
            loop = running_loop()
            if loop is None:
                return await trio_driver.drive(call, fn, args, kwargs)
            while True:
                try:
                    if call.made is None:
                        arm(call, loop, plan.first_limit, call.started_at, REAL)
                    else:
                        begin(call, loop)
                    try:
                        result = await fn(*args, **kwargs)
                    except BaseException as caught:
                        translate(call, caught)
                        raise
                    if call.timed_out:
                        ended(call)
                    disarm_in_time(call)
                    if plan.rejects is not None or plan.listeners:
                        accept(call, result)
                    return result
                except Exception as error:
                    step = fail(call, error)
                    if step is None:
                        raise
                    await pause(call, error, *step, asyncio.sleep)
        finally:
            _leave(call.outer)

    return guarded


def begin(call: Call, loop: asyncio.AbstractEventLoop) -> None:
    """Starts the timer of the attempt that begins now."""
    arm(call, loop, call.run.limit, call.run.attempt_at, call.world)


def ended(call: Call) -> None:
    """The attempt has returned. Raises TimeoutError where it swallowed its cancellation: what it brings is too late."""
    if call.timed_out:
        disarm(call)
        raise late(call)
    disarm_in_time(call)


def translate(call: Call, caught: BaseException) -> None:
    """What an attempt that ended with `caught` really means, where that is another error; returns where it is not."""
    try:
        disarm(call)
    except asyncio.CancelledError as lost:
        if isinstance(caught, Exception):
            cancelled(call, waiting=False)
            raise lost from caught
    else:
        if call.timed_out and isinstance(caught, (asyncio.CancelledError, Exception)):
            raise late(call) from caught
    if not isinstance(caught, Exception):
        left_by(call, caught)
        cancelled(call, waiting=False)
