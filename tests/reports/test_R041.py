"""R041: the wait stands in the JSON of the body, as a retry-info detail, and must be found there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from forbear import Classifier, DeadlineExceeded, classify, retry_after_of
from forbear.testing import FakeTime, Flaky
from foreign import Thing, answer, foreign

Form = Callable[..., Any]

INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "53s"}
QUOTA = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [
        {"quotaMetric": "generate_requests", "quotaId": "GenerateRequestsPerMinutePerProject", "quotaValue": "15"}
    ],
}
HELP = {"@type": "type.googleapis.com/google.rpc.Help", "links": []}
BODY = {
    "error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded", "details": [QUOTA, HELP, INFO]}
}
OK = Thing(status_code=429, headers={})

ERRORS: dict[str, Exception] = {
    "a body of data": answer(429, {}, BODY),
    "a body of text": answer(429, {}, json.dumps(BODY)),
    "a body of bytes": answer(429, {}, json.dumps(BODY).encode()),
    "google-genai": foreign("ClientError", "google.genai.errors")(
        code=429, status="RESOURCE_EXHAUSTED", details=BODY, response=OK
    ),
    "google-api-core": foreign("TooManyRequests", "google.api_core.exceptions")(
        code=429, details=BODY["error"]["details"], response=OK
    ),
    "google-api-core over gRPC": foreign("ResourceExhausted", "google.api_core.exceptions")(
        code=429, response=OK, details=[Thing(), Thing(retry_delay=Thing(seconds=53, nanos=0))]
    ),
    "a response that was read": foreign("HTTPStatusError", "httpx")(
        response=Thing(status_code=429, headers={}, _content=json.dumps(BODY).encode())
    ),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_it_is_found_wherever_the_body_is(error: Exception) -> None:
    assert retry_after_of(error) == 53.0
    assert classify(error).transient


def test_it_is_waited_for_in_full_once(form: Form) -> None:
    for error in ERRORS.values():
        fn = Flaky(error, "done")
        with FakeTime() as clock:
            assert form(fn, deadline=120.0, max_attempts=5) == "done"
            assert clock.sleeps == [53.0]
        assert fn.calls == 2


def test_the_attempts_are_not_spent_before_the_time_has_come(form: Form) -> None:
    fn = Flaky(then=ERRORS["a body of data"])
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            form(fn, deadline=120.0, max_attempts=5)
        assert clock.sleeps == [53.0, 53.0]
    assert (fn.calls, caught.value.hint) == (3, 53.0)


def test_a_header_says_it_better() -> None:
    assert retry_after_of(answer(429, {"Retry-After": "60"}, BODY)) == 60.0


@pytest.mark.parametrize(
    ("delay", "wait"), [("53.25s", 53.25), ("0.5s", 0.5), ("0s", 0.0), ("-53s", None), ("soon", None), (53, 53.0)]
)
def test_it_may_be_a_part_of_a_second_or_nonsense(delay: object, wait: float | None) -> None:
    body = {"error": {"details": [{**INFO, "retryDelay": delay}]}}
    assert retry_after_of(answer(429, {}, body)) == wait


# A provider that nobody knows: the wait stands in a place of its own.
THEIRS = {"oops": {"come_back": {"minutes": 2}}}


def come_back(body: Mapping[str, Any]) -> float | None:
    """A reader of such bodies."""
    return body["oops"]["come_back"]["minutes"] * 60 if "oops" in body else None


def test_a_reader_for_another_provider_can_be_plugged_in(form: Form) -> None:
    ours = Classifier(hints=[come_back])
    for error in (
        answer(429, {}, THEIRS),
        answer(429, {}, json.dumps(THEIRS)),
        answer(429, {"Retry-After": "1"}, THEIRS),
    ):
        fn = Flaky(error, "done")
        with FakeTime() as clock:
            assert form(fn, retryable=ours, deadline=300.0) == "done"
            assert clock.sleeps == [120.0]
    assert ours.classify(ERRORS["a body of data"]).retry_after == 53.0
    assert classify(answer(429, {}, THEIRS)).retry_after is None


def test_several_are_asked_in_turn_and_one_that_fails_stops_nothing(form: Form) -> None:
    def broken(body: Mapping[str, Any]) -> float:
        raise KeyError("oops")

    ours = Classifier(hints=[broken, lambda _: -1.0, lambda _: float("nan"), lambda _: None, come_back])
    with FakeTime() as clock:
        assert form(Flaky(answer(503, {}, THEIRS), "done"), retryable=ours, deadline=300.0) == "done"
        assert clock.sleeps == [120.0]


def test_a_limit_of_a_day_is_not_waited_for_in_seconds(form: Form) -> None:
    day = {"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}
    error = answer(429, {}, {"error": {"status": "RESOURCE_EXHAUSTED", "details": [day, INFO]}})
    fn = Flaky(then=error)
    with FakeTime(), pytest.raises(type(error)):
        form(fn)
    assert fn.calls == 1
