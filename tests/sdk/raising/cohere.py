"""Calls through the cohere SDK: chat and its stream."""

from __future__ import annotations

from typing import Any

import cohere
import httpx

from loopback import event
from sdk.places import Call, Place, streaming

QUESTION: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "x"}],
    "request_options": {"max_retries": 0},
}
START = {"type": "message-start", "id": "c", "delta": {"message": {"role": "assistant", "content": []}}}


def chat(place: Place) -> object:
    with connection(place) as own:
        return client(place, own).chat(**QUESTION)


def chat_stream(place: Place) -> object:
    with connection(place) as own:
        return list(client(place, own).chat_stream(**QUESTION))


def connection(place: Place) -> httpx.Client:
    return httpx.Client(timeout=httpx.Timeout(place.read_timeout, connect=place.connect_timeout))


def client(place: Place, own: httpx.Client) -> cohere.ClientV2:
    return cohere.ClientV2(api_key="k", base_url=place.url, httpx_client=own, timeout=place.timeout)


CALLS = {"chat": Call(chat), "chat-stream": streaming(chat_stream, event(START, "message-start"))}
