"""T63: every attempt pays. A limit that is charged once for a call lets its retries run outside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import DeadlineExceeded, RateLimiter, RetriesExhausted, Upstream
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]


@pytest.mark.parametrize("kind", ["upstream", "limiter"])
def test_three_attempts_on_a_limit_of_one_are_made_one_after_the_other(form: Form, kind: str) -> None:
    fn = Flaky(ConnectionError(), ConnectionError(), then="done")
    guards: dict[str, Any] = {
        "upstream": Upstream("service", requests_per_minute=60),
        "limiter": RateLimiter(60, burst=1),
    }
    with FakeTime() as clock:
        assert form(fn, base=0, **{kind: guards[kind]}) == "done"
        assert fn.started_at == pytest.approx([0.0, 1.0, 2.0])
        assert clock.now == pytest.approx(2.0)


def test_each_pays_its_tokens_and_what_was_refused_gets_them_back(form: Form) -> None:
    upstream = Upstream("service", tokens_per_minute=6000, burst=6000)
    with FakeTime():
        fn = Flaky(ConnectionResetError(), ConnectionResetError(), then="done")
        form(fn, base=0, upstream=upstream, tokens=100)
        assert upstream.snapshot().tokens_left == pytest.approx(5700)
    with FakeTime():
        fn = Flaky(ConnectionRefusedError(), then="done")
        form(fn, base=0, upstream=upstream, tokens=100)
        assert upstream.snapshot().tokens_left == pytest.approx(5900)


def test_an_attempt_that_can_not_pay_in_time_is_not_made_and_the_real_error_is_the_cause(form: Form) -> None:
    error, upstream = ConnectionError("mine"), Upstream("service", requests_per_minute=6)
    fn = Flaky(then=error)
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            form(fn, base=0, upstream=upstream, deadline=5.0)
        assert caught.value.__cause__ is error
        assert (caught.value.attempts, fn.calls) == (1, 1)
        assert clock.now < 1.0
        assert caught.value.hint == pytest.approx(10.0, abs=1.0)


def test_by_choice_that_error_itself_leaves_and_says_how_many_attempts_were_made(form: Form) -> None:
    error, upstream = ConnectionError("mine"), Upstream("service", requests_per_minute=6)
    with FakeTime(), pytest.raises(ConnectionError) as caught:
        form(Flaky(then=error), base=0, upstream=upstream, deadline=5.0, reraise=True)
    assert caught.value is error
    assert "gave up after attempt 1" in error.__notes__[0]


def test_a_wait_for_ones_place_is_no_attempt(form: Form) -> None:
    upstream = Upstream("service", requests_per_minute=60)
    fn = Flaky(then=ConnectionError())
    with FakeTime():
        with pytest.raises(RetriesExhausted) as caught:
            form(fn, base=0, max_attempts=3, attempt_timeout=0.5, deadline=None, upstream=upstream)
        assert (caught.value.attempts, fn.calls) == (3, 3)
        assert caught.value.waited == pytest.approx(2.0, abs=0.01)
