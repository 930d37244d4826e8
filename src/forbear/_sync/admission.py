"""Passes a call through the guards of its service in blocking code."""

from __future__ import annotations

import warnings
from typing import Any

from forbear._runtime.call import Call, passage_of
from forbear._runtime.steps import admitted, not_sent
from forbear._runtime.threads import ThreadTicket
from forbear._runtime.world import blocking_sleep, in_event_loop

BLOCKS_THE_LOOP = (
    "a blocking retry waits inside a running event loop and stops everything else in it: "
    "make the function async, or run it with asyncio.to_thread()"
)


def admit(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], *, look_first: bool = False) -> None:
    """Admits the attempt that begins now, after as long a wait in this thread as it takes.

    `look_first`: the function may turn out to be async. Where it would have to wait and stop an event loop, which may
    be the one that has to free its place, it is called as it is, to see.

    Raises CircuitOpenError, or DeadlineExceeded where no place can be had in time.
    """
    world = call.world
    since = world.clock()
    steps = passage_of(call).admission(args, kwargs, ThreadTicket)
    try:
        for line, ticket in steps:
            if look_first and in_event_loop():
                return
            if world.sleep is blocking_sleep and in_event_loop():
                warnings.warn(BLOCKS_THE_LOOP, RuntimeWarning, stacklevel=4)
            ticket.wait(line, world)
    except BaseException as leaving:
        not_sent(call, leaving)
        raise
    finally:
        steps.close()
    admitted(call, since)
