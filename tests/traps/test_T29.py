"""T29: every status that may pass is retried: 408, 409, 425, 429, 500, 502 to 504, those of CDNs, and 529."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear import ApiError, RetriesExhausted, is_retryable, is_transient
from forbear.testing import FakeTime, Flaky
from foreign import Thing, WebError, answer, foreign

Form = Callable[..., Any]

RETRIED = [408, 409, 425, 429, 500, 502, 503, 504, *range(520, 525), 529]
FINAL = [
    400,
    401,
    402,
    403,
    404,
    405,
    406,
    407,
    410,
    411,
    412,
    413,
    414,
    415,
    418,
    422,
    423,
    424,
    428,
    431,
    451,
    501,
    505,
]
EXACT: dict[str, Callable[[int], Exception]] = {
    "an attribute": lambda status: WebError(status_code=status),
    "another": lambda status: WebError(status=status),
    "a response": lambda status: WebError(response=Thing(status_code=status)),
    "a body": lambda status: WebError(body={"error": {"code": status}}),
    "botocore": lambda status: foreign("ClientError", "botocore.exceptions")(
        response={"Error": {"Code": str(status)}, "ResponseMetadata": {"HTTPStatusCode": status}}
    ),
    "httpx": lambda status: httpx.HTTPStatusError(
        "", request=httpx.Request("POST", "https://example.org"), response=httpx.Response(status)
    ),
}


@pytest.mark.parametrize("make", EXACT.values(), ids=EXACT)
def test_the_set_is_complete_wherever_the_status_is_found(make: Callable[[int], Exception]) -> None:
    assert [status for status in RETRIED if not is_retryable(make(status))] == []
    assert [status for status in FINAL if is_retryable(make(status))] == []


def test_calls_retry_them_without_a_body_or_a_header(form: Form) -> None:
    for status in RETRIED:
        fn = Flaky(then=answer(status))
        with FakeTime(), pytest.raises(RetriesExhausted):
            form(fn, max_attempts=2)
        assert fn.calls == 2, status


def test_all_others_leave_at_once(form: Form) -> None:
    for status in FINAL:
        fn = Flaky(then=answer(status))
        with FakeTime(), pytest.raises(WebError):
            form(fn)
        assert fn.calls == 1, status


def test_the_error_of_our_own_has_the_set_that_it_always_had() -> None:
    assert [status for status in RETRIED if not is_retryable(ApiError(status))] == [409, 425]
    assert [status for status in FINAL if is_retryable(ApiError(status))] == [501, 505]


def test_the_toolkits_rule_has_the_eight_of_its_own() -> None:
    assert [status for status in range(400, 600) if is_transient(answer(status))] == [
        408, 409, 429, 500, 502, 503, 504, 529,
    ]  # fmt: skip


def test_an_overload_is_one_even_where_a_client_calls_it_something_else() -> None:
    hidden = foreign("InternalServerError", "litellm.exceptions")(status_code=500, provider_status_code=529)
    assert is_retryable(hidden)
    assert is_retryable(foreign("InternalServerError", "openai")(status_code=529))


def test_the_server_is_believed_where_it_names_the_reason(form: Form) -> None:
    for status, code, calls in (
        (400, "ThrottlingException", 2),
        (424, "ModelStreamErrorException", 2),
        (403, "full", 1),
    ):
        fn = Flaky(then=answer(status, {}, {"code": code}))
        with FakeTime(), pytest.raises(Exception):
            form(fn, max_attempts=2)
        assert fn.calls == calls
