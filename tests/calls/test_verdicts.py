"""Verdicts as callers ask for them, rules of their own in use, and the line for a log."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest

from forbear import (
    ApiError,
    Classifier,
    DeadlineExceeded,
    Failure,
    Kind,
    RetriesExhausted,
    RetryState,
    Rule,
    attempts,
    classify,
    describe,
    retry,
    retry_after_of,
    retry_call,
    retry_sync,
)
from forbear.testing import FakeTime, Flaky, record_events

NOW = 1_445_412_480.0


class WebError(Exception):
    """An error of an unknown library."""

    def __init__(self, status: int, headers: dict[str, str] | None = None, body: Any = None) -> None:
        super().__init__()
        self.status_code = status
        self.headers = headers or {}
        self.body = body


def at(now: float) -> FakeTime:
    """A world in which it is that late."""
    time = FakeTime()
    time.world = replace(time.world, wall=lambda: now)
    return time


# ---- verdicts ----------------------------------------------------------------------------------------------------


def test_a_verdict_says_all_that_is_known() -> None:
    error = WebError(429, {"Retry-After": "7"}, {"error": {"code": "slow_down"}})
    failure = classify(error)
    assert failure == Failure(
        transient=True, retry_after=7.0, kind=Kind.RATE_LIMITED, executed="no", status=429, code="slow_down",
        provider=failure.provider, rule="code slow_down",
    )  # fmt: skip
    assert retry_after_of(error) == 7.0


def test_it_says_whether_a_repetition_is_safe() -> None:
    assert classify(WebError(500)).safe_to_retry
    assert not classify(WebError(500), idempotent=False).safe_to_retry
    assert classify(WebError(429), idempotent=False).safe_to_retry


def test_dates_are_read_against_the_time_that_it_is_here() -> None:
    error = WebError(429, {"Retry-After": formatdate(NOW + 90, usegmt=True)})
    limited = WebError(429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 40:.0f}"})
    with at(NOW):
        assert (classify(error).retry_after, retry_after_of(error)) == (90.0, 90.0)
        assert (classify(limited).retry_after, retry_after_of(limited)) == (40.0, 40.0)
    with at(NOW + 3600):
        assert (classify(error).retry_after, retry_after_of(error)) == (0.0, 0.0)
    assert retry_after_of(error) == 0.0


def test_a_call_reads_them_against_the_time_of_its_own_world() -> None:
    dated = WebError(429, {"Retry-After": formatdate(NOW + 30, usegmt=True)})
    forbidden = WebError(403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 30:.0f}"})
    for error in (dated, forbidden):
        with at(NOW) as clock:
            assert retry_sync(Flaky(error, "done")) == "done"
            assert clock.sleeps == [30.0]


# ---- rules of one's own ------------------------------------------------------------------------------------------


BUSY = Rule(kind=Kind.OVERLOADED, source="ours", codes=frozenset({"e42"}))
FINAL = Rule(kind=Kind.INVALID_REQUEST, source="ours", statuses=frozenset({503}), codes=frozenset({"e99"}))
OURS = Classifier([BUSY, FINAL])


def failed(code: str, status: int, **headers: str) -> WebError:
    return WebError(status, {name.replace("_", "-"): value for name, value in headers.items()}, {"code": code})


def call(fn: Flaky, **options: Any) -> Any:
    return retry_sync(fn, **options)


def decorated(fn: Flaky, **options: Any) -> Any:
    return retry(**options)(fn)()


def called(fn: Flaky, **options: Any) -> Any:
    return retry_call(fn, retry_options=options)


def block(fn: Flaky, **options: Any) -> Any:
    for attempt in attempts(**options):
        with attempt:
            attempt.result = fn()
    return attempt.result


@pytest.fixture(params=[call, decorated, called, block])
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """One form of call after the other."""
    return request.param  # type: ignore[no-any-return]


def test_an_own_rule_makes_an_error_transient(form: Callable[..., Any]) -> None:
    fn = Flaky(failed("e42", 400), "done")
    with FakeTime():
        assert form(fn, retryable=OURS) == "done"
    assert fn.calls == 2
    with FakeTime(), pytest.raises(WebError):
        form(Flaky(failed("e42", 400), "done"))


def test_an_own_rule_makes_an_error_permanent(form: Callable[..., Any]) -> None:
    fn = Flaky(then=failed("e99", 503))
    with FakeTime(), record_events() as events, pytest.raises(WebError):
        form(fn, retryable=OURS)
    assert fn.calls == 1
    assert [end.reason for end in events.ends] == ["permanent"]


def test_all_other_errors_mean_what_they_always_mean(form: Callable[..., Any]) -> None:
    for error, calls in ((WebError(503), 3), (WebError(404), 1), (TimeoutError(), 3), (ValueError(), 1)):
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises((type(error), RetriesExhausted)):
            form(fn, retryable=OURS, max_attempts=3)
        assert fn.calls == calls, error


def test_a_classifier_without_rules_retries_of_an_api_error_what_the_verdict_says(form: Callable[..., Any]) -> None:
    for status, calls in ((409, 2), (501, 1), (503, 2), (400, 1)):
        fn = Flaky(then=ApiError(status))
        with FakeTime(), pytest.raises((ApiError, RetriesExhausted)):
            form(fn, retryable=Classifier(), max_attempts=2)
        assert fn.calls == calls, status


def test_the_hint_of_an_error_that_an_own_rule_retries_is_obeyed(form: Callable[..., Any]) -> None:
    with FakeTime() as clock:
        assert form(Flaky(failed("e42", 400, Retry_After="7"), "done"), retryable=OURS) == "done"
        assert clock.sleeps == [7.0]
    fn = Flaky(then=failed("e42", 400, Retry_After="3600"))
    with FakeTime(), pytest.raises(DeadlineExceeded) as caught:
        form(fn, retryable=OURS)
    assert (fn.calls, caught.value.hint) == (1, 3600.0)


def test_a_date_is_a_hint_for_a_classifier_too(form: Callable[..., Any]) -> None:
    error = failed("e42", 400, Retry_After=formatdate(NOW + 30, usegmt=True))
    with at(NOW) as clock:
        assert form(Flaky(error, "done"), retryable=OURS) == "done"
        assert clock.sleeps == [30.0]


def test_what_an_own_rule_says_of_the_server_counts_for_calls_that_must_not_be_repeated(
    form: Callable[..., Any],
) -> None:
    done = Classifier([Rule(kind=Kind.SERVER_ERROR, source="ours", codes=frozenset({"e7"}), executed="no")])
    for rules, calls in ((done, 2), (OURS, 1)):
        fn = Flaky(then=failed("e7", 500))
        with FakeTime(), pytest.raises((WebError, RetriesExhausted)):
            form(fn, retryable=rules, idempotent=False, max_attempts=2)
        assert fn.calls == calls


def test_a_hook_is_told_the_kind_that_an_own_rule_says(form: Callable[..., Any]) -> None:
    told: list[RetryState] = []
    with FakeTime():
        form(Flaky(failed("e42", 400), "done"), retryable=OURS, on_retry=told.append)
    assert [(state.kind, state.status) for state in told] == [(Kind.OVERLOADED, 400)]


async def test_a_classifier_works_in_async_code() -> None:
    fn = Flaky(failed("e42", 400), "done")
    with FakeTime():
        assert await retry(fn.asynchronous, retryable=OURS) == "done"
    fn = Flaky(then=failed("e99", 503))
    with FakeTime(), pytest.raises(WebError):
        await retry(fn.asynchronous, retryable=OURS)
    assert fn.calls == 1


def test_one_classifier_serves_many_calls() -> None:
    ask = retry(retryable=OURS)(Flaky(then=failed("e99", 503)))
    poll = retry_sync(retryable=OURS, max_attempts=2)(Flaky(then=failed("e42", 400)))
    with FakeTime():
        for _ in range(3):
            with pytest.raises(WebError):
                ask()
            with pytest.raises(RetriesExhausted):
                poll()


def test_a_classifier_can_be_a_part_of_a_rule() -> None:
    fn = Flaky(failed("e42", 400), KeyError(), "done")
    with FakeTime():
        assert retry_sync(fn, retryable=lambda error: OURS(error) or isinstance(error, KeyError)) == "done"
    assert fn.calls == 3


# ---- a line for a log --------------------------------------------------------------------------------------------


def lines(*outcomes: Any, **options: Any) -> list[str]:
    """What `describe` says about each wait of a call."""
    told: list[RetryState] = []
    with FakeTime():
        retry_sync(Flaky(*outcomes), on_retry=told.append, backoff=[0.5, 1.25], **options)
    return list(map(describe, told))


def test_a_wait_is_described_in_a_line() -> None:
    assert lines(WebError(429, {"Retry-After": "1.1"}), TimeoutError(), "done") == [
        "attempt 1 failed: WebError (HTTP 429); waiting 1.10s (server Retry-After), elapsed 0.0s",
        "attempt 2 failed: TimeoutError; waiting 1.25s (backoff), elapsed 1.1s",
    ]


def test_a_capped_hint_is_the_servers_still() -> None:
    assert lines(WebError(503, {"Retry-After": "20"}), "done", max_retry_after=2) == [
        "attempt 1 failed: WebError (HTTP 503); waiting 2.00s (server Retry-After), elapsed 0.0s"
    ]


def test_a_shortened_backoff_is_one_still() -> None:
    said = lines(TimeoutError(), "done", deadline=0.4, late_backoff="shorten", minimum_attempt=0.1)
    assert said == ["attempt 1 failed: TimeoutError; waiting 0.30s (backoff), elapsed 0.0s"]


def test_a_refused_result_has_no_class() -> None:
    assert lines("pending", "done", retry_if_result=lambda result: result == "pending") == [
        "attempt 1 failed: rejected result; waiting 0.50s (backoff), elapsed 0.0s"
    ]


def test_no_text_of_an_error_gets_into_the_line() -> None:
    class Inner(Exception):
        pass

    for error in (ConnectionError("secret"), Inner("secret"), WebError(503, {"x": "secret"}, "secret")):
        (line,) = lines(error, "done", retryable=lambda _: True)
        assert "secret" not in line
        assert type(error).__name__ in line


def test_it_can_be_given_as_a_hook() -> None:
    assert list(inspect.signature(describe).parameters) == ["state"]
    with FakeTime():
        assert retry_sync(Flaky(TimeoutError(), "done"), on_retry=describe) == "done"
