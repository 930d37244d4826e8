"""`stream`: one clean stream of a source that may break.

Decided here: the form. Until the first content has reached the consumer a failure is retried as any other, and nobody
notices; after it nothing is repeated unless the consumer has asked for it. Nothing happens before the first chunk is
asked for, and what was opened is closed with the last.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from forbear._aio import hedged_stream as hedged
from forbear._aio import stream as aio
from forbear._runtime.call import Plan
from forbear.calls.blocking import guard_stream as guard_blocking
from forbear.calls.callables import name_of, place_of, refuse, required_arguments
from forbear.calls.fallback import Fallback
from forbear.calls.fallback_async import with_fallback_stream_async
from forbear.calls.options import StreamCallOptions, fallback_of, plan_of
from forbear.core.stream import Restarted
from forbear.errors import UsageError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
AsyncSource = AsyncIterable[T] | Awaitable[AsyncIterable[T]] | AbstractAsyncContextManager[AsyncIterable[T]]
Source = Iterable[T] | AbstractContextManager[Iterable[T]]


class Stream(Generic[T_co]):
    """The chunks of one stream: iterate it once, with `for` or `async for`.

    After a `break` the source is closed when the stream is forgotten: at once, or in async code a moment later, unless
    a variable still holds it. `with` or `async with` around it, `close()` or `await aclose()`, close it at once.
    """

    def __init__(self, plan: Plan, fn: Callable[[], Any], fallback: Fallback | None) -> None:
        self._plan, self._fn, self._fallback = plan, fn, fallback
        self._chunks: Generator[T_co] | AsyncGenerator[T_co] | None = None

    def __iter__(self) -> Self:
        self._refuse_again()
        return self

    def __next__(self) -> T_co:
        if self._chunks is None:
            self._chunks = guard_blocking(self._plan, self._fn, self._fallback)()
        if not isinstance(self._chunks, Generator):
            raise UsageError("this stream is iterated with `async for` already")
        return next(self._chunks)

    def __aiter__(self) -> Self:
        self._refuse_again()
        return self

    async def __anext__(self) -> T_co:
        if self._chunks is None:
            self._chunks = guard_async(self._plan, self._fn, self._fallback)()
        if not isinstance(self._chunks, AsyncGenerator):
            raise UsageError("this stream is iterated with `for` already")
        return await self._chunks.__anext__()

    def _refuse_again(self) -> None:
        """Raises UsageError where there is nothing left, which would look like an empty answer."""
        chunks: Any = self._chunks
        if chunks is not None and getattr(chunks, "gi_frame", None) is getattr(chunks, "ag_frame", None):
            raise UsageError("this stream has been read to its end, or closed: make a new one")

    def close(self) -> None:
        """Closes the source of a stream that is iterated with `for`."""
        if isinstance(self._chunks, AsyncGenerator):
            raise UsageError("this stream is async: await its aclose()")
        self._chunks = _nothing() if self._chunks is None else self._chunks
        self._chunks.close()

    async def aclose(self) -> None:
        """Closes the source of a stream that is iterated with `async for`."""
        self._chunks = _nothing_async() if self._chunks is None else self._chunks
        if isinstance(self._chunks, Generator):
            raise UsageError("this stream is blocking: call its close()")
        await self._chunks.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<stream of {self._plan.name}>"


@overload
def stream(
    fn: Callable[[], AsyncSource[T]], /, *, after_content: Literal["restart"], **options: Unpack[StreamCallOptions]
) -> Stream[T | Restarted]: ...
@overload
def stream(
    fn: Callable[[], AsyncSource[T]],
    /,
    *,
    after_content: Literal["raise", "buffer", "resume"] = ...,
    **options: Unpack[StreamCallOptions],
) -> Stream[T]: ...
@overload
def stream(
    fn: Callable[[], Source[T]], /, *, after_content: Literal["restart"], **options: Unpack[StreamCallOptions]
) -> Stream[T | Restarted]: ...
@overload
def stream(
    fn: Callable[[], Source[T]],
    /,
    *,
    after_content: Literal["raise", "buffer", "resume"] = ...,
    **options: Unpack[StreamCallOptions],
) -> Stream[T]: ...
def stream(fn: Any = None, /, **options: Any) -> Stream[Any]:
    """The chunks of the stream that `fn` opens, retried as long as nobody can notice.

        async for chunk in stream(lambda: client.chat.completions.create(..., stream=True), events="openai"):
            ...

    `fn` takes no argument and gives something to iterate: a generator, the stream of a client library, an awaitable of
    one, or a context manager around one. It is called when the first chunk is asked for, and for each attempt anew.

    What comes before the first content (`events` says what that is) is held back, so a failure until then is retried as
    the options say and the consumer sees one clean stream. After it:

    after_content ("raise"): StreamInterrupted, caused by the failure, with what was delivered. "restart": the answer
        comes anew, behind a `Restarted` among the chunks, which tells the consumer to discard what it has. "buffer":
        nothing is handed over before the answer is complete (or `hold_at_most` chunks, 10,000, are held).
    resume: a function of what was delivered, a list, that opens what goes on from there.
    events: what chunks mean: "openai", "anthropic" or `StreamEvents(...)`. By default chunks of these two are known by
        their shape, and any other chunk is content that is not empty; a stream may end as it likes then.
    first_timeout, gap_timeout (`attempt_timeout`): seconds to the first content, and without content after that, while
        the consumer waits; signs of life do not count.
    total_timeout (none): seconds for an attempt, to its end. `deadline` is for everything.

    hedge: a second copy races for the first content where that is slow to come; async and under asyncio only.

    The other options are those of `retry`, but `retry_if_result`. Blocking streams can't be cut while they are silent:
    give the client a read timeout. Raises what `retry` raises, and StreamInterrupted.
    """
    if fn is None:
        raise TypeError(
            "stream(fn, ...) needs what opens the stream; to decorate a generator function write @retry(...)"
        )
    refuse(fn, "stream")
    if required_arguments(fn):
        raise TypeError(f"stream(fn) calls fn without arguments: write stream(lambda: {name_of(fn)}(...))")
    plan = plan_of(name_of(fn), options, stream=True, place=place_of(fn))
    return Stream(plan, fn, fallback_of(options, call=True))


def guard_async(plan: Plan, fn: Callable[..., Any], fallback: Fallback | None) -> Callable[..., AsyncGenerator[Any]]:
    """What opens an async stream, as an async generator function."""
    guarded = (aio if plan.hedge is None else hedged).guard(plan, fn)
    return guarded if fallback is None else with_fallback_stream_async(guarded, plan, fallback)


def _nothing() -> Generator[Any]:
    yield from ()


async def _nothing_async() -> AsyncGenerator[Any]:
    nothing: tuple[Any, ...] = ()
    for chunk in nothing:
        yield chunk
