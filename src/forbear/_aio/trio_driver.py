"""Carries decisions out under trio: as the asyncio driver does, with trio's own timeouts and cancel scopes.

trio is not imported: where it runs, it has been loaded by those who use it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from forbear._aio.admission import admit
from forbear._aio.waiting import Loop, pause
from forbear._runtime.call import Call
from forbear._runtime.steps import accept, cancelled, fail, late, left_by
from forbear._runtime.tickets import running_trio


async def drive(call: Call, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One call, to its end."""
    trio = running_trio()
    admitted = True  # the first time: by whoever found that trio runs here
    while True:
        if call.passage is not None and not admitted:
            await admit(call, args, kwargs)
        admitted = False
        try:
            with trio.move_on_after(call.run.limit) as scope:
                result = await fn(*args, **kwargs)
            if scope.cancelled_caught:
                raise late(call)
            accept(call, result)
            return result
        except Exception as error:
            if not fail(call, error):
                raise
            await pause_here(call)
        except BaseException as leaving:
            left_by(call, leaving)
            cancelled(call, waiting=False)
            raise


async def pause_here(call: Call) -> None:
    """The wait before the next attempt, under trio."""
    trio = running_trio()
    await pause(call, Loop(trio.sleep, hear, pending_cancellations, trio.Cancelled))


async def hear(told: Awaitable[Any], left: float) -> None:
    """Waits for an async hook, no longer than the time left."""
    with running_trio().move_on_after(left):
        await told


def pending_cancellations() -> int:
    """Trio's cancellation holds until its scope ends; nothing can swallow it."""
    return 0
