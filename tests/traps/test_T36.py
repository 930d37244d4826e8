"""T36: "delivered" means content. Starts and pings do not count, and a stream that only pings is stalled."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from forbear import RetriesExhausted, StreamEvents, StreamInterrupted, Upstream, stream
from forbear.testing import FakeTime
from foreign import Thing

START: dict[str, Any] = {"type": "message_start", "message": {"id": "m", "content": []}}
PING: dict[str, Any] = {"type": "ping"}
BLOCK: dict[str, Any] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
TEXT: dict[str, Any] = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "He"}}
STOP: dict[str, Any] = {"type": "message_stop"}
ROLE: dict[str, Any] = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
DELTA: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "He"}, "finish_reason": None}]}
FINISH: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
CREATED: dict[str, Any] = {"type": "response.created", "response": {}}
OUTPUT: dict[str, Any] = {"type": "response.output_text.delta", "delta": "He"}
COMPLETED: dict[str, Any] = {"type": "response.completed", "response": {}}

# What comes before the content, the content, what ends it, and how the events are named.
KINDS: dict[str, tuple[list[Any], Any, Any, Any]] = {
    "anthropic": ([START, PING, BLOCK, PING], TEXT, STOP, "anthropic"),
    "openai chat": ([ROLE], DELTA, FINISH, "openai"),
    "openai responses": ([CREATED], OUTPUT, COMPLETED, "openai"),
    "by shape": ([START, ROLE, CREATED, PING, "", b"", None], TEXT, STOP, None),
    "of one's own": (
        ["start", "ping"], "text", "stop",
        StreamEvents(content=lambda chunk: chunk == "text", ends=lambda chunk: chunk == "stop"),
    ),
}  # fmt: skip


def as_objects(event: Any) -> Any:
    """The event as a client library gives it: an object with attributes."""
    if isinstance(event, dict):
        return Thing(**{name: as_objects(value) for name, value in event.items()})
    return [as_objects(one) for one in event] if isinstance(event, list) else event


Kind = tuple[list[Any], Any, Any, Any]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.mark.parametrize("objects", [False, True])
def test_before_content_every_failure_is_retried_and_the_start_is_seen_once(kind: Kind, objects: bool) -> None:
    notes, content, end, events = kind
    calls: list[int] = []
    whole = [as_objects(one) if objects else one for one in (*notes, content, end)]

    def source() -> Iterator[Any]:
        calls.append(1)
        if len(calls) <= len(notes):
            yield from whole[: len(calls)]  # one sign more each time
            raise ConnectionError
        yield from whole

    with FakeTime():
        assert list(stream(source, events=events, max_attempts=20)) == whole
    assert len(calls) == len(notes) + 1


def test_after_content_none_is(kind: Kind) -> None:
    notes, content, _, events = kind
    calls: list[int] = []

    def source() -> Iterator[Any]:
        calls.append(1)
        yield from (*notes, content)
        raise ConnectionError

    got: list[Any] = []
    with FakeTime(), pytest.raises(StreamInterrupted) as caught:
        got.extend(stream(source, events=events))
    assert (len(calls), caught.value.contents, len(caught.value.delivered)) == (1, 1, 1)


@pytest.mark.parametrize("every", [0.01, 1.0, 2.9])
async def test_one_that_only_pings_is_stalled_from_the_beginning(kind: Kind, every: float) -> None:
    notes, content, end, events = kind
    closed: list[float] = []

    async def source() -> AsyncIterator[Any]:
        try:
            if len(closed) == 2:
                yield content
                yield end
            while len(closed) < 2:
                await asyncio.sleep(every)
                yield notes[-1]
        finally:
            closed.append(clock.now)

    with FakeTime() as clock:
        chunks = [chunk async for chunk in stream(source, events=events, first_timeout=3.0, backoff=[1.0])]
    assert chunks == [content, end]
    assert closed == pytest.approx([3.0, 7.0, 8.0], abs=0.02)


@pytest.mark.parametrize("every", [0.01, 1.0, 2.9])
async def test_and_after_content_too(kind: Kind, every: float) -> None:
    notes, content, _, events = kind
    closed: list[float] = []

    async def source() -> AsyncIterator[Any]:
        try:
            yield content
            while True:
                await asyncio.sleep(every)
                yield notes[-1]
        finally:
            closed.append(clock.now)

    with FakeTime() as clock, pytest.raises(StreamInterrupted) as caught:
        async for _ in stream(source, events=events, gap_timeout=3.0):
            pass
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert caught.value.contents == 1
    assert closed == pytest.approx([3.0], abs=0.02)


@pytest.mark.parametrize("every", [0.3, 2.9])
def test_a_blocking_one_that_only_pings_is_stalled_as_well(kind: Kind, every: float) -> None:
    notes, content, _, events = kind

    def source(first: Any) -> Iterator[Any]:
        yield first
        while True:
            clock.advance(every)
            yield notes[-1]

    for first, expected in ((notes[-1], RetriesExhausted), (content, StreamInterrupted)):
        with FakeTime() as clock, pytest.raises(expected) as caught:
            for _ in stream(functools.partial(source, first), events=events, attempt_timeout=3.0, max_attempts=1):
                pass
        assert isinstance(caught.value.__cause__, TimeoutError)
        assert 3.0 <= clock.now <= 3.0 + every


async def test_by_default_it_is_stalled_after_ten_seconds_and_holds_no_place_for_ever() -> None:
    service = Upstream("service", max_concurrency=1)

    async def source() -> AsyncIterator[Any]:
        yield TEXT
        while True:
            await asyncio.sleep(1.0)
            yield PING

    with FakeTime() as clock:
        with pytest.raises(StreamInterrupted):
            async for _ in service.stream(source):
                pass
        assert clock.now == pytest.approx(10.0, abs=0.02)
        assert service.snapshot().in_flight == 0
