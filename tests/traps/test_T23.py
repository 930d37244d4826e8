"""T23: of several limits the one that is used up says how long to wait, not the smallest number nor the largest."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from forbear import DeadlineExceeded, classify, read_limits, retry_after_of
from forbear.testing import FakeTime, Flaky
from foreign import answer

SENT = 1_445_412_480.0
DATE = {"Date": formatdate(SENT, usegmt=True)}


def openai(requests: tuple[str | None, str], tokens: tuple[str | None, str]) -> dict[str, str]:
    """What is left of each limit, and when it is full again."""
    found = {"x-ratelimit-reset-requests": requests[1], "x-ratelimit-reset-tokens": tokens[1]}
    for name, left in (("requests", requests[0]), ("tokens", tokens[0])):
        if left is not None:
            found[f"x-ratelimit-remaining-{name}"] = left
    return found


def anthropic(requests: tuple[str, str], tokens: tuple[str, str]) -> dict[str, str]:
    return {
        "anthropic-ratelimit-requests-remaining": requests[0],
        "anthropic-ratelimit-requests-reset": requests[1],
        "anthropic-ratelimit-tokens-remaining": tokens[0],
        "anthropic-ratelimit-tokens-reset": tokens[1],
        **DATE,
    }


CASES: list[tuple[dict[str, str], float | None]] = [
    (openai(("59", "1s"), ("0", "6m0s")), 360.0),
    (openai(("0", "1s"), ("149984", "6m0s")), 1.0),
    (openai(("0", "1s"), ("0", "6m0s")), 360.0),
    (openai((None, "1s"), (None, "6m0s")), 360.0),
    (openai(("0", "120ms"), ("5", "1h2m3.5s")), 0.12),
    (openai(("5", "1s"), ("5", "6m0s")), None),
    (openai(("0", "soon"), ("5", "6m0s")), None),
    (anthropic(("49", "2015-10-21T07:28:01Z"), ("0", "2015-10-21T07:33:00Z")), 300.0),
    (anthropic(("0", "2015-10-21T07:28:01Z"), ("9", "2015-10-21T07:33:00Z")), 1.0),
    ({"ratelimit": '"burst";r=0;t=3, "day";r=900;t=5000'}, 3.0),
    ({"ratelimit": '"burst";r=9;t=3, "day";r=0;t=5000'}, 5000.0),
    ({"ratelimit": "limit=100, remaining=0, reset=25"}, 25.0),
    ({"ratelimit-remaining": "0", "ratelimit-reset": "18"}, 18.0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{SENT + 40:.0f}", **DATE}, 40.0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{(SENT + 40) * 1000:.0f}", **DATE}, 40.0),
]


@pytest.mark.parametrize(("headers", "wait"), CASES)
def test_the_limit_that_is_used_up_says_how_long(headers: dict[str, str], wait: float | None) -> None:
    assert retry_after_of(answer(429, headers)) == wait
    assert classify(answer(429, headers)).retry_after == wait
    assert retry_after_of(answer(429, {name.title(): value for name, value in headers.items()})) == wait


def test_the_call_waits_for_it_or_ends_at_once(form: Callable[..., Any]) -> None:
    tokens = answer(429, openai(("59", "1s"), ("0", "6m0s")))
    with FakeTime() as clock:
        assert form(Flaky(tokens, "done"), deadline=400.0) == "done"
        assert clock.sleeps == [360.0]
    fn = Flaky(then=tokens)
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            form(fn)
        assert (clock.now, fn.calls, caught.value.hint) == (0.0, 1, 360.0)


def test_limits_come_with_every_answer_and_say_nothing_about_other_failures(form: Callable[..., Any]) -> None:
    for status in (408, 500, 502, 503, 529):
        with FakeTime() as clock:
            assert form(Flaky(answer(status, openai(("0", "1s"), ("0", "6m0s"))), "done"), backoff=[0.5]) == "done"
            assert clock.sleeps == [0.5]


def test_an_explicit_wait_overrules_every_limit() -> None:
    headers = openai(("59", "1s"), ("0", "6m0s"))
    assert retry_after_of(answer(429, {**headers, "Retry-After": "7"})) == 7.0
    assert retry_after_of(answer(429, {**headers, "retry-after-ms": "70"})) == 0.07


def test_the_limits_themselves_can_be_read() -> None:
    requests, tokens = read_limits(openai(("59", "1s"), ("0", "6m0s")))
    assert (requests.resource, requests.remaining, requests.reset) == ("requests", 59, 1)
    assert (tokens.resource, tokens.remaining, tokens.reset) == ("tokens", 0, 360)
