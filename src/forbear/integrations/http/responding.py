"""From the first thing of a request's stream, which stands for the head of its answer, to what its caller gets.

Decided here: that a failure which is a response is handed out as one, and that every other error is one of the client
library's own. Must never know which library that is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from forbear.integrations.http.exchange import Exchange


def respond(exchange: Exchange, chunks: Generator[Any]) -> Any:
    """The response that the call brings. Raises what is left to raise, as an error of the library."""
    try:
        next(chunks)
    except BaseException as error:
        given = exchange.response_of(error)
        if given is not None:
            return exchange.handed_out(given, error)
        seen = exchange.seen(error)
        if seen is error:
            raise
    else:
        return exchange.received(chunks)
    try:
        raise seen
    finally:
        del seen  # a frame must not keep alive what it raises


async def respond_async(exchange: Exchange, chunks: AsyncGenerator[Any]) -> Any:
    """As `respond`, in async code."""
    try:
        await anext(chunks)
    except BaseException as error:
        given = exchange.response_of(error)
        if given is not None:
            return exchange.handed_out(given, error)
        seen = exchange.seen(error)
        if seen is error:
            raise
    else:
        return await exchange.received(chunks)
    try:
        raise seen
    finally:
        del seen
