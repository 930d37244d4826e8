"""Laws of the hints: whatever a server sends, reading it never raises and gives nothing or a finite wait."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from forbear.classify.dates import http_date, length_of_time, plain_number, rfc3339, wait_or_epoch
from forbear.classify.facts import Facts, read_headers
from forbear.classify.failures import retry_after_of
from forbear.classify.limits import binding_wait, read_limits
from forbear.classify.rpc import retry_delay_in, retry_delay_in_bytes
from foreign import Thing, WebError, answer, foreign

law = settings(max_examples=150, deadline=None)

# Text that is nearly a number or nearly a date gets further into a reader than text at random.
pieces = st.sampled_from([
    "Wed", "Wednesday,", ",", "21", "Oct", "-", "-15", "2015", "99999999999999999999", "07:28:00", "7:", ":",
    "28:61:61", "GMT", "UTC", "EST", "+0000", "-9999", "+9999999", "+" + "9" * 20, "1e999", "-1", "0", "ms", "s", "m",
    "nan", "inf", "1_0", ".", "(", ")", "\\", '"', "@", "<", "\x00", "\u0667", "\ud800", ";r=", ";t=", "reset=",
    "T", "Z",
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
NAMES = [
    "Retry-After", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms", "Date",
    "x-ratelimit-reset", "x-ratelimit-remaining", "x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens",
    "anthropic-ratelimit-requests-reset", "RateLimit", "RateLimit-Reset", "x-should-retry",
]  # fmt: skip
names = st.one_of(st.sampled_from(NAMES), st.text(), st.binary(), st.integers(), st.none())
mappings = st.dictionaries(names, anything, max_size=6)
known = st.dictionaries(st.sampled_from(NAMES), texts, max_size=6)
instants = st.one_of(st.none(), st.floats(0.0, 1e11))
statuses = st.one_of(st.none(), st.sampled_from([402, 403, 429, 503]))

# What JSON can say, with the words that a reader looks for.
words = st.sampled_from([
    "error", "Error", "details", "metadata", "headers", "code", "@type", "retryDelay", "violations", "quotaId",
    "quotaValue", "estimated_time", "message", "type", "reason", "innererror", "status",
    "type.googleapis.com/google.rpc.RetryInfo", "3s", "0",
])  # fmt: skip
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, words)
bodies = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | texts, inner, max_size=4), max_leaves=12
)


def is_a_hint(value: object) -> bool:
    return value is None or (type(value) is float and 0.0 <= value < math.inf)


# ---- anything ----------------------------------------------------------------------------------------------------


@law
@given(anything | mappings | bodies)
def test_any_attribute_gives_nothing_or_a_finite_wait(value: object) -> None:
    assert is_a_hint(retry_after_of(WebError(retry_after=value)))


@law
@given(anything | mappings, statuses, instants)
def test_any_headers_give_nothing_or_a_finite_wait(headers: object, status: int | None, now: float | None) -> None:
    for error in (
        WebError(response=Thing(headers=headers, status_code=status)),
        WebError(headers=headers, status_code=status),
        WebError(response={"ResponseMetadata": {"HTTPHeaders": headers, "HTTPStatusCode": status}}),
        foreign("RpcError", "grpc")(trailing_metadata=lambda: headers),
    ):
        assert is_a_hint(retry_after_of(error, now))


@law
@given(known, statuses, instants)
@example({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 429, None)
def test_any_text_in_the_headers_that_count_gives_nothing_or_a_finite_wait(
    headers: dict[str, str], status: int | None, now: float | None
) -> None:
    assert is_a_hint(retry_after_of(WebError(headers=headers, status_code=status), now))
    for limit in read_limits({name.lower(): value for name, value in headers.items()}, now):
        assert all(map(is_a_hint, (limit.limit, limit.remaining, limit.reset)))
        assert is_a_hint(binding_wait([limit]))


@law
@given(bodies, statuses, instants)
def test_any_body_gives_nothing_or_a_finite_wait(body: Any, status: int | None, now: float | None) -> None:
    as_text = json.dumps(body)
    for shape in (body, as_text, as_text.encode()):
        assert is_a_hint(retry_after_of(answer(status or 500, {}, shape), now))
    assert is_a_hint(retry_after_of(WebError(details=body, response=body), now))
    assert is_a_hint(retry_delay_in(body))


@law
@given(st.text() | st.binary())
def test_any_text_or_bytes_as_a_body_gives_nothing_or_a_finite_wait(body: str | bytes) -> None:
    assert is_a_hint(retry_after_of(answer(503, {}, body)))
    assert is_a_hint(retry_after_of(WebError(response=Thing(status_code=503, _content=body))))


@law
@given(st.binary(max_size=80), st.binary(max_size=20))
def test_any_bytes_of_a_status_give_nothing_or_a_finite_wait(data: bytes, delay: bytes) -> None:
    name = b"type.googleapis.com/google.rpc.RetryInfo"
    info = b"\x0a" + bytes([len(delay)]) + delay
    packed = b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(info)]) + info
    for status in (data, b"\x1a" + bytes([len(data)]) + data, b"\x1a" + bytes([len(packed)]) + packed):
        assert is_a_hint(retry_delay_in_bytes(status))


@law
@given(anything, instants)
def test_any_value_is_a_length_a_date_or_nothing(value: object, now: float | None) -> None:
    assert is_a_hint(plain_number(value))
    assert is_a_hint(length_of_time(value))
    assert is_a_hint(wait_or_epoch(value, now))
    for read in (http_date, rfc3339):
        instant = read(value)
        assert instant is None or math.isfinite(instant)


@law
@given(mappings)
def test_names_are_always_text_in_lower_case(headers: dict[Any, Any]) -> None:
    found = read_headers(headers)
    wanted = {(name.decode("latin-1") if isinstance(name, bytes) else str(name)).lower() for name in headers}
    assert found.keys() == wanted
    assert all(isinstance(value, str) for value in found.values())
    noted = Facts(WebError(headers=headers)).headers
    assert noted.items() <= found.items()
    assert noted.keys() >= found.keys() & {name.lower() for name in NAMES}


@law
@given(st.text() | st.binary())
def test_any_bytes_of_a_status_in_a_header_give_nothing_or_a_finite_wait(value: Any) -> None:
    assert is_a_hint(retry_after_of(WebError(headers={"grpc-status-details-bin": value})))


@law
@given(texts, texts)
def test_a_date_is_written_in_ascii_and_with_plain_digits(before: str, after: str) -> None:
    for text in (before, f"{before} Oct {after}", f"Wed, {before} Oct 2015 07:28:{after} GMT"):
        if http_date(text) is not None or rfc3339(text) is not None:
            assert text.isascii()
            assert "_" not in text


# ---- what is meant -----------------------------------------------------------------------------------------------


decimals = st.decimals(0, 10**15, allow_nan=False, allow_infinity=False, places=6).map(lambda number: f"{number:f}")


@law
@given(st.floats(0.0, allow_infinity=False) | st.integers(0, 10**15))
def test_a_number_of_seconds_in_an_attribute_is_read_exactly(wait: float) -> None:
    assert retry_after_of(WebError(retry_after=wait)) == float(wait)


@law
@given(decimals)
def test_a_number_of_seconds_in_a_header_is_read_exactly(wait: str) -> None:
    readings: list[Callable[[str], WebError]] = [
        lambda text: WebError(headers={"Retry-After": text}),
        lambda text: WebError(headers={"retry-after": text.encode()}),
        lambda text: WebError(response=Thing(headers={"RETRY-AFTER": f" {text} "})),
    ]
    assert [retry_after_of(reading(wait)) for reading in readings] == [float(wait)] * len(readings)


@law
@given(st.floats(max_value=-5e-324) | st.sampled_from([math.nan, math.inf]))
def test_what_is_no_wait_is_nothing(wait: float) -> None:
    assert retry_after_of(WebError(retry_after=wait)) is None
    assert retry_after_of(WebError(headers={"Retry-After": repr(wait)})) is None


@law
@given(decimals, decimals)
def test_milliseconds_come_before_seconds(milliseconds: str, seconds: str) -> None:
    headers = {"Retry-After": seconds, "Retry-After-Ms": milliseconds}
    assert retry_after_of(WebError(headers=headers)) == float(milliseconds) / 1000


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
        assert retry_after_of(WebError(headers=headers), now=0.0) == wait


parts = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["h", "m", "s", "ms"])), min_size=1, max_size=5)
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@law
@given(parts)
def test_a_length_is_the_sum_of_its_parts(drawn: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in drawn)
    length = length_of_time(text)
    assert length is not None
    assert math.isclose(length, sum(count * SECONDS[unit] for count, unit in drawn), rel_tol=1e-9, abs_tol=1e-9)


@law
@given(st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | st.floats(0, 1e6)), max_size=5))
def test_no_other_limit_binds_longer_than_the_one_that_is_used_up(facts: list[tuple[int | None, float | None]]) -> None:
    headers: dict[str, str] = {}
    for number, (remaining, reset) in enumerate(facts):
        if remaining is not None:
            headers[f"x-ratelimit-remaining-r{number}"] = str(remaining)
        if reset is not None:
            headers[f"x-ratelimit-reset-r{number}"] = f"{reset:f}"
    wait = binding_wait(read_limits(headers))
    spent = [float(f"{reset:f}") for remaining, reset in facts if remaining == 0 and reset is not None]
    unknown = [float(f"{reset:f}") for remaining, reset in facts if remaining is None and reset is not None]
    assert wait == max(spent or unknown, default=None)
