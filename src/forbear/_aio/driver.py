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
from forbear._runtime.on_asyncio import arm, disarm, disarm_in_time
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
            while True:
                if not begin(call):
                    return await trio_driver.drive(call, fn, args, kwargs)
                try:
                    result = await fn(*args, **kwargs)
                    finish(call)
                    if plan.rejects is not None or plan.listeners:
                        accept(call, result)
                    return result
                except BaseException as error:
                    if not failed(call, error):
                        raise
                    await pause(call, asyncio.sleep)
        finally:
            _leave(call.outer)

    return guarded


def begin(call: Call) -> bool:
    """Starts the timer of the attempt that begins now. False where no asyncio loop runs."""
    run = call.made
    if run is None:
        return arm(call, call.plan.first_limit, call.started_at, REAL)
    return arm(call, run.limit, run.attempt_at, call.world)


def finish(call: Call) -> None:
    """The attempt has returned. Raises where it swallowed its cancellation: what it brings is too late."""
    if call.timed_out:
        disarm(call)
        raise late(call)
    disarm_in_time(call)


def failed(call: Call, caught: BaseException) -> bool:
    """The attempt ended with `caught`: True where a wait and another attempt follow, False where it leaves as it is.

    Raises what has to leave instead: RetryError, or what `caught` really means.
    """
    error = meaning(call, caught)
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
    """The failure that `caught` stands for; None where it is none. Raises CancelledError where one got lost in it."""
    if call.task is not None:  # else `finish` has already taken the timer down
        try:
            disarm(call)
        except asyncio.CancelledError as lost:
            if isinstance(caught, Exception):
                cancelled(call, waiting=False)
                raise lost from caught
        else:
            if call.timed_out and isinstance(caught, (asyncio.CancelledError, Exception)):
                return late(call, caught)
    if isinstance(caught, Exception):
        return caught
    left_by(call, caught)
    cancelled(call, waiting=False)
    return None
