"""The server's own wait, in any of the forms that are in use, and which of several is believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import httpx
import pytest

from forbear.classify.facts import Facts
from forbear.classify.hints import explicit_wait, hint_of, instant_of
from foreign import Thing, WebError, answer, foreign

NOW = 1_445_412_480.0
DATE = "Wed, 21 Oct 2015 07:28:00 GMT"  # the same instant
LATER = "Wed, 21 Oct 2015 07:30:30 GMT"
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}


def hint(error: BaseException, now: float | None = NOW) -> float | None:
    return hint_of(Facts(error, now))


def after(value: str, **more: str) -> float | None:
    """The wait of a 429 with this Retry-After."""
    return hint(answer(429, {"Retry-After": value, **more}))


# ---- the error's own attribute -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"), [(7, 7.0), (7.5, 7.5), (0, 0.0), (timedelta(minutes=1), 60.0), (timedelta(0), 0.0)]
)
def test_an_attribute_gives_the_wait_in_seconds(value: object, seconds: float) -> None:
    assert hint(WebError(retry_after=value)) == seconds


@pytest.mark.parametrize(
    "value", [-1, math.nan, math.inf, 10**400, True, None, "7", b"7", [7], {}, print, timedelta(-1)], ids=repr
)
def test_nonsense_in_the_attribute_is_no_hint(value: object) -> None:
    assert hint(WebError(retry_after=value)) is None
    assert hint(WebError(retry_after=value, headers={"Retry-After": "3"})) == 3.0


def test_an_attribute_that_can_not_be_read_is_no_hint() -> None:
    class Broken(WebError):
        @property
        def retry_after(self) -> float:
            raise RuntimeError

    assert hint(Broken()) is None
    assert hint(Broken(headers={"Retry-After": "3"})) == 3.0


def test_the_attribute_is_believed_before_the_headers() -> None:
    assert hint(answer(429, {"Retry-After": "7"}, retry_after=3)) == 3.0


def test_without_any_hint_there_is_none() -> None:
    for error in (ValueError(), WebError(), WebError(headers={}), answer(429), answer(429, {"Date": DATE})):
        assert hint(error) is None


# ---- headers that say it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "seconds"), [("7", 7.0), ("0", 0.0), ("1.5", 1.5), (" 7 ", 7.0), (LATER, 150.0)])
def test_retry_after_is_a_number_of_seconds_or_a_date(value: str, seconds: float) -> None:
    assert after(value) == after(value, Date=DATE) == seconds


@pytest.mark.parametrize(
    "value", ["", "-5", "nan", "inf", "1e400", "9" * 400, "1_000", "30s", "30, 60", "soon", "Wed, 99"]
)
def test_nonsense_is_no_wait(value: str) -> None:
    assert after(value) is None
    assert after(value, Date=DATE) is None


@pytest.mark.parametrize(
    "name", ["retry-after-ms", "Retry-After-Ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms"]
)
def test_milliseconds_are_believed_before_seconds(name: str) -> None:
    assert hint(answer(429, {name: "850"})) == 0.85
    assert hint(answer(429, {name: "850", "Retry-After": "7"})) == 0.85
    assert hint(answer(429, {name: "0", "Retry-After": "7"})) == 0.0
    assert hint(answer(429, {name: "soon", "Retry-After": "7"})) == 7.0
    assert hint(answer(429, {name: "-1"})) is None


@pytest.mark.parametrize("status", [400, 403, 408, 429, 500, 503, 529, None])
def test_a_retry_after_counts_whatever_the_status(status: int | None) -> None:
    assert hint(WebError(status_code=status, headers={"Retry-After": "7"})) == 7.0


def test_a_date_is_read_against_the_date_of_the_answer() -> None:
    assert hint(answer(429, {"Retry-After": LATER, "Date": DATE}), now=0.0) == 150.0
    assert hint(answer(429, {"Retry-After": LATER, "Date": DATE}), now=None) == 150.0
    assert hint(answer(429, {"Retry-After": LATER, "Date": LATER})) == 0.0


def test_a_date_is_read_against_our_clock_where_the_answer_has_none() -> None:
    assert hint(answer(429, {"Retry-After": LATER})) == 150.0
    assert hint(answer(429, {"Retry-After": LATER, "Date": "today"})) == 150.0
    assert hint(answer(429, {"Retry-After": LATER}), now=None) is None


def test_a_date_that_is_past_means_no_wait() -> None:
    assert after(DATE, Date=LATER) == 0.0


def test_headers_may_come_in_any_shape() -> None:
    shapes: list[Any] = [
        {"retry-after": "7"},
        {"RETRY-AFTER": "7"},
        {b"Retry-After": b"7"},
        [("Retry-After", "7")],
        [(b"Retry-After", b"3"), (b"retry-after", b"7")],
        {"Retry-After": ["3", "7"]},
        httpx.Headers({"Retry-After": "7"}),
        {"Retry-After": 7},
    ]
    for headers in shapes:
        assert hint(WebError(status_code=429, headers=headers)) == 7.0
        assert hint(WebError(response=Thing(status_code=429, headers=headers))) == 7.0


def test_each_header_is_asked_by_itself() -> None:
    assert explicit_wait({}, NOW) is None
    assert explicit_wait({"retry-after": "7"}, None) == 7.0
    assert explicit_wait({"retry-after": LATER}, NOW) == 150.0
    assert explicit_wait({"retry-after": LATER}, None) is None
    assert instant_of({"date": DATE}, 0.0) == instant_of({}, NOW) == NOW
    assert instant_of({}, None) is None


# ---- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [402, 403, 429, None])
def test_a_limit_that_is_used_up_is_a_hint_where_the_failure_is_one_of_the_rate(status: int | None) -> None:
    headers = {
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
        "x-ratelimit-reset-requests": "1s",
    }
    assert hint(WebError(status_code=status, headers=headers)) == 360.0


@pytest.mark.parametrize("status", [400, 401, 408, 500, 503, 529])
def test_it_is_none_for_any_other_failure(status: int) -> None:
    assert hint(answer(status, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"})) is None


@pytest.mark.parametrize(("status", "wait"), [(429, 60.0), (402, None), (403, None), (None, None)])
def test_a_limit_that_may_be_used_up_is_one_only_where_the_status_says_so(
    status: int | None, wait: float | None
) -> None:
    assert hint(WebError(status_code=status, headers={"x-ratelimit-reset": "60"})) == wait
    assert hint(WebError(status_code=status, headers={"ratelimit": '"a";t=60'})) == wait


def test_a_limit_with_something_left_is_no_hint() -> None:
    assert hint(answer(429, {"x-ratelimit-remaining": "5", "x-ratelimit-reset": "60"})) is None


def test_an_explicit_wait_is_believed_before_a_limit() -> None:
    limits = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}
    assert hint(answer(429, {"Retry-After": "7", **limits})) == 7.0
    assert hint(answer(429, {"Retry-After": "soon", **limits})) == 60.0
    assert hint(answer(429, limits, {"error": {"details": [RETRY_INFO]}})) == 34.5


def test_a_reset_that_is_a_date_is_read_against_the_date_of_the_answer() -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 30:.0f}"}
    assert hint(answer(429, headers)) == 30.0
    assert hint(answer(429, {**headers, "Date": DATE}), now=0.0) == 30.0


# ---- the body ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": 429, "details": [RETRY_INFO]}},
        {"error": {"details": [{"@type": "other"}, RETRY_INFO]}},
        {"details": [RETRY_INFO]},
        '{"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}}',
    ],
)
def test_a_retry_info_in_the_body_is_a_hint(body: Any) -> None:
    assert hint(answer(429, {}, body)) == 34.5
    assert hint(answer(503, {}, body)) == 34.5


def test_details_may_be_all_there_is() -> None:
    assert hint(WebError(code=429, details=[RETRY_INFO])) == 34.5
    assert hint(WebError(code=429, details=[Thing(retry_delay=Thing(seconds=3, nanos=0))])) == 3.0


def test_a_header_is_believed_before_the_body() -> None:
    assert hint(answer(429, {"Retry-After": "7"}, {"details": [RETRY_INFO]})) == 7.0


def test_a_model_that_is_being_loaded_says_how_long_that_takes() -> None:
    loading = {"error": "Model is loading", "estimated_time": 20.0}
    assert hint(answer(503, {}, loading)) == 20.0
    assert hint(answer(500, {}, loading)) is None
    assert hint(answer(503, {}, {"estimated_time": "soon"})) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": 7}, 7.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{(NOW + 30) * 1000:.0f}"}, 30.0),
        ({"X-RateLimit-Reset": f"{(NOW + 30) * 1000:.0f}"}, 30.0),
        ({}, None),
    ],
)
def test_the_body_may_hold_headers_of_a_server_behind_it(headers: dict[str, object], seconds: float | None) -> None:
    assert hint(answer(429, {}, {"error": {"metadata": {"headers": headers}}})) == seconds


@pytest.mark.parametrize(
    "body",
    [
        None, "", "slow down", "[]", "7", "{", b"\xff", [], [7], {}, {"error": None}, {"error": "text"}, {"error": []},
        {"error": {"details": None}}, {"error": {"details": {}}}, {"error": {"metadata": None}},
        {"error": {"metadata": {"headers": None}}}, {"error": {"metadata": {"headers": []}}}, {"details": "x"},
    ],
    ids=repr,
)  # fmt: skip
def test_any_other_body_holds_no_hint(body: Any) -> None:
    assert hint(answer(429, {}, body)) is None
    assert hint(answer(503, {}, body)) is None


def test_those_headers_are_read_against_the_date_of_whoever_sent_them_else_of_the_answer() -> None:
    limits = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{(NOW + 30) * 1000:.0f}"}
    for inner in (limits, {"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT"}):
        body = {"error": {"metadata": {"headers": inner}}}
        assert hint(answer(429, {"Date": DATE}, body), now=NOW + 10_000) == 30.0
        assert hint(answer(429, {"Date": DATE}, body), now=None) == 30.0
        own = {"error": {"metadata": {"headers": {**inner, "Date": DATE}}}}
        assert hint(answer(429, {"Date": LATER}, own), now=0.0) == 30.0


# ---- readers of the caller's own ---------------------------------------------------------------------------------


def plugged(body: Any, *readers: Any, headers: dict[str, str] | None = None, **more: Any) -> float | None:
    return Facts(answer(429, headers, body, **more), NOW, readers).hint


def test_a_reader_of_the_callers_own_is_asked_before_all_other_places() -> None:
    body = {"wait": {"minutes": 2}, "error": {"details": [RETRY_INFO]}}

    def minutes(body: Mapping[str, Any]) -> float | None:
        return body["wait"]["minutes"] * 60 if "wait" in body else None

    assert plugged(body, minutes) == 120.0
    assert plugged('{"wait": {"minutes": 3}}', minutes) == 180.0
    assert plugged(body, minutes, headers={"Retry-After": "7"}, retry_after=3) == 120.0
    assert plugged({"error": {"details": [RETRY_INFO]}}, minutes) == 34.5
    assert plugged(body, lambda _: None, minutes, lambda _: 1.0) == 120.0


@pytest.mark.parametrize(
    "value",
    [None, -1, -0.5, math.nan, math.inf, True, "7", [7], {}, object(), 10**400, timedelta(-1), 7j],
    ids=repr,
)
def test_what_it_gives_must_be_a_wait(value: object) -> None:
    assert plugged({"a": 1}, lambda _: value) is None
    assert plugged({"a": 1}, lambda _: value, headers={"Retry-After": "3"}) == 3.0


@pytest.mark.parametrize("value", [0, 0.5, 7, timedelta(minutes=1)])
def test_a_wait_of_any_length_may_be_given(value: Any) -> None:
    found = plugged({"a": 1}, lambda _: value)
    assert found == (60.0 if isinstance(value, timedelta) else value)
    assert type(found) is float


def test_a_reader_that_fails_has_found_nothing() -> None:
    def fails(body: Mapping[str, Any]) -> float:
        raise RuntimeError("never seen")

    def wants_more(body: Mapping[str, Any], more: int) -> float:
        return 7.0

    for reader in (fails, wants_more, lambda body: body["missing"]):
        assert plugged({"a": 1}, reader, lambda _: 9) == 9.0
        assert plugged({"a": 1}, reader) is None


def test_it_is_asked_about_mappings_only() -> None:
    for body in (None, "text", [1], "[1]", b"\xff", ""):
        assert plugged(body, lambda _: 7) is None


# ---- gRPC --------------------------------------------------------------------------------------------------------


def call(metadata: Any) -> BaseException:
    kind: Any = foreign("AioRpcError", "grpc.aio._call")
    return kind(trailing_metadata=lambda: metadata)  # type: ignore[no-any-return]


def test_the_bytes_of_a_status_in_the_trailers_are_a_hint() -> None:
    name = b"type.googleapis.com/google.rpc.RetryInfo"
    delay = b"\x0a\x02\x08\x03"  # RetryInfo { retry_delay { seconds: 3 } }
    packed = b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(delay)]) + delay
    status = b"\x08\x08\x1a" + bytes([len(packed)]) + packed
    assert hint(call([("grpc-status-details-bin", status)])) == 3.0
    assert hint(call((("grpc-status-details-bin", status),))) == 3.0
    assert hint(call([("grpc-status-details-bin", status[:-1])])) in {None, 0.0}


def test_a_pushback_in_the_trailers_is_a_hint() -> None:
    assert hint(call([("grpc-retry-pushback-ms", "700")])) == 0.7
    assert hint(call([("grpc-retry-pushback-ms", "-1")])) is None


def test_trailers_that_can_not_be_read_hold_none() -> None:
    for metadata in (None, 7, [7], [("a",)], Thing()):
        assert hint(call(metadata)) is None


def test_a_mapping_of_a_kind_of_its_own_is_read_like_any_other() -> None:
    class Lazy(Mapping[str, str]):
        def __getitem__(self, name: str) -> str:
            return "7"

        def __iter__(self) -> Any:
            return iter(["Retry-After"])

        def __len__(self) -> int:
            return 1

    assert hint(WebError(status_code=429, headers=Lazy())) == 7.0
