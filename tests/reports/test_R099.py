"""R099: retries that nobody sees cannot explain a slow call: each attempt, each wait and each end is told, once."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, AttemptEnded, CallEnded, Event, Kind, RetryError, RetryState, deadline, listening
from forbear.testing import FakeTime, Flaky, Hang, record_events

Form = Callable[..., Any]


def script() -> Flaky:
    return Flaky(ApiError(429, retry_after=2.0), Hang(1.0, ApiError(500)), "done")


def test_each_attempt_and_each_wait_is_told_in_order_with_its_facts(form: Form) -> None:
    with FakeTime(rng=lambda: 1.0), record_events() as events:
        assert form(script(), max_attempts=5, deadline=30.0, attempt_timeout=None) == "done"
    kinds = [AttemptEnded, RetryState, AttemptEnded, RetryState, AttemptEnded, CallEnded]
    assert [type(event) for event in events] == kinds
    first, second, third = events.attempts
    assert [(one.attempt, one.max_attempts, one.outcome) for one in (first, second, third)] == [
        (1, 5, "failure"), (2, 5, "failure"), (3, 5, "success"),
    ]  # fmt: skip
    assert [one.elapsed for one in events.attempts] == pytest.approx([0.0, 1.0, 0.0])
    assert [one.remaining for one in events.attempts] == pytest.approx([30.0, 27.0, 26.0])
    assert [one.error_type for one in events.attempts] == ["forbear.errors.ApiError", "forbear.errors.ApiError", None]
    hinted, plain = events.waits
    assert (hinted.attempt, hinted.delay, hinted.source, hinted.kind, hinted.status) == (
        1, 2.0, "hint", Kind.RATE_LIMITED, 429,
    )  # fmt: skip
    assert (plain.attempt, plain.delay, plain.source, plain.kind, plain.status) == (
        2, 1.0, "backoff", Kind.SERVER_ERROR, 500,
    )  # fmt: skip
    assert (hinted.remaining, plain.remaining) == (pytest.approx(30.0), pytest.approx(27.0))
    assert (hinted.elapsed, plain.elapsed) == (pytest.approx(0.0), pytest.approx(3.0))
    (end,) = events.ends
    assert (end.reason, end.attempts, end.elapsed, end.waited) == ("success", 3, pytest.approx(4.0), 3.0)


def test_the_hook_is_told_the_same_before_each_wait(form: Form) -> None:
    told: list[RetryState] = []
    with FakeTime(rng=lambda: 1.0), record_events() as events:
        assert form(script(), on_retry=told.append) == "done"
    assert told == events.waits
    assert [(state.attempt, state.max_attempts) for state in told] == [(1, 5), (2, 5)]


@pytest.mark.parametrize(
    ("options", "outcome", "reason", "attempts", "waits"),
    [
        ({"max_attempts": 3}, ConnectionError(), "max_attempts", 3, 2),
        ({"backoff": [5.0], "deadline": 3.0}, ConnectionError(), "deadline", 1, 0),
        ({}, ApiError(401), "permanent", 1, 0),
        ({"idempotent": False}, ApiError(500), "unsafe", 1, 0),
        ({"reraise": True, "max_attempts": 2}, ConnectionError(), "max_attempts", 2, 1),
        ({"retry_if_result": bool, "max_attempts": 2}, "refused", "max_attempts", 2, 1),
    ],
)
def test_a_call_that_fails_says_why_it_ended_once(
    form: Form, options: dict[str, Any], outcome: Any, reason: str, attempts: int, waits: int
) -> None:
    with FakeTime(), record_events() as events, pytest.raises(Exception):
        form(Flaky(then=outcome), **options)
    assert [end.reason for end in events.ends] == [reason]
    assert [end.attempts for end in events.ends] == [attempts]
    assert [attempt.outcome for attempt in events.attempts] == ["failure"] * attempts
    assert len(events.waits) == waits
    assert isinstance(events[-1], CallEnded)


def test_time_without_end_is_told_as_such(form: Form) -> None:
    with FakeTime(), record_events() as events:
        form(Flaky(ConnectionError(), then="done"), deadline=None, max_attempts=3)
    if events.attempts[0].remaining != math.inf:  # a deadline block is around that form
        assert events.attempts[0].remaining > 1e8


async def test_a_cut_attempt_is_told_as_a_timeout(async_form: Form) -> None:
    with FakeTime(), record_events() as events:
        await async_form(Flaky(Hang(60.0), then="done").asynchronous, attempt_timeout=1.0)
    assert events.waits[0].kind is Kind.TIMEOUT
    assert events.attempts[0].error_type == "TimeoutError"
    assert events.attempts[0].elapsed == pytest.approx(1.0)


def test_a_hook_that_fails_changes_no_call_and_no_event(form: Form, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> None:
        raise KeyError("hook")

    with FakeTime(rng=lambda: 1.0), record_events() as events:
        assert form(script(), on_retry=broken) == "done"
    assert (len(events.attempts), len(events.waits), len(events.ends)) == (3, 2, 1)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert all(__file__ in record.message for record in caplog.records)


def test_an_async_hook_on_a_blocking_call_is_reported(blocking_form: Form, caplog: pytest.LogCaptureFixture) -> None:
    async def hook(_: object) -> None:
        raise AssertionError

    with FakeTime(), record_events() as events:
        assert blocking_form(script(), on_retry=hook) == "done"
    assert len(events.waits) == 2
    assert all("plain function" in record.message for record in caplog.records)


async def test_an_async_hook_is_awaited_before_the_wait(async_form: Form) -> None:
    told: list[tuple[int, float]] = []

    async def hook(state: RetryState) -> None:
        told.append((state.attempt, clock.now))

    with FakeTime(rng=lambda: 1.0) as clock:
        await async_form(Flaky(ConnectionError(), ConnectionError(), "done").asynchronous, on_retry=hook)
    assert told == [(1, 0.0), (2, 0.5)]


def test_a_call_names_its_function(form: Form) -> None:
    def fetch_user() -> str:
        return "done"

    with FakeTime(), record_events() as events:
        form(fetch_user)
    name = events.ends[0].call
    assert name
    assert "0x" not in name


def test_many_listeners_hear_every_event_of_the_block_and_none_after_it(form: Form) -> None:
    one: list[Event] = []
    two: list[Event] = []
    with FakeTime(), listening(one.append):
        with listening(two.append):
            form(script())
        form(script())
    form(Flaky("done"))
    assert (len(one), len(two)) == (12, 6)


def test_the_final_error_tells_the_story_to_those_who_do_not_listen(form: Form) -> None:
    with FakeTime(rng=lambda: 1.0), pytest.raises(RetryError) as caught:
        form(Flaky(ApiError(429, retry_after=2.0), then=ConnectionError()), max_attempts=3)
    story = [(one.number, one.status, one.delay) for one in caught.value.history]
    assert story == [(1, 429, 2.0), (2, None, 1.0), (3, None, None)]
    assert "gave up after 3 attempts in 3.00 s, 3.00 s of it waiting (max_attempts)" in str(caught.value)


@pytest.mark.parametrize("ambient", [True, False])
def test_a_call_that_has_no_time_from_the_start_is_told_as_well(form: Form, ambient: bool) -> None:
    with FakeTime(), record_events() as events, pytest.raises(RetryError), deadline(0 if ambient else None):
        form(Flaky("done"), deadline=5.0 if ambient else 0)
    assert [(end.reason, end.attempts) for end in events.ends] == [("deadline", 0)]
    assert events.attempts == []


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_a_call_that_is_interrupted_is_told_as_well(form: Form, leaving: type[BaseException]) -> None:
    with FakeTime(), record_events() as events, pytest.raises(leaving):
        form(Flaky(ConnectionError(), then=leaving()))
    assert [attempt.outcome for attempt in events.attempts] == ["failure", "cancelled"]
    assert [end.reason for end in events.ends] == ["cancelled"]
