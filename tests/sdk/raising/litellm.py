"""Calls through litellm, on its openai and its anthropic route. It may not reach for a price list on the network.

litellm keeps every client it makes in a cache of its own, and never closes one; here they are closed after each call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm

from loopback import event
from sdk.places import Call, Place, streaming
from sdk.raising.openai import CHUNK, MESSAGES

litellm.suppress_debug_info = True


@contextmanager
def clients_closed() -> Iterator[None]:
    cached = litellm.in_memory_llm_clients_cache.cache_dict
    before = set(cached)
    try:
        yield
    finally:
        for key in set(cached) - before:
            cached.pop(key).close()


def complete(place: Place, model: str, **more: Any) -> Any:
    options = {"api_base": place.url, "api_key": "k", "max_retries": 0, "num_retries": 0, "timeout": place.timeout}
    return litellm.completion(model=model, messages=MESSAGES, **options, **more)


def openai_route(place: Place) -> object:
    with clients_closed():
        return complete(place, "openai/m")


def openai_route_stream(place: Place) -> object:
    with clients_closed():
        return list(complete(place, "openai/m", stream=True))


def anthropic_route(place: Place) -> object:
    with clients_closed():
        return complete(place, "anthropic/m")


CALLS = {
    "openai": Call(openai_route),
    "openai-stream": streaming(openai_route_stream, event(CHUNK)),
    "anthropic": Call(anthropic_route),
}
