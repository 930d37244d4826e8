"""Calls through the mistralai SDK: chat and its stream."""

from __future__ import annotations

from typing import Any

from mistralai.client import Mistral

from loopback import event
from sdk.places import Call, Place, streaming

QUESTION: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
CHUNK = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}


def client(place: Place) -> Mistral:
    return Mistral(api_key="k", server_url=place.url, timeout_ms=int(place.timeout * 1000))


def chat(place: Place) -> object:
    with client(place) as service:
        return service.chat.complete(**QUESTION)


def chat_stream(place: Place) -> object:
    with client(place) as service, service.chat.stream(**QUESTION) as stream:
        return list(stream)


CALLS = {"chat": Call(chat), "chat-stream": streaming(chat_stream, event(CHUNK))}
