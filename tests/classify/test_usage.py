"""What a good answer says about the service's limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace as Thing
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from forbear.classify.usage import limits_in, tokens_in, usage_in
from forbear.core.rate import Limit

NOW = 1_796_083_200.0  # 2026-12-01T00:00:00Z


# ---- tokens ------------------------------------------------------------------------------------------------------

# What answers look like, and the tokens that they say were used.
ANSWERS: dict[str, tuple[Any, float]] = {
    "openai": (Thing(usage=Thing(prompt_tokens=9, completion_tokens=3, total_tokens=12)), 12),
    "openai, responses": (Thing(usage=Thing(input_tokens=9, output_tokens=3, total_tokens=12)), 12),
    "anthropic": (
        Thing(
            usage=Thing(input_tokens=9, output_tokens=3, cache_creation_input_tokens=100, cache_read_input_tokens=1000)
        ),
        1112,
    ),
    "anthropic, without a cache": (
        Thing(usage=Thing(input_tokens=9, output_tokens=3, cache_creation_input_tokens=None)),
        12,
    ),
    "gemini": (Thing(usage_metadata=Thing(prompt_token_count=9, total_token_count=15)), 15),
    "gemini, raw": ({"usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 15}}, 15),
    "bedrock": ({"usage": {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}}, 12),
    "bedrock, without a total": ({"usage": {"inputTokens": 9, "outputTokens": 3}}, 12),
    "cohere": (
        Thing(usage=Thing(billed_units=Thing(input_tokens=1), tokens=Thing(input_tokens=9, output_tokens=3))),
        12,
    ),
    "cohere, older": (Thing(meta=Thing(tokens=Thing(input_tokens=9.0, output_tokens=3.0))), 12),
    "ollama": (Thing(prompt_eval_count=9, eval_count=3), 12),
    "ollama, from the cache": ({"eval_count": 3, "done": True}, 3),
    "usage itself": ({"prompt_tokens": 9, "completion_tokens": 3}, 12),
    "a total of parts is believed before its parts": ({"usage": {"input_tokens": 9, "total_tokens": 40}}, 40),
    "a total that is no number is not": ({"usage": {"total_tokens": None, "input_tokens": 9}}, 9),
    "nothing used": ({"usage": {"total_tokens": 0}}, 0),
    "an empty place before the real one": ({"usage": None, "usage_metadata": {"total_token_count": 5}}, 5),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_tokens_of_an_answer_are_read_as_its_library_writes_them(name: str) -> None:
    answer, tokens = ANSWERS[name]
    found = tokens_in(answer)
    assert found == tokens
    assert type(found) is float


@pytest.mark.parametrize(
    "answer",
    [
        None, "text", 5, b"", [], {}, (), object(), Exception(), {"usage": {}}, {"usage": "much"}, {"usage": 7},
        {"usage": {"total_tokens": "12"}}, {"usage": {"tokens": {}}}, {"usage": []}, Thing(meta=None), Mock(),
        MagicMock(), {"data": {"usage": {"total_tokens": 5}}},
    ],
)  # fmt: skip
def test_an_answer_that_does_not_say_says_nothing(answer: object) -> None:
    assert tokens_in(answer) is None


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, -math.inf, True, "9", None, 10**400, 1j, [9]])
def test_what_is_no_number_of_tokens_is_left_out(bad: object) -> None:
    assert tokens_in({"usage": {"total_tokens": bad}}) is None
    if bad != 10**400:
        assert tokens_in({"usage": {"total_tokens": bad, "input_tokens": 9, "output_tokens": bad}}) == 9


class Broken:
    """Fails at whatever is asked of it."""

    @property
    def usage(self) -> object:
        raise RuntimeError("computed, and not to be had")

    @property
    def headers(self) -> object:
        raise RuntimeError("computed, and not to be had")

    response = headers


class BrokenMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("the connection is closed")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("the connection is closed")

    def __len__(self) -> int:
        return 1


class Liar:
    """Its class can't be asked for."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("nothing is told")


class Loop:
    """Holds itself."""

    def __getattr__(self, name: str) -> Any:
        return self


BROKEN: dict[str, Callable[[], object]] = {
    "attributes that fail": Broken,
    "a mapping that fails": BrokenMapping,
    "a usage that fails": lambda: {"usage": BrokenMapping()},
    "a class that can't be asked for": Liar,
    "a usage whose class can't be asked for": lambda: {"usage": Liar()},
    "one that holds itself": Loop,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_reader_never_raises(name: str) -> None:
    assert tokens_in(BROKEN[name]()) is None
    assert limits_in(BROKEN[name](), NOW) == ()


def test_numbers_too_large_to_add_up_say_nothing() -> None:
    assert tokens_in({"usage": {"input_tokens": 1.7e308, "output_tokens": 1.7e308}}) is None


def test_who_is_cancelled_while_an_answer_is_read_stays_cancelled() -> None:
    class Interrupted:
        @property
        def usage(self) -> object:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokens_in(Interrupted())


# ---- limits ------------------------------------------------------------------------------------------------------

HEADERS = {
    "X-RateLimit-Limit-Requests": "60",
    "x-ratelimit-remaining-requests": "59",
    "X-Ratelimit-Reset-Requests": "1s",
    "Content-Type": "application/json",
}
REQUESTS = Limit(resource="requests", limit=60, remaining=59, reset=1)


@pytest.mark.parametrize(
    "answer", [Thing(headers=HEADERS), Thing(response=Thing(headers=HEADERS)), Thing(headers=list(HEADERS.items()))]
)
def test_the_limits_are_in_the_headers_of_a_response_or_of_the_one_that_an_error_carries(answer: object) -> None:
    assert limits_in(answer, NOW) == (REQUESTS,)


def test_the_headers_of_the_answer_itself_come_first() -> None:
    other = {"x-ratelimit-remaining-requests": "1"}
    assert limits_in(Thing(headers=HEADERS, response=Thing(headers=other)), NOW) == (REQUESTS,)
    assert limits_in(Thing(headers={}, response=Thing(headers=other)), NOW) == ()


def test_dates_need_a_clock() -> None:
    answer = Thing(headers={"anthropic-ratelimit-tokens-reset": "2026-12-01T00:00:42Z"})
    assert limits_in(answer, NOW) == (Limit(resource="tokens", reset=42.0),)
    assert limits_in(answer, None) == ()


@pytest.mark.parametrize(
    "answer",
    [None, "text", {}, {"headers": HEADERS}, Thing(headers=None), Thing(headers={}), Thing(headers=5), Mock(),
     MagicMock(), Thing(response=None), Thing(headers=BrokenMapping())],
)  # fmt: skip
def test_without_headers_there_are_no_limits(answer: object) -> None:
    assert limits_in(answer, NOW) == ()


def test_usage_of_a_chunk_is_read_by_the_names_of_its_service() -> None:
    assert usage_in({"message": {"usage": {"input_tokens": 2, "note": "x"}}}) == {"input_tokens": 2.0}
    assert usage_in({"response": {"usage": {"total_tokens": 3}}}) == {"total_tokens": 3.0}
    assert usage_in({"response": "text"}) == {}
    assert usage_in(object()) == {}
