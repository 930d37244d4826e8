"""T28: a quota that is used up is final, although its status says "too many requests". Waiting brings no money."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import Kind, RetriesExhausted, classify, is_retryable, is_transient
from forbear.testing import FakeTime, Flaky, record_events
from foreign import WebError, answer, chained, foreign

Form = Callable[..., Any]


def of(library: str, name: str = "RateLimitError", **facts: object) -> Exception:
    return foreign(name, library)(**facts)  # type: ignore[no-any-return]


SPENT: dict[str, Exception] = {
    "openai": of("openai", status_code=429, code="insufficient_quota", type="insufficient_quota"),
    "openai, by its body": answer(429, {}, {"error": {"type": "insufficient_quota", "code": None}}),
    "openai, with a hint": answer(429, {"Retry-After": "1"}, {"error": {"code": "insufficient_quota"}}),
    "openai, another code": answer(429, {}, {"error": {"code": "billing_hard_limit_reached"}}),
    "openai, inside a stream": of("openai", "APIError", code="insufficient_quota", body={}),
    "groq": of("groq", status_code=429, body={"error": {"code": "insufficient_quota"}}),
    "anthropic": of("anthropic", status_code=429, type="rate_limit_error", error_code="enforced_spend_limit_reached"),
    "anthropic, by its body": answer(
        429, {}, {"error": {"type": "rate_limit_error", "details": {"error_code": "contract_spend_limit_reached"}}}
    ),
    "anthropic, a 400": of(
        "anthropic", "BadRequestError", status_code=400,
        body={"error": {"type": "invalid_request_error", "message": "You reached your specified API usage limits"}},
    ),
    "a 402": answer(402),
    "gemini, per day": answer(
        429, {}, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [
            {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]},
            {"@type": "google.rpc.RetryInfo", "retryDelay": "36s"},
        ]}}
    ),
    "gemini, prepaid": answer(402, {}, {"error": {"code": 402, "status": "RESOURCE_EXHAUSTED"}}),
    "cohere, per month": of("cohere.errors", status_code=429, body={"message": "limited to 1000 API calls / month"}),
    "xai": of("openai", status_code=429, body="Your team has used all available credits"),
    "openrouter": answer(402, {}, {"error": {"code": 402, "metadata": {"limit_source": "openrouter_credits"}}}),
    "litellm": of("litellm.exceptions", status_code=429, message="RateLimitError: insufficient_quota", response=None),
    "wrapped": chained(WebError(), answer(429, {}, {"error": {"code": "insufficient_quota"}})),
}  # fmt: skip
PASSING: dict[str, Exception] = {
    "openai": of("openai", status_code=429, code="rate_limit_exceeded", type="tokens"),
    "openai, by its body": answer(429, {}, {"error": {"code": "rate_limit_exceeded"}}),
    "anthropic": of("anthropic", status_code=429, type="rate_limit_error"),
    "gemini, per minute": answer(
        429, {}, {"error": {"status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota", "details": [
            {"violations": [{"quotaId": "GenerateRequestsPerMinute", "quotaValue": "15"}]},
        ]}}
    ),
    "cohere, per minute": of("cohere.errors", status_code=429, body={"message": "limited to 20 API calls / minute"}),
    "a text that looks alike": answer(429, {}, {"error": {"message": "insufficient_quota per month billing"}}),
    "no body": answer(429),
    "a body that is none": answer(429, {}, "<html>insufficient_quota</html>"),
}  # fmt: skip


@pytest.mark.parametrize("error", SPENT.values(), ids=SPENT)
def test_a_quota_that_is_used_up_is_known_as_such(error: Exception) -> None:
    failure = classify(error)
    assert (failure.kind, failure.transient) == (Kind.QUOTA_SPENT, False)
    assert not is_retryable(error)
    assert not is_transient(error)


@pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)
def test_a_rate_that_is_too_high_for_now_is_not_mistaken_for_it(error: Exception) -> None:
    failure = classify(error)
    assert (failure.kind, failure.transient) == (Kind.RATE_LIMITED, True)


def test_it_ends_the_call_after_one_attempt_with_the_error_as_it_is(form: Form) -> None:
    for error in SPENT.values():
        fn = Flaky(then=error)
        with FakeTime() as clock, record_events() as events:
            with pytest.raises(type(error)) as caught:
                form(fn)
            assert (clock.now, fn.calls) == (0.0, 1)
        assert caught.value is error
        assert [end.reason for end in events.ends] == ["permanent"]


def test_a_rate_limit_is_retried(form: Form) -> None:
    for error in PASSING.values():
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(RetriesExhausted):
            form(fn, max_attempts=3)
        assert fn.calls == 3


def test_one_that_shows_up_after_a_rate_limit_ends_the_call_there(form: Form) -> None:
    fn = Flaky(PASSING["openai"], SPENT["openai"], then="never")
    with FakeTime(), pytest.raises(type(SPENT["openai"])):
        form(fn)
    assert fn.calls == 2
