"""Sends a request of httpx or httpx2 as the stream that a call of forbear is: the response first, then its body.

Decided here: what is read inside the attempt, and what a caller gets in the end. Every answer is closed, whatever
becomes of it: a connection that nobody reads from is lost for the pool.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Self

from forbear.errors import StreamInterrupted
from forbear.integrations.http.clipping import clipped
from forbear.integrations.http.httpx_like import HttpxExchange
from forbear.integrations.http.pool import free_lost


class Sending:
    """One attempt: what is iterated, and the head of its answer once it is there, whose headers the guards read."""

    __slots__ = ("_chunks", "_exchange")

    def __init__(self, exchange: HttpxExchange, chunks: Any) -> None:
        self._exchange = exchange
        self._chunks = chunks

    @property
    def response(self) -> Any:
        """The head of the answer; None before it came."""
        return self._exchange.head

    def __iter__(self) -> Any:
        return self._chunks

    def __aiter__(self) -> Any:
        return self._chunks


def sending(exchange: HttpxExchange) -> Sending:
    """One attempt in blocking code."""
    return Sending(exchange, _send(exchange))


def sending_async(exchange: HttpxExchange) -> Sending:
    """One attempt in async code."""
    return Sending(exchange, _AsyncSend(exchange))


# A frame that waits at a yield keeps what its variables name. None of them names the response: it holds the rest of its
# body, and with it these frames, so one that is forgotten would never end.


def _send(exchange: HttpxExchange) -> Generator[bytes]:
    """Nothing, when there is an answer; then what is left of its body."""
    chunks: Any = None
    held: list[bytes] = []
    try:
        with clipped(exchange.left):
            reads = exchange.came(exchange.inner.handle_request(exchange.outgoing()))
            chunks = iter(exchange.stream)
            if reads:
                try:
                    while (chunk := next(chunks, None)) is not None and exchange.take(held, chunk):
                        pass
                except exchange.partner.library.TransportError as error:
                    exchange.breaks(error)
                exchange.judge(held)
        yield b""
        if exchange.whole:
            return
        yield from held
        while True:
            with clipped(exchange.left):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk
    finally:
        _finish(exchange, chunks)


def _finish(exchange: HttpxExchange, chunks: Any) -> None:
    """Closes the answer and the body that was sent, whatever became of them."""
    stream, exchange.stream = exchange.stream, None
    try:
        for thing in (chunks, stream):
            if hasattr(thing, "close"):
                thing.close()
    finally:
        if exchange.sent is not None:
            exchange.sent.finish()
        if exchange.head is None:
            free_lost(exchange.inner)


class _AsyncSend:
    """As `_send`, in async code. No generator: the collector would end it by itself, beside the stream that ends it."""

    __slots__ = ("_begun", "_chunks", "_exchange", "_held")

    def __init__(self, exchange: HttpxExchange) -> None:
        self._exchange = exchange
        self._chunks: Any = None
        self._held: list[bytes] = []
        self._begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._begun:
            self._begun = True
            await self._begin()
            return b""
        if self._exchange.whole:
            raise StopAsyncIteration
        if self._held:
            return self._held.pop(0)
        return await anext(self._chunks)

    async def _begin(self) -> None:
        exchange, held = self._exchange, self._held
        reads = exchange.came(await exchange.inner.handle_async_request(exchange.outgoing()))
        self._chunks = chunks = exchange.stream.__aiter__()
        if reads:
            try:
                while (chunk := await anext(chunks, None)) is not None and exchange.take(held, chunk):
                    pass
            except exchange.partner.library.TransportError as error:
                exchange.breaks(error)
            exchange.judge(held)

    async def aclose(self) -> None:
        """Closes the answer, whatever became of it."""
        things, self._chunks, self._exchange.stream = (self._chunks, self._exchange.stream), None, None
        try:
            for thing in things:
                if hasattr(thing, "aclose"):
                    await thing.aclose()
        finally:
            if self._exchange.sent is not None:
                await self._exchange.sent.afinish()
            if self._exchange.head is None:
                free_lost(self._exchange.inner)


class Rest:
    """The rest of an answer, as its caller reads it. The lease is held until it is closed, or read to its end."""

    def __init__(self, exchange: HttpxExchange, chunks: Any) -> None:
        self._exchange = exchange
        self._chunks = chunks

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> bytes:
        broken: BaseException
        try:
            return next(self._chunks)  # type: ignore[no-any-return]
        except StreamInterrupted as error:
            broken = self._exchange.broken(error)
        try:
            raise broken
        finally:
            del broken

    def close(self) -> None:
        """Gives everything back; where another thread is reading, when its read ends, which this brings about."""
        try:
            self._chunks.close()
        except ValueError:
            stream: Any = self._exchange.stream
            if not self._chunks.gi_running or stream is None:
                raise
            stream.close()


class AsyncRest:
    """As `Rest`, in async code."""

    def __init__(self, exchange: HttpxExchange, chunks: Any) -> None:
        self._exchange = exchange
        self._chunks = chunks

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> bytes:
        broken: BaseException
        try:
            return await anext(self._chunks)
        except StreamInterrupted as error:
            broken = self._exchange.broken(error)
        try:
            raise broken
        finally:
            del broken

    async def aclose(self) -> None:
        """Gives everything back; where another task is reading, when its read ends, which this brings about."""
        try:
            await self._chunks.aclose()
        except RuntimeError:
            stream: Any = self._exchange.stream
            if not self._chunks.ag_running or stream is None:
                raise
            await stream.aclose()
