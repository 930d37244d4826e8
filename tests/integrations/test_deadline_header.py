"""A deadline that is written into a header is read as what it was or a little tighter, and nonsense is no deadline."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forbear.integrations.http.deadline_header import GRPC, INSTANT, read, write

NOW = datetime(2026, 11, 30, 12, 14, 14, tzinfo=UTC).timestamp()
MICROSECOND = 1e-6  # a float of epoch seconds is no finer
UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "S": 1.0, "M": 60.0, "H": 3600.0}

walls = st.floats(1_000_000_000, 4_000_000_000)
lefts = st.floats(-1e6, 1e8)


@given(lefts, walls)
@example(3.35, NOW)
@example(0.0, NOW)
def test_an_instant_is_read_as_what_was_written_or_less_than_a_millisecond_tighter(left: float, wall: float) -> None:
    text = write(INSTANT, left, wall)
    assert text is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    found = read(INSTANT, text, wall)
    assert found is not None
    assert left - 0.001 - MICROSECOND <= found <= left + MICROSECOND


@given(st.floats(1e-9, 1e11))
@example(0.1)
@example(0.29)
@example(99_999_999.5)
@example(1e11)
def test_seconds_left_are_never_longer_never_zero_and_less_than_one_unit_shorter(left: float) -> None:
    text = write(GRPC, left, NOW)
    assert text is not None
    assert re.fullmatch(r"[1-9]\d{0,7}[HMSmun]", text)
    found = read(GRPC, text, NOW)
    assert found is not None
    assert 0 < found <= left
    assert left - found <= UNITS[text[-1]] * (1 + 1e-9)
    assert left - found <= left * 1e-5 + 1e-9  # the finest unit that has room


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (2.5, "2500000u"),
        (0.05, "50000000n"),
        (99.9999999, "99999999u"),
        (100.0, "100000m"),
        (100_000.5, "100000S"),
        (1e8, "1666666M"),
        (6e9, "1666666H"),
        (1e300, "99999999H"),
        (1e-12, "1n"),
        (0.0, "1n"),
        (-5.0, "1n"),
        (float("-inf"), "1n"),
    ],
)
def test_the_form_of_grpc_has_eight_digits_at_most_and_never_says_zero(left: float, text: str) -> None:
    assert write(GRPC, left, NOW) == text
    assert write("GRPC-Timeout", left, NOW) == text


def test_the_instant_has_milliseconds_and_is_in_utc() -> None:
    assert write(INSTANT, 3.35, NOW) == "2026-11-30T12:14:17.350Z"
    assert write("X-My-Deadline", 3.3509, NOW) == "2026-11-30T12:14:17.350Z"
    assert write(INSTANT, 1.001, NOW + 0.001) == "2026-11-30T12:14:15.002Z"  # their sum is a float just below
    assert write(INSTANT, -0.0001, NOW) == "2026-11-30T12:14:13.999Z"


@pytest.mark.parametrize("name", [INSTANT, GRPC])
@pytest.mark.parametrize("left", [float("inf"), float("nan")])
def test_where_there_is_no_end_nothing_is_written(name: str, left: float) -> None:
    assert write(name, left, NOW) is None


@pytest.mark.parametrize("left", [1e12, 1e300, -1e12, float("-inf")])
def test_an_instant_that_no_calendar_has_is_not_written(left: float) -> None:
    assert write(INSTANT, left, NOW) is None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("2026-11-30T12:14:17.350Z", 3.35),
        ("2026-11-30t12:14:17z", 3.0),
        ("2026-11-30 12:14:17Z", 3.0),
        ("  2026-11-30T12:14:17.5Z ", 3.5),
        ("2026-11-30T14:14:17+02:00", 3.0),
        ("2026-11-30T12:14:17", 3.0),
        ("2026-11-30T12:14:10Z", -4.0),
        ("Mon, 30 Nov 2026 12:14:20 GMT", 6.0),
        (f"{NOW + 2.5:.3f}", 2.5),
        (f"{NOW + 2:.0f}", 2.0),
        (f"{(NOW + 2.5) * 1000:.0f}", 2.5),
        (f"{NOW - 2:.0f}", -2.0),
        ("2.5", 2.5),
        ("0", 0.0),
        ("30", 30.0),
    ],
)
def test_other_forms_of_a_deadline_are_read_too(text: str, left: float) -> None:
    assert read(INSTANT, text, NOW) == pytest.approx(left, abs=MICROSECOND)


@given(st.integers(-100_000, 100_000), st.integers(0, 3_000_000_000))
def test_dates_of_http_are_read(seconds: int, wall: int) -> None:
    at = datetime.fromtimestamp(wall, UTC) + timedelta(seconds=seconds)
    if at.year >= 1970:
        assert read(INSTANT, format_datetime(at, usegmt=True), float(wall)) == float(seconds)


NONSENSE = [
    "",
    " ",
    "soon",
    "nan",
    "inf",
    "-inf",
    "-5",
    "+5",
    "2_0",
    "0x10",
    "1,2",
    "1S",
    "٣",
    "1e400",
    "9" * 400,
    "T" * 5000,
]
DATES = ["2026-11-30", "2026-13-45T99:00:00Z", "2026-11-30T12:14:17.350Z, 2026-11-30T12:14:17.350Z"]


@pytest.mark.parametrize("text", [*NONSENSE, *DATES])
def test_nonsense_is_no_deadline(text: str) -> None:
    assert read(INSTANT, text, NOW) is None


@pytest.mark.parametrize(
    "text", ["", "S", "5", "-5S", "+5S", "1.5S", "5s", "5 S", "123456789S", "٣S", "nanS", "5SS", "1_0S", "2026-11-30"]
)
def test_nonsense_in_the_form_of_grpc_is_no_deadline(text: str) -> None:
    assert read(GRPC, text, NOW) is None


def test_a_zero_of_grpc_is_over() -> None:
    assert read(GRPC, "0S", NOW) == 0.0


@given(st.sampled_from([INSTANT, GRPC]), st.text(max_size=60) | st.from_regex(r"[0-9T:.Z+-]{1,40}"), lefts)
def test_whatever_comes_is_read_or_passed_over(name: str, text: str, wall: float) -> None:
    found = read(name, text, wall)
    assert found is None or abs(found) < float("inf")
