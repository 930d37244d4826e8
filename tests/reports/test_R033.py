"""R033: a service answers 200 with nothing in it: no error, so nothing retries, unless a rule looks at the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from forbear import (
    Kind,
    ResultRejected,
    RetriesExhausted,
    RetryError,
    RetryState,
    classify,
    retry,
    retry_sync,
)
from forbear.testing import FakeTime, Flaky, record_events

Form = Callable[..., Any]


@dataclass(frozen=True)
class Answer:
    text: str
    tokens: int


EMPTY, GOOD = Answer("", 10), Answer("text", 40)


def is_empty(answer: Answer) -> bool:
    return not answer.text


def last_result(error: Exception) -> object:
    return error.last_result if isinstance(error, RetryError) else None


def test_an_empty_result_is_asked_for_again(form: Form) -> None:
    fn = Flaky(EMPTY, EMPTY, GOOD)
    with FakeTime() as clock:
        assert form(fn, retry_if_result=is_empty) == GOOD
        assert len(clock.sleeps) == 2
        assert min(clock.sleeps) > 0
    assert fn.calls == 3


def test_without_the_rule_it_is_a_result_like_any_other(form: Form) -> None:
    fn = Flaky(EMPTY, then=GOOD)
    assert form(fn) == EMPTY
    assert fn.calls == 1


def test_when_it_stays_empty_the_error_holds_the_last_result(form: Form) -> None:
    fn = Flaky(EMPTY, then=Answer("", 11))
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(fn, retry_if_result=is_empty, max_attempts=3)
    assert caught.value.last_result == Answer("", 11)
    assert isinstance(caught.value.last_error, ResultRejected)
    assert (caught.value.attempts, fn.calls) == (3, 3)


def test_the_caller_may_have_the_last_result_instead() -> None:
    fn = Flaky(then=EMPTY)
    with FakeTime():
        found = retry_sync(fn, retry_if_result=is_empty, max_attempts=3, fallback=last_result)
    assert (found, fn.calls) == (EMPTY, 3)


def test_a_decorated_function_may_have_it_too() -> None:
    ask = retry(retry_if_result=is_empty, max_attempts=3, fallback=last_result)(Flaky(then=EMPTY))
    with FakeTime():
        assert ask() == EMPTY


def test_what_was_paid_for_on_the_way_is_known(form: Form) -> None:
    paid: list[int] = []

    def note(state: RetryState) -> None:
        assert state.error is None
        assert state.kind is Kind.REJECTED_RESULT
        paid.append(state.result.tokens)

    with FakeTime():
        found = form(Flaky(EMPTY, Answer("", 12), GOOD), retry_if_result=is_empty, on_retry=note)
    assert [*paid, found.tokens] == [10, 12, 40]


def test_failures_and_empty_results_share_the_attempts(form: Form) -> None:
    fn = Flaky(EMPTY, ConnectionResetError(), then=EMPTY)
    with FakeTime(), record_events() as events, pytest.raises(RetriesExhausted) as caught:
        form(fn, retry_if_result=is_empty, max_attempts=4)
    assert (fn.calls, caught.value.last_result) == (4, EMPTY)
    assert [attempt.outcome for attempt in events.attempts] == ["failure"] * 4
    assert [end.reason for end in events.ends] == ["max_attempts"]


def test_a_refused_result_is_retried_even_where_errors_are_not(form: Form) -> None:
    fn = Flaky(EMPTY, GOOD)
    with FakeTime():
        assert form(fn, retry_if_result=is_empty, retryable=lambda _: False) == GOOD


def test_the_verdict_on_a_refused_result_is_a_kind_of_its_own() -> None:
    failure = classify(ResultRejected(EMPTY))
    assert (failure.transient, failure.kind) == (True, Kind.REJECTED_RESULT)
