"""R039: a date with an absurd year must not raise from the reader of headers, in the place of the real error."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from forbear import DeadlineExceeded, retry_after_of
from forbear.testing import FakeTime, Flaky
from foreign import WebError, answer

Form = Callable[..., Any]

SENT = 1_445_412_480.0
DATE = formatdate(SENT, usegmt=True)
NONE = [
    "Wed, 21 Oct 9999999 07:28:00 GMT", "Wed, 21 Oct 10000 07:28:00 GMT", "Wed, 32 Oct 2015 07:28:00 GMT",
    "Wed, 21 Foo 2015 07:28:00 GMT", "Wed, 21 Oct 2015 25:28:00 GMT", "Wed, 21 Oct 2015", "Wed, 21 Oct -5 07:28:00 GMT",
    "Wed, 21 Oct 2015 07:29:30 +" + "9" * 40,
]  # fmt: skip
SOME = {
    "wed, 21 oct 2015 07:29:30 gmt": 90.0,
    "Wed, 21 oct 2015 07:29:30 GMT": 90.0,
    "Wed, 21 Oct 2015 07:29:30": 90.0,
    "Wednesday, 21-Oct-15 07:29:30 GMT": 90.0,
    "Wed, 21 Oct 15 07:29:30 GMT": 90.0,
    "Wed, 21 Oct 2015 07:26:30 GMT": 0.0,
    "Thu, 01 Jan 1970 00:00:00 GMT": 0.0,
}


def error(value: str, status: int = 503, sent: str = DATE) -> WebError:
    return answer(status, {"Retry-After": value, "Date": sent})


@pytest.mark.parametrize("value", NONE)
def test_a_date_that_is_none_is_no_hint(value: str) -> None:
    assert retry_after_of(error(value)) is None
    assert retry_after_of(error(DATE, sent=value)) is not None  # then our own clock counts


@pytest.mark.parametrize(("value", "wait"), SOME.items())
def test_a_date_that_is_written_carelessly_is_one(value: str, wait: float) -> None:
    assert retry_after_of(error(value)) == wait


def test_the_real_error_is_the_one_that_leaves(form: Form) -> None:
    for value in [*NONE, *SOME]:
        failed = error(value, 404)
        with FakeTime(), pytest.raises(WebError) as caught:
            form(Flaky(then=failed))
        assert caught.value is failed


def test_the_call_is_retried_after_a_backoff_where_the_date_is_none(form: Form) -> None:
    for value in NONE:
        with FakeTime() as clock:
            assert form(Flaky(error(value), "done"), backoff=[0.5]) == "done"
            assert clock.sleeps == [0.5]


@pytest.mark.parametrize("wrong", [-3600.0, 3600.0, 86_400.0, -1e9])
def test_a_servers_clock_that_is_wrong_changes_no_wait(wrong: float) -> None:
    sent, end = SENT + wrong, SENT + wrong + 30
    found = retry_after_of(error(formatdate(end, usegmt=True), sent=formatdate(sent, usegmt=True)))
    assert found == 30.0


def test_a_date_that_is_past_means_no_wait_beyond_the_backoff(form: Form) -> None:
    with FakeTime() as clock:
        assert form(Flaky(error("Wed, 21 Oct 2015 07:26:30 GMT"), "done"), backoff=[0.5]) == "done"
        assert clock.sleeps == [0.5]


def test_a_year_that_exists_but_is_far_away_ends_the_call(form: Form) -> None:
    fn = Flaky(then=error("Fri, 31 Dec 9999 23:59:59 GMT"))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            form(fn)
        assert (clock.now, fn.calls) == (0.0, 1)
    assert caught.value.hint is not None
    assert 2.5e11 < caught.value.hint < 2.6e11
