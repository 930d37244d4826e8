"""T31: nothing is guessed from a name; a status is read wherever libraries keep it."""

from __future__ import annotations

import http
from collections.abc import Callable
from typing import Any

import pytest

from forbear import Kind, RetriesExhausted, classify, status_code_of
from forbear.testing import FakeTime, Flaky
from foreign import Thing, WebError, answer, foreign

Form = Callable[..., Any]

NAMES = [
    "RateLimitError", "TooManyRequests", "Timeout", "TimeoutException", "ConnectionError", "ConnectError",
    "TransientError", "ServiceUnavailable", "APIConnectionError", "OverloadedError", "ThrottlingException",
    "RetryableError", "TemporaryFailure", "InternalServerError", "UnavailableError", "BrokenPipe", "ReadTimeout",
    "ServerError",
]  # fmt: skip
AUTHORS = ["Author", "AuthorNotFound", "AuthoringError", "Forbidden", "NotFoundError", "InvalidRequestError"]
PLACES: dict[str, Callable[[object], Exception]] = {
    "status_code": lambda value: WebError(status_code=value),
    "status": lambda value: WebError(status=value),
    "code": lambda value: WebError(code=value),
    "http_status": lambda value: WebError(http_status=value),
    "response.status_code": lambda value: WebError(response=Thing(status_code=value)),
    "response.status": lambda value: WebError(response=Thing(status=value)),
    "raw_response.status_code": lambda value: WebError(raw_response=Thing(status_code=value)),
    "a falsy response": lambda value: WebError(response=Falsy(status_code=value)),
    "a dict": lambda value: WebError(response={"ResponseMetadata": {"HTTPStatusCode": value}}),
    "a body": lambda value: WebError(body={"error": {"code": value}}),
    "a body of text": lambda value: WebError(body=f'{{"error": {{"code": {value}}}}}'),
}


class Falsy(Thing):
    """As responses of a well-known library are, where they failed."""

    def __bool__(self) -> bool:
        return False


@pytest.mark.parametrize("module", ["acme", "acme.errors", "httpxtra", "acme.openai", "__main__"])
def test_no_name_of_an_unknown_library_means_anything(module: str) -> None:
    for name in NAMES + AUTHORS:
        failure = classify(foreign(name, module)("429 rate limit: connection timeout, overloaded"))
        assert (failure.transient, failure.kind) == (False, Kind.UNKNOWN), name


def test_such_an_error_leaves_at_once(form: Form) -> None:
    for name in NAMES:
        error = foreign(name, "acme")("temporarily unavailable")
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(type(error)) as caught:
            form(fn)
        assert (caught.value, fn.calls) == (error, 1)


def test_no_name_speaks_against_a_status() -> None:
    for name in NAMES:
        assert not classify(foreign(name, "acme")(status_code=400)).transient
    for name in AUTHORS:
        failure = classify(foreign(name, "acme")(status_code=503))
        assert (failure.transient, failure.kind) == (True, Kind.OVERLOADED)


def test_no_text_means_anything_by_itself() -> None:
    for text in ("429", "timeout", "quota", "overloaded", "503 Service Unavailable", "rate limit exceeded"):
        assert not classify(Exception(text)).transient
        assert not classify(answer(400, {}, {"error": {"message": text}})).transient
        assert classify(answer(503, {}, {"error": {"message": "invalid api key, context_length_exceeded"}})).transient


@pytest.mark.parametrize("make", PLACES.values(), ids=PLACES)
def test_a_status_is_read_wherever_it_is(form: Form, make: Callable[[object], Exception]) -> None:
    assert status_code_of(make(503)) == 503
    fn = Flaky(then=make(503))
    with FakeTime(), pytest.raises(RetriesExhausted):
        form(fn, max_attempts=2)
    assert fn.calls == 2
    fn = Flaky(then=make(400))
    with FakeTime(), pytest.raises(WebError):
        form(fn)
    assert fn.calls == 1


@pytest.mark.parametrize("make", list(PLACES.values())[:-2], ids=list(PLACES)[:-2])
def test_what_is_no_status_of_a_failure_is_none(make: Callable[[object], Exception]) -> None:
    for value in (200, -1, 1011, 0, None, True, "RESOURCE_EXHAUSTED", 503.0, lambda: 503):
        assert status_code_of(make(value)) is None
    assert status_code_of(make(http.HTTPStatus.TOO_MANY_REQUESTS)) == 429
