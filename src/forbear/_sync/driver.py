"""Carries decisions out in blocking code: calls the function, sleeps in this thread, raises what is left to raise.

A blocking function can't be stopped from outside, and no hidden thread is used to pretend otherwise: the function is
offered the time it has (`current_attempt().timeout`), and an attempt that runs past the deadline is the last one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import GeneratorType
from typing import Any

from forbear._runtime.call import Call, Plan, monotonic, open_inside
from forbear._runtime.scope import current
from forbear._runtime.steps import accept, before_wait, cancelled, check_time, fail, is_awaitable, let_go, resume, taken
from forbear._runtime.telling import logger
from forbear._runtime.world import blocking_sleep
from forbear.errors import UsageError

# What goes on with an awaitable that the function has returned: (awaitable, arguments, keywords, the call so far).
OnAwaitable = Callable[[Any, tuple[Any, ...], dict[str, Any], Call], Any]

BLOCKS_THE_LOOP = (
    "a blocking retry waits inside a running event loop and stops everything else in it: "
    "make the function async, or run it with asyncio.to_thread()"
)


def guard(plan: Plan, fn: Callable[..., Any], on_awaitable: OnAwaitable) -> Callable[..., Any]:
    """`fn` under the plan. What it returns is handed to `on_awaitable` if it turns out to be awaitable."""
    around, enter, leave = current.get, current.set, current.reset
    listeners, checked, plain = plan.listeners, plan.rejects is not None, plan.plain
    last_type: type | None = GeneratorType  # a function mostly returns one type; asking it once is enough

    def guarded(*args: Any, **kwargs: Any) -> Any:
        nonlocal last_type
        call = Call()  # as open_call() does it, without the price of a call
        call.plan, call.outer, call.made, call.ended = plan, around(), None, False
        if plain and call.outer is None:
            call.started_at = monotonic()
        else:
            open_inside(call)
        token = enter(call)
        try:
            while True:
                try:
                    result = fn(*args, **kwargs)
                    if type(result) is not last_type or last_type is GeneratorType:
                        if is_awaitable(result):
                            return on_awaitable(result, args, kwargs, call)
                        last_type = type(result)
                    if checked or listeners:
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
        if not isinstance(leaving, Exception):
            cancelled(call, waiting=True)
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


def in_event_loop() -> bool:
    """Whether an asyncio loop runs in this thread; asyncio is not loaded for the question."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None  # noqa: SLF001  # public, despite its name


def close(awaitable: object) -> None:
    """Ends a coroutine that nobody will await, without the warning that it was forgotten."""
    ending = getattr(awaitable, "close", None)
    if ending is not None:
        ending()
