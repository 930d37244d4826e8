"""Laws of the hints: whatever a server sends, reading it never raises and gives nothing or a finite wait."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from forbear.classify.hints import headers_of, retry_after_of

law = settings(max_examples=200, deadline=None)


class WebError(Exception):
    """An error as HTTP libraries make them: only what is given exists."""

    def __init__(self, **facts: object) -> None:
        super().__init__()
        self.__dict__.update(facts)


class Answer:
    def __init__(self, headers: object) -> None:
        self.headers = headers


# Text that is nearly a number or nearly a date gets further into a reader than text at random.
pieces = st.sampled_from([
    "Wed", "Wednesday,", ",", "21", "Oct", "-", "-15", "2015", "99999999999999999999", "07:28:00", "7:", ":",
    "28:61:61", "GMT", "UTC", "EST", "+0000", "-9999", "+9999999", "+" + "9" * 20, "1e999", "-1", "0",
    "nan", "inf", "1_0", ".", "(", ")", "\\", '"', "@", "<", "\x00", "\u0667", "\ud800",
])  # fmt: skip
nearly = st.lists(pieces, max_size=9).flatmap(
    lambda parts: st.sampled_from([" ", "", "-"]).map(lambda by: by.join(parts))
)
dates = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(
    lambda instant: format_datetime(instant.replace(tzinfo=UTC), usegmt=True)
)
texts = st.one_of(st.text(), nearly, dates, st.from_regex(r"\A[-+]?\d{1,400}(\.\d+)?([eE][-+]?\d+)?\Z"))
numbers = st.one_of(st.integers(), st.floats(), st.complex_numbers(), st.decimals(), st.fractions(), st.booleans())
anything = st.one_of(texts, st.binary(), numbers, st.none(), st.just(10**400), st.lists(texts), st.dates())
names = st.one_of(
    st.sampled_from(["Retry-After", "retry-after", "retry-after-ms", "Retry-After-Ms", "Date", "date"]),
    st.text(),
    st.binary(),
    st.integers(),
    st.none(),
)
mappings = st.dictionaries(names, anything, max_size=6)


def is_a_hint(value: object) -> bool:
    return isinstance(value, float) and 0.0 <= value < math.inf


@law
@given(anything | mappings)
def test_any_attribute_gives_nothing_or_a_finite_wait(value: object) -> None:
    hint = retry_after_of(WebError(retry_after=value))
    assert hint is None or is_a_hint(hint)


@law
@given(anything | mappings, st.booleans())
def test_any_headers_give_nothing_or_a_finite_wait(headers: object, in_a_response: bool) -> None:
    error = WebError(response=Answer(headers)) if in_a_response else WebError(headers=headers)
    hint = retry_after_of(error)
    assert hint is None or is_a_hint(hint)


@law
@given(texts, texts, texts)
@example("nan", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 GMT")
def test_any_text_in_the_headers_that_count_gives_nothing_or_a_finite_wait(
    milliseconds: str, seconds: str, date: str
) -> None:
    for headers in (
        {"retry-after": seconds, "date": date},
        {"retry-after": seconds},
        {"retry-after-ms": milliseconds, "retry-after": seconds, "date": date},
    ):
        hint = retry_after_of(WebError(headers=headers))
        assert hint is None or is_a_hint(hint)


@law
@given(mappings)
def test_names_are_always_text_in_lower_case(headers: dict[Any, Any]) -> None:
    found = headers_of(WebError(headers=headers))
    assert found is not None
    assert found.keys() == {str(name).lower() for name in headers}
    assert all(isinstance(value, str) for value in found.values())


readings: list[Callable[[float], WebError]] = [
    lambda wait: WebError(retry_after=wait),
    lambda wait: WebError(retry_after=repr(wait)),
    lambda wait: WebError(headers={"Retry-After": wait}),
    lambda wait: WebError(response=Answer({"retry-after": f" {wait!r} "})),
]


@law
@given(st.floats(0.0, allow_infinity=False) | st.integers(0, 10**15).map(float))
def test_a_number_of_seconds_is_read_exactly(wait: float) -> None:
    assert [retry_after_of(reading(wait)) for reading in readings] == [wait] * len(readings)


@law
@given(st.floats(max_value=-5e-324) | st.sampled_from([math.nan, math.inf]))
def test_what_is_no_wait_is_nothing(wait: float) -> None:
    assert [retry_after_of(reading(wait)) for reading in readings] == [None] * len(readings)


@law
@given(st.floats(0.0, 1e15), st.floats(0.0, 1e15))
def test_milliseconds_come_before_seconds(milliseconds: float, seconds: float) -> None:
    headers = {"Retry-After": repr(seconds), "Retry-After-Ms": repr(milliseconds)}
    assert retry_after_of(WebError(headers=headers)) == milliseconds / 1000


@law
@given(
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    st.timedeltas(timedelta(days=-400), timedelta(days=400)),
    st.integers(-14, 14),
)
def test_the_wait_to_a_date_is_counted_from_the_date_of_the_response(
    sent: datetime, ahead: timedelta, offset: int
) -> None:
    start = sent.replace(microsecond=0, tzinfo=UTC)
    end = start + timedelta(seconds=int(ahead.total_seconds()))
    elsewhere = end.astimezone(timezone(timedelta(hours=offset)))
    wait = max(0.0, (end - start).total_seconds())
    for text in (format_datetime(end, usegmt=True), format_datetime(elsewhere)):
        headers = {"Date": format_datetime(start, usegmt=True), "Retry-After": text}
        assert retry_after_of(WebError(headers=headers)) == wait
