"""T22: a hint counts on every failure that is retried, not on a 429 alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, RetryState, classify, retry_after_of
from forbear.testing import FakeTime, Flaky
from foreign import WebError, answer, foreign

STATUSES = [408, 409, 425, 429, 500, 502, 503, 504, 520, 529]
REFUSED = [425, 429, 503, 529]


@pytest.mark.parametrize("status", STATUSES)
def test_a_hint_is_found_on_every_status(status: int) -> None:
    for headers in ({"Retry-After": "7"}, {"retry-after-ms": "7000"}, {"x-ms-retry-after-ms": "7000"}):
        assert retry_after_of(answer(status, headers)) == 7.0
        assert classify(answer(status, headers)).retry_after == 7.0


def test_it_is_waited_for_on_every_status(form: Callable[..., Any]) -> None:
    told: list[RetryState] = []
    for status in STATUSES:
        with FakeTime() as clock:
            assert form(Flaky(answer(status, {"Retry-After": "7"}), "done"), on_retry=told.append) == "done"
            assert clock.sleeps == [7.0], status
    assert [(state.status, state.source, state.delay) for state in told] == [(one, "hint", 7.0) for one in STATUSES]


def test_it_is_waited_for_without_a_status_too(form: Callable[..., Any]) -> None:
    busy: Any = foreign("Busy", "acme", ConnectionResetError)
    for error in (busy(retry_after=7), busy(headers={"Retry-After": "7"}), ApiError(503, retry_after=7)):
        with FakeTime() as clock:
            assert form(Flaky(error, "done")) == "done"
            assert clock.sleeps == [7.0]


def test_it_is_waited_for_where_a_rule_of_the_callers_own_retries(form: Callable[..., Any]) -> None:
    with FakeTime() as clock:
        assert form(Flaky(WebError(headers={"Retry-After": "7"}), "done"), retryable=WebError) == "done"
        assert form(Flaky(answer(404, {"Retry-After": "9"}), "done"), retryable=lambda _: True) == "done"
        assert clock.sleeps == [7.0, 9.0]


@pytest.mark.parametrize("status", STATUSES)
def test_a_refusal_with_a_time_to_come_back_proves_that_nothing_was_done(status: int) -> None:
    failure = classify(answer(status, {"Retry-After": "7"}), idempotent=False)
    assert failure.safe_to_retry is (status in REFUSED)
