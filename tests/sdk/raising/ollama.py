"""Calls through the ollama SDK: chat and its stream of JSON lines."""

from __future__ import annotations

import httpx
import ollama

from loopback import json_line
from sdk.places import Call, Event, Place, streaming

MESSAGES = [{"role": "user", "content": "x"}]
CHUNK = {"model": "m", "message": {"role": "assistant", "content": "a"}, "done": False}


def client(place: Place) -> ollama.Client:
    return ollama.Client(host=place.url, timeout=httpx.Timeout(place.read_timeout, connect=place.connect_timeout))


def chat(place: Place) -> object:
    with client(place) as service:
        return service.chat("m", MESSAGES)


def chat_stream(place: Place) -> object:
    with client(place) as service:
        return list(service.chat("m", MESSAGES, stream=True))


def as_line(said: Event) -> bytes:
    return json_line(said.data)


CALLS = {
    "chat": Call(chat),
    "chat-stream": streaming(chat_stream, json_line(CHUNK), written=as_line, content_type="application/x-ndjson"),
}
