"""T19: a date without a zone is in UTC, wherever the host lies; and it is read against the server's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import pytest

from forbear import DeadlineExceeded, classify, retry_after_of, retry_sync
from forbear.testing import FakeTime, Flaky
from foreign import answer

SENT = 1_445_412_480.0
FORMS: dict[str, Callable[[float], str]] = {
    "GMT": lambda instant: formatdate(instant, usegmt=True),
    "-0000": formatdate,
    "+0000": lambda instant: formatdate(instant).replace("-0000", "+0000"),
    "no zone": lambda instant: formatdate(instant).removesuffix(" -0000"),
    "asctime": lambda instant: time.asctime(time.gmtime(instant)),
    "RFC 850": lambda instant: time.strftime("%A, %d-%b-%y %H:%M:%S GMT", time.gmtime(instant)),
}


# As POSIX writes them, so that no machine needs a table of zones: what is added to get to UTC.
ZONES = {"UTC0": 0, "EDT4": -4, "JST-9": 9, "<+0545>-5:45": 5.75}


@pytest.fixture(params=ZONES)
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The zone that the host believes it lies in."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def error(end: str, sent: str | None, status: int = 429) -> Exception:
    return answer(status, {"Retry-After": end} if sent is None else {"Retry-After": end, "Date": sent})


def test_the_host_is_where_the_test_says(host: str) -> None:
    assert time.localtime(SENT).tm_gmtoff == ZONES[host] * 3600


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("end", FORMS)
@pytest.mark.parametrize("sent", FORMS)
def test_ninety_seconds_are_ninety_seconds_in_any_form(end: str, sent: str) -> None:
    assert retry_after_of(error(FORMS[end](SENT + 90), FORMS[sent](SENT))) == 90.0
    assert retry_after_of(error(FORMS[end](SENT - 90), FORMS[sent](SENT))) == 0.0


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("end", FORMS)
def test_without_a_date_of_the_answer_the_hosts_clock_counts(end: str) -> None:
    wait = retry_after_of(error(FORMS[end](time.time() + 90), None))
    assert wait == pytest.approx(90.0, abs=2.0)
    assert classify(error(FORMS[end](time.time() + 90), None, 503)).retry_after == pytest.approx(90.0, abs=2.0)


@pytest.mark.usefixtures("host")
def test_resets_that_are_timestamps_are_in_utc_too() -> None:
    for reset in ("2015-10-21T07:29:30Z", "2015-10-21T07:29:30", "2015-10-21T09:29:30+02:00", f"{SENT + 90:.0f}"):
        headers = {"anthropic-ratelimit-tokens-reset": reset, "Date": FORMS["GMT"](SENT)}
        assert retry_after_of(answer(429, headers)) == 90.0


def test_a_clock_that_is_wrong_by_an_hour_changes_nothing() -> None:
    for wrong in (-3600.0, 3600.0, 86_400.0):
        now = time.time() + wrong
        assert retry_after_of(error(FORMS["GMT"](now + 90), FORMS["GMT"](now))) == pytest.approx(90.0, abs=1.0)


@pytest.mark.usefixtures("host")
def test_a_call_waits_ninety_seconds() -> None:
    for end in FORMS.values():
        with FakeTime() as clock:
            fn = Flaky(error(end(SENT + 90), FORMS["GMT"](SENT)), "done")
            assert retry_sync(fn, deadline=120.0) == "done"
            assert clock.sleeps == [90.0]


@pytest.mark.usefixtures("host")
def test_a_date_that_lies_too_far_away_ends_the_call_at_once(form: Callable[..., Any]) -> None:
    for end in FORMS.values():
        fn = Flaky(then=error(end(SENT + 86_420), FORMS["GMT"](SENT)))
        with FakeTime() as clock:
            with pytest.raises(DeadlineExceeded) as caught:
                form(fn)
            assert (clock.now, fn.calls, caught.value.hint) == (0.0, 1, 86_420.0)
