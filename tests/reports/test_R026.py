"""R026: "out of credit" comes as a 429 like any rate limit; the body tells, and it is read before the decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear import Kind, RetriesExhausted, classify
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]
REQUEST = httpx.Request("POST", "https://example.org")


def refused(error: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.HTTPStatusError:
    """What httpx raises for a 429 with this JSON."""
    response = httpx.Response(429, headers=headers, json={"error": error}, request=REQUEST)
    return httpx.HTTPStatusError("429", request=REQUEST, response=response)


SPENT = [
    {"code": "insufficient_quota", "type": "insufficient_quota", "message": "check your plan and billing details"},
    {"code": "billing_hard_limit_reached", "message": "billing hard limit has been reached"},
    {"code": "credit_balance_exhausted"},
    {"type": "insufficient_quota"},
]
LIMITED = [
    {"code": "rate_limit_exceeded", "type": "requests", "message": "Rate limit reached, check your billing plan"},
    {"message": "You exceeded your current quota, please check your plan and billing details", "code": 429},
    {"type": "rate_limit_error"},
    {},
]


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "1"}, {"x-should-retry": "true"}], ids=str)
def test_a_quota_that_is_spent_is_asked_for_once_and_named(form: Form, headers: dict[str, str]) -> None:
    for body in SPENT:
        error = refused(body, headers)
        fn = Flaky(then=error)
        with FakeTime() as clock:
            with pytest.raises(httpx.HTTPStatusError) as caught:
                form(fn)
            assert (fn.calls, clock.now) == (1, 0.0)
        assert caught.value is error
        failure = classify(error)
        assert (failure.kind, failure.status) == (Kind.QUOTA_SPENT, 429)
        assert failure.code in {*body.values()}


def test_a_rate_limit_is_retried_whatever_its_text_says(form: Form) -> None:
    for body in LIMITED:
        fn = Flaky(then=refused(body))
        with FakeTime(), pytest.raises(RetriesExhausted):
            form(fn, max_attempts=3)
        assert fn.calls == 3


def test_a_body_that_was_not_read_is_not_read_for_it() -> None:
    def content() -> Any:
        raise AssertionError("the body is read")
        yield b""

    response = httpx.Response(429, content=content(), request=REQUEST)
    assert classify(httpx.HTTPStatusError("429", request=REQUEST, response=response)).kind is Kind.RATE_LIMITED
