"""T20: a hint longer than we will wait means stop, never retry early. Early retries are what the server forbade."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, deadline
from forbear.testing import FakeTime, Flaky, record_events
from foreign import answer

Form = Callable[..., Any]

LONG: list[Exception] = [
    ApiError(429, retry_after=300),
    ApiError(503, retry_after=300),
    answer(429, {"Retry-After": "300"}),
    answer(503, {"retry-after-ms": "300000"}),
    answer(529, {"Retry-After": "Wed, 21 Oct 2015 07:33:00 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    answer(429, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "5m0s"}),
    answer(429, {}, {"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "300s"}]}}),
]


@pytest.mark.parametrize(
    "options", [{}, {"cap": 20.0}, {"deadline": 299.0, "max_attempts": None}, {"max_retry_after": 299.5}]
)
def test_it_ends_the_call_at_once_and_hands_over_the_wait(form: Form, options: dict[str, Any]) -> None:
    for error in LONG:
        fn = Flaky(then=error)
        with FakeTime() as clock, record_events() as events:
            with pytest.raises(DeadlineExceeded, match=r"come back in 300\.00 s") as caught:
                form(fn, **options)
            assert (clock.now, clock.sleeps, fn.calls) == (0.0, [], 1)
        assert (caught.value.hint, caught.value.last_error) == (300.0, error)
        assert [end.reason for end in events.ends] == ["deadline"]


def test_a_deadline_around_the_call_ends_it_too(form: Form) -> None:
    for error in LONG:
        fn = Flaky(then=error)
        with FakeTime() as clock, pytest.raises(DeadlineExceeded), deadline(250.0):
            form(fn, deadline=None)
        assert (clock.now, fn.calls) == (0.0, 1)


def test_where_there_is_time_it_is_waited_for_in_full_whatever_the_cap_of_the_backoff(form: Form) -> None:
    for error in LONG:
        with FakeTime() as clock:
            assert form(Flaky(error, "done"), deadline=400.0, cap=5.0) == "done"
            assert clock.sleeps == [300.0]


def test_it_is_cut_only_where_the_caller_asks_for_that(form: Form) -> None:
    for error in LONG:
        with FakeTime() as clock, record_events() as events:
            assert form(Flaky(error, "done"), max_retry_after=20.0) == "done"
            assert clock.sleeps == [20.0]
        assert [wait.source for wait in events.waits] == ["capped hint"]


def test_a_backoff_that_may_be_shortened_never_shortens_a_hint(form: Form) -> None:
    for error in LONG:
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(DeadlineExceeded):
            form(fn, late_backoff="shorten", minimum_attempt=1.0)
        assert fn.calls == 1
