"""R093: after a retry was added, `except` clauses for the real error no longer matched: a wrapper hid it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, Policy, RetriesExhausted, RetryError
from forbear.testing import FakeTime, Flaky, Hang

Form = Callable[..., Any]


class QuotaError(ConnectionError):
    """A class that callers catch."""


def test_by_choice_the_except_clause_of_the_caller_matches(form: Form) -> None:
    error = QuotaError("mine")
    with FakeTime(), pytest.raises(QuotaError) as caught:
        form(Flaky(ConnectionError(), then=error), max_attempts=3, reraise=True)
    assert caught.value is error
    assert error.args == ("mine",)
    (note,) = error.__notes__
    assert "gave up after attempt 3" in note
    assert "waiting" in note


def test_the_wrapper_names_the_real_error_and_carries_it(form: Form) -> None:
    error = QuotaError("mine")
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(Flaky(then=error), max_attempts=3)
    assert caught.value.last_error is error
    assert "QuotaError" in str(caught.value)
    assert "3 attempts" in str(caught.value)
    assert "0x" not in str(caught.value)  # no address of an object


def test_an_error_that_is_not_retried_is_never_wrapped(form: Form) -> None:
    for error in (ValueError("v"), ApiError(404), KeyError("k"), LookupError()):
        with FakeTime(), pytest.raises(type(error)) as caught:
            form(Flaky(ConnectionError(), then=error))
        assert caught.value is error
        assert not hasattr(error, "__notes__")


def test_a_deadline_is_still_caught_as_a_timeout(form: Form) -> None:
    with FakeTime(), pytest.raises(TimeoutError) as caught:
        form(Flaky(then=QuotaError()), backoff=[5.0], deadline=3.0)
    assert isinstance(caught.value, DeadlineExceeded)
    with FakeTime(), pytest.raises(QuotaError):
        form(Flaky(then=QuotaError()), backoff=[5.0], deadline=3.0, reraise=True)


async def test_a_cut_attempt_raised_as_itself_is_a_timeout(async_form: Form) -> None:
    with FakeTime(), pytest.raises(TimeoutError) as caught:
        await async_form(Flaky(then=Hang(60.0)).asynchronous, attempt_timeout=1.0, max_attempts=2, reraise=True)
    assert type(caught.value) is TimeoutError
    assert any("attempt 2" in note for note in caught.value.__notes__)


def test_attempts_and_waits_can_be_read_either_way(form: Form) -> None:
    policy = Policy(max_attempts=3, backoff=[1.0, 2.0])
    with FakeTime(), pytest.raises(RetryError) as wrapped:
        form(Flaky(then=QuotaError()), policy=policy)
    assert (wrapped.value.attempts, wrapped.value.waited, wrapped.value.elapsed) == (3, 3.0, 3.0)
    assert [summary.delay for summary in wrapped.value.history] == [1.0, 2.0, None]
    with FakeTime(), pytest.raises(QuotaError) as raised:
        form(Flaky(then=QuotaError()), policy=policy, reraise=True)
    fact: Any = raised.value.__forbear__  # type: ignore[attr-defined]
    assert (fact.attempts, fact.waited, fact.elapsed, fact.reason) == (3, 3.0, 3.0, "max_attempts")


def test_a_refused_result_is_raised_as_the_wrapper_that_has_it(form: Form) -> None:
    for reraise in (True, False):
        with FakeTime(), pytest.raises(RetriesExhausted) as caught:
            form(Flaky(then="empty"), retry_if_result=lambda _: True, max_attempts=2, reraise=reraise)
        assert caught.value.last_result == "empty"
