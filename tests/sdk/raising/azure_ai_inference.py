"""Calls through azure-ai-inference (azure-core): chat."""

from __future__ import annotations

from typing import Any

from azure.ai.inference import ChatCompletionsClient
from azure.core.credentials import AzureKeyCredential

from sdk.places import Call, Place


def chat(place: Place) -> object:
    limits: dict[str, Any] = {"connection_timeout": place.connect_timeout, "read_timeout": place.read_timeout}
    with ChatCompletionsClient(place.url, AzureKeyCredential("k"), retry_total=0, **limits) as client:
        return client.complete(messages=[{"role": "user", "content": "x"}], model="m")


CALLS = {"chat": Call(chat)}
