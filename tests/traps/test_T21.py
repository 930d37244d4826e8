"""T21: a wait of more than a day is more than a day; counted modulo a day it would be a few seconds."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from forbear import DeadlineExceeded, retry_after_of
from forbear.testing import FakeTime, Flaky
from foreign import answer

SENT = 1_445_412_480.0
DAY = 86_400
FAR = [DAY, DAY + 19, DAY + 20, 2 * DAY + 1, 31 * DAY + 5, 366 * DAY, 10_000 * DAY + 7]


def hinted(seconds: int) -> list[Exception]:
    """The same wait in every form."""
    sent = {"Date": formatdate(SENT, usegmt=True)}
    return [
        answer(429, {"Retry-After": str(seconds)}),
        answer(429, {"Retry-After": formatdate(SENT + seconds, usegmt=True), **sent}),
        answer(429, {"Retry-After": formatdate(SENT + seconds), **sent}),
        answer(503, {"retry-after-ms": str(seconds * 1000)}),
        answer(429, {"x-ratelimit-reset": f"{seconds}s"}),
        answer(429, {"x-ratelimit-reset": f"{SENT + seconds:.0f}", **sent}),
    ]


@pytest.mark.parametrize("seconds", FAR)
def test_every_second_of_it_counts_in_every_form(seconds: int) -> None:
    assert [retry_after_of(error) for error in hinted(seconds)] == [seconds] * 6


def test_it_ends_the_call_at_once(form: Callable[..., Any]) -> None:
    for error in hinted(DAY + 19):
        fn = Flaky(then=error)
        with FakeTime() as clock:
            with pytest.raises(DeadlineExceeded) as caught:
                form(fn)
            assert (clock.now, fn.calls, caught.value.hint) == (0.0, 1, DAY + 19)


def test_a_caller_with_days_of_time_waits_for_days(form: Callable[..., Any]) -> None:
    for error in hinted(2 * DAY + 1):
        with FakeTime() as clock:
            assert form(Flaky(error, "done"), deadline=3 * DAY, attempt_timeout=1.0) == "done"
            assert clock.sleeps == [2 * DAY + 1]
