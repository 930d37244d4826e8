"""What async code does between two attempts, whatever the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from forbear._runtime.call import Call
from forbear._runtime.on_asyncio import running_loop
from forbear._runtime.scope import around, world_of
from forbear._runtime.steps import before_wait, check_time, is_awaitable, left_by, let_go, not_sent, resume, taken
from forbear._runtime.telling import log_mistake
from forbear._runtime.tickets import running_trio
from forbear.core.run import Pending


class Loop(NamedTuple):
    """What is needed of an event loop: its sleep; how to wait for an awaitable for some seconds; how many requests to
    end the running task are pending; and the error that ends it.
    """

    sleep: Callable[[float], Awaitable[Any]]
    hear: Callable[[Awaitable[Any], float], Awaitable[None]]
    pending_cancellations: Callable[[], int]
    cancelled: type[BaseException]


async def pause(call: Call, loop: Loop, handled: BaseException | None = None, *, block: bool = False) -> None:
    """Tells the hooks, waits, and makes the call ready for the next attempt. Raises DeadlineExceeded if it is late.

    `handled`, of a `block`: what its caller was handling.
    """
    pending = taken(call)
    try:
        await heard(call, pending, loop)
        if call.plan.on_retry is not None:
            check_time(call, pending.error, pending.answer.delay)
        let_go(pending.error, handled, block=block)
        await waited(call, pending.answer.delay, loop)
        resume(call, pending)
    except BaseException as leaving:
        left_by(call, leaving)
        not_sent(call, leaving)
        raise


async def heard(call: Call, pending: Pending, loop: Loop) -> None:
    """Tells the hooks. An async one is awaited, no longer than the call may take; its errors never change the call."""
    told = before_wait(call, pending)
    if not is_awaitable(told):
        return
    before = loop.pending_cancellations()
    try:
        await loop.hear(told, call.run.left(call.world.clock()))
    except Exception as mistake:
        log_mistake("on_retry", mistake)
        if isinstance(mistake, BaseExceptionGroup):  # a failed task group leaves a cancellation behind before 3.13
            return
    leave_if_cancelled(before, loop)


async def waited(call: Call, delay: float, loop: Loop) -> None:
    """Waits, by whatever means the call was given."""
    sleep = call.plan.sleep or call.world.async_sleep
    if sleep is None:
        await loop.sleep(delay)
        return
    before = loop.pending_cancellations()
    slept = sleep(delay)
    if is_awaitable(slept):
        await slept
    await loop.sleep(0)  # it may not have suspended; a cancellation that waits for that is delivered here
    leave_if_cancelled(before, loop)


async def sleep_here(delay: float) -> None:
    """Waits in the event loop that runs here, in the world around."""
    world = world_of(around())
    if world.async_sleep is not None:
        await world.async_sleep(delay)
    elif running_loop() is not None:
        await asyncio.sleep(delay)
    else:
        await running_trio().sleep(delay)


def leave_if_cancelled(before: int, loop: Loop) -> None:
    """A hook or sleep of the user's may have swallowed a cancellation, which was meant for the call."""
    if loop.pending_cancellations() > before:
        raise loop.cancelled
