"""R047: a failure that is told as an event inside a stream whose status was 200."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from forbear import ErrorEvent, Kind, RetriesExhausted, StreamInterrupted, classify, stream
from forbear.testing import FakeTime, record_events
from foreign import Thing


def anthropic(kind: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": "as it is"}}


def openai(code: str, kind: str = "") -> dict[str, Any]:
    return {"error": {"code": code, "type": kind or code, "message": "as it is"}}


def response(code: str) -> dict[str, Any]:
    return {"type": "response.failed", "response": {"error": {"code": code, "message": "as it is"}}}


PASSING: list[tuple[dict[str, Any], Kind]] = [
    (anthropic("overloaded_error"), Kind.OVERLOADED),
    (anthropic("rate_limit_error"), Kind.RATE_LIMITED),
    (anthropic("api_error"), Kind.SERVER_ERROR),
    (openai("server_error"), Kind.SERVER_ERROR),
    (openai("rate_limit_exceeded", "tokens"), Kind.RATE_LIMITED),
    (response("server_error"), Kind.SERVER_ERROR),
    (response("rate_limit_exceeded"), Kind.RATE_LIMITED),
]
PERMANENT: list[tuple[dict[str, Any], Kind]] = [
    (anthropic("invalid_request_error"), Kind.INVALID_REQUEST),
    (anthropic("authentication_error"), Kind.AUTH),
    (openai("insufficient_quota"), Kind.QUOTA_SPENT),
    (openai("context_length_exceeded", "invalid_request_error"), Kind.TOO_LONG),
]
CONTENT: dict[str, Any] = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "He"}}
START: dict[str, Any] = {"type": "message_start", "message": {}}


def as_objects(event: Any) -> Any:
    if isinstance(event, dict):
        return Thing(**{name: as_objects(value) for name, value in event.items()})
    return event


def told(event: dict[str, Any], *, objects: bool) -> Any:
    # A bare {"error": ...} is known as a dictionary only: an object with such an attribute may be anything.
    return as_objects(event) if objects and "type" in event else event


@pytest.mark.parametrize("objects", [False, True])
@pytest.mark.parametrize("before", [[], [START]])
async def test_one_that_may_pass_is_retried_and_never_seen(before: list[Any], objects: bool) -> None:
    for event, kind in PASSING:
        calls: list[int] = []

        def source(event: Any = event, calls: list[int] = calls) -> Iterator[Any]:
            calls.append(1)
            yield from before
            if len(calls) == 1:
                yield told(event, objects=objects)
                raise AssertionError("nobody reads on after an error")
            yield CONTENT

        async def asynchronous(source: Any = source) -> AsyncIterator[Any]:
            for chunk in source():
                yield chunk

        with FakeTime(), record_events() as events:
            assert list(stream(source)) == [*before, CONTENT]
            calls.clear()
            assert [chunk async for chunk in stream(asynchronous)] == [*before, CONTENT]
        assert [wait.kind for wait in events.waits] == [kind, kind], event


async def test_one_that_can_not_leaves_at_once_as_an_error_that_says_what_it_is() -> None:
    for event, kind in PERMANENT:
        calls: list[int] = []

        def source(event: Any = event, calls: list[int] = calls) -> Iterator[Any]:
            calls.append(1)
            yield START
            yield event

        with FakeTime() as clock, pytest.raises(ErrorEvent) as caught:
            list(stream(source))
        assert classify(caught.value).kind is kind, event
        assert caught.value.body["error"]["message"] == "as it is"
        assert "as it is" not in str(caught.value)
        assert (len(calls), clock.sleeps) == (1, [])


def test_when_it_does_not_pass_the_call_is_given_up_with_it() -> None:
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        list(stream(lambda: iter([anthropic("overloaded_error")]), max_attempts=3))
    assert isinstance(caught.value.last_error, ErrorEvent)
    assert classify(caught.value.last_error).kind is Kind.OVERLOADED


@pytest.mark.parametrize("event", [PASSING[0][0], PERMANENT[0][0]])
def test_after_content_it_interrupts_whatever_it_is(event: dict[str, Any]) -> None:
    got: list[Any] = []
    with FakeTime(), pytest.raises(StreamInterrupted) as caught:
        got.extend(stream(lambda: iter([START, CONTENT, event])))
    assert isinstance(caught.value.__cause__, ErrorEvent)
    assert caught.value.delivered == ("He",)
