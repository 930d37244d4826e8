"""A stream settles what it has reserved of a service's tokens by the usage that its chunks name, wherever they name it.

Proven: for the shapes of the known services, as dictionaries and as objects, blocking, async and hedged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from forbear import Hedge, Upstream
from forbear.testing import FakeTime

RESERVED = 2000
BURST = 60_000
MESSAGES: list[Any] = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 900, "output_tokens": 1}}},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 50}},
    {"type": "message_stop"},
]
COMPLETIONS: list[Any] = [
    {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}], "usage": None},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None},
    {"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 50, "total_tokens": 950}},
]
RESPONSES: list[Any] = [
    {"type": "response.created", "response": {"usage": None}},
    {"type": "response.output_text.delta", "delta": "x"},
    {
        "type": "response.completed",
        "response": {"usage": {"input_tokens": 900, "output_tokens": 50, "total_tokens": 950}},
    },
]


def as_objects(value: Any) -> Any:
    """The same as the objects of a library."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_objects(part) for name, part in value.items()})
    return [as_objects(part) for part in value] if isinstance(value, list) else value


async def read(chunks: list[Any], upstream: Upstream, form: str, events: str | None) -> int:
    """How many chunks of a stream that has reserved its tokens have come."""
    options: dict[str, Any] = {"tokens": RESERVED} | ({} if events is None else {"events": events})
    if form == "blocking":
        return len(list(upstream.stream(lambda: iter(chunks), **options)))

    async def source() -> AsyncIterator[Any]:
        for chunk in chunks:
            yield chunk

    if form == "hedged":
        options["hedge"] = Hedge(5.0)
    return len([chunk async for chunk in upstream.stream(source, **options)])


@pytest.mark.parametrize("form", ["blocking", "async", "hedged"])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("objects", [True, False])
@pytest.mark.parametrize("shape", ["messages", "completions", "responses"])
async def test_the_usage_that_its_chunks_name_takes_the_place_of_what_was_reserved(
    shape: str, objects: bool, named: bool, form: str
) -> None:
    chunks = {"messages": MESSAGES, "completions": COMPLETIONS, "responses": RESPONSES}[shape]
    events = ("anthropic" if shape == "messages" else "openai") if named else None
    with FakeTime():
        upstream = Upstream("service", tokens_per_minute=BURST, burst=BURST)
        given = as_objects(chunks) if objects else chunks
        assert await read(given, upstream, form, events) == len(chunks)
        assert upstream.snapshot().tokens_left == BURST - 950


@pytest.mark.parametrize("form", ["blocking", "async", "hedged"])
@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": "950"}, {"output_tokens": float("nan")}])
async def test_where_it_names_none_what_was_reserved_is_spent(usage: Any, form: str) -> None:
    with FakeTime():
        upstream = Upstream("service", tokens_per_minute=BURST, burst=BURST)
        assert await read([{"text": "a", "usage": usage}], upstream, form, None) == 1
        assert upstream.snapshot().tokens_left == BURST - RESERVED
