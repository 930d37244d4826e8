"""R037: a server asks for an hour; the client must neither sleep for it nor come back early without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, deadline
from forbear.testing import FakeTime, Flaky, record_events
from foreign import answer

Form = Callable[..., Any]

HOUR: list[Exception] = [
    ApiError(503, retry_after=3600),
    answer(429, {"Retry-After": "3600"}),
    answer(503, {"retry-after-ms": "3600000"}),
    answer(413, {"Retry-After": "3600", "x-should-retry": "true"}),
]


@pytest.mark.parametrize(
    "options", [{}, {"deadline": 10.0}, {"deadline": 3600.0}, {"late_backoff": "shorten", "minimum_attempt": 1.0}]
)
def test_the_call_stops_at_once_and_the_error_carries_the_wait(form: Form, options: dict[str, Any]) -> None:
    for error in HOUR:
        fn = Flaky(then=error)
        with FakeTime() as clock, record_events() as events:
            with pytest.raises(DeadlineExceeded) as caught:
                form(fn, **options)
            assert (clock.now, fn.calls) == (0.0, 1)
        assert caught.value.hint == 3600.0
        assert "3600.00 s" in str(caught.value)
        assert caught.value.last_error is error
        assert (events.waits, [end.reason for end in events.ends]) == ([], ["deadline"])


def test_a_cap_is_a_choice_of_the_caller_and_the_events_say_that_it_was_used(form: Form) -> None:
    for error in HOUR:
        with FakeTime() as clock, record_events() as events:
            assert form(Flaky(error, "done"), max_retry_after=60.0, deadline=90.0) == "done"
            assert clock.sleeps == [60.0]
        assert [(wait.delay, wait.source) for wait in events.waits] == [(60.0, "capped hint")]


def test_a_capped_wait_never_ends_after_the_deadline(form: Form) -> None:
    for error in HOUR:
        fn = Flaky(then=error)
        with FakeTime() as clock:
            with pytest.raises(DeadlineExceeded) as caught:
                form(fn, max_retry_after=60.0, deadline=10.0)
            assert (clock.now, fn.calls, caught.value.hint) == (0.0, 1, 3600.0)


def test_a_deadline_further_up_counts_as_well(form: Form) -> None:
    for error in HOUR:
        fn = Flaky(then=error)
        with FakeTime() as clock:
            with pytest.raises(DeadlineExceeded), deadline(10.0):
                form(fn, deadline=None, max_attempts=3)
            assert (clock.now, fn.calls) == (0.0, 1)


def test_who_has_the_time_waits_for_the_hour(form: Form) -> None:
    for error in HOUR:
        with FakeTime() as clock:
            assert form(Flaky(error, "done"), deadline=4000.0) == "done"
            assert clock.sleeps == [3600.0]
