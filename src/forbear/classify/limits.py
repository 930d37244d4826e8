"""Rate limits as servers report them in headers: how much is allowed, how much is left, when it is full again.

Decided here: which of several limits binds. Reset headers come with every answer; they say how long to wait only for a
limit that is used up. Must never know a library. A reader never raises; malformed fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from forbear.classify.dates import length_of_time, plain_number, rfc3339, wait_or_epoch
from forbear.core.rate import Limit

_DIMENSIONS = re.compile(r"(x-ratelimit|anthropic-ratelimit|ratelimit)-(.+)")
_PARAMETER = re.compile(r"(\w+)\s*=\s*\"?([0-9.]+)\"?", re.ASCII)
# A policy: its quoted name, and its parameters up to the next comma that is not quoted.
_POLICY = re.compile(r'"((?:[^"\\]|\\.)*)"?((?:[^,"]|"(?:[^"\\]|\\.)*")*)')
_WORDS = ("limit", "remaining", "reset")


def read_limits(headers: Mapping[str, str], now: float | None = None) -> tuple[Limit, ...]:
    """The limits in a response's headers. `now` is epoch seconds, for resets that are dates."""
    found: dict[str, dict[str, float]] = {}
    headers = {name.lower(): value for name, value in headers.items()}
    for name, value in headers.items():
        match = _DIMENSIONS.fullmatch(name)
        if match is not None:
            _note(found, match.group(2), value, now)
    limits = [Limit(resource=resource, **facts) for resource, facts in found.items()]
    return (*limits, *_structured(headers.get("ratelimit", "")))


def binding_wait(limits: Iterable[Limit], *, certain: bool = False) -> float | None:
    """Seconds until the limit that is used up is full again; where none says it is, the latest of those unknown.

    `certain`: only where one says it is used up.
    """
    timed = [limit for limit in limits if limit.reset is not None]
    spent = [limit for limit in timed if limit.remaining == 0]
    waits = [
        limit.reset
        for limit in (spent if certain else spent or timed)
        if limit.reset is not None and not limit.remaining
    ]
    return max(waits, default=None)


def _note(found: dict[str, dict[str, float]], rest: str, value: str, now: float | None) -> None:
    """`rest` is "requests-reset" with Anthropic, "reset-requests" with OpenAI, "reset" with most others."""
    words = rest.split("-")
    word = words[0] if words[0] in _WORDS else words[-1]
    if word not in _WORDS:
        return
    words.remove(word)
    number = _reset(value, now) if word == "reset" else plain_number(value)
    if number is not None:
        found.setdefault("-".join(words), {})[word] = number


def _reset(value: str, now: float | None) -> float | None:
    instant = rfc3339(value)
    if instant is not None:
        return None if now is None else max(0.0, instant - now)
    return length_of_time(value) if plain_number(value) is None else wait_or_epoch(value, now)


def _structured(value: str) -> list[Limit]:
    """The `RateLimit` field: `limit=100, remaining=0, reset=25`, or `"default";r=0;t=30, ...` with several policies."""
    if not value or len(value) > 2_000:
        return []
    if '"' not in value:
        facts = {name: plain_number(text) for name, text in _PARAMETER.findall(value) if name in _WORDS}
        return [Limit(resource="", **facts)] if facts else []
    return [_policy(name, said) for name, said in _POLICY.findall(value)]


def _policy(name: str, said: str) -> Limit:
    facts = {word: plain_number(text) for word, text in _PARAMETER.findall(said)}
    return Limit(resource=name, remaining=facts.get("r"), reset=facts.get("t"))
