"""T24: `retry-after-ms` is a wait, and `x-should-retry` is the server's own word, but not over a permanent code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import RetriesExhausted, classify, is_transient
from forbear.testing import FakeTime, Flaky
from foreign import answer

Form = Callable[..., Any]

QUOTA = {"error": {"code": "insufficient_quota"}}
RATE = {"error": {"code": "rate_limit_exceeded"}}


def test_milliseconds_are_waited_for_exactly(form: Form) -> None:
    for headers, wait in (
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Retry-After-Ms": "1500", "Retry-After": "2"}, 1.5),
        ({"x-ms-retry-after-ms": "750"}, 0.75),
        ({"retry-after-ms": "soon", "Retry-After": "2"}, 2.0),
    ):
        with FakeTime() as clock:
            assert form(Flaky(answer(429, headers), "done"), backoff=[0.25]) == "done"
            assert clock.sleeps == [wait]


def test_a_server_that_says_no_is_asked_once(form: Form) -> None:
    for status, body in ((429, None), (503, None), (500, RATE), (408, None)):
        error = answer(status, {"x-should-retry": "false", "Retry-After": "1"}, body)
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(type(error)) as caught:
            form(fn)
        assert (caught.value, fn.calls) == (error, 1)


def test_a_server_that_says_yes_is_asked_again_even_after_a_400(form: Form) -> None:
    for status in (400, 404, 409, 501):
        fn = Flaky(then=answer(status, {"x-should-retry": "true"}))
        with FakeTime(), pytest.raises(RetriesExhausted):
            form(fn, max_attempts=3)
        assert fn.calls == 3


def test_a_code_that_can_not_pass_is_not_overruled(form: Form) -> None:
    for status in (429, 400, 503):
        error = answer(status, {"x-should-retry": "true"}, QUOTA)
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(type(error)):
            form(fn)
        assert fn.calls == 1


def test_any_other_word_is_no_word() -> None:
    for word in ("", "maybe", "1", "yes", "no", "truefalse"):
        assert classify(answer(503, {"x-should-retry": word})).transient
        assert not classify(answer(400, {"x-should-retry": word})).transient
    for word in ("TRUE", "True"):
        assert classify(answer(400, {"X-Should-Retry": word})).transient
        assert is_transient(answer(400, {"X-Should-Retry": word}))


def test_yes_does_not_make_a_repetition_safe(form: Form) -> None:
    error = answer(500, {"x-should-retry": "true"})
    fn = Flaky(then=error)
    with FakeTime(), pytest.raises(type(error)):
        form(fn, idempotent=False)
    assert fn.calls == 1


def test_a_service_that_stores_outcomes_has_a_word_of_its_own() -> None:
    assert classify(answer(409, {"stripe-should-retry": "true"})).transient
    assert not classify(answer(500, {"stripe-should-retry": "false"})).transient
