"""Calls through the groq SDK: chat and its stream."""

from __future__ import annotations

from typing import Any

import groq

from loopback import event
from sdk.places import Call, Place, streaming

MESSAGES: Any = [{"role": "user", "content": "x"}]
CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}],
}


def client(place: Place) -> groq.Groq:
    limits = groq.Timeout(place.read_timeout, connect=place.connect_timeout)
    return groq.Groq(api_key="k", base_url=place.url, max_retries=0, timeout=limits)


def chat(place: Place) -> object:
    with client(place) as service:
        return service.chat.completions.create(model="m", messages=MESSAGES)


def chat_stream(place: Place) -> object:
    with client(place) as service:
        return list(service.chat.completions.create(model="m", messages=MESSAGES, stream=True))


CALLS = {"chat": Call(chat), "chat-stream": streaming(chat_stream, event(CHUNK))}
