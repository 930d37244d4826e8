"""What takes the place of a result when an async call has been given up: as in blocking code, and cut in time.

Decided here: that what is awaited ends with the call's deadline. Must never know how the call was made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any

from forbear._runtime.call import Plan
from forbear._runtime.on_asyncio import running_loop
from forbear._runtime.steps import is_awaitable
from forbear._runtime.streaming import END
from forbear._runtime.tickets import running_trio
from forbear.calls.deadline import DeadlineBlock
from forbear.calls.fallback import Fallback, Rest, chunks_of
from forbear.errors import DeadlineExceeded


class AsyncRest(Rest):
    """What is left of a call's time: it binds the calls in the block, and cuts whatever else runs there."""

    __slots__ = ("_block", "_trio")

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._block = DeadlineBlock(None)
        self._trio: Any = None

    async def __aenter__(self) -> None:
        self.__enter__()
        try:
            if running_loop() is not None:
                await self._block.__aenter__()
            else:
                self._trio = running_trio().move_on_after(max(0.0, self.left()))
                self._trio.__enter__()
        except BaseException:
            self.__exit__()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._trio is None:
                await self._block.__aexit__(kind, error, trace)
            elif self._trio.__exit__(kind, error, trace) and self._trio.cancelled_caught:
                raise DeadlineExceeded("deadline", 0, None) from error
        finally:
            self.__exit__()


def with_fallback_async(guarded: Callable[..., Any], plan: Plan, fallback: Fallback) -> Callable[..., Any]:
    """`guarded`, whose place the fallback takes when it gives up; what it gives may be awaitable."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        rest = AsyncRest(plan)
        try:
            return await guarded(*args, **kwargs)
        except Exception as error:
            if not fallback.takes(error, plan):
                raise
            async with rest:
                result = fallback.make(error, args, kwargs, plan)
                return await result if is_awaitable(result) else result

    return call


def with_fallback_stream_async(
    guarded: Callable[..., AsyncGenerator[Any]], plan: Plan, fallback: Fallback
) -> Callable[..., AsyncGenerator[Any]]:
    """An async stream, whose place the fallback's takes when it gives up before anything was handed over."""

    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        rest, shown = AsyncRest(plan), False
        chunks: Any = guarded(*args, **kwargs)
        try:
            async for chunk in chunks:
                shown = True
                yield chunk
        except Exception as error:
            if shown or not fallback.takes(error, plan):
                raise
            async with rest:
                made = fallback.make(error, args, kwargs, plan)
                made = await made if is_awaitable(made) else made
        else:
            return
        finally:
            await chunks.aclose()
        chunks = made.__aiter__() if hasattr(type(made), "__aiter__") else _chunks_of(made)
        try:
            while True:
                async with rest:
                    chunk = await anext(chunks, END)
                if chunk is END:
                    return
                yield chunk
        finally:
            if hasattr(chunks, "aclose"):
                await chunks.aclose()

    return call


async def _chunks_of(made: Any) -> AsyncGenerator[Any]:
    for chunk in chunks_of(made):
        yield chunk
