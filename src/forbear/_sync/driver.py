"""Carries decisions out in blocking code: calls the function, sleeps in this thread, raises what is left to raise.

A blocking function can't be stopped from outside, and no hidden thread is used to pretend otherwise: the function is
offered the time it has (`current_attempt().timeout`), and an attempt that runs past the deadline is the last one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import GeneratorType
from typing import Any

from forbear._runtime.call import Call, Plan, drop, monotonic, open_inside, undone
from forbear._runtime.scope import current
from forbear._runtime.steps import (
    accept,
    before_wait,
    cancelled,
    check_time,
    fail,
    is_awaitable,
    let_go,
    not_sent,
    resume,
    taken,
)  # fmt: skip
from forbear._runtime.telling import logger
from forbear._runtime.world import blocking_sleep, in_event_loop
from forbear._sync.admission import BLOCKS_THE_LOOP, admit
from forbear.errors import UsageError

# What goes on with an awaitable that the function has returned: (awaitable, arguments, keywords, the call so far).
OnAwaitable = Callable[[Any, tuple[Any, ...], dict[str, Any], Call], Any]


def guard(  # noqa: C901
    plan: Plan, fn: Callable[..., Any], on_awaitable: OnAwaitable, *, may_be_async: bool
) -> Callable[..., Any]:
    """`fn` under the plan. What it returns is handed to `on_awaitable` if it turns out to be awaitable."""
    around, enter, leave, plain, checks = current.get, current.set, current.reset, plan.plain, plan.checks
    last_type: type | None = GeneratorType  # a function mostly returns one type; asking it once is enough
    admits = plan.gate is not None  # a function that turns out to return awaitables is admitted where they are awaited

    def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: C901  # flat: on this path each call of a function is felt
        nonlocal last_type, admits
        call = Call()  # as open_call() does it, without the price of a call
        call.plan, call.outer, call.made, call.passage, call.ended = plan, around(), None, None, False
        call.started_at = monotonic()
        if not plain or call.outer is not None:
            open_inside(call)
        token = enter(call)
        try:
            while True:
                if admits:
                    admit(call, args, kwargs, look_first=may_be_async and last_type is GeneratorType)
                try:
                    result = fn(*args, **kwargs)
                    if type(result) is not last_type or last_type is GeneratorType:
                        if is_awaitable(result):
                            admits = False
                            return on_awaitable(result, args, kwargs, undone(call))
                        last_type = type(result)
                    if checks or plan.listeners:
                        accept(call, result)
                    return result
                except Exception as error:
                    if not fail(call, error):
                        raise
                    pause(call)
                except BaseException:
                    cancelled(call, waiting=False)
                    raise
        finally:
            call.ended = True
            if plan.gate is not None:
                drop(call)
            leave(token)

    return guarded


def pause(call: Call, handled: BaseException | None = None, *, block: bool = False) -> None:
    """Tells the hooks, waits, and makes the call ready for the next attempt. Raises DeadlineExceeded if it is late.

    `handled`, of a `block`: what its caller was handling.
    """
    pending = taken(call)
    try:
        told = before_wait(call, pending)
        if is_awaitable(told):
            close(told)
            logger.error("on_retry is async, but this call is blocking: it was not run; give it a plain function")
        if call.plan.on_retry is not None:
            check_time(call, pending.error, pending.answer.delay)
        let_go(pending.error, handled, block=block)
        wait(call, pending.answer.delay)
        resume(call, pending)
    except BaseException as leaving:
        not_sent(call, leaving)
        raise


def wait(call: Call, delay: float) -> None:
    """Sleeps in this thread, by whatever means the call was given."""
    sleep = call.plan.sleep or call.world.sleep
    if sleep is blocking_sleep and in_event_loop():
        warnings.warn(BLOCKS_THE_LOOP, RuntimeWarning, stacklevel=5)
    slept = sleep(delay)
    if is_awaitable(slept):
        close(slept)
        raise UsageError("sleep= is async, but this call is blocking: give it a plain function such as time.sleep")


def close(awaitable: object) -> None:
    """Ends a coroutine that nobody will await, without the warning that it was forgotten."""
    ending = getattr(awaitable, "close", None)
    if ending is not None:
        ending()
