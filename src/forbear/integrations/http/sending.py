"""Sends a request of httpx or httpx2 as the stream that a call of forbear is: the response first, then its body.

Decided here: what is read inside the attempt, and what a caller gets in the end. Every answer is closed, whatever
becomes of it: a connection that nobody reads from is lost for the pool.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from typing import Any

from forbear.errors import StreamInterrupted
from forbear.integrations.http.clipping import clipped
from forbear.integrations.http.httpx_like import HttpxExchange


class Sending:
    """One attempt: what is iterated, and the response once it is there, whose headers the guards read."""

    __slots__ = ("_chunks", "_exchange")

    def __init__(self, exchange: HttpxExchange, chunks: Any) -> None:
        self._exchange = exchange
        self._chunks = chunks

    @property
    def response(self) -> Any:
        """The response; None before it came."""
        return self._exchange.response

    def __iter__(self) -> Any:
        return self._chunks

    def __aiter__(self) -> Any:
        return self._chunks


def sending(exchange: HttpxExchange) -> Sending:
    """One attempt in blocking code."""
    return Sending(exchange, _send(exchange))


def sending_async(exchange: HttpxExchange) -> Sending:
    """One attempt in async code."""
    return Sending(exchange, _send_async(exchange))


def _send(exchange: HttpxExchange) -> Generator[Any]:
    """The response, then what is left of its body."""
    stream: Any = None
    chunks: Any = None
    held: list[bytes] = []
    try:
        with clipped(exchange.left):
            response = exchange.inner.handle_request(exchange.outgoing())
            stream = response.stream
            chunks = iter(stream)
            if exchange.came(response):
                while (chunk := next(chunks, None)) is not None and exchange.take(held, chunk):
                    pass
                exchange.judge(held)
        yield response
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
        for thing in (chunks, stream):
            if hasattr(thing, "close"):
                thing.close()


async def _send_async(exchange: HttpxExchange) -> AsyncGenerator[Any]:
    """The response, then what is left of its body."""
    stream: Any = None
    chunks: Any = None
    held: list[bytes] = []
    try:
        response = await exchange.inner.handle_async_request(exchange.outgoing())
        stream = response.stream
        chunks = stream.__aiter__()
        if exchange.came(response):
            while (chunk := await anext(chunks, None)) is not None and exchange.take(held, chunk):
                pass
            exchange.judge(held)
        yield response
        if exchange.whole:
            return
        for chunk in held:
            yield chunk
        async for chunk in chunks:
            yield chunk
    finally:
        for thing in (chunks, stream):
            if hasattr(thing, "aclose"):
                await thing.aclose()


# ---- from the first thing of the stream to the response --------------------------------------------------------------


def respond(exchange: HttpxExchange, chunks: Generator[Any]) -> Any:
    """The response that the call brings. Raises what is left to raise, as an error of the library."""
    seen: BaseException | None = None
    try:
        response = next(chunks)
    except BaseException as error:
        response = exchange.response_of(error)
        if response is not None:
            return exchange.handed_out(response, error)
        seen = exchange.seen(error)
        if seen is error:
            raise
    try:
        if seen is not None:
            raise seen
    finally:
        del seen  # a frame must not keep alive what it raises
    if exchange.whole:
        with suppress(StreamInterrupted):  # there is nothing more to come too late
            next(chunks, None)
    else:
        response.stream = exchange.partner.body(exchange, chunks)
    return exchange.handed_out(response)


async def respond_async(exchange: HttpxExchange, chunks: AsyncGenerator[Any]) -> Any:
    """As `respond`, in async code."""
    seen: BaseException | None = None
    try:
        response = await anext(chunks)
    except BaseException as error:
        response = exchange.response_of(error)
        if response is not None:
            return exchange.handed_out(response, error)
        seen = exchange.seen(error)
        if seen is error:
            raise
    try:
        if seen is not None:
            raise seen
    finally:
        del seen
    if exchange.whole:
        with suppress(StreamInterrupted):
            await anext(chunks, None)
    else:
        response.stream = exchange.partner.async_body(exchange, chunks)
    return exchange.handed_out(response)


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
        """Gives everything back."""
        self._chunks.close()


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
        """Gives everything back."""
        await self._chunks.aclose()
