"""T05: a server that asks for an hour, or for a day, must not put the caller to sleep beyond its own deadline."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, deadline
from forbear.testing import FakeTime, Flaky, record_events

Form = Callable[..., Any]


class HttpError(Exception):
    """An error of some client, with a response."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__()
        self.response = type("Response", (), {"status_code": status, "headers": headers})()


HINTED: list[Exception] = [
    ApiError(429, retry_after=3600),
    ApiError(503, retry_after=86_400),
    ApiError(529, retry_after=1e300),
    HttpError(429, {"Retry-After": "3600"}),
    HttpError(503, {"retry-after-ms": "3600000"}),
    HttpError(
        503, {"Date": "Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After": "Thu, 22 Oct 2015 07:28:00 GMT"}
    ),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["floor", "add"])
@pytest.mark.parametrize("late", ["stop", "shorten"])
def test_a_hint_beyond_the_deadline_ends_the_call_at_once(form: Form, mode: str, late: str) -> None:
    for error in HINTED:
        fn = Flaky(then=error)
        with FakeTime() as clock:
            with pytest.raises(DeadlineExceeded) as caught:
                form(fn, deadline=45.0, retry_after=mode, late_backoff=late, minimum_attempt=0.1)
            assert (clock.now, clock.sleeps) == (0.0, []), error
        assert fn.calls == 1
        assert caught.value.last_error is error
        assert caught.value.hint is not None
        assert caught.value.hint >= 3600


def test_an_ambient_deadline_holds_too(form: Form) -> None:
    for error in HINTED:
        fn = Flaky(then=error)
        with FakeTime() as clock:
            with pytest.raises(DeadlineExceeded), deadline(45.0):
                form(fn, deadline=None)
            assert clock.now == 0.0, error
        assert fn.calls == 1


def test_without_a_deadline_the_users_limit_bounds_the_hint(form: Form) -> None:
    for error in HINTED:
        fn = Flaky(error, then="done")
        with FakeTime() as clock, record_events() as events:
            assert form(fn, deadline=None, max_retry_after=10.0) == "done"
            assert clock.sleeps == [10.0], error
        assert [wait.source for wait in events.waits] == ["capped hint"]


def test_a_hint_after_some_time_counts_against_the_rest(form: Form) -> None:
    fn = Flaky(ApiError(429, retry_after=20), ApiError(429, retry_after=20), ApiError(429, retry_after=20))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            form(fn, deadline=45.0)
        assert clock.sleeps == [20.0, 20.0]
    assert fn.calls == 3


def test_the_cap_of_the_backoff_does_not_cut_a_hint_that_fits(form: Form) -> None:
    fn = Flaky(ApiError(429, retry_after=44.0), then="done")
    with FakeTime() as clock:
        assert form(fn, deadline=45.0, cap=1.0) == "done"
        assert clock.sleeps == [44.0]


def test_nonsense_is_no_hint(form: Form) -> None:
    nonsense: list[Any] = [math.inf, -math.inf, math.nan, -5, "soon", True, object(), b"7", 10**400, [7], {}]
    for hint in nonsense:
        fn = Flaky(ApiError(503, retry_after=hint), then="done")
        with FakeTime() as clock:
            assert form(fn, jitter="none") == "done"
            assert clock.sleeps == [0.5], hint
