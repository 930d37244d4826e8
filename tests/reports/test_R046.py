"""R046: a connection that breaks in the body of a stream, after one chunk and before any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest

from forbear import RetriesExhausted, StreamInterrupted, stream
from forbear.testing import FakeTime

# As they come out of the body of a client library's stream, none of its own error family.
BREAKS: dict[str, Callable[[], Exception]] = {
    "httpx.ReadTimeout": lambda: httpx.ReadTimeout(""),
    "httpx.ReadError": lambda: httpx.ReadError(""),
    "httpx.RemoteProtocolError": lambda: httpx.RemoteProtocolError("incomplete chunked read"),
    "ConnectionResetError": ConnectionResetError,
    "IncompleteReadError": lambda: asyncio.IncompleteReadError(b"", 10),
    "TimeoutError": TimeoutError,
}


@pytest.fixture(params=BREAKS)
def broken(request: pytest.FixtureRequest) -> Exception:
    return BREAKS[request.param]()


class Body:
    """One chunk, or none, then the break; another time the whole."""

    def __init__(self, before: list[str], error: Exception, breaks: int = 1) -> None:
        self.before = before
        self.error = error
        self.breaks = breaks
        self.opened = self.closed = 0

    def __call__(self) -> Iterator[str]:
        self.opened += 1
        try:
            if self.opened <= self.breaks:
                yield from self.before
                raise self.error.with_traceback(None)
            yield from "ab"
        finally:
            self.closed += 1

    async def asynchronous(self) -> AsyncIterator[str]:
        for chunk in self():
            yield chunk


async def both(body: Body, **options: Any) -> tuple[list[str], BaseException | None]:
    got: list[str] = []
    try:
        async for chunk in stream(body.asynchronous, **options):
            got.append(chunk)  # noqa: PERF401  # what came before an error counts
    except Exception as error:
        return got, error
    return got, None


def one(body: Body, **options: Any) -> tuple[list[str], BaseException | None]:
    got: list[str] = []
    try:
        got.extend(stream(body, **options))
    except Exception as error:
        return got, error
    return got, None


async def test_before_the_first_chunk_it_is_a_failure_as_any_other(broken: Exception) -> None:
    with FakeTime() as clock:
        for body in (Body([], broken), Body(["", ""], broken)):
            assert await both(body) == (["a", "b"], None)
            assert (body.opened, body.closed) == (2, 2)
            body.opened = body.closed = 0
            assert one(body) == (["a", "b"], None)
            assert (body.opened, body.closed) == (2, 2)
        assert len(clock.sleeps) == 4
        _, error = await both(Body([], broken, breaks=9), max_attempts=3)
        assert isinstance(error, RetriesExhausted)
        assert error.last_error is broken


async def test_after_it_one_typed_error_holds_what_came(broken: Exception) -> None:
    with FakeTime() as clock:
        for ways in (both(Body(["a"], broken)), None):
            body = Body(["a"], broken)
            got, error = one(body) if ways is None else await ways
            assert got == ["a"]
            assert isinstance(error, StreamInterrupted)
            assert (error.contents, error.delivered) == (1, ("a",))
            assert error.__cause__ is broken
            assert body.opened == (1 if ways is None else 0)
        assert clock.sleeps == []


async def test_whoever_wants_more_says_so(broken: Exception) -> None:
    with FakeTime():
        assert await both(Body(["a"], broken), after_content="buffer") == (["a", "b"], None)
        assert await both(Body(["a"], broken), resume=rest) == (["a", "b"], None)
        got, error = await both(Body(["a"], broken), after_content="restart")
        assert error is None
        assert got[-2:] == ["a", "b"]
        assert len(got) == 4, "what was void, the mark, and the whole"


async def rest(delivered: list[str]) -> AsyncIterator[str]:
    yield "ab"[len(delivered) :]
