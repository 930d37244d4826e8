"""Carries the decisions about a stream out in async code, under asyncio and trio.

No task is made: each step of the source runs in the task of whoever asks for the next chunk, under a timer of its own.
Between two steps nothing of ours is around the consumer: no scope, no timer, no cancel scope.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from forbear._aio import driver
from forbear._aio.admission import admit
from forbear._aio.closing import close, close_inside, here
from forbear._runtime.call import Plan
from forbear._runtime.on_asyncio import arm
from forbear._runtime.source import END, Source, to_iterate
from forbear._runtime.steps import cancelled, is_awaitable, late
from forbear._runtime.streaming import SENDS, Body, open_stream
from forbear._runtime.tickets import running_trio
from forbear.errors import UsageError

Advance = Callable[[Body], Awaitable[list[Any]]]
Close = Callable[[Body, BaseException | None], Awaitable[None]]


def guard(plan: Plan, fn: Callable[..., Any]) -> Callable[..., AsyncGenerator[Any]]:
    """`fn`, which opens a stream, under the plan: an async generator function."""
    return driven(plan, fn, lambda: (advance, close_inside))


def driven(
    plan: Plan, fn: Callable[..., Any], means: Callable[[], tuple[Advance, Close]]
) -> Callable[..., AsyncGenerator[Any]]:
    """An async generator function whose chunks come, and whose source is closed, by these means; anew for each call."""

    async def guarded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        advance, close = means()
        body = open_stream(plan, fn, args, kwargs)
        try:
            while not body.over:
                for chunk in await advance(body):
                    if (yield chunk) is not None:
                        raise UsageError(SENDS)
        except BaseException as error:
            body.closed()
            await close(body, error)
            raise
        finally:
            body.end()

    return guarded


async def advance(body: Body) -> list[Any]:
    """The chunks that go to the consumer next, whatever it takes. None come any more where `body.over`."""
    before, source = body.enter(), body.source
    try:
        while True:
            if source.chunks is None:
                await begin(source)
            try:
                out = source.taken_in(await cut_after(source, step))
            except BaseException as caught:
                if not await again(source, caught):
                    raise
                if not source.delivery.complete:
                    await here().pause_here(body.call)
                    continue
                out = source.taken_in(END)
            if source.over:
                await close(source)
            if out or source.over:
                return out
    except BaseException as error:
        raise body.ended_with(error)  # it is the error itself, or has it as its cause
    finally:
        body.leave(before)


async def begin(source: Source) -> None:
    """An attempt begins, once the guards let it through."""
    if source.call.plan.gate is not None:
        await admit(source.call, source.args, source.kwargs)
    source.begin()


async def cut_after(source: Source, step: Callable[[Source], Awaitable[Any]]) -> Any:
    """What a step brings, unless the stream's clocks end it first."""
    call, limit = source.call, source.limit()
    if arm(call, limit, call.world.clock(), call.world):
        result = await step(source)
        driver.finish(call)
        return result
    with running_trio().move_on_after(limit):
        return await step(source)
    raise late(call)


async def step(source: Source) -> Any:
    """The next chunk, END behind the last one. The first step of an attempt opens the source."""
    chunks = await open_source(source) if source.chunks is None else source.chunks
    try:
        return await chunks.__anext__()
    except StopAsyncIteration:
        return END


async def open_source(source: Source) -> Any:
    """Awaits, enters and iterates what the function gives, whatever of these it needs. Gives the iterator."""
    made = source.make()
    if is_awaitable(made):
        made = await made
    source.holds(made, "aclose", "close")
    if not hasattr(type(made), "__aiter__") and hasattr(type(made), "__aenter__"):
        leave = made.__aexit__
        made = await made.__aenter__()
        source.entered(leave)
        source.holds(made, "aclose")
    to_iterate(made, "__aiter__", "__iter__", "`for`, not `async for`")
    source.chunks = chunks = made.__aiter__()
    if chunks is not made:
        source.holds(chunks, "aclose")
    return chunks


async def again(source: Source, caught: BaseException) -> bool:
    """The attempt has failed, or was cancelled. Whether the stream goes on all the same: another attempt follows, or
    what broke had come to its end before. The source is closed first.
    """
    if isinstance(caught, GeneratorExit):
        source.abandoned()
    error: Exception | None = None
    told = True
    try:
        error = driver.meaning(source.call, caught)
        told = error is None
    finally:
        try:
            await close(source, caught)
        except BaseException:
            if not told:
                cancelled(source.call, waiting=False)
            raise
    try:
        complete = error is not None and source.delivery.complete
        return complete or driver.decided(source.call, error, caught)
    finally:
        del error, caught
