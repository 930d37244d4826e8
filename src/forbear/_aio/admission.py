"""Passes a call through the guards of its service in async code, under asyncio or trio."""

from __future__ import annotations

from typing import Any

from forbear._runtime.call import Call, passage_of
from forbear._runtime.steps import admitted, left_by, not_sent
from forbear._runtime.tickets import async_ticket


async def admit(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Admits the attempt that begins now, after as long a wait as it takes.

    Raises CircuitOpenError, or DeadlineExceeded where no place can be had in time. A cancellation leaves at once, and
    gives back all that was taken.
    """
    world = call.world
    since = world.clock()
    steps = passage_of(call).admission(args, kwargs, async_ticket(world))
    try:
        for line, ticket in steps:
            await ticket.wait(line, world)
    except BaseException as leaving:
        left_by(call, leaving)
        not_sent(call, leaving)
        raise
    finally:
        steps.close()
    admitted(call, since)
