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
from forbear._aio.admission import admit
from forbear._aio.waiting import Loop, pause
from forbear._runtime.call import Call, Plan, drop, go_on, open_call
from forbear._runtime.on_asyncio import arm, disarm, disarm_in_time, made_of_cancellation
from forbear._runtime.scope import current
from forbear._runtime.steps import accept, cancelled, fail, late, left_by
from forbear._runtime.world import REAL

_NO_KWARGS: dict[str, Any] = {}
_enter, _leave = current.get, current.set


def guard(
    plan: Plan, fn: Callable[..., Awaitable[Any]], begun: Call | None = None
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """`fn` under the plan, as a coroutine function. `begun` is a call that has already begun elsewhere."""

    async def guarded(*args: Any, **kwargs: Any) -> Any:
        # A call may wait for minutes, beside 20,000 others: it keeps no empty dictionary and few variables.
        kwargs = kwargs or _NO_KWARGS
        call = open_call(plan, _enter()) if begun is None else go_on(begun, _enter())
        _leave(call)
        try:
            while True:
                if plan.gate is not None:
                    await admit(call, args, kwargs)
                # The first attempt of most calls is their only one: its timer is started without detours.
                if not (arm(call, plan.first_limit, call.started_at, REAL) if call.made is None else begin(call)):
                    return await trio_driver.drive(call, fn, args, kwargs)
                try:
                    result = await fn(*args, **kwargs)
                    if call.timed_out:
                        finish(call)
                    disarm_in_time(call)
                    if plan.checks or plan.listeners:
                        accept(call, result)
                    return result
                except BaseException as error:
                    if not failed(call, error):
                        raise
                    await pause_here(call)
        finally:
            call.ended = True
            if plan.gate is not None:
                drop(call)
            _leave(call.outer)

    return guarded


def begin(call: Call) -> bool:
    """Starts the timer of the attempt that begins now. False where no asyncio loop runs."""
    run = call.run
    return arm(call, run.limit, run.attempt_at, call.world)


def finish(call: Call) -> None:
    """The attempt has returned. Raises where it swallowed its cancellation: what it brings is too late."""
    if not call.timed_out:
        disarm_in_time(call)
        return
    if disarm(call):
        raise asyncio.CancelledError  # it has swallowed the caller's cancellation too
    raise late(call)


def failed(call: Call, caught: BaseException) -> bool:
    """The attempt ended with `caught`: True where a wait and another attempt follow, False where it leaves as it is.

    Raises what has to leave instead: RetryError, or what `caught` really means.
    """
    return decided(call, meaning(call, caught), caught)


def decided(call: Call, error: Exception | None, caught: BaseException) -> bool:
    """As `failed`, where it is known which failure `caught` stands for."""
    try:
        if error is None:
            return False
        again = fail(call, error)
        if not again and error is not caught:
            raise error
        return again
    finally:
        del error, caught  # a frame must not keep alive what it raises


def meaning(call: Call, caught: BaseException) -> Exception | None:
    """The failure that `caught` stands for; None where it is none, and the call ends with it.

    Raises CancelledError where one got lost in it.
    """
    try:
        error = failure_in(call, caught)
    except asyncio.CancelledError:
        cancelled(call, waiting=False)
        raise
    if error is None:
        left_by(call, caught)
        cancelled(call, waiting=False)
    return error


def failure_in(call: Call, caught: BaseException) -> Exception | None:
    """As `meaning`, and nobody is told."""
    if call.task is not None:  # else `finish` has already taken the timer down
        cancelled_too = disarm(call)
        if isinstance(caught, Exception):
            if cancelled_too and made_of_cancellation(caught):
                raise asyncio.CancelledError from caught
            return late(call, caught) if call.timed_out else caught
        if call.timed_out and not cancelled_too and isinstance(caught, asyncio.CancelledError):
            return late(call, caught)
        return None
    return caught if isinstance(caught, Exception) else None


def pending_cancellations() -> int:
    """How often the running task has been asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def hear(told: Awaitable[Any], left: float) -> None:
    """Waits for an async hook, no longer than the time left."""
    async with asyncio.timeout(left if left < _LONGEST_WAIT else None):
        await told


def pause_here(call: Call, handled: BaseException | None = None, *, block: bool = False) -> Coroutine[Any, Any, None]:
    """The wait before the next attempt, under asyncio."""
    return pause(call, _LOOP, handled, block=block)


_LONGEST_WAIT = 1e9  # seconds; a longer one needs no timer
_LOOP = Loop(asyncio.sleep, hear, pending_cancellations, asyncio.CancelledError)
