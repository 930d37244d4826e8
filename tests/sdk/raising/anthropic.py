"""Calls through the anthropic SDK: messages and their stream."""

from __future__ import annotations

from typing import Any

import anthropic

from loopback import event
from sdk.places import Call, Place, streaming

QUESTION: dict[str, Any] = {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "x"}]}
START = {
    "type": "message_start",
    "message": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}


def options(place: Place) -> dict[str, Any]:
    limits = anthropic.Timeout(place.read_timeout, connect=place.connect_timeout)
    return {"api_key": "k", "base_url": place.url, "max_retries": 0, "timeout": limits}


def messages(place: Place) -> object:
    with anthropic.Anthropic(**options(place)) as service:
        return service.messages.create(**QUESTION)


def messages_stream(place: Place) -> object:
    with anthropic.Anthropic(**options(place)) as service:
        return list(service.messages.create(**QUESTION, stream=True))


async def messages_async(place: Place) -> object:
    async with anthropic.AsyncAnthropic(**options(place)) as service:
        return await service.messages.create(**QUESTION)


async def messages_stream_async(place: Place) -> object:
    async with anthropic.AsyncAnthropic(**options(place)) as service:
        return [chunk async for chunk in await service.messages.create(**QUESTION, stream=True)]


CALLS = {
    "messages": Call(messages),
    "messages-async": Call(messages_async),
    "messages-stream": streaming(messages_stream, event(START, "message_start")),
    "messages-stream-async": streaming(messages_stream_async, event(START, "message_start")),
}
