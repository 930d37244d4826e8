"""Waits for the copies of an attempt: sends another when it is due, and ends those that have lost.

The answer that comes first leaves at once. The others are cancelled and waited for, but not for long: one that does not
want to end is no reason to be late. Nothing else is ever left running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from forbear._runtime.call import Call, drop
from forbear._runtime.hedging import Copy, Race
from forbear._runtime.steps import cancelled, left_by

LOSERS_END_WITHIN = 0.1  # seconds that the winner waits for the others to end
_ending: set[asyncio.Future[Any]] = set()  # of those that took longer: they end by themselves

Launch = Callable[[Copy, Context], None]  # starts a copy in this context


async def run(race: Race, launch: Launch) -> Copy:
    """The copy that decides: it has an answer, or the error with which the attempt ends."""
    launch(race.first(), copy_context())
    try:
        while True:
            sent = race.next()
            if sent is not None:
                launch(*sent)
            running = {copy.answer: copy for copy in race.copies if not copy.settled}
            if not running:
                return race.copies[0]
            await asyncio.wait(running, timeout=race.wait(), return_when=asyncio.FIRST_COMPLETED)
            decides = settled(race, [*running.values()])
            if decides is not None:
                return decides
    except GeneratorExit as leaving:
        left_by(race.call, leaving)
        for copy in race.copies:
            copy.settled = True  # nobody runs what would be awaited here
        raise
    except asyncio.CancelledError:
        await stop(race)
        cancelled(race.call, waiting=True)
        raise
    finally:
        await stop(race)


def settled(race: Race, running: list[Copy]) -> Copy | None:
    """The copy that decides, if one of those that have ended does. An answer beats a failure of the same instant."""
    ended = [copy for copy in running if copy.answer.done()]
    for copy in ended:
        if not copy.answer.cancelled() and copy.answer.exception() is None:
            if race.won(copy, copy.answer.result()):
                return copy
            if copy.failure is None:
                return copy
    for copy in ended:
        if not copy.settled and race.lost_to(copy, failed_with(copy)):
            return copy
    return None


def failed_with(copy: Copy) -> Exception:
    """The error of a copy that has failed. Raises what is no failure: the copy was cancelled by its own doing."""
    error = copy.answer.exception()  # raises CancelledError for one that was cancelled
    if isinstance(error, Exception):
        return error
    raise error


async def stop(race: Race) -> None:
    """Cancels those that are still under way, and waits for them, but not for long."""
    for copy in race.copies:
        if copy.settled:
            continue
        if not copy.answer.done() or copy.answer.cancelled():
            race.left_behind(copy)
        elif copy.answer.exception() is None:
            race.answered_too(copy, copy.answer.result())
        else:
            race.lost_to(copy, failed_with(copy))
    left = [copy for copy in race.copies if copy is not race.winner and not copy.task.done()]
    for copy in left:
        copy.task.cancel()
        copy.task.add_done_callback(partial(ended_late, copy.call))
        _ending.add(copy.task)
    if left:
        await asyncio.wait([copy.task for copy in left], timeout=LOSERS_END_WITHIN)


def ended_late(call: Call, task: asyncio.Future[Any]) -> None:
    """A copy that was cancelled has ended: what it has taken goes back, whatever it has brought."""
    _ending.discard(task)
    drop(call)
    if not task.cancelled():
        task.exception()  # it has been seen
