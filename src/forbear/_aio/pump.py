"""One copy of a stream, in a task of its own from its opening to its close.

What a source has entered in one task (a cancel scope, a timeout, a context variable) must be left in the same. It makes
a step only when it is asked for one, so nothing is read ahead of the consumer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from forbear._aio import stream
from forbear._aio.closing import close
from forbear._aio.driver import failure_in
from forbear._runtime.scope import current
from forbear._runtime.streaming import CLOSES_WITHIN, END, Body


class Pump:
    """The stream of one copy, in a task of its own. `answer`: what the step that is under way brings."""

    __slots__ = ("answer", "body", "task", "wanted")

    def __init__(self, body: Body) -> None:
        self.body = body
        self.wanted = asyncio.Event()
        self.answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.task: Any = None

    async def serve(self) -> None:
        """Makes a step each time it is asked for one; closes the source where it ends."""
        current.set(self.body.call)
        self.body.begin()
        try:
            while not self.body.over:
                self.bring(await self.step())
                await self.wanted.wait()
                self.wanted.clear()
        except Exception as error:
            await close(self.body, error)  # before anybody waits for another attempt
            if not self.answer.done():
                self.answer.set_exception(error)
        finally:
            await close(self.body)
            self.answer.cancel()

    async def step(self) -> list[Any]:
        """What goes to the consumer next. Raises the failure of the attempt."""
        body = self.body
        try:
            while True:
                out = body.taken_in(await stream.cut_after(body, stream.step))
                if out or body.over:
                    return out
        except BaseException as caught:
            error = failure_in(body.call, caught)
            if error is not None and body.delivery.complete:
                return body.taken_in(END)
            try:
                if error is None or error is caught:
                    raise
                raise error
            finally:
                del error

    def bring(self, out: list[Any]) -> None:
        """Hands over what a step has brought, if somebody still wants it."""
        if not self.answer.done():
            self.answer.set_result(out)

    async def ask(self) -> list[Any]:
        """What goes to the consumer next."""
        self.answer = asyncio.get_running_loop().create_future()
        self.wanted.set()
        return await self.answer

    async def stop(self) -> None:
        """Ends the task, and with it the source; waits for that, but not for ever."""
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=CLOSES_WITHIN)
