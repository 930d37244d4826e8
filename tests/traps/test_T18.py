"""T18: a Retry-After of any shape is a wait or nothing: never an exception, never a loop without a wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, RetriesExhausted, retry_after_of
from forbear.testing import FakeTime, Flaky
from foreign import answer

Form = Callable[..., Any]

SENT = 1_445_412_480.0
DATE = formatdate(SENT, usegmt=True)
ROWS: dict[str, float | None] = {
    "7": 7.0,
    "0": 0.0,
    "1.5": 1.5,
    "-5": None,
    "nan": None,
    "inf": None,
    "1e400": None,
    "9" * 400: None,
    "1_000": None,
    "30s": None,
    "30, 60": None,
    formatdate(SENT + 90, usegmt=True): 90.0,
    formatdate(SENT - 90, usegmt=True): 0.0,
    formatdate(SENT + 86_420, usegmt=True): 86_420.0,
    formatdate(SENT + 90): 90.0,  # the zone is written "-0000"
    time.asctime(time.gmtime(SENT + 90)): 90.0,
    "Wednesday, 21-Oct-15 07:29:30 GMT": 90.0,
    "Fri, 31 Dec 9999 23:59:59 GMT": 253_402_300_799.0 - SENT,
    "Mon, 99 Jan 2999 99:99:99 GMT": None,
    "300": 300.0,
}
STRANGE = [
    "", " ", "soon", "+7", "7;", '"7"', "7 s", "0x7", "7e0", "\u0667", "\x007", "7\x00", "--1", "NaN", "-inf", "inf.",
    "1.2.3", "9" * 100_000, "7," * 10_000, "Wed", "Wed, 21 Oct", "21 Oct 99999 07:28:00 GMT", "Wed, 0 Foo 2015 1:2:3 X",
    "2015-10-21T07:29:30Z", "Wed, 21 Oct 2015 07:29:30 +" + "9" * 30, "\ud800", "PT30S", "None", "null", "false",
]  # fmt: skip


def with_header(value: str, status: int = 429, **more: str) -> Exception:
    return answer(status, {"Retry-After": value, "Date": DATE, **more})


@pytest.mark.parametrize(("value", "wait"), ROWS.items(), ids=lambda value: str(value)[:40])
def test_every_row_of_the_table_has_one_meaning(value: str, wait: float | None) -> None:
    assert retry_after_of(with_header(value)) == wait
    assert retry_after_of(with_header(f" {value}\t")) == wait
    assert retry_after_of(with_header(value, 503)) == wait


def test_whatever_else_is_written_there_is_nothing() -> None:
    for value in STRANGE:
        assert retry_after_of(with_header(value)) is None, value


def test_a_wait_that_fits_is_waited_for_and_no_other(form: Form) -> None:
    for value, wait in ROWS.items():
        if wait is not None and wait <= 300:
            with FakeTime() as clock:
                assert form(Flaky(with_header(value), "done"), backoff=[0.25], deadline=400.0) == "done"
                assert clock.sleeps == [max(wait, 0.25)], value


def test_a_wait_that_does_not_fit_ends_the_call_at_once(form: Form) -> None:
    for value, wait in ROWS.items():
        if wait is not None and wait >= 300:
            fn = Flaky(then=with_header(value))
            with FakeTime() as clock:
                with pytest.raises(DeadlineExceeded) as caught:
                    form(fn)
                assert (clock.now, clock.sleeps, fn.calls) == (0.0, [], 1)
            assert caught.value.hint == wait


def test_where_there_is_none_the_own_backoff_is_waited_for(form: Form) -> None:
    for value in [value for value, wait in ROWS.items() if wait is None] + STRANGE[:6]:
        with FakeTime() as clock:
            assert form(Flaky(with_header(value), "done"), backoff=[0.25]) == "done"
            assert clock.sleeps == [0.25], value


def test_a_wait_of_zero_makes_no_hot_loop(form: Form) -> None:
    for error in (with_header("0"), with_header(formatdate(SENT - 90, usegmt=True)), ApiError(429, retry_after=0)):
        fn = Flaky(then=error)
        with FakeTime(rng=lambda: 0.5) as clock:
            with pytest.raises(RetriesExhausted):
                form(fn, max_attempts=4)
            assert clock.sleeps == [0.25, 0.5, 1.0]
        assert fn.calls == 4


def test_the_failure_that_leaves_is_the_servers_own(form: Form) -> None:
    for value in ROWS:
        error = with_header(value, 404)
        with FakeTime(), pytest.raises(type(error)) as caught:
            form(Flaky(then=error))
        assert caught.value is error
