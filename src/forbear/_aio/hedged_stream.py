"""Carries the decisions about a stream with a hedge out under asyncio.

Copies of an attempt race for the first content; the one that has it goes on. How one runs is the business of its pump.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextvars import Context, copy_context
from typing import Any

from forbear._aio import stream
from forbear._aio.driver import pause_here
from forbear._aio.pump import Pump
from forbear._aio.race import run
from forbear._runtime.call import Call, Plan
from forbear._runtime.hedging import NEEDS_ASYNCIO, Copy, Race
from forbear._runtime.on_asyncio import running_loop
from forbear._runtime.steps import cancelled, follow, judged
from forbear._runtime.streaming import Body
from forbear._runtime.telling import tell_attempt, tell_end


class Hedged:
    """How one hedged stream is driven. `pump` is the copy that flows."""

    def __init__(self) -> None:
        self.before = copy_context()
        self.pump: Pump | None = None

    async def advance(self, body: Body) -> list[Any]:
        """As `stream.advance`."""
        if running_loop() is None:
            raise RuntimeError(NEEDS_ASYNCIO)
        before = body.enter()
        try:
            while True:
                if self.pump is not None:
                    out = await self.flow(body, self.pump)
                else:
                    out = await self.race(body)
                if out or body.over:
                    return out
        except BaseException as error:
            raise body.ended_with(error)
        finally:
            body.leave(before)

    async def race(self, body: Body) -> list[Any]:
        """One attempt to its first content. Nothing where it has failed and another one follows."""
        if body.call.world.attach is not None:
            body.call.world.attach(asyncio.get_running_loop())
        if body.source.call is not body.call:  # a copy was the last attempt
            body.goes_on_with(body.source.copy(body.call))
        first = body.source
        await stream.begin(first)
        race = Race(body.call, self.before, first.args, first.kwargs)
        pumps: dict[Call, Pump] = {}

        def launch(copy: Copy, around: Context) -> None:
            pump = pumps[copy.call] = Pump(first.copy(copy.call))
            copy.source = pump.source
            copy.task, copy.answer = pump.start(around), pump.answer

        try:
            decides = await run(race, launch)
            if decides.error is None:
                self.pump = pumps[decides.call]
                out = decides.answer.result()
                self.pump.answer = None
                return self.brought(body, self.pump, out)
            if not race.follows(decides):
                raise decides.error
        finally:
            race.end()
            for pump in pumps.values():
                if pump is not self.pump:
                    pump.answer = None  # it may hold an error, whose frames hold us
        await pause_here(body.call)
        return []

    async def flow(self, body: Body, pump: Pump) -> list[Any]:
        """What comes next of the copy that flows. Nothing where it has failed and another attempt follows."""
        flowing = pump.source.call
        try:
            out = await pump.ask()
        except GeneratorExit:
            self.pump = None
            pump.abandon()
            raise
        except asyncio.CancelledError:
            try:
                await self.close(body)
            finally:
                if not pump.source.over:  # else it has told that it is complete
                    tell_attempt(flowing.plan, flowing.run, "cancelled", flowing.world.clock())
                cancelled(body.call, waiting=True)
            raise
        except Exception as error:
            self.pump = None
            flowing.ended = flowing is not body.call
            if flowing.run.mistake is error or not follow(body.call, error, judged(flowing, error), flowing.run):
                raise
        else:
            return self.brought(body, pump, out)
        await pause_here(body.call)
        return []

    def brought(self, body: Body, pump: Pump, out: list[Any]) -> list[Any]:
        """A step of the copy that flows has brought something, perhaps the end."""
        body.goes_on_with(pump.source)
        if body.over:
            self.pump = None  # which has closed its source, and returned
            tell_end(body.call.plan, body.call.run, "success", body.call.world.clock())
        return out

    async def close(self, _body: Body, error: BaseException | None = None) -> None:
        """As `stream.close_inside`: the source is closed in its own task."""
        pump, self.pump = self.pump, None
        if pump is not None:
            await pump.stop(error)


def guard(plan: Plan, fn: Callable[..., Any]) -> Callable[..., AsyncGenerator[Any]]:
    """`fn`, which opens a stream, under a plan with a hedge: an async generator function."""

    def means() -> tuple[stream.Advance, stream.Close]:
        hedged = Hedged()
        return hedged.advance, hedged.close

    return stream.driven(plan, fn, means)
