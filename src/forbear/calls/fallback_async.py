"""What takes the place of a result when an async call has been given up: as in blocking code, and cut in time.

Decided here: that what is awaited ends with the call's deadline. Must never know how the call was made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any

from forbear._runtime.call import Plan
from forbear._runtime.on_asyncio import running_loop
from forbear._runtime.source import END
from forbear._runtime.steps import is_awaitable
from forbear._runtime.tickets import running_trio
from forbear.calls.deadline import DeadlineBlock
from forbear.calls.fallback import Came, Fallback, Rest, chunks_of
from forbear.errors import DeadlineExceeded


class AsyncRest(Rest):
    """What is left of a call's time: it binds the calls in the block, and cuts whatever else runs there."""

    __slots__ = ("_block", "_trio", "instead_of")

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._block = DeadlineBlock(None)
        self._trio: Any = None
        self.instead_of: Exception | None = None

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
                raise self._cut() from self.instead_of
        except DeadlineExceeded:
            raise self._cut() from self.instead_of
        finally:
            self.__exit__()

    def _cut(self) -> DeadlineExceeded:
        """The fallback was cut at the deadline of the call: the error that this call ends with."""
        error = self.instead_of
        facts: dict[str, Any] = {"attempts": 1, "last_error": error, "waited": 0.0, "hint": None, "history": ()}
        facts.update({name: getattr(error, name) for name in facts if hasattr(error, name)})
        attempts, last = facts.pop("attempts"), facts.pop("last_error")
        return DeadlineExceeded("deadline", attempts, last, elapsed=self._world.clock() - self._since, **facts)


def with_fallback_async(guarded: Callable[..., Any], plan: Plan, fallback: Fallback) -> Callable[..., Any]:
    """`guarded`, whose place the fallback takes when it gives up; what it gives may be awaitable."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        rest = AsyncRest(plan)
        try:
            return await guarded(*args, **kwargs)
        except Exception as error:
            if not fallback.takes(error, plan):
                raise
            rest.instead_of = error
            try:
                async with rest:
                    result = fallback.make(error, args, kwargs, plan)
                    result = await result if is_awaitable(result) else result
            finally:
                rest.instead_of = None  # a frame must not keep alive what it raises
            fallback.answered(error, plan)
            return result

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
            return
        except Exception as error:
            if shown or not fallback.takes(error, plan):
                raise
            rest.instead_of, came = error, Came(fallback, plan, error)
        finally:
            await chunks.aclose()
        async with rest:
            made = fallback.make(came.instead_of, args, kwargs, plan)
            made = await made if is_awaitable(made) else made
        chunks = made.__aiter__() if hasattr(type(made), "__aiter__") else _chunks_of(made)
        try:
            while True:
                with came:
                    async with rest:
                        chunk = await anext(chunks, END)
                if came.add(chunk) is END:
                    return
                yield chunk
        finally:
            if hasattr(chunks, "aclose"):
                await chunks.aclose()

    return call


async def _chunks_of(made: Any) -> AsyncGenerator[Any]:
    for chunk in chunks_of(made):
        yield chunk
