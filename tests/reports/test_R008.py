"""R008: three contents, then only heartbeats for ever, or nothing at all; the socket stays open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from forbear import StreamEvents, StreamInterrupted, stream
from forbear.testing import FakeTime

NEVER = 1e9


def text(words: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "delta": {"type": "text_delta", "text": words}}


PING = {"type": "ping"}
WORDS = ["one ", "two ", "three"]


class Connection:
    """Closed, or still open."""

    def __init__(self) -> None:
        self.closed_at: float | None = None


async def stalled(clock: FakeTime, connection: Connection, heartbeat: float) -> AsyncIterator[Any]:
    try:
        for words in WORDS:
            await asyncio.sleep(0.5)
            yield text(words)
        while True:
            await asyncio.sleep(heartbeat)
            yield PING
    finally:
        connection.closed_at = clock.now


@pytest.mark.parametrize("heartbeat", [0.1, 1.0, 15.0, NEVER], ids=["0.1 s", "1 s", "15 s", "silence"])
@pytest.mark.parametrize("events", ["anthropic", None])
async def test_it_ends_after_the_gap_with_what_had_come_and_the_connection_is_closed(
    heartbeat: float, events: Any
) -> None:
    connection = Connection()
    with FakeTime() as clock:
        with pytest.raises(StreamInterrupted) as caught:
            async for _ in stream(lambda: stalled(clock, connection, heartbeat), events=events, gap_timeout=5.0):
                pass
        assert clock.now == pytest.approx(6.5, abs=0.02)
    error = caught.value
    assert (error.contents, error.delivered) == (3, tuple(WORDS))
    assert isinstance(error.__cause__, TimeoutError)
    assert "no content for gap_timeout=5 s; 3 contents had come" in str(error.__cause__)
    assert "3 contents were delivered" in str(error)
    assert connection.closed_at == clock.now


async def test_what_counts_as_progress_is_chosen() -> None:
    """Whoever takes heartbeats for progress never sees a stall in them, but still in silence."""
    everything = StreamEvents(content=lambda _: True)
    connection = Connection()
    number = 0
    with FakeTime() as clock:
        async for _ in stream(
            lambda: stalled(clock, connection, 1.0), events=everything, gap_timeout=5.0, deadline=None
        ):
            number += 1
            if number == 100:
                break
        assert clock.now > 90
        with pytest.raises(StreamInterrupted):
            async for _ in stream(
                lambda: stalled(clock, connection, NEVER), events=everything, gap_timeout=5.0, deadline=None
            ):
                pass


async def test_a_model_that_thinks_is_stalled_or_not_as_one_says() -> None:
    def thought() -> dict[str, Any]:
        return {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}

    async def source() -> AsyncIterator[Any]:
        for _ in range(10):
            await asyncio.sleep(1.0)
            yield thought()
        yield text("done")
        yield {"type": "message_stop"}

    with FakeTime():
        chunks = [chunk async for chunk in stream(source, events=StreamEvents.anthropic(), attempt_timeout=5.0)]
        assert len(chunks) == 12
        with pytest.raises(TimeoutError):
            strict = stream(
                source,
                events=StreamEvents.anthropic(reasoning=False),
                attempt_timeout=5.0,
                max_attempts=1,
                reraise=True,
            )
            async for _ in strict:
                pass


@pytest.mark.parametrize("heartbeat", [0.1, 4.0])
def test_a_blocking_stream_ends_with_the_next_heartbeat(heartbeat: float) -> None:
    closed: list[float] = []

    def source() -> Iterator[Any]:
        try:
            for words in WORDS:
                clock.advance(0.5)
                yield text(words)
            while True:
                clock.advance(heartbeat)
                yield PING
        finally:
            closed.append(clock.now)

    with FakeTime() as clock, pytest.raises(StreamInterrupted) as caught:
        for _ in stream(source, gap_timeout=5.0):
            pass
    assert caught.value.contents == 3
    assert closed == [clock.now]
    assert 6.5 <= clock.now <= 6.5 + heartbeat
