"""T03: when the next wait does not fit into the time left, the call ends now, not after an idle or a late attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, RetryError, deadline
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]


@pytest.mark.parametrize(
    ("waits", "limit", "starts"),
    [
        ([1.0], 0.3, [0.0]),
        ([0.3], 0.3, [0.0]),  # a wait up to the very end leaves no time for an attempt
        ([0.1], 0.3, [0.0, 0.1, 0.2]),
        ([0.25], 0.3, [0.0, 0.25]),
        ([1.0, 2.0, 4.0], 5.0, [0.0, 1.0, 3.0]),
        ([86_400.0], 60.0, [0.0]),
    ],
)
def test_the_call_ends_where_the_next_wait_would_not_fit(
    form: Form, waits: list[float], limit: float, starts: list[float]
) -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            form(fn, backoff=waits, deadline=limit, max_attempts=None)
        assert clock.now == pytest.approx(starts[-1])
    assert fn.started_at == pytest.approx(starts)
    assert caught.value.attempts == len(starts)


@pytest.mark.parametrize("limit", [0.3, 0.299])
def test_an_ambient_deadline_ends_it_as_early(form: Form, limit: float) -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded), deadline(limit):
            form(fn, backoff=[0.3])
        assert clock.now == 0.0
    assert fn.calls == 1


def test_the_least_time_of_an_attempt_must_fit_too(form: Form) -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            form(fn, backoff=[1.0], deadline=2.9, minimum_attempt=1.0)
        assert clock.now == pytest.approx(1.0)
    assert fn.calls == 2


def test_a_hint_that_does_not_fit_ends_the_call(form: Form) -> None:
    fn = Flaky(then=ApiError(503, retry_after=5.0))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            form(fn, deadline=4.9)
        assert clock.now == 0.0
    assert (fn.calls, caught.value.hint) == (1, 5.0)


def test_a_wait_that_takes_longer_than_asked_starts_no_late_attempt(form: Form) -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime() as clock:

        def oversleep(delay: float) -> None:
            clock.advance(delay * 10)

        with pytest.raises(DeadlineExceeded) as caught:
            form(fn, sleep=oversleep, backoff=[0.1], deadline=0.9)
    assert fn.calls == caught.value.attempts == 1


def test_a_hook_that_takes_the_time_starts_no_late_attempt(form: Form) -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            form(fn, on_retry=lambda _: clock.advance(0.25), backoff=[0.1], deadline=0.3)
        assert clock.now == pytest.approx(0.25)
    assert fn.calls == 1


@pytest.mark.parametrize("how", ["option", "ambient"])
def test_with_no_time_at_all_nothing_is_started(form: Form, how: str) -> None:
    fn = Flaky(then="done")
    with FakeTime(), pytest.raises(RetryError) as caught, deadline(0 if how == "ambient" else None):
        form(fn, deadline=0 if how == "option" else 5.0)
    assert (fn.calls, caught.value.attempts, caught.value.reason) == (0, 0, "deadline")


def test_a_wait_that_is_cut_by_choice_leaves_the_least_time(form: Form) -> None:
    fn = Flaky(ConnectionError(), then="done")
    with FakeTime() as clock:
        assert form(fn, backoff=[1.0], deadline=0.3, minimum_attempt=0.1, late_backoff="shorten") == "done"
        assert clock.sleeps == pytest.approx([0.2])
