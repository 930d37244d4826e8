"""Carries the decisions about a stream out in blocking code.

A source that blocks can't be stopped from outside. It finds the time it has in `current_attempt().timeout`, which a
client takes as its read timeout; between two chunks that it hands over the clocks are looked at. Content that has come
is handed over, however late.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from forbear._runtime.call import Plan
from forbear._runtime.steps import cancelled, fail, is_awaitable
from forbear._runtime.streaming import END, SENDS, Body, open_stream, to_iterate
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
            close(body, error)
            raise
        finally:
            body.end()
        return body.value

    return guarded


def advance(body: Body) -> list[Any]:
    """The chunks that go to the consumer next, whatever it takes. None come any more where `body.over`."""
    before = body.enter()
    try:
        while True:
            if body.chunks is None:
                begin(body)
            try:
                body.limit()
                out = body.taken_in(step(body), blocking=True)
            except BaseException as error:
                if not again(body, error):
                    raise
                if not body.delivery.complete:
                    driver.pause(body.call)
                    continue
                out = body.taken_in(END)
            if body.over:
                close(body)
            if out or body.over:
                return out
    except BaseException as error:
        raise body.ended_with(error)  # it is the error itself, or has it as its cause
    finally:
        body.leave(before)


def begin(body: Body) -> None:
    """An attempt begins, once the guards let it through."""
    if body.call.plan.gate is not None:
        admit(body.call, body.args, body.kwargs)
    body.begin()


def step(body: Body) -> Any:
    """The next chunk, END behind the last one. The first step of an attempt opens the source."""
    chunks = open_source(body) if body.chunks is None else body.chunks
    try:
        return next(chunks)
    except StopIteration as ended:
        body.value = ended.value
        return END


def open_source(body: Body) -> Any:
    """Enters and iterates what the function gives, whatever of these it needs. Gives the iterator."""
    made = body.make()
    if is_awaitable(made):
        driver.close(made)
        raise UsageError("the function is async: iterate the stream with `async for`")
    body.holds(made, "close")
    if not hasattr(type(made), "__iter__") and hasattr(type(made), "__enter__"):
        leave = made.__exit__
        made = made.__enter__()
        body.entered(leave)
    to_iterate(made, "__iter__", "__aiter__", "`async for`")
    body.chunks = chunks = iter(made)
    if chunks is not made:
        body.holds(chunks, "close")
    return chunks


def again(body: Body, error: BaseException) -> bool:
    """The attempt has failed, or was interrupted. Whether the stream goes on all the same: another attempt follows, or
    what broke had come to its end before. The source is closed first.
    """
    close(body, error)
    if not isinstance(error, Exception):
        cancelled(body.call, waiting=False)
        return False
    return body.delivery.complete or fail(body.call, error)


def close(body: Body, error: BaseException | None = None) -> None:
    """Closes all that has been opened, the innermost first; its own errors change nothing. `error` ends the stream."""
    body.chunks = None
    while body.opened:
        try:
            body.opened.pop(0)(error)
        except Exception as mistake:
            log_mistake("the close of a stream", mistake)
