"""One copy of a stream, in a task of its own from its opening to its close.

What a source has entered in one task (a cancel scope, a timeout, a context variable) must be left in the same. It makes
a step only when it is asked for one, so nothing is read ahead of the consumer.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

from forbear._aio import stream
from forbear._aio.closing import close
from forbear._aio.driver import failure_in
from forbear._runtime.scope import current
from forbear._runtime.source import CLOSES_WITHIN, END, Source

ENDED_BY_ITSELF = "the source was cancelled while its consumer was busy: by a timeout or a task group of its own"


class Pump:
    """The stream of one copy. `answer`: a future of what the step that is under way brings; `task` makes the steps."""

    __slots__ = ("answer", "ending", "source", "task", "wanted")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.wanted = asyncio.Event()
        self.answer: asyncio.Future[list[Any]] | None = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self.ending: BaseException | None = None

    def start(self, around: Context) -> asyncio.Task[None]:
        """Begins, in this context."""
        self.task = task = asyncio.get_running_loop().create_task(self.serve(), context=around)
        task.add_done_callback(self.ended)
        return task

    async def serve(self) -> None:
        """Makes a step each time it is asked for one. The source is closed before anybody hears of its end."""
        source = self.source
        current.set(source.call)
        source.begin()
        try:
            while not source.over:
                out = await self.step()
                if source.over:
                    await close(source)
                self.bring(out)
                if not source.over:
                    await self.wanted.wait()
                    self.wanted.clear()
        except GeneratorExit:
            source.abandoned()  # nobody runs what would be awaited
            raise
        except BaseException as error:
            await close(source, self.ending or error)
            self.fail(error)
            if not isinstance(error, Exception):
                raise

    def fail(self, error: BaseException) -> None:
        """Hands over the failure of a step; the end of the task, if it is none."""
        if self.answer is None or self.answer.done():
            return
        if isinstance(error, Exception):
            self.answer.set_exception(error)
        else:
            self.answer.cancel()

    async def step(self) -> list[Any]:
        """What goes to the consumer next. Raises the failure of the attempt."""
        source = self.source
        try:
            while True:
                out = source.taken_in(await stream.cut_after(source, stream.step))
                if out or source.over:
                    return out
        except BaseException as caught:
            error = failure_in(source.call, caught)
            if error is not None and source.delivery.complete:
                return source.taken_in(END)
            try:
                if error is None or error is caught:
                    raise
                raise error
            finally:
                del error

    def bring(self, out: list[Any]) -> None:
        """Hands over what a step has brought, if somebody still wants it."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(out)

    async def ask(self) -> list[Any]:
        """What goes to the consumer next."""
        if self.task is None:
            raise TimeoutError(ENDED_BY_ITSELF)
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.answer = answer
        self.wanted.set()
        try:
            return await answer
        finally:
            self.answer = None  # it may hold an error, whose frames hold us
            del answer

    async def stop(self, error: BaseException | None = None) -> None:
        """Ends the task, and with it the source, which hears of the error; waits for that, but not for ever."""
        task = self.task
        if task is not None:
            self.ending = error
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSES_WITHIN)

    def abandon(self) -> None:
        """Nobody runs what would have to be awaited; the event loop may be gone."""
        if self.task is not None and not self.task.get_loop().is_closed():
            self.task.cancel()

    def ended(self, task: asyncio.Task[None]) -> None:
        """The task has ended. It may hold an error, whose frames hold us."""
        self.task = self.ending = None
        if not task.cancelled():
            task.exception()  # of a task group of the source's own, at its close: the stream is over anyway
