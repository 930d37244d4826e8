"""What a good answer says about the service's limits: the tokens that were used, and what is left.

Decided here: under which names the libraries of LLM services keep their usage. Must never know a limiter. A reader
never raises; what is missing or no number is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from forbear.classify.attributes import attribute, tried
from forbear.classify.facts import read_headers
from forbear.classify.limits import read_limits
from forbear.core.rate import Limit

# Where the usage stands in an answer: as an attribute of an object, or as a key.
_PLACES = ("usage", "usage_metadata", "usageMetadata", "meta")
_TOTALS = ("total_tokens", "total_token_count", "totalTokens", "totalTokenCount")
# Parts that add up to a total where none is given. Anthropic counts what its cache served beside the input.
_PARTS = (
    ("prompt_tokens", "completion_tokens"),
    ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    ("inputTokens", "outputTokens"),
    ("prompt_eval_count", "eval_count"),
)
_NAMES = (*_TOTALS, *(name for names in _PARTS for name in names))


def tokens_in(result: object) -> float | None:
    """The tokens that an answer says were used, input and output together; None where it does not say."""
    return tried(_tokens_in, result)


def _tokens_in(result: object) -> float | None:
    for place in _PLACES:
        usage = _part(result, place)
        if usage is not None:
            total = _sum(usage)
            return _sum(_part(usage, "tokens")) if total is None else total
    return _sum(result)


def usage_in(chunk: object) -> dict[str, float]:
    """What a chunk of a stream says was used, by the names of its service; empty where it says nothing.

    Anthropic names the input with the message that begins, OpenAI everything with the response that is complete.
    """
    return tried(_usage_in, chunk) or {}


def _usage_in(chunk: object) -> dict[str, float]:
    for owner in (chunk, *(_part(chunk, inner) for inner in ("message", "response", "chunk"))):
        usage = None if owner is None or isinstance(owner, str) else _part(owner, "usage")
        if usage is not None:
            found = {name: _number(_part(usage, name)) for name in _NAMES}
            return {name: amount for name, amount in found.items() if amount is not None}
    return {}


def limits_in(answer: object, now: float | None) -> tuple[Limit, ...]:
    """The limits in the headers of a response, or of the response that an error carries. `now` is epoch seconds."""
    headers = attribute(answer, "headers")
    if headers is None:
        headers = attribute(attribute(answer, "response"), "headers")
    return () if headers is None else read_limits(read_headers(headers), now)


def _sum(usage: object) -> float | None:
    if usage is None:
        return None
    for name in _TOTALS:
        total = _number(_part(usage, name))
        if total is not None:
            return total
    for names in _PARTS:
        parts = [_number(_part(usage, name)) for name in names]
        known = [part for part in parts if part is not None]
        if known:
            return math.fsum(known)
    return None


def _part(owner: object, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else attribute(owner, name)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        return None
    return float(value)
