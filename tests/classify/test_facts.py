"""What can be read off an error without knowing its library."""

from __future__ import annotations

import http
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from forbear.classify.facts import (
    MAX_BODY,
    MAX_TEXT,
    Facts,
    as_text,
    data_in,
    is_mapping,
    noted_headers,
    read_headers,
    status_in,
    status_in_body,
)
from forbear.errors import ApiError
from foreign import Thing, WebError, answer, foreign


def status(error: BaseException) -> int | None:
    return Facts(error).status


def codes(**facts: object) -> tuple[str, ...]:
    return Facts(WebError(**facts)).codes


def body(**facts: object) -> Any:
    return Facts(WebError(**facts)).body


def message(error: BaseException) -> str:
    return Facts(error).message


class Lazy(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.held = held

    def __getitem__(self, name: str) -> Any:
        return self.held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


# ---- status ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ApiError(503),
        WebError(status_code=503),
        WebError(status=503),
        WebError(code=503),
        WebError(http_status=503),
        WebError(provider_status_code=503),
        WebError(status_code=http.HTTPStatus.SERVICE_UNAVAILABLE),
        WebError(response=Thing(status_code=503)),
        WebError(response=Thing(status=503)),
        WebError(raw_response=Thing(status_code=503)),
        WebError(response={"ResponseMetadata": {"HTTPStatusCode": 503}}),
        WebError(status_code=None, status="UNAVAILABLE", code="unavailable", response=Thing(status_code=503)),
        WebError(body={"error": {"code": 503}}),
        WebError(body={"error": {"code": "503"}}),
        WebError(body='{"code": 503}'),
    ],
)
def test_a_status_is_found_wherever_a_library_keeps_it(error: Exception) -> None:
    assert status(error) == 503
    assert type(status(error)) is int


def test_of_several_the_errors_own_is_believed_then_its_responses_then_the_bodys() -> None:
    response, inner = Thing(status_code=503), {"error": {"code": 504}}
    assert status(WebError(provider_status_code=529, status_code=500)) == 529
    assert status(WebError(status_code=429, status=500, response=response, body=inner)) == 429
    assert status(WebError(code=429, status=500)) == 429
    assert status(WebError(response=response, raw_response=Thing(status_code=502), body=inner)) == 503
    assert status(WebError(response=Thing(status_code=200), raw_response=Thing(status=502), body=inner)) == 502
    assert status(WebError(response=Thing(status_code=200), body=inner)) == 504


@pytest.mark.parametrize("value", [399, 600, 200, 302, 0, -1, -503, True, "503", 503.0, None, [503], print])
def test_what_is_no_status_of_a_failure_is_none(value: object) -> None:
    assert status_in(value) is None
    for name in ("status_code", "status", "code"):
        assert status(WebError(**{name: value})) is None
        assert status(WebError(response=Thing(**{name: value}))) is None


@pytest.mark.parametrize("value", [400, 599])
def test_both_ends_of_the_failures_count(value: int) -> None:
    assert status_in(value) == value


def test_an_error_without_a_status_has_none() -> None:
    for error in (
        ValueError(),
        WebError(response=None),
        WebError(response={}),
        WebError(response={"ResponseMetadata": 7}),
    ):
        assert status(error) is None


@pytest.mark.parametrize("package", ["smtplib", "aiosmtplib", "ftplib", "clickhouse_driver"])
def test_a_number_of_another_protocol_is_no_status_but_a_code(package: str) -> None:
    facts = Facts(foreign("Error", package)(code=535, status_code=503))
    assert (facts.status, facts.codes) == (None, ("535",))


def test_a_close_code_or_a_number_of_a_provider_is_no_status() -> None:
    assert status(WebError(rcvd=Thing(code=1011), code=1011)) is None
    assert status(WebError(body={"code": "1300", "type": "rate_limited"})) is None
    assert status(WebError(body={"code": "\u0664\u0662\u0669"})) is None


@pytest.mark.parametrize(
    "found", [None, "text", [], {}, {"error": None}, {"error": "text"}, {"error": {"code": [429]}}]
)
def test_a_body_without_a_code_names_no_status(found: object) -> None:
    assert status_in_body(found) is None


def test_two_libraries_make_up_statuses_which_are_not_believed_without_headers() -> None:
    litellm = foreign("InternalServerError", "litellm.exceptions", foreign("APIError", "openai"))
    assert status(litellm(status_code=500, code="500")) is None
    assert Facts(litellm(status_code=500, code="500")).codes == ()
    assert status(litellm(status_code=500, provider_status_code=529)) == 529
    assert status(litellm(status_code=500, litellm_response_headers={"a": "b"})) == 500
    aiohttp = foreign("ClientResponseError", "aiohttp.client_exceptions")
    assert status(aiohttp(status=400, headers=None)) is None
    assert status(aiohttp(status=400, headers={})) == 400


# ---- inside an answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "inside"),
    [
        (WebError(response=Thing(status_code=200), code=503), True),
        (WebError(response=Thing(status=200), code=503), True),
        (WebError(status_code=200, body={"error": {"code": 503}}), True),
        (WebError(response=Thing(status_code=503)), False),
        (WebError(response=Thing(status_code=400), code=503), False),
        (WebError(response=Thing(status_code=399), code=503), True),
        (WebError(status_code=503, response=Thing(status_code=True, status="OK")), False),
        (WebError(body={"error": {"code": 503}}), True),
        (WebError(code=503, body={"error": {"code": 429}}), False),
        (WebError(), False),
        (WebError(status_code=True), False),
    ],
)
def test_a_failure_after_a_status_of_success_came_inside_the_answer(error: Exception, inside: bool) -> None:
    assert Facts(error).inside_answer is inside


@pytest.mark.parametrize(
    ("error", "repeated"),
    [
        (WebError(), False),
        (WebError(request=Thing(headers={"X-Stainless-Retry-Count": "1"})), True),
        (WebError(response=Thing(request=Thing(headers={"x-stainless-retry-count": "2"}))), True),
        (WebError(request=Thing(headers={"x-stainless-retry-count": "0"})), False),
        (WebError(request=Thing(headers={"x-stainless-retry-count": ""})), False),
        (WebError(request=Thing()), False),
        (WebError(response={"ResponseMetadata": {"RetryAttempts": 2}}), True),
        (WebError(response={"ResponseMetadata": {"RetryAttempts": 0}}), False),
        (WebError(response={"ResponseMetadata": {}}), False),
        (WebError(response={}), False),
    ],
)
def test_a_library_that_has_retried_by_itself_leaves_a_trace(error: Exception, repeated: bool) -> None:
    assert Facts(error).repeated is repeated


# ---- headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Date": "1", "retry-after": "2"},
        {"date": 1, "Retry-After": b"2"},
        {b"Date": b"1", b"retry-after": b"2"},
        [("Date", "1"), ("retry-after", "2")],
        [(b"date", b"0"), (b"Date", b"1"), (b"retry-after", b"2")],
        (("Date", "1"), ("retry-after", "2")),
        {"date": ["0", "1"], "retry-after": ("2",)},
        httpx.Headers({"Date": "1", "retry-after": "2"}),
        Lazy({"Date": "1", "retry-after": "2"}),
        Thing(raw=[(b"Date", b"1"), (b"retry-after", b"2")]),
        Thing(items=lambda: [("Date", "1"), ("retry-after", "2")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_headers_of_any_shape_are_read(headers: Any) -> None:
    wanted = {"date": "1", "retry-after": "2"}
    assert read_headers(headers) == wanted
    assert Facts(WebError(headers=headers)).headers == wanted
    assert Facts(WebError(response=Thing(headers=headers))).headers == wanted
    assert Facts(WebError(raw_response=Thing(headers=headers))).headers == wanted
    assert Facts(WebError(litellm_response_headers=headers)).headers == wanted
    assert Facts(WebError(response={"ResponseMetadata": {"HTTPHeaders": headers}})).headers == wanted


class Broken(Mapping[str, str]):
    """Headers that can't be read any more."""

    def __getitem__(self, name: str) -> str:
        raise RuntimeError("closed")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("closed")

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "headers", [None, {}, [], "text", b"bytes", 7, [7], [("date",)], Broken(), Thing(items=7), print]
)
def test_what_are_no_headers_are_none(headers: Any) -> None:
    assert read_headers(headers) == {}
    assert Facts(WebError(headers=headers)).headers == {}


def test_those_of_the_response_are_believed_first_and_empty_ones_are_passed_over() -> None:
    own, other = {"date": "own"}, {"date": "other"}
    assert Facts(WebError(headers=own, response=Thing(headers=other))).headers == other
    assert Facts(WebError(headers=own, response=Thing(headers={}))).headers == own
    assert (
        Facts(WebError(headers=None, raw_response=Thing(headers=other), litellm_response_headers=own)).headers == other
    )
    assert Facts(WebError(response={"ResponseMetadata": None}, headers=own)).headers == {}


def test_the_headers_of_grpc_are_its_trailers() -> None:
    rpc = foreign("_InactiveRpcError", "grpc._channel")
    assert Facts(rpc(trailing_metadata=lambda: [("Date", "1")], headers={"retry-after": "2"})).headers == {"date": "1"}
    assert Facts(rpc(trailing_metadata=None)).headers == {}


def test_headers_that_tell_nothing_are_passed_over_but_are_headers() -> None:
    many = {"Server": "x", "X-RateLimit-Reset": "3", "anthropic-ratelimit-tokens-reset": "4", "My-RateLimit": "5"}
    for headers in (many, [(name.encode(), value.encode()) for name, value in many.items()]):
        assert noted_headers(headers) == {"x-ratelimit-reset": "3", "anthropic-ratelimit-tokens-reset": "4"}
        assert len(read_headers(headers)) == 4
    assert noted_headers({"Server": "x"}) == noted_headers([(b"Server", b"x")]) == {}
    assert noted_headers({}) is noted_headers(None) is noted_headers(Broken()) is None
    assert Facts(WebError(headers={"date": "own"}, response=Thing(headers={"Server": "x"}))).headers == {}


def test_a_value_becomes_text() -> None:
    assert [as_text(one) for one in ("a", b"\xe4", 7, None, ["a", "b"], (b"a",), [], ())] == [
        "a", "\xe4", "7", "None", "b", "a", "[]", "()",
    ]  # fmt: skip

    class Octets(bytes):
        pass

    assert as_text(Octets(b"a")) == "a"


# ---- body --------------------------------------------------------------------------------------------------------

DATA = {"error": {"code": "full"}}


@pytest.mark.parametrize("name", ["body", "details", "json_body", "http_body", "error"])
@pytest.mark.parametrize("held", [DATA, json.dumps(DATA), json.dumps(DATA).encode()], ids=["data", "text", "bytes"])
def test_a_body_is_found_wherever_a_library_keeps_it(name: str, held: object) -> None:
    assert body(**{name: held}) == DATA


def test_a_body_that_the_response_has_already_read_is_found_there() -> None:
    assert body(response=Thing(_content=b'{"a": 1}')) == {"a": 1}
    assert body(response=Thing(_content=b'{"a": 1}'), body={"b": 2}) == {"b": 2}


def test_a_body_that_was_not_read_is_not_read_now() -> None:
    class Unread:
        @property
        def text(self) -> str:
            raise AssertionError("read")

        content = property(text.fget)

        def read(self) -> bytes:
            raise AssertionError("read")

        def json(self) -> object:
            raise AssertionError("read")

    error = WebError(response=Unread(), read=Unread().read, text=None)
    assert Facts(error).body is None
    assert Facts(error).message == ""


def test_a_response_that_is_a_dict_is_the_body() -> None:
    held = {"Error": {"Code": "Throttling"}, "ResponseMetadata": {}}
    assert body(response=held, body={"other": 1}) == held
    assert body(response=Lazy(held)) == held


@pytest.mark.parametrize("held", [None, "", b"", 7, True, print, b"\xff\xfe", b"{", object])
def test_what_is_no_body_is_none(held: object) -> None:
    assert data_in(held) is None
    assert body(body=held) is None


def test_text_that_is_no_json_is_kept_as_text() -> None:
    assert data_in("slow down") == "slow down"
    assert data_in("{") == "{"
    assert data_in("[" * 60_000) == "[" * 60_000
    assert data_in("9" * 5_000) == "9" * 5_000


def test_a_body_beyond_the_bound_is_not_read() -> None:
    assert data_in("x" * MAX_BODY) == "x" * MAX_BODY
    assert data_in("x" * (MAX_BODY + 1)) is None
    assert data_in(json.dumps(["x" * MAX_BODY])) is None


def test_data_is_handed_on_as_it_is() -> None:
    for held in ({"a": 1}, [1], Lazy({"a": 1}), [], {}):
        assert data_in(held) is held


def test_a_mapping_is_told_from_other_things() -> None:
    assert [is_mapping(one) for one in ({}, Lazy({}), None, "text", [], 7)] == [True, True, False, False, False, False]


# ---- codes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts",
    [
        {"error_code": "Full"},
        {"code": "FULL"},
        {"type": "full"},
        {"error_type": "full"},
        {"status": "FULL"},
        {"status_code": "FULL"},
        {"grpc_status_code": Thing(name="FULL")},
        {"error": Thing(code="full")},
        {"rcvd": Thing(code="full")},
        {"body": {"code": "full"}},
        {"body": {"type": "full"}},
        {"body": {"status": "FULL"}},
        {"body": {"error_type": "full"}},
        {"body": {"__type": "full"}},
        {"body": {"error": {"code": "full"}}},
        {"body": {"error": {"type": "full"}}},
        {"body": {"error": {"status": "FULL"}}},
        {"body": {"error": {"details": {"error_code": "full"}}}},
        {"body": {"error": {"details": [None, {"reason": "FULL"}]}}},
        {"body": {"details": [{"reason": "FULL"}]}},
        {"body": [{"reason": "FULL"}]},
        {"body": {"error": {"metadata": {"error_type": "full"}}}},
        {"body": {"error": {"metadata": {"limit_source": "full"}}}},
        {"body": {"error": {"innererror": {"code": "Full"}}}},
        {"body": json.dumps({"error": {"code": "full"}})},
        {"response": {"Error": {"Code": "Full"}}},
    ],
    ids=repr,
)
def test_a_code_is_found_wherever_a_library_keeps_it(facts: dict[str, object]) -> None:
    assert codes(**facts) == ("full",)


def test_the_state_of_a_database_is_a_code_that_no_other_can_be_mistaken_for() -> None:
    assert codes(sqlstate="40P01") == ("sqlstate 40p01",)
    assert codes(sqlstate=None) == codes(sqlstate=40001) == ()


def test_the_code_of_grpc_is_what_a_method_gives() -> None:
    rpc = foreign("AioRpcError", "grpc.aio._call")
    assert Facts(rpc(code=lambda: Thing(name="UNAVAILABLE"))).codes == ("unavailable",)
    assert Facts(rpc(code=lambda: None)).codes == ()
    assert codes(code=lambda: Thing(name="UNAVAILABLE")) == ()


def test_the_most_telling_code_comes_first_and_each_comes_once() -> None:
    error = WebError(
        error_code="a", code="b", type="c", body={"error": {"details": {"error_code": "a"}, "code": "d", "type": "c"}}
    )
    assert Facts(error).codes == ("a", "b", "c", "d")
    assert codes(body={"type": "error", "error": {"type": "overloaded_error"}}) == ("overloaded_error", "error")


def test_a_status_is_no_code_where_there_is_a_better_one() -> None:
    assert codes(status_code=429, body={"error": {"code": "full"}})[0] == "full"
    assert codes(status_code=429, status=429) == ()


class Word(str):
    __slots__ = ()

    def __str__(self) -> str:
        return f"Word.{self!r}"


def test_a_member_of_an_enum_of_words_is_the_word() -> None:
    assert codes(code=Word("FULL"), status=Word("Empty")) == ("full", "empty")


def test_numbers_are_codes_too() -> None:
    assert codes(body={"code": 1300}) == ("1300",)
    assert codes(rcvd=Thing(code=1011)) == ("1011",)


@pytest.mark.parametrize("value", [None, True, 1.5, [], {}, ["full"], "x" * 100, b"full", object(), 10**200])
def test_what_is_no_code_is_none(value: object) -> None:
    assert codes(code=value, body={"error": {"code": value}}) == ()


def test_a_method_that_fails_has_no_code() -> None:
    def fails() -> None:
        raise RuntimeError

    assert codes(code=fails) == ()


def test_a_quota_of_a_day_or_of_nothing_is_a_code_of_its_own() -> None:
    def violation(**facts: object) -> dict[str, object]:
        return {"body": {"error": {"details": [{"violations": [facts]}]}}}

    assert codes(**violation(quotaId="GenerateRequestsPerDayPerProject")) == ("quota per day",)
    assert codes(**violation(quotaId="GenerateRequestsPerMinute", quotaValue="15")) == ()
    assert codes(**violation(quotaId="PerMinute", quotaValue="0")) == ("quota of zero",)
    assert codes(**violation(quotaValue=0, quotaId=7)) == ("quota of zero",)
    assert codes(body={"details": [{"violations": [7]}, {"violations": "x"}, {}, 7]}) == ()


def test_only_the_first_details_are_looked_at() -> None:
    assert codes(body={"details": [{}] * 16 + [{"reason": "full"}]}) == ()
    assert codes(body={"details": [{"violations": [{}] * 16 + [{"quotaValue": 0}]}]}) == ()


# ---- message -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        WebError(body={"error": {"message": "Too MUCH"}}),
        WebError(body={"error": "Too MUCH"}),
        WebError(body={"message": "Too MUCH"}),
        WebError(body={"detail": "Too MUCH"}),
        WebError(body="Too MUCH"),
        WebError(response={"Error": {"Message": "Too MUCH"}}),
        WebError(message="Too MUCH"),
        WebError(body={}, message="Too MUCH"),
        WebError(body={"error": {"message": ""}}, message="Too MUCH"),
        WebError(body={"message": 7}, message="Too MUCH"),
        WebError(body=[1], message="Too MUCH"),
        ValueError("Too MUCH"),
    ],
)
def test_a_message_is_found_wherever_a_library_keeps_it(error: Exception) -> None:
    assert message(error) == "too much"


def test_only_the_beginning_of_a_message_is_looked_at() -> None:
    for error in (WebError(message="x" * 10**6), ValueError("x" * 10**6), WebError(body="x" * MAX_BODY)):
        assert message(error) == "x" * MAX_TEXT


def test_an_error_that_can_not_say_what_it_is_says_nothing() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert message(Silent()) == ""


def test_a_message_and_a_hint_are_read_once() -> None:
    class Counting(Exception):
        asked = 0

        def __str__(self) -> str:
            self.asked += 1
            return "text"

    facts = Facts(Counting())
    assert facts.message == facts.message == "text"
    assert facts.error.asked == 1  # type: ignore[attr-defined]
    hinted = WebError(retry_after=7)
    facts = Facts(hinted)
    assert facts.hint == 7.0
    hinted.__dict__["retry_after"] = 9
    assert facts.hint == 7.0


# ---- what can't be read ---------------------------------------------------------------------------------------------


class NoClass:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError


class NoText:
    def __str__(self) -> str:
        raise RuntimeError


def test_a_fact_that_can_not_be_read_does_not_hide_the_others() -> None:
    for name in ("response", "raw_response", "body", "details", "message", "code", "error_code"):
        facts = Facts(WebError(status_code=503, headers={"Retry-After": "7"}, **{name: NoClass()}))
        assert (facts.status, facts.hint) == (503, 7.0)
        assert isinstance(facts.codes, tuple)
    bad = {"error": {"code": "full", "details": [{"violations": [{"quotaValue": NoText()}]}], "message": NoClass()}}
    facts = Facts(WebError(error_code="first", status_code=503, body=bad))
    assert (facts.status, facts.codes, facts.message, facts.inside_answer) == (503, ("first", "full"), "", False)


def test_the_response_of_botocore_is_a_copy_of_its_own() -> None:
    held = Lazy({"ResponseMetadata": {"HTTPStatusCode": 429, "RetryAttempts": 1}})
    assert (Facts(WebError(response=held)).status, Facts(WebError(response=held)).repeated) == (429, True)
    broken = WebError(response=Broken(), status_code=503)
    assert (Facts(broken).status, Facts(broken).repeated) == (503, False)


# ---- classes -----------------------------------------------------------------------------------------------------


def test_an_error_comes_from_the_packages_of_its_classes() -> None:
    error = foreign(
        "RateLimitError", "litellm.exceptions", foreign("RateLimitError", "openai", foreign("E", "openai"))
    )()
    facts = Facts(error)
    assert facts.packages == ("litellm.exceptions", "litellm", "openai")
    assert facts.class_names == ("litellm.RateLimitError", "openai.RateLimitError", "openai.E")
    assert [facts.is_of(one) for one in ("litellm", "openai", "litellm.exceptions", "lite", "builtins")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_the_library_is_that_of_the_errors_own_class() -> None:
    assert Facts(foreign("E", "openai.errors", foreign("E", "httpx"))()).library == "openai"
    assert Facts(foreign("ClientError", "google.genai.errors")()).library == "google.genai"
    assert Facts(foreign("Mine", "mine", ConnectionError)()).library == "mine"
    for error in (ConnectionError(), socket.gaierror(), TimeoutError(), json.JSONDecodeError("", "", 0)):
        assert Facts(error).library is None


def test_the_facts_of_real_errors_are_read() -> None:
    request = httpx.Request("GET", "https://example.org")
    response = httpx.Response(429, headers={"Retry-After": "7"}, json={"error": {"code": "full"}}, request=request)
    facts = Facts(httpx.HTTPStatusError("", request=request, response=response), 0.0)
    assert (facts.status, facts.codes, facts.hint, facts.library) == (429, ("full",), 7.0, "httpx")
    facts = Facts(socket.gaierror(-2, "unknown"))
    assert (facts.status, facts.codes, facts.hint, facts.headers, facts.body) == (None, (), None, {}, None)
    facts = Facts(answer(503, {"Date": "1", "A": "1"}, "down"))
    assert (facts.status, facts.headers, facts.body, facts.message) == (503, {"date": "1"}, "down", "down")


@pytest.mark.parametrize(("count", "repeated"), [("2", True), ("0", False), (None, False)])
def test_the_trace_is_found_in_the_headers_of_a_real_request(count: str | None, repeated: bool) -> None:
    headers = {} if count is None else {"X-Stainless-Retry-Count": count}
    error = ConnectionError()
    error.request = httpx.Request("POST", "http://127.0.0.1/", headers=headers)  # type: ignore[attr-defined]
    assert Facts(error).repeated is repeated
