"""How a client of a library for LLM APIs is asked, blocking or async, in the same words.

A question is a coroutine; for a blocking client it runs through without a stop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from forbear import attempts, llm_retry, retry


def run(kind: str, work: Awaitable[Any]) -> Any:
    """Runs a way: in a loop, or through without a stop."""
    if kind == "async":
        return asyncio.run(work)  # type: ignore[arg-type]
    try:
        work.send(None)  # type: ignore[attr-defined]
    except StopIteration as end:
        return end.value
    raise AssertionError("a blocking client has waited for a loop")


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def items(source: Any) -> AsyncIterator[Any]:
    """What is iterated, of either kind."""
    if hasattr(source, "__aiter__"):
        async for item in source:
            yield item
    else:
        for item in source:
            yield item


@asynccontextmanager
async def entered(manager: Any) -> AsyncIterator[Any]:
    """A context manager of either kind."""
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


@asynccontextmanager
async def closing(*clients: Any) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for client in clients:
            await settled(client.close())


def chain(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__
    return found


def wrapped(inner: Any) -> Any:
    async def middle() -> Any:
        return await inner()

    return middle


async def three_layers(question: Callable[[], Any], kind: str, outer: str) -> None:
    """Asks, with two layers of three attempts around the client's own."""
    options: dict[str, Any] = {"max_attempts": 3, "backoff": [0.001], "reraise": True}
    layer = {"retry": retry, "llm_retry": llm_retry, "attempts": llm_retry}[outer]

    async def async_question() -> Any:
        return await question()

    inner = layer(**options)(question if kind == "blocking" else async_question)
    if outer != "attempts":
        await settled(layer(**options)(inner)() if kind == "blocking" else layer(**options)(wrapped(inner))())
    elif kind == "blocking":
        for attempt in attempts(**options):
            with attempt:
                inner()
    else:
        async for attempt in attempts(**options):
            async with attempt:
                await inner()
