"""Carries the decisions about hedges out under asyncio: each copy of an attempt is a task of its own.

Decided elsewhere: which copies there are, and who has won.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any

from forbear._aio.admission import admit
from forbear._aio.driver import failure_in, finish, pause_here
from forbear._aio.race import run
from forbear._runtime.call import Call, Plan, drop, go_on, open_call
from forbear._runtime.hedging import NEEDS_ASYNCIO, Copy, Race
from forbear._runtime.on_asyncio import arm, running_loop
from forbear._runtime.scope import current


def guard(
    plan: Plan, fn: Callable[..., Awaitable[Any]], begun: Call | None = None
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """`fn` under a plan with a hedge, as a coroutine function. `begun` is a call that has already begun elsewhere."""

    async def guarded(*args: Any, **kwargs: Any) -> Any:
        if running_loop() is None:
            raise RuntimeError(NEEDS_ASYNCIO)
        before = copy_context()
        call = open_call(plan, current.get()) if begun is None else go_on(begun, current.get())
        current.set(call)
        if call.world.attach is not None:
            call.world.attach(asyncio.get_running_loop())

        def launch(copy: Copy, around: Context) -> None:
            coroutine = attempt(copy.call, fn, args, kwargs)
            copy.task = copy.answer = asyncio.get_running_loop().create_task(coroutine, context=around)

        try:
            while True:
                if plan.gate is not None:
                    await admit(call, args, kwargs)
                race = Race(call, before, args, kwargs)
                try:
                    decides = await run(race, launch)
                    if decides.error is None:
                        race.ended_well()
                        return decides.answer.result()
                    if not race.follows(decides):
                        raise decides.error
                finally:
                    race.end()  # also: a frame must not keep alive what it raises
                await pause_here(call)
        finally:
            call.ended = True
            drop(call)
            current.set(call.outer)

    return guarded


async def attempt(call: Call, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One copy, in a task of its own."""
    current.set(call)
    arm(call, call.run.limit, call.run.attempt_at, call.world)
    try:
        result = await fn(*args, **kwargs)
        finish(call)
        return result
    except BaseException as caught:
        error = failure_in(call, caught)
        try:
            if error is None or error is caught:
                raise
            raise error
        finally:
            del error
