"""R004: a call whose next retry cannot fit must fail at once with the real error, and not idle until its deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, deadline
from forbear.testing import FakeTime, Flaky, record_events

Form = Callable[..., Any]


@pytest.mark.parametrize("ambient", [False, True])
@pytest.mark.parametrize("error", [ConnectionError("real"), ApiError(503), TimeoutError("real")], ids=repr)
def test_it_fails_at_the_last_failure_with_that_failure(form: Form, error: Exception, ambient: bool) -> None:
    fn = Flaky(ConnectionError("earlier"), then=error)
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught, deadline(1.5 if ambient else None):
            form(fn, deadline=None if ambient else 1.5, backoff=[1.0, 2.0])
        assert clock.now == pytest.approx(1.0)
    assert fn.started_at == pytest.approx([0.0, 1.0])
    assert caught.value.last_error is error
    assert caught.value.elapsed == pytest.approx(1.0)


@pytest.mark.parametrize("error", [ConnectionError("real"), ApiError(503)], ids=repr)
def test_by_choice_it_is_the_failure_itself(form: Form, error: Exception) -> None:
    with FakeTime() as clock:
        with pytest.raises(type(error)) as caught:
            form(Flaky(ConnectionError(), then=error), deadline=1.5, backoff=[1.0, 2.0], reraise=True)
        assert clock.now == pytest.approx(1.0)
    assert caught.value is error


def test_a_hint_that_does_not_fit_is_as_quick(form: Form) -> None:
    fn = Flaky(ApiError(503), then=ApiError(503, retry_after=2.0))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded, match=r"come back in 2\.00 s"):
            form(fn, deadline=1.5, backoff=[1.0])
        assert clock.now == pytest.approx(1.0)


def test_what_was_left_is_told(form: Form) -> None:
    with FakeTime(), record_events() as events, pytest.raises(DeadlineExceeded):
        form(Flaky(then=ConnectionError()), deadline=1.5, backoff=[1.0, 2.0])
    assert [attempt.remaining for attempt in events.attempts] == pytest.approx([1.5, 0.5])
    assert [end.reason for end in events.ends] == ["deadline"]
