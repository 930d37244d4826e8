"""Carries the decisions about a stream out in blocking code.

A source that blocks can't be stopped from outside. It finds the time it has in `current_attempt().timeout`, which a
client takes as its read timeout; between two chunks that it hands over the clocks are looked at. Content that has come
is handed over, however late.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from forbear._runtime.call import Plan
from forbear._runtime.source import END, Source, to_iterate
from forbear._runtime.steps import cancelled, fail, is_awaitable
from forbear._runtime.streaming import SENDS, Body, open_stream
from forbear._runtime.telling import log_mistake
from forbear._sync import driver
from forbear._sync.admission import admit
from forbear.errors import UsageError


def guard(plan: Plan, fn: Callable[..., Any]) -> Callable[..., Generator[Any, None, Any]]:
    """`fn`, which opens a stream, under the plan: a generator function."""

    def guarded(*args: Any, **kwargs: Any) -> Generator[Any, None, Any]:
        body = open_stream(plan, fn, args, kwargs)
        try:
            while not body.over:
                for chunk in advance(body):
                    if (yield chunk) is not None:
                        raise UsageError(SENDS)
        except BaseException as error:
            body.closed()
            close_inside(body, error)
            raise
        finally:
            body.end()
        return body.source.value

    return guarded


def advance(body: Body) -> list[Any]:
    """The chunks that go to the consumer next, whatever it takes. None come any more where `body.over`."""
    before, source = body.enter(), body.source
    try:
        while True:
            if source.chunks is None:
                begin(source)
            try:
                source.limit()
                out = source.taken_in(step(source), blocking=True)
            except BaseException as error:
                if not again(source, error):
                    raise
                if not source.delivery.complete:
                    driver.pause(body.call)
                    continue
                out = source.taken_in(END)
            if source.over:
                close(source)
            if out or source.over:
                return out
    except BaseException as error:
        raise body.ended_with(error)  # it is the error itself, or has it as its cause
    finally:
        body.leave(before)


def begin(source: Source) -> None:
    """An attempt begins, once the guards let it through."""
    if source.call.plan.gate is not None:
        admit(source.call, source.args, source.kwargs)
    source.begin()


def step(source: Source) -> Any:
    """The next chunk, END behind the last one. The first step of an attempt opens the source."""
    chunks = open_source(source) if source.chunks is None else source.chunks
    try:
        return next(chunks)
    except StopIteration as ended:
        source.value = ended.value
        return END


def open_source(source: Source) -> Any:
    """Enters and iterates what the function gives, whatever of these it needs. Gives the iterator."""
    made = source.make()
    if is_awaitable(made):
        driver.close(made)
        raise UsageError("the function is async: iterate the stream with `async for`")
    source.holds(made, "close")
    if not hasattr(type(made), "__iter__") and hasattr(type(made), "__enter__"):
        leave = made.__exit__
        made = made.__enter__()
        source.entered(leave)
    to_iterate(made, "__iter__", "__aiter__", "`async for`")
    source.chunks = chunks = iter(made)
    if chunks is not made:
        source.holds(chunks, "close")
    return chunks


def again(source: Source, error: BaseException) -> bool:
    """The attempt has failed, or was interrupted. Whether the stream goes on all the same: another attempt follows, or
    what broke had come to its end before. The source is closed first.
    """
    close(source, error)
    if not isinstance(error, Exception):
        cancelled(source.call, waiting=False)
        return False
    return source.delivery.complete or fail(source.call, error)


def close(source: Source, error: BaseException | None = None) -> None:
    """Closes all that has been opened, the innermost first; its own errors change nothing. `error` ends the stream."""
    source.chunks = None
    leaving: BaseException | None = None
    while source.opened:
        try:
            source.opened.pop(0)(error)
        except Exception as mistake:
            log_mistake("the close of a stream", mistake)
        except BaseException as interrupt:
            leaving = interrupt
    try:
        if leaving is not None:
            raise leaving
    finally:
        del leaving, error  # a frame must not keep alive what it raises


def close_inside(body: Body, error: BaseException) -> None:
    """Closes the source of a stream that its consumer does not want any more, as a part of the stream."""
    before = body.enter()
    try:
        close(body.source, error)
    finally:
        body.leave(before)
