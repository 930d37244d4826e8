"""Closes the source of a stream in async code, whatever ends it.

All that was opened is closed, also where a cancellation comes meanwhile or a close fails; the cancellation leaves after
the last of them, swallowed or not.
"""

from __future__ import annotations

import asyncio
from typing import Any

from forbear._aio import driver, trio_driver
from forbear._runtime.on_asyncio import running_loop
from forbear._runtime.source import CLOSES_WITHIN, Source
from forbear._runtime.steps import is_awaitable
from forbear._runtime.streaming import Body
from forbear._runtime.telling import log_mistake


async def close(source: Source, error: BaseException | None = None) -> None:
    """Closes all that has been opened, the innermost first. `error` is what ends the stream, if it is one."""
    source.chunks = None
    if not source.opened:
        return
    leaving: BaseException | None = None
    before = here().pending_cancellations()
    while source.opened:
        try:
            ended = source.opened.pop(0)(error)
            if is_awaitable(ended):
                await here().hear(ended, CLOSES_WITHIN)
        except Exception as mistake:
            log_mistake("the close of a stream", mistake)
        except BaseException as caught:
            leaving = caught
    try:
        if leaving is not None:
            raise leaving
        if here().pending_cancellations() > before:
            raise asyncio.CancelledError
    finally:
        del leaving, error  # a frame must not keep alive what it raises


async def close_inside(body: Body, error: BaseException | None) -> None:
    """Closes the source of a stream that its consumer does not want any more, as a part of the stream."""
    before = body.enter()
    try:
        await close(body.source, error)
    finally:
        body.leave(before)


def here() -> Any:
    """What runs here: asyncio's driver, or trio's."""
    return trio_driver if running_loop() is None else driver
