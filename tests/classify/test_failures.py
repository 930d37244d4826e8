"""What an error means for the call that met it."""

from __future__ import annotations

import http
import socket

import httpx
import pytest

from forbear.classify.failures import classify, is_retryable, is_transient, status_code_of
from forbear.core.failure import Failure, Kind
from forbear.errors import ApiError, CircuitOpenError, ResultRejected, RetryError, gave_up


class Answer:
    def __init__(self, **facts: object) -> None:
        self.__dict__.update(facts)


class WebError(Exception):
    """An error as HTTP libraries make them: only what is given exists."""

    def __init__(self, **facts: object) -> None:
        super().__init__()
        self.__dict__.update(facts)


def failed_answer(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "https://example.org")
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError("", request=request, response=response)


# ---- the status that an error carries ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ApiError(503),
        WebError(status_code=503),
        WebError(status=503),
        WebError(response=Answer(status_code=503)),
        WebError(response=Answer(status=503)),
        WebError(status_code=None, response=Answer(status_code=503)),
        WebError(status_code=http.HTTPStatus.SERVICE_UNAVAILABLE),
        failed_answer(503),
    ],
)
def test_a_status_is_found_wherever_a_library_keeps_it(error: Exception) -> None:
    status = status_code_of(error)
    assert status == 503
    assert type(status) is int


def test_the_error_itself_is_asked_before_its_response() -> None:
    assert status_code_of(WebError(status_code=429, status=500, response=Answer(status_code=503))) == 429
    assert status_code_of(WebError(status=500, response=Answer(status_code=503))) == 500


@pytest.mark.parametrize("value", [399, 600, 0, -503, True, "503", 503.0, None])
def test_what_is_no_error_status_is_not_one(value: object) -> None:
    assert status_code_of(WebError(status_code=value)) is None


def test_an_error_without_a_status_has_none() -> None:
    assert status_code_of(ValueError()) is None
    assert status_code_of(WebError(response=None)) is None


@pytest.mark.parametrize("status", [400, 599])
def test_both_ends_of_the_error_statuses_count(status: int) -> None:
    assert status_code_of(ApiError(status)) == status


# ---- classify ----------------------------------------------------------------------------------------------------


def test_a_status_tells_kind_hint_and_whether_anything_was_done() -> None:
    assert classify(ApiError(429, retry_after=7)) == Failure(
        transient=True, retry_after=7.0, kind=Kind.RATE_LIMITED, executed="no", status=429
    )
    assert classify(ApiError(500)) == Failure(transient=True, kind=Kind.SERVER_ERROR, executed="maybe", status=500)
    assert classify(ApiError(404)) == Failure(transient=False, kind=Kind.NOT_FOUND, executed="maybe", status=404)


def test_a_503_was_not_carried_out_where_it_names_a_time_to_come_back() -> None:
    assert classify(failed_answer(503)).executed == "maybe"
    assert classify(failed_answer(503, **{"Retry-After": "0"})).executed == "no"


def test_a_call_that_must_not_be_repeated_is_repeated_only_where_nothing_was_done() -> None:
    assert classify(ApiError(429), idempotent=False).safe_to_retry
    assert not classify(ApiError(500), idempotent=False).safe_to_retry
    assert classify(ConnectionRefusedError(), idempotent=False).safe_to_retry
    assert not classify(ConnectionResetError(), idempotent=False).safe_to_retry
    assert not classify(ValueError(), idempotent=False).safe_to_retry


@pytest.mark.parametrize("error", [ApiError(500), ConnectionResetError(), ValueError()])
def test_an_idempotent_call_is_always_safe_to_repeat(error: Exception) -> None:
    assert classify(error).safe_to_retry


@pytest.mark.parametrize(
    ("error", "kind", "executed"),
    [
        (TimeoutError(), Kind.TIMEOUT, "maybe"),
        (ConnectionRefusedError(), Kind.CONNECTION_REFUSED, "no"),
        (socket.gaierror(), Kind.CONNECTION_REFUSED, "no"),
        (httpx.ConnectTimeout(""), Kind.TIMEOUT, "no"),
        (httpx.ReadError(""), Kind.CONNECTION_LOST, "maybe"),
    ],
)
def test_a_failure_of_the_network_may_pass(error: Exception, kind: Kind, executed: str) -> None:
    failure = classify(error)
    assert (failure.transient, failure.kind, failure.executed, failure.status) == (True, kind, executed, None)


def test_the_status_is_believed_before_the_class() -> None:
    class Odd(ConnectionError):
        status_code = 400

    assert classify(Odd()) == Failure(transient=False, kind=Kind.INVALID_REQUEST, status=400)


@pytest.mark.parametrize("error", [ValueError(), Exception(), httpx.ProxyError(""), httpx.UnsupportedProtocol("")])
def test_what_is_not_known_to_pass_is_permanent(error: Exception) -> None:
    assert classify(error) == Failure(transient=False, kind=Kind.UNKNOWN)


def test_a_hint_is_kept_whatever_else_is_known() -> None:
    assert classify(WebError(retry_after=7)) == Failure(transient=False, retry_after=7.0)

    class Slow(TimeoutError):
        retry_after = 3

    assert classify(Slow()) == Failure(transient=True, retry_after=3.0, kind=Kind.TIMEOUT)


def test_a_refused_result_may_pass_next_time() -> None:
    assert classify(ResultRejected("pending")) == Failure(transient=True, kind=Kind.REJECTED_RESULT)


@pytest.mark.parametrize(
    "error",
    [
        gave_up("max_attempts", 3, ApiError(503)),
        gave_up("deadline", 3, ApiError(503)),
        gave_up("budget", 3, ApiError(503)),
        CircuitOpenError(1.0),
    ],
)
def test_what_a_layer_below_gave_up_is_never_retried(error: RetryError | CircuitOpenError) -> None:
    assert classify(error) == Failure(transient=False, kind=Kind.GAVE_UP)
    assert not is_retryable(error)
    assert not is_transient(error)


# ---- the two rules -----------------------------------------------------------------------------------------------


def test_the_default_rule_retries_of_an_api_error_408_429_and_every_5xx() -> None:
    retried = [status for status in range(400, 620) if is_retryable(ApiError(status))]
    assert retried == [408, 429, *range(500, 600)]


def test_the_default_rule_retries_of_other_errors_what_may_pass() -> None:
    assert is_retryable(failed_answer(409))
    assert not is_retryable(failed_answer(501))
    assert is_retryable(TimeoutError())
    assert not is_retryable(ValueError())


def test_the_toolkit_rule_retries_eight_statuses() -> None:
    retried = [status for status in range(400, 600) if is_transient(ApiError(status))]
    assert retried == [408, 409, 429, 500, 502, 503, 504, 529]


def test_the_toolkit_rule_retries_the_network_where_there_is_no_status() -> None:
    assert is_transient(httpx.ReadTimeout(""))
    assert is_transient(ConnectionResetError())
    assert not is_transient(httpx.ProxyError(""))
    assert not is_transient(ValueError())
