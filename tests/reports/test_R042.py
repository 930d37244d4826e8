"""R042: no Retry-After, but resets in forms such as 6m0s, and two of them with different times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import DeadlineExceeded, retry_after_of
from forbear.testing import FakeTime, Flaky
from foreign import answer

Form = Callable[..., Any]

TWO = {"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("500ms", 0.5), ("1h2m3.5s", 3723.5), ("20ms", 0.02), ("7.66s", 7.66), ("6m0s", 360.0), ("1s", 1.0),
        ("2m59.56s", 179.56), ("12", 12.0), ("0", 0.0), ("0s", 0.0), ("-1", None), ("-1s", None), ("", None),
        ("soon", None), ("1x", None),
    ],
)  # fmt: skip
def test_every_form_is_understood(text: str, wait: float | None) -> None:
    assert retry_after_of(answer(429, {"x-ratelimit-reset-requests": text})) == wait


@pytest.mark.parametrize(
    ("left", "wait"),
    [
        ({}, 360.0),
        ({"requests": "0", "tokens": "900"}, 1.0),
        ({"requests": "59", "tokens": "0"}, 360.0),
        ({"requests": "0", "tokens": "0"}, 360.0),
        ({"requests": "0"}, 1.0),
        ({"tokens": "0"}, 360.0),
        ({"requests": "59"}, 360.0),
        ({"requests": "59", "tokens": "900"}, None),
    ],
)
def test_the_one_that_is_used_up_counts_else_the_later_of_those_that_may_be(
    left: dict[str, str], wait: float | None
) -> None:
    remaining = {f"x-ratelimit-remaining-{name}": value for name, value in left.items()}
    assert retry_after_of(answer(429, {**TWO, **remaining})) == wait


def test_it_is_waited_for(form: Form) -> None:
    with FakeTime() as clock:
        assert form(Flaky(answer(429, TWO), "done"), deadline=400.0) == "done"
        assert clock.sleeps == [360.0]
    spent = answer(429, {**TWO, "x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "900"})
    with FakeTime() as clock:
        assert form(Flaky(spent, "done")) == "done"
        assert clock.sleeps == [1.0]


def test_where_there_is_no_time_for_it_the_call_ends_at_once(form: Form) -> None:
    fn = Flaky(then=answer(429, TWO))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            form(fn)
        assert (clock.now, fn.calls, caught.value.hint) == (0.0, 1, 360.0)


def test_they_say_nothing_where_the_rate_was_not_the_reason(form: Form) -> None:
    with FakeTime() as clock:
        assert form(Flaky(answer(503, TWO), "done"), backoff=[0.5]) == "done"
        assert clock.sleeps == [0.5]
