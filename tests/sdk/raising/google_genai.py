"""Calls through the google-genai SDK: sync (httpx2), async (aiohttp), their streams, and the interactions API."""

from __future__ import annotations

from unittest import mock

from google import genai
from google.genai import types

from loopback import event
from sdk.places import Call, Place, streaming

CHUNK = {"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}, "index": 0}]}
STARTED = {"event_type": "interaction.start", "interaction": {"id": "i", "status": "in_progress"}}
NO_PAUSE = mock.patch("google.genai._api_client.random.randint", return_value=-1)
"""The async client repeats a lost connection once, after 1 + randint(0, 9) seconds, and can't be told not to."""


def client(place: Place) -> genai.Client:
    retries = types.HttpRetryOptions(attempts=1)
    limits = types.HttpOptions(base_url=place.url, timeout=int(place.timeout * 1000), retry_options=retries)
    return genai.Client(api_key="k", http_options=limits)


def generate(place: Place) -> object:
    with client(place) as service:
        return service.models.generate_content(model="m", contents="x")


def generate_stream(place: Place) -> object:
    with client(place) as service:
        return list(service.models.generate_content_stream(model="m", contents="x"))


async def generate_async(place: Place) -> object:
    with NO_PAUSE:
        async with client(place).aio as service:
            return await service.models.generate_content(model="m", contents="x")


async def generate_stream_async(place: Place) -> object:
    with NO_PAUSE:
        async with client(place).aio as service:
            return [chunk async for chunk in await service.models.generate_content_stream(model="m", contents="x")]


def interact(place: Place) -> object:
    with client(place) as service:
        return service.interactions.create(model="m", input="x")


def interact_stream(place: Place) -> object:
    with client(place) as service:
        return list(service.interactions.create(model="m", input="x", stream=True))


CALLS = {
    "generate": Call(generate),
    "generate-async": Call(generate_async),
    "generate-stream": streaming(generate_stream, event(CHUNK)),
    "generate-stream-async": streaming(generate_stream_async, event(CHUNK)),
    "interactions": Call(interact),
    "interactions-stream": streaming(interact_stream, event(STARTED)),
}
