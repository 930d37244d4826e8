"""Calls through huggingface-hub's inference client: chat, text generation as a stream, and the offline switch."""

from __future__ import annotations

from unittest import mock

import huggingface_hub

from loopback import event
from sdk.places import Call, Place, streaming

MESSAGES = [{"role": "user", "content": "x"}]
TOKEN = {"index": 1, "token": {"id": 1, "text": "a", "logprob": -0.1, "special": False}, "generated_text": None}


def client(place: Place) -> huggingface_hub.InferenceClient:
    return huggingface_hub.InferenceClient(base_url=place.url, token="k", timeout=place.timeout)


def chat(place: Place) -> object:
    with client(place) as service:
        return service.chat_completion(MESSAGES)


def generate_stream(place: Place) -> object:
    with huggingface_hub.InferenceClient(model=place.url, token="k", timeout=place.timeout) as service:
        return list(service.text_generation("x", stream=True, details=True))


def offline(place: Place) -> object:
    with mock.patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", new=True):
        return huggingface_hub.HfApi(endpoint=place.url, token="k").model_info("m")


CALLS = {
    "chat": Call(chat),
    "generate-stream": streaming(generate_stream, event(TOKEN)),
    "offline": Call(offline, tried=False),
}
