"""R051: a stream dies and a second one takes over. Stream 1: start, "He", error; stream 2: start, "Hello", stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from forbear import ErrorEvent, Restarted, StreamInterrupted, retry, stream
from forbear.testing import FakeTime

START: dict[str, Any] = {"type": "message_start", "message": {"id": "m"}}
STOP: dict[str, Any] = {"type": "message_stop"}
ERROR: dict[str, Any] = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def text(words: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}}


FIRST: dict[str, list[Any]] = {
    "an error event": [START, text("He"), ERROR],
    "a broken connection": [START, text("He"), ConnectionResetError()],
    "an end that comes too early": [START, text("He")],
}
SECOND = [START, text("Hello"), STOP]


class Service:
    def __init__(self, *streams: list[Any]) -> None:
        self.streams = list(streams)

    def open(self) -> Iterator[Any]:
        for event in self.streams.pop(0):
            if isinstance(event, Exception):
                raise event.with_traceback(None)
            yield event

    async def open_async(self) -> AsyncIterator[Any]:
        for event in self.open():
            yield event


@pytest.fixture(params=FIRST)
def first(request: pytest.FixtureRequest) -> list[Any]:
    return FIRST[request.param]


async def test_held_back_until_it_is_whole_there_is_one_start_and_hello_once(first: list[Any]) -> None:
    with FakeTime():
        body = stream(Service(first, SECOND).open_async, events="anthropic", after_content="buffer")
        assert [event async for event in body] == SECOND
        assert list(stream(Service(first, SECOND).open, events="anthropic", after_content="buffer")) == SECOND


async def test_after_the_first_words_there_is_an_error_and_no_mixture(first: list[Any]) -> None:
    service = Service(first, SECOND)
    got: list[Any] = []
    with FakeTime(), pytest.raises(StreamInterrupted) as caught:
        async for event in stream(service.open_async, events="anthropic"):
            got.append(event)  # noqa: PERF401  # what came before the error counts
    assert got == [START, text("He")]
    assert caught.value.delivered == ("He",)
    assert service.streams == [SECOND], "the second stream was not even opened"


@pytest.mark.parametrize("event", [ERROR, ConnectionResetError()])
def test_before_the_first_words_there_is_one_start(event: Any) -> None:
    with FakeTime():
        assert list(stream(Service([START, event], SECOND).open, events="anthropic")) == SECOND


def test_one_that_comes_anew_says_so_between_the_two(first: list[Any]) -> None:
    with FakeTime():
        events = list(stream(Service(first, SECOND).open, events="anthropic", after_content="restart"))
    assert events == [START, text("He"), Restarted(2, 1), *SECOND]


def test_one_that_goes_on_has_one_start_and_no_word_twice(first: list[Any]) -> None:
    service = Service(first, [START, text("llo"), STOP])

    def go_on(delivered: list[str]) -> Iterator[Any]:
        assert delivered == ["He"]
        return service.open()

    with FakeTime():
        events = list(stream(service.open, events="anthropic", resume=go_on))
    assert [event["delta"]["text"] for event in events if "delta" in event] == ["He", "llo"]
    assert events.count(START) == 1


def test_another_service_takes_over_before_the_first_words_and_never_after() -> None:
    other = Service(SECOND, SECOND)
    guarded = retry(events="anthropic")(other.open)
    before = Service([START, ERROR], [START, ERROR])
    with FakeTime():
        options: dict[str, Any] = {"events": "anthropic", "fallback": guarded, "max_attempts": 2}
        assert list(stream(before.open, **options)) == SECOND
        got: list[Any] = []
        with pytest.raises(StreamInterrupted) as caught:
            for event in stream(Service([START, text("He"), ERROR]).open, **options):
                got.append(event)  # noqa: PERF402  # what came before the error counts
    assert got == [START, text("He")]
    assert isinstance(caught.value.__cause__, ErrorEvent)
    assert len(other.streams) == 1
