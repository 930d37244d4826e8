"""T33: an error event inside an answer that began with 200 is judged by what it says, not by the 200."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import Kind, RetriesExhausted, classify
from forbear.testing import FakeTime, Flaky
from foreign import Thing, foreign

Form = Callable[..., Any]

OK = Thing(status_code=200, headers={})


def anthropic(kind: str, text: str = "") -> Exception:
    body = {"type": "error", "error": {"type": kind, "message": text}}
    return foreign("APIStatusError", "anthropic")(status_code=200, response=OK, body=body)  # type: ignore[no-any-return]


def openai(code: str | None, kind: str | None) -> Exception:
    return foreign("APIError", "openai")(code=code, type=kind, body={"code": code, "type": kind})  # type: ignore[no-any-return]


def gemini(code: int, status: str) -> Exception:
    body = {"error": {"code": code, "status": status}}
    kind = foreign("ServerError" if code >= 500 else "ClientError", "google.genai.errors")
    return kind(code=code, status=status, response=OK, details=body)  # type: ignore[no-any-return]


def ollama(text: str) -> Exception:
    return foreign("ResponseError", "ollama._types")(status_code=-1, error=text)  # type: ignore[no-any-return]


def bedrock(code: str) -> Exception:
    return foreign("EventStreamError", "botocore.exceptions")(response={"Error": {"Code": code}})  # type: ignore[no-any-return]


PASSING: list[tuple[Exception, Kind]] = [
    (anthropic("overloaded_error"), Kind.OVERLOADED),
    (anthropic("api_error"), Kind.SERVER_ERROR),
    (anthropic("rate_limit_error"), Kind.RATE_LIMITED),
    (anthropic("timeout_error"), Kind.TIMEOUT),
    (openai("server_error", "server_error"), Kind.SERVER_ERROR),
    (openai("rate_limit_exceeded", "tokens"), Kind.RATE_LIMITED),
    (openai(None, "server_error"), Kind.SERVER_ERROR),
    (gemini(503, "UNAVAILABLE"), Kind.OVERLOADED),
    (gemini(429, "RESOURCE_EXHAUSTED"), Kind.RATE_LIMITED),
    (gemini(500, "INTERNAL"), Kind.SERVER_ERROR),
    (ollama("an error was encountered while running the model: unexpected EOF"), Kind.SERVER_ERROR),
    (bedrock("throttlingException"), Kind.RATE_LIMITED),
    (bedrock("modelStreamErrorException"), Kind.SERVER_ERROR),
]
PERMANENT: list[tuple[Exception, Kind]] = [
    (anthropic("invalid_request_error"), Kind.INVALID_REQUEST),
    (anthropic("authentication_error"), Kind.AUTH),
    (anthropic("billing_error"), Kind.QUOTA_SPENT),
    (anthropic("something_new"), Kind.UNKNOWN),
    (openai("insufficient_quota", "insufficient_quota"), Kind.QUOTA_SPENT),
    (openai("context_length_exceeded", None), Kind.TOO_LONG),
    (gemini(400, "INVALID_ARGUMENT"), Kind.INVALID_REQUEST),
    (gemini(403, "PERMISSION_DENIED"), Kind.AUTH),
    (ollama("model requires more system memory"), Kind.UNKNOWN),
    (bedrock("validationException"), Kind.INVALID_REQUEST),
]


@pytest.mark.parametrize(
    ("error", "kind"), PASSING + PERMANENT, ids=lambda value: str(value) if isinstance(value, Kind) else ""
)
def test_the_event_says_what_it_is(error: Exception, kind: Kind) -> None:
    failure = classify(error)
    assert failure.kind is kind
    assert failure.transient is (kind in {passing for _, passing in PASSING})
    assert failure.status is None or failure.status >= 400


def test_one_that_may_pass_is_retried(form: Form) -> None:
    for error, _ in PASSING:
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(RetriesExhausted):
            form(fn, max_attempts=2)
        assert fn.calls == 2, error.__dict__


def test_one_that_can_not_leaves_at_once(form: Form) -> None:
    for error, _ in PERMANENT:
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(type(error)):
            form(fn)
        assert fn.calls == 1, error.__dict__


def test_as_an_answer_had_begun_the_server_may_have_acted(form: Form) -> None:
    for error, _ in PASSING:
        assert classify(error).executed == "maybe", error.__dict__
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(type(error)):
            form(fn, idempotent=False)
        assert fn.calls == 1
