"""T35: before anything was delivered a stream is retried, after it nothing is replayed; nothing is silently not done.

A retry around the call that makes a generator retries nothing, as its failures come later; one around its iteration
shows the beginning twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

from forbear import (
    ApiError,
    Options,
    StreamInterrupted,
    Upstream,
    attempts,
    llm_retry,
    retry,
    retry_call,
    retry_sync,
    stream,
)
from forbear.testing import FakeTime

Make = Callable[..., list[Any]]


class Script:
    """What each attempt gives; an error is raised."""

    def __init__(self, *attempts: list[Any]) -> None:
        self.attempts = attempts
        self.opened = 0

    def __call__(self) -> Iterator[Any]:
        self.opened += 1
        for step in self.attempts[min(self.opened, len(self.attempts)) - 1]:
            if isinstance(step, Exception):
                raise step.with_traceback(None)
            yield step

    async def asynchronous(self) -> AsyncIterator[Any]:
        for step in self():
            await asyncio.sleep(0)
            yield step


BLOCKING: dict[str, Callable[..., Any]] = {
    "stream": stream,
    "decorated": lambda script, **options: retry(**options)(script.__call__)(),
    "decorated blocking": lambda script, **options: retry_sync(**options)(script.__call__)(),
    "decorated for LLMs": lambda script, **options: llm_retry(**options)(script.__call__)(),
    "retry_call": lambda script, **options: retry_call(script.__call__, retry_options=cast("Options", options)),
    "upstream": lambda script, **options: Upstream("service").stream(script, **options),
    "upstream decorated": lambda script, **options: Upstream("service").retry(**options)(script.__call__)(),
}
ASYNC: dict[str, Callable[..., Any]] = {
    "stream": lambda script, **options: stream(script.asynchronous, **options),
    "decorated": lambda script, **options: retry(**options)(script.asynchronous)(),
    "decorated for LLMs": lambda script, **options: llm_retry(**options)(script.asynchronous)(),
    "retry_call": lambda script, **options: retry_call(script.asynchronous, retry_options=cast("Options", options)),
    "upstream": lambda script, **options: Upstream("service").stream(script.asynchronous, **options),
    "upstream decorated": lambda script, **options: Upstream("service").retry(**options)(script.asynchronous)(),
}
Outcome = tuple[list[Any], BaseException | None]


def blocking(form: str) -> Callable[..., Outcome]:
    def run(script: Script, **options: Any) -> Outcome:
        chunks: list[Any] = []
        try:
            with FakeTime():
                chunks.extend(BLOCKING[form](script, **options))
        except Exception as error:
            return chunks, error
        return chunks, None

    return run


def asynchronous(form: str) -> Callable[..., Outcome]:
    async def consume(script: Script, chunks: list[Any], options: dict[str, Any]) -> None:
        with FakeTime():
            async for chunk in ASYNC[form](script, **options):
                chunks.append(chunk)  # noqa: PERF401  # what came before an error counts

    def run(script: Script, **options: Any) -> Outcome:
        chunks: list[Any] = []
        try:
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                runner.run(consume(script, chunks, options))
        except Exception as error:
            return chunks, error
        return chunks, None

    return run


FORMS = {
    **{f"blocking {name}": blocking(name) for name in BLOCKING},
    **{f"async {name}": asynchronous(name) for name in ASYNC},
}


@pytest.fixture(params=FORMS)
def outcome(request: pytest.FixtureRequest) -> Callable[..., Outcome]:
    """`outcome(script, **options)`: what the consumer of a stream gets, and what it ends with; in each form."""
    return FORMS[request.param]


def test_before_anything_was_delivered_it_is_retried(outcome: Callable[..., Outcome]) -> None:
    script = Script([ConnectionError()], [ApiError(503)], [1, 2, 3])
    assert outcome(script) == ([1, 2, 3], None)
    assert script.opened == 3


@pytest.mark.parametrize("delivered", [1, 2, 5])
def test_after_it_nothing_is_replayed(outcome: Callable[..., Outcome], delivered: int) -> None:
    failure = ConnectionError()
    chunks = list(range(delivered))
    script = Script([*chunks, failure], list(range(10)))
    got, error = outcome(script, max_attempts=9)
    assert got == chunks
    assert isinstance(error, StreamInterrupted)
    assert error.__cause__ is failure
    assert (error.contents, error.delivered) == (delivered, tuple(chunks))
    assert script.opened == 1


def test_nor_after_failures_before_it(outcome: Callable[..., Outcome]) -> None:
    script = Script([ConnectionError()], [1, ConnectionError()], [1, 2])
    got, error = outcome(script)
    assert (got, script.opened) == ([1], 2)
    assert isinstance(error, StreamInterrupted)


def test_a_stream_of_a_stream_replays_nothing_either() -> None:
    script = Script([1, ConnectionError()], [1, 2])
    got: list[Any] = []
    with FakeTime(), pytest.raises(StreamInterrupted) as caught:
        got.extend(stream(lambda: stream(script)))
    assert isinstance(caught.value.__cause__, StreamInterrupted)
    assert (got, script.opened) == ([1], 1)


def test_what_would_do_nothing_is_refused_with_what_to_write() -> None:
    script = Script([1])
    with pytest.raises(TypeError, match="its failures come while it is iterated, so iterate for"):
        retry_sync(script.__call__)
    with pytest.raises(TypeError, match="so iterate async for chunk in stream"):
        retry(script.asynchronous)  # type: ignore[arg-type, unused-coroutine]
    with pytest.raises(TypeError, match="is async"):
        retry_sync()(script.asynchronous)
    for options in ({"retry_if_result": bool}, {"resume": list, "after_content": "buffer"}):
        with pytest.raises(ValueError, match=r"stream|choose"):
            retry_sync(**options)(script.__call__)
    assert script.opened == 0


def test_a_block_around_the_iteration_is_the_callers_own_and_says_so_by_its_attempts() -> None:
    script = Script([1, ConnectionError()], [1, 2])
    seen: list[tuple[int, Any]] = []
    with FakeTime():
        for attempt in attempts():
            with attempt:
                seen.extend((attempt.number, chunk) for chunk in script())
    assert seen == [(1, 1), (2, 1), (2, 2)]
