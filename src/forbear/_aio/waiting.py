"""What async code does between two attempts, whatever the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from forbear._runtime.call import Call
from forbear._runtime.steps import (
    before_wait,
    cancelled,
    check_time,
    is_awaitable,
    left_by,
    let_go,
    log_mistake,
    resume,
    taken,
)


async def pause(call: Call, loop_sleep: Callable[[float], Awaitable[Any]]) -> None:
    """Tells the hooks, waits, and makes the call ready for the next attempt. Raises DeadlineExceeded if it is late.

    `loop_sleep` is the event loop's own sleep.
    """
    pending = taken(call)
    delay = pending.answer.delay
    try:
        told = before_wait(call, pending)
        if is_awaitable(told):
            await heard(told)
        if call.plan.on_retry is not None:
            check_time(call, pending.error, delay)
        let_go(pending.error)
        sleep = call.plan.sleep or call.world.async_sleep
        if sleep is None:
            await loop_sleep(delay)
        else:
            slept = sleep(delay)
            if is_awaitable(slept):
                await slept
            await loop_sleep(0)  # it may not have suspended; a cancellation that waits for that is delivered here
        resume(call, pending)
    except BaseException as leaving:
        if not isinstance(leaving, Exception):
            left_by(call, leaving)
            cancelled(call, waiting=True)
        raise


async def heard(told: Awaitable[Any]) -> None:
    """Waits for an async hook, whose own errors never change the call."""
    try:
        await told
    except Exception as mistake:
        log_mistake("on_retry", mistake)
