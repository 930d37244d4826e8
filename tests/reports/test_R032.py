"""R032: failures in an exception group are matched by rules, and only a group that may pass as a whole is retried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, Classifier, Kind, RetriesExhausted, Rule, is_retryable
from forbear.testing import FakeTime, Flaky
from foreign import answer, foreign

Form = Callable[..., Any]


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("several", errors)


PASSING = [
    group(ConnectionResetError()),
    group(ApiError(503), TimeoutError()),
    group(group(ApiError(429)), group(group(TimeoutError()))),
]
PERMANENT = [
    group(ConnectionResetError(), ValueError()),
    group(ApiError(401)),
    group(group(ApiError(503)), group(group(ApiError(404)))),
]


def test_a_group_whose_every_error_may_pass_is_retried(form: Form) -> None:
    for error in PASSING:
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(RetriesExhausted) as caught:
            form(fn, max_attempts=3)
        assert (fn.calls, caught.value.last_error) == (3, error)


def test_one_permanent_error_anywhere_in_it_ends_the_call(form: Form) -> None:
    for error in PERMANENT:
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(ExceptionGroup) as caught:
            form(fn)
        assert (fn.calls, caught.value) == (1, error)


def test_the_hint_of_any_error_in_it_is_obeyed(form: Form) -> None:
    error = group(TimeoutError(), group(answer(503, {"Retry-After": "7"})), ApiError(429, retry_after=2))
    with FakeTime() as clock:
        assert form(Flaky(error, "done")) == "done"
        assert clock.sleeps == [7.0]


def test_own_rules_see_the_errors_in_it(form: Form) -> None:
    busy: Any = foreign("Busy", "acme")
    ours = Classifier([Rule(kind=Kind.OVERLOADED, source="ours", classes=frozenset({"acme.Busy"}))])
    fn = Flaky(group(busy(), group(busy(), TimeoutError())), "done")
    with FakeTime():
        assert form(fn, retryable=ours) == "done"
    assert fn.calls == 2
    assert not is_retryable(group(busy()))


def test_a_cancellation_in_it_is_never_retried(form: Form) -> None:
    mixed = BaseExceptionGroup("several", [ConnectionResetError(), asyncio.CancelledError()])
    fn = Flaky(then=mixed)
    with FakeTime(), pytest.raises(BaseExceptionGroup) as caught:
        form(fn, retryable=lambda _: True)
    assert (fn.calls, caught.value) == (1, mixed)
