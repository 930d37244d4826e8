"""Calls through the openai SDK: chat, its stream, the responses API, the Azure client, and a parsed answer."""

from __future__ import annotations

from typing import Any

import openai
from pydantic import BaseModel

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
DELTA = {
    "type": "response.output_text.delta",
    "sequence_number": 1,
    "item_id": "i",
    "output_index": 0,
    "content_index": 0,
    "delta": "a",
    "logprobs": [],
}
OUT_OF_TOKENS = b"""{"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0,
 "finish_reason": "length", "message": {"role": "assistant", "content": "{"}}]}"""


class Reading(BaseModel):
    """What `parsed` wants to read from the answer."""

    value: int


def options(place: Place) -> dict[str, Any]:
    limits = openai.Timeout(place.read_timeout, connect=place.connect_timeout)
    return {"api_key": "k", "max_retries": 0, "timeout": limits}


def client(place: Place) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{place.url}/v1", **options(place))


def async_client(place: Place) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{place.url}/v1", **options(place))


def chat(place: Place) -> object:
    with client(place) as service:
        return service.chat.completions.create(model="m", messages=MESSAGES)


def chat_stream(place: Place) -> object:
    with client(place) as service:
        return list(service.chat.completions.create(model="m", messages=MESSAGES, stream=True))


async def chat_async(place: Place) -> object:
    async with async_client(place) as service:
        return await service.chat.completions.create(model="m", messages=MESSAGES)


async def chat_stream_async(place: Place) -> object:
    async with async_client(place) as service:
        return [
            chunk async for chunk in await service.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        ]


def responses(place: Place) -> object:
    with client(place) as service:
        return service.responses.create(model="m", input="x")


def responses_stream(place: Place) -> object:
    with client(place) as service:
        return list(service.responses.create(model="m", input="x", stream=True))


def azure(place: Place) -> object:
    with openai.AzureOpenAI(azure_endpoint=place.url, api_version="2024-10-21", **options(place)) as service:
        return service.chat.completions.create(model="m", messages=MESSAGES)


def parsed(place: Place) -> object:
    with client(place) as service:
        return service.chat.completions.parse(model="m", messages=MESSAGES, response_format=Reading)


CALLS = {
    "chat": Call(chat),
    "chat-async": Call(chat_async),
    "chat-stream": streaming(chat_stream, event(CHUNK)),
    "chat-stream-async": streaming(chat_stream_async, event(CHUNK)),
    "responses": Call(responses, tried=False),
    "responses-stream": streaming(responses_stream, event(DELTA, "response.output_text.delta")),
    "azure": Call(azure, tried=False),
    "parsed": Call(parsed, answer=OUT_OF_TOKENS, tried=False),
}
