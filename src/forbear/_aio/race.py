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

from forbear._runtime.call import drop
from forbear._runtime.hedging import Copy, Race
from forbear._runtime.steps import cancelled, left_by

LOSERS_END_WITHIN = 0.1  # seconds that the winner waits for the others to end
# Those that took longer: they end by themselves, and are kept until then, with what gives back what they have taken.
_lingering: dict[asyncio.Future[Any], Callable[[], None]] = {}

Launch = Callable[[Copy, Context], None]  # starts a copy in this context


async def run(race: Race, launch: Launch) -> Copy:
    """The copy that decides: it has an answer, or the error with which the attempt ends. All others have ended."""
    try:
        decides = await decide(race, launch)
        await stop(race)
        return decides
    except GeneratorExit as leaving:
        left_by(race.call, leaving)
        abandon(race)
        raise
    except asyncio.CancelledError:
        try:
            await stop(race, winner_too=True)
        finally:
            cancelled(race.call, waiting=True)
        raise
    except BaseException:
        await stop(race)
        raise


async def decide(race: Race, launch: Launch) -> Copy:
    """The copy that decides; others may be under way."""
    launch(race.first(), copy_context())
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


async def stop(race: Race, *, winner_too: bool = False) -> None:
    """Cancels those that are still under way, each once, and waits for them, but not for long."""
    for copy in race.copies:
        if not copy.settled:
            settle(race, copy)
    left = {}
    for copy in race.copies:
        if (copy is not race.winner or winner_too) and not copy.stopped and not copy.task.done():
            copy.stopped = True
            copy.answer.cancel()  # of a stream: nobody waits for it any more
            left[copy.task] = race.freed(copy)
    for task, free in left.items():
        task.cancel()
        task.add_done_callback(partial(ended_late, free))
    if left:
        forget_those_of_closed_loops()
        _lingering.update(left)
        await asyncio.wait(left, timeout=LOSERS_END_WITHIN)


def settle(race: Race, copy: Copy) -> None:
    """The guards learn how a copy went that does not decide."""
    if copy.answer.done() and not copy.answer.cancelled():
        if copy.answer.exception() is None:
            race.answered_too(copy, copy.answer.result())
        else:
            race.lost_to(copy, failed_with(copy))
        return
    race.left_behind(copy)
    if copy.task.done():
        drop(copy.call)


def abandon(race: Race) -> None:
    """Nobody runs what would have to be awaited: the call itself is thrown away, its event loop perhaps gone."""
    for copy in race.copies:
        if not copy.settled:
            copy.settled = True
            drop(copy.call)
        if not copy.task.done() and not copy.task.get_loop().is_closed():
            copy.task.cancel()


def ended_late(free: Callable[[], None], task: asyncio.Future[Any]) -> None:
    """A copy that was cancelled has ended: what it has taken goes back, whatever it has brought."""
    _lingering.pop(task, None)
    free()
    if not task.cancelled():
        task.exception()  # it has been seen


def forget_those_of_closed_loops() -> None:
    """Copies that did not want to end before their event loop was closed: they never will."""
    for task in [task for task in _lingering if task.get_loop().is_closed()]:
        _lingering.pop(task)()
