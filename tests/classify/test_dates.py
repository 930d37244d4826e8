"""Points in time and lengths of time as servers write them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from fractions import Fraction

import pytest

from forbear.classify.dates import http_date, length_of_time, plain_number, rfc3339, wait_or_epoch

NOON = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT


@pytest.fixture(params=["UTC0", "EST5EDT,M3.2.0,M11.1.0", "JST-9", "<+1030>-10:30"])
def anywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The host lies in one zone after the other."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# ---- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7.0),
        (0, 0.0),
        (0.0, 0.0),
        (1.5, 1.5),
        ("7", 7.0),
        ("0", 0.0),
        ("007", 7.0),
        ("1.5", 1.5),
        ("1.", 1.0),
        (" 7\t", 7.0),
        ("9" * 300, 1e300),
        ("0." + "0" * 299 + "1", 1e-300),
    ],
)
def test_a_number_is_one_of_plain_decimal_digits(value: object, number: float) -> None:
    found = plain_number(value)
    assert found == pytest.approx(number)
    assert type(found) is float


@pytest.mark.parametrize(
    "value",
    [
        -1, -0.5, math.nan, math.inf, -math.inf, 10**400, True, False, None, b"7", [7], {}, Fraction(1, 2), 7j,
        "", " ", "-5", "+5", "nan", "inf", "1e400", "1e2", "9" * 301, "9" * 10_000, "1_000", "30s", "30, 60", "30;60",
        "0x10", ".5", "1.5.2", "1,5", "\u0667", "\u00b2", "7\x00", '"7"', "soon",
    ],
)  # fmt: skip
def test_nothing_else_is_a_number(value: object) -> None:
    assert plain_number(value) is None


def test_looking_for_a_number_in_a_long_text_takes_no_time() -> None:
    for text in (" " * 10**6 + "x", "1" * 10**6, "1." * 10**6):
        assert plain_number(text) is None
        assert length_of_time(text) is None


# ---- lengths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360.0),
        ("120ms", 0.12),
        ("20ms", 0.02),
        ("500ms", 0.5),
        ("1h2m3.5s", 3723.5),
        ("1h2m3s", 3723.0),
        ("7m12s", 432.0),
        ("2m59.56s", 179.56),
        ("7.66s", 7.66),
        ("34.074824224s", 34.074824224),
        ("0s", 0.0),
        ("1d", 86_400.0),
        ("1d1ms", 86_400.001),
        ("10us", 1e-5),
        ("10\u00b5s", 1e-5),
        ("10ns", 1e-8),
        (" 1s ", 1.0),
        ("12", 12.0),
        (" 1.5", 1.5),
        (12, 12.0),
    ],
)
def test_a_length_is_a_number_of_seconds_or_parts_with_units(text: object, seconds: float) -> None:
    assert length_of_time(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "s", "ms", "-1s", "1s-", "1x", "1s2", "1m 30s", "x1s", "1s,2s", "nan", "infs", "1e3s", "-1", -1, None,
        b"1s", "1s" * 51, "\u0661s", "1S", "." , ".s", "1" * 31 + "s",
    ],
)  # fmt: skip
def test_nothing_else_is_a_length(value: object) -> None:
    assert length_of_time(value) is None


# ---- dates -------------------------------------------------------------------------------------------------------

FORMS = [
    "Wed, 21 Oct 2015 07:28:00 GMT",
    "Wed, 21 Oct 2015 07:28:00 UTC",
    "Wed, 21 Oct 2015 07:28:00 -0000",
    "Wed, 21 Oct 2015 07:28:00 +0000",
    "Wed, 21 Oct 2015 07:28:00",
    "wed, 21 oct 2015 07:28:00 gmt",
    "21 Oct 2015 07:28:00 GMT",
    "Wednesday, 21-Oct-15 07:28:00 GMT",
    "Wed Oct 21 07:28:00 2015",
    "  Wed, 21 Oct 2015 07:28:00 GMT ",
]


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.usefixtures("anywhere")
def test_a_date_without_a_zone_of_its_own_is_in_utc_wherever_the_host_lies(text: str) -> None:
    assert http_date(text) == NOON


@pytest.mark.usefixtures("anywhere")
def test_a_date_may_name_another_offset() -> None:
    assert http_date("Wed, 21 Oct 2015 09:28:00 +0200") == NOON
    assert http_date("Wed, 21 Oct 2015 02:58:00 -0430") == NOON


def test_years_that_lie_far_away_are_read_or_refused() -> None:
    assert http_date("Fri, 31 Dec 9999 23:59:59 GMT") == 253_402_300_799.0
    assert http_date("Thu, 01 Jan 1970 00:00:00 GMT") == 0.0
    assert http_date("Wed, 31 Dec 1969 23:59:59 GMT") == -1.0
    assert http_date("Fri, 31 Dec 9999999 23:59:59 GMT") is None
    assert http_date("Fri, 31 Dec 99999 23:59:59 GMT") is None


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 99 Jan 2999 99:99:99 GMT", "Wed, 30 Feb 2015 07:28:00 GMT", "Wed, 21 Oct", "Wed, 21 Oct 2015 7:x:00 GMT",
        "2015-10-21T07:28:00Z", "", "soon", "1445412480", "Wed, 21 Oct 2015 07:28:00 GMT" + " " * 80, None, 7, b"7",
        "Wed, 2_1 Oct 2015 07:28:00 GMT", "Wed, \u0662\u0661 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 20_15 07:28:00 GMT",
        "Wed, 21 Oct 2015 0_7:28:00 GMT", "Wed, +21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:+28:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 +02_0", "Wed\u00a021 Oct 2015 07:28:00 GMT", "Wed Oct 2_1 07:28:00 2015",
        "Wed, 21 Oct 2015 07:28:00 +9999999", "Wed, 21 Oct 2015 07:28:\ud800 GMT", "Wed, 99999999999 Oct 2015 0:0",
    ],
)  # fmt: skip
def test_what_is_no_http_date_is_nothing(value: object) -> None:
    assert http_date(value) is None


@pytest.mark.parametrize(
    "text",
    [
        "2015-10-21T07:28:00Z", "2015-10-21T07:28:00+00:00", "2015-10-21T09:28:00+02:00", "2015-10-21T07:28:00",
        "2015-10-21 07:28:00", " 2015-10-21T07:28:00.000Z ",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("anywhere")
def test_a_timestamp_of_rfc_3339_is_in_utc_unless_it_says_otherwise(text: str) -> None:
    assert rfc3339(text) == NOON


@pytest.mark.parametrize(
    "value",
    [
        "2015-13-21T07:28:00Z", "2015-10-21T25:28:00Z", "99999-01-01T00:00:00Z", "soon, later", "Z" * 200, "", None,
        7, b"2015-10-21T07:28:00Z", "20s", "Wed, 21 Oct 2015 07:28:00 GMT", "2015-10-\u0662\u0661T07:28:00Z",
        "2015-10-21\u066107:28:00Z", "2015-10-2_1",
    ],
)  # fmt: skip
def test_what_is_no_timestamp_is_nothing(value: object) -> None:
    assert rfc3339(value) is None


def test_the_ends_of_time_are_timestamps() -> None:
    assert rfc3339("0001-01-01T00:00:00+23:59") == -62_135_683_140.0
    assert rfc3339("9999-12-31T23:59:59-23:59") == 253_402_387_139.0


# ---- waits or epochs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["18", 18, "0", 0.5, "999999999"])
def test_a_small_number_is_a_wait_whatever_time_it_is(value: float) -> None:
    for now in (None, 0.0, NOON):
        assert wait_or_epoch(value, now) == float(value)


@pytest.mark.parametrize("value", [NOON + 30, f"{NOON + 30:.0f}", f"{NOON + 30:.3f}", f"{(NOON + 30) * 1000:.0f}"])
def test_a_large_number_is_an_epoch_in_seconds_or_milliseconds(value: object) -> None:
    assert wait_or_epoch(value, NOON) == 30.0
    assert wait_or_epoch(value, NOON + 60) == 0.0
    assert wait_or_epoch(value, None) is None


def test_a_number_becomes_a_date_in_2001_and_a_date_in_milliseconds_in_1973() -> None:
    assert wait_or_epoch(1_000_000_000, 999_999_970.0) == 30.0
    assert wait_or_epoch(999_999_999, 999_999_970.0) == 999_999_999.0
    assert wait_or_epoch(99_999_999_999, 99_999_999_969.0) == 30.0
    assert wait_or_epoch(100_000_000_000, 99_999_970.0) == 30.0


@pytest.mark.parametrize("value", ["", "soon", "-1", None, math.nan, math.inf])
def test_what_is_no_number_is_neither(value: object) -> None:
    assert wait_or_epoch(value, NOON) is None
