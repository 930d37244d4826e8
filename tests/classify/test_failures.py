"""What an error means for the call that met it."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import warnings
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from forbear.classify.facts import Facts
from forbear.classify.failures import (
    Classifier,
    classify,
    directive,
    is_retryable,
    is_transient,
    retry_after_of,
    status_code_of,
)
from forbear.classify.rules import Rule
from forbear.core.failure import Failure, Kind
from forbear.errors import ApiError, CircuitOpenError, ResultRejected, RetryError, gave_up
from foreign import Thing, WebError, answer, caught, chained, foreign

RATE, QUOTA = {"error": {"code": "rate_limit_exceeded"}}, {"error": {"code": "insufficient_quota"}}
OPENAI: Any = foreign("APIConnectionError", "openai")
LITELLM: Any = foreign("InternalServerError", "litellm.exceptions")


def facts_of(failure: Failure) -> tuple[Kind, bool, str]:
    return failure.kind, failure.transient, failure.executed


def meaning(error: BaseException) -> tuple[Kind, bool, str]:
    return facts_of(classify(error))


# ---- the order in which facts are believed -----------------------------------------------------------------------


def test_a_code_is_believed_before_the_status() -> None:
    assert meaning(answer(429, {}, QUOTA)) == (Kind.QUOTA_SPENT, False, "no")
    assert meaning(answer(400, {}, RATE)) == (Kind.RATE_LIMITED, True, "no")


@pytest.mark.parametrize("name", ["x-should-retry", "X-Should-Retry", "stripe-should-retry"])
def test_the_servers_own_word_is_believed_before_the_status(name: str) -> None:
    assert meaning(answer(400, {name: "true"})) == (Kind.INVALID_REQUEST, True, "no")
    assert meaning(answer(503, {name: "false"})) == (Kind.OVERLOADED, False, "maybe")
    assert meaning(answer(503, {name: "TRUE"})) == (Kind.OVERLOADED, True, "maybe")


def test_it_ends_what_a_code_says_may_pass_but_never_revives_what_a_code_says_can_not() -> None:
    assert not classify(answer(429, {"x-should-retry": "false"}, RATE)).transient
    assert not classify(answer(429, {"x-should-retry": "true"}, QUOTA)).transient


def test_it_is_believed_where_nothing_else_is_known() -> None:
    assert meaning(WebError(headers={"x-should-retry": "true"})) == (Kind.UNKNOWN, True, "maybe")
    assert meaning(WebError(headers={"x-should-retry": "false"})) == (Kind.UNKNOWN, False, "maybe")


def test_it_is_believed_before_the_class() -> None:
    reset = foreign("Reset", "acme", ConnectionResetError)
    assert meaning(reset(headers={"x-should-retry": "false"})) == (Kind.CONNECTION_LOST, False, "maybe")


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ({}, None),
        ({"a": "b"}, None),
        ({"x-should-retry": "maybe"}, None),
        ({"x-should-retry": ""}, None),
        ({"x-should-retry": "true", "stripe-should-retry": "false"}, True),
        ({"stripe-should-retry": "false"}, False),
        ({"grpc-retry-pushback-ms": "-1"}, False),
        ({"grpc-retry-pushback-ms": "700"}, None),
    ],
)
def test_a_server_says_true_or_false_or_nothing(headers: dict[str, str], word: bool | None) -> None:
    assert directive(Facts(WebError(headers=headers))) is word


def test_the_status_is_believed_before_the_class() -> None:
    odd = foreign("Odd", "acme", ConnectionError)
    assert meaning(odd(status_code=400)) == (Kind.INVALID_REQUEST, False, "no")


def test_the_class_is_believed_before_what_it_was_made_from() -> None:
    assert meaning(chained(TimeoutError(), answer(401))) == (Kind.TIMEOUT, True, "maybe")


def test_an_error_that_nothing_is_known_about_is_permanent() -> None:
    for error in (
        Exception(),
        WebError(),
        ValueError(),
        OSError(),
        RuntimeError(),
        foreign("TransientError", "acme")(),
    ):
        assert classify(error) == Failure(transient=False, rule="nothing is known about it", provider=None)


def test_a_hint_is_kept_whatever_else_is_known() -> None:
    for error in (
        WebError(retry_after=7),
        answer(404, retry_after=7),
        foreign("E", "acme", TimeoutError)(retry_after=7),
    ):
        assert classify(error).retry_after == 7.0


# ---- what an answer tells ----------------------------------------------------------------------------------------


def test_a_failure_tells_all_that_is_known() -> None:
    kind = foreign("RateLimitError", "openai")
    error = kind(status_code=429, code="slow_down", response=Thing(status_code=429, headers={"Retry-After": "7"}))
    assert classify(error) == Failure(
        transient=True, retry_after=7.0, kind=Kind.RATE_LIMITED, executed="no", status=429, code="slow_down",
        provider="openai", rule="code slow_down",
    )  # fmt: skip


def test_where_little_is_known_little_is_told() -> None:
    assert classify(ConnectionResetError()) == Failure(
        transient=True, kind=Kind.CONNECTION_LOST, rule="class builtins.ConnectionResetError"
    )


@pytest.mark.parametrize(
    ("error", "executed"),
    [
        (answer(429), "no"),
        (answer(425), "no"),
        (answer(503), "maybe"),
        (answer(503, {"Retry-After": "0"}), "no"),
        (answer(529, {"Retry-After": "1"}), "no"),
        (answer(500, {"Retry-After": "1"}), "maybe"),
        (answer(502), "maybe"),
        (answer(504), "maybe"),
        (answer(408), "maybe"),
        (answer(409), "maybe"),
        (answer(400), "no"),
        (answer(429, {}, RATE), "no"),
        (answer(503, {}, {"error": {"type": "overloaded_error"}}), "maybe"),
        (answer(429, {}, {"error": {"type": "overloaded_error"}}), "no"),
        (answer(400, {}, {"code": "ThrottlingException"}), "no"),
        (answer(500, {}, {"code": "ThrottlingException"}), "maybe"),
        (answer(503, {}, {"code": "ThrottlingException"}), "maybe"),
        (answer(503, {"Retry-After": "1"}, {"code": "ThrottlingException"}), "no"),
        (answer(503, {"Retry-After": "1"}, {"error": {"type": "overloaded_error"}}), "no"),
        (answer(409, {}, {"error": {"code": "idempotency_key_in_use"}}), "maybe"),
        (WebError(body=RATE), "maybe"),
        (WebError(status_code=200, code=429), "maybe"),
        (WebError(status_code=200, body=RATE), "maybe"),
        (ConnectionRefusedError(), "no"),
        (socket.gaierror(), "no"),
        (httpx.ConnectTimeout(""), "no"),
        (httpx.ReadTimeout(""), "maybe"),
        (ConnectionResetError(), "maybe"),
        (ValueError(), "maybe"),
    ],
    ids=repr,
)
def test_whether_the_server_may_have_acted(error: Exception, executed: str) -> None:
    assert classify(error).executed == executed
    assert classify(error).safe_to_retry
    assert classify(error, idempotent=False).safe_to_retry is (executed == "no")


@pytest.mark.parametrize(
    "sent",
    [
        {"response": {"ResponseMetadata": {"HTTPStatusCode": 429, "RetryAttempts": 2}}},
        {"status_code": 429, "response": Thing(request=Thing(headers={"x-stainless-retry-count": "2"}))},
        {"status_code": 429, "request": Thing(headers={"X-Stainless-Retry-Count": "1"})},
    ],
)
def test_where_the_library_has_retried_by_itself_an_earlier_request_may_have_been_done(sent: dict[str, Any]) -> None:
    failure = classify(WebError(**sent), idempotent=False)
    assert (failure.transient, failure.executed, failure.safe_to_retry) == (True, "maybe", False)
    assert failure.rule == "status 429, after retries of the library's own"


def test_where_it_has_not_nothing_was_done() -> None:
    for count in ("0", ""):
        request = Thing(headers={"x-stainless-retry-count": count})
        assert classify(WebError(status_code=429, request=request)).executed == "no"
    for attempts in (0, None):
        metadata = {"HTTPStatusCode": 429, "RetryAttempts": attempts}
        assert classify(WebError(response={"ResponseMetadata": metadata})).executed == "no"


def test_a_network_that_can_not_be_reached_was_sent_nothing() -> None:
    for number in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        assert meaning(OSError(number, "unreachable")) == (Kind.CONNECTION_REFUSED, True, "no")
    assert meaning(OSError(errno.ENOSPC, "no space left")) == (Kind.UNKNOWN, False, "maybe")


def test_a_date_without_one_of_the_answer_is_read_against_now() -> None:
    error = answer(429, {"Retry-After": "Wed, 21 Oct 2015 07:30:30 GMT"})
    assert classify(error, now=1_445_412_480.0).retry_after == 150.0
    assert classify(error).retry_after is None
    assert retry_after_of(error, 1_445_412_480.0) == 150.0
    assert retry_after_of(error) is None


# ---- classes that say too little alone ---------------------------------------------------------------------------


def test_what_a_wrapper_came_from_makes_it_exact() -> None:
    assert meaning(OPENAI()) == (Kind.CONNECTION_LOST, True, "maybe")
    assert meaning(chained(OPENAI(), httpx.ReadTimeout(""))) == (Kind.TIMEOUT, True, "maybe")
    assert meaning(chained(OPENAI(), httpx.ConnectTimeout(""))) == (Kind.TIMEOUT, True, "no")
    assert meaning(chained(OPENAI(), httpx.ConnectError(""))) == (Kind.CONNECTION_REFUSED, True, "no")
    assert meaning(chained(OPENAI(), httpx.RemoteProtocolError(""))) == (Kind.CONNECTION_LOST, True, "maybe")
    assert meaning(chained(OPENAI(), ValueError())) == (Kind.CONNECTION_LOST, True, "maybe")


def test_the_first_class_that_says_enough_decides() -> None:
    error = chained(OPENAI(), OPENAI(), TimeoutError(), ConnectionResetError())
    assert meaning(error) == (Kind.TIMEOUT, True, "maybe")
    assert classify(error).rule == "class builtins.TimeoutError"


def test_that_nothing_was_sent_is_believed_from_any_link() -> None:
    assert meaning(chained(OPENAI(), TimeoutError(), ConnectionRefusedError())) == (Kind.TIMEOUT, True, "no")
    assert meaning(chained(OPENAI(), httpx.ConnectError(""), ConnectionResetError())) == (
        Kind.CONNECTION_LOST, True, "no",
    )  # fmt: skip


def test_a_certificate_that_can_not_be_trusted_is_permanent_wherever_it_is_found() -> None:
    for wrapper in (OPENAI(), httpx.ConnectError(""), foreign("SSLError", "requests")()):
        bad = chained(wrapper, httpx.ConnectError(""), ssl.SSLCertVerificationError())
        assert meaning(bad) == (Kind.INSECURE, False, "no")


def test_a_code_in_what_it_came_from_decides() -> None:
    assert meaning(chained(OPENAI(), WebError(body=QUOTA)))[:2] == (Kind.QUOTA_SPENT, False)
    assert meaning(chained(LITELLM(status_code=500), WebError(body=RATE)))[:2] == (Kind.RATE_LIMITED, True)


def test_the_root_of_an_httpx_error_is_found_in_a_suppressed_context() -> None:
    inner = caught(foreign("ConnectError", "httpcore"), ConnectionRefusedError(), suppressed=True)
    assert meaning(chained(httpx.ConnectError(""), inner)) == (Kind.CONNECTION_REFUSED, True, "no")
    untrusted = caught(foreign("ConnectError", "httpcore"), ssl.SSLCertVerificationError(), suppressed=True)
    assert meaning(chained(httpx.ConnectError(""), untrusted)) == (Kind.INSECURE, False, "no")


def test_what_a_caller_was_handling_when_it_made_its_call_says_nothing() -> None:
    def call() -> None:
        raise OPENAI()

    for handled in (ConnectionRefusedError(), answer(429, {}, QUOTA), ssl.SSLCertVerificationError()):
        with pytest.raises(OPENAI) as found:
            try:
                raise handled
            except Exception:
                call()
        assert found.value.__context__ is handled
        assert meaning(found.value) == (Kind.CONNECTION_LOST, True, "maybe")


def test_what_was_given_up_already_is_found_behind_a_wrapper() -> None:
    for given_up in (gave_up("deadline", 3, ApiError(503)), CircuitOpenError()):
        assert meaning(chained(ConnectionError(), given_up)) == (Kind.GAVE_UP, False, "maybe")


def test_a_made_up_status_is_no_status() -> None:
    assert meaning(LITELLM(status_code=500)) == (Kind.CONNECTION_LOST, True, "maybe")
    untrusted = chained(LITELLM(status_code=500), ssl.SSLCertVerificationError())
    assert meaning(untrusted) == (Kind.INSECURE, False, "no")
    assert classify(untrusted).status is None


# ---- what an unknown error was made from -------------------------------------------------------------------------


def test_an_unknown_error_means_what_it_was_made_from() -> None:
    failure = classify(chained(WebError(), RuntimeError(), answer(503, {"Retry-After": "7"})))
    assert facts_of(failure) == (Kind.OVERLOADED, True, "no")
    assert (failure.status, failure.retry_after, failure.rule) == (503, 7.0, "made from: status 503")
    assert meaning(chained(WebError(), ValueError(), ConnectionRefusedError())) == (Kind.CONNECTION_REFUSED, True, "no")
    assert meaning(WebError(reason=TimeoutError())) == (Kind.TIMEOUT, True, "maybe")


def test_it_does_not_mean_what_was_only_being_handled() -> None:
    assert meaning(caught(WebError, ConnectionResetError())) == (Kind.UNKNOWN, False, "maybe")


@pytest.mark.parametrize(
    "mistake",
    [ValueError(), TypeError(), KeyError(), IndexError(), AttributeError(), AssertionError(), ZeroDivisionError()],
)
def test_a_mistake_of_the_program_stays_one_whatever_it_was_made_from(mistake: Exception) -> None:
    assert not classify(chained(mistake, ConnectionResetError())).transient


def test_so_does_a_libraries_own_kind_of_mistake() -> None:
    assert not classify(chained(foreign("BadAnswer", "acme", ValueError)(), ConnectionResetError())).transient


def test_what_it_was_made_from_may_be_a_group_or_given_up_already() -> None:
    assert classify(chained(WebError(), ExceptionGroup("several", [TimeoutError()]))).transient
    assert meaning(chained(WebError(), gave_up("deadline", 3, ApiError(503))))[:2] == (Kind.GAVE_UP, False)
    assert meaning(chained(WebError(), CircuitOpenError()))[:2] == (Kind.GAVE_UP, False)


def test_a_cancellation_is_no_origin() -> None:
    assert meaning(chained(WebError(), asyncio.CancelledError())) == (Kind.UNKNOWN, False, "maybe")
    assert classify(chained(WebError(), asyncio.CancelledError(), TimeoutError())).transient


def test_where_no_origin_says_anything_nothing_is_known() -> None:
    assert meaning(chained(WebError(), RuntimeError(), ValueError())) == (Kind.UNKNOWN, False, "maybe")


# ---- groups ------------------------------------------------------------------------------------------------------


def group(*errors: BaseException) -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup("several", errors)


def test_a_group_is_transient_only_if_every_error_in_it_is() -> None:
    assert classify(group(ConnectionResetError(), answer(503))).transient
    assert classify(group(ConnectionResetError(), group(TimeoutError()))).transient
    assert not classify(group(ConnectionResetError(), ValueError())).transient
    assert not classify(group(ConnectionResetError(), group(TimeoutError(), answer(401)))).transient


def test_the_first_permanent_error_says_what_a_group_is_else_the_first() -> None:
    failure = classify(group(TimeoutError(), answer(401), answer(404)))
    assert (failure.kind, failure.status, failure.rule) == (Kind.AUTH, 401, "the group's status 401")
    failure = classify(group(answer(503), TimeoutError()))
    assert (failure.kind, failure.status, failure.rule) == (Kind.OVERLOADED, 503, "the group's status 503")


def test_the_longest_wait_of_any_error_in_it_counts() -> None:
    first, second = answer(429, {"Retry-After": "7"}), answer(503, {"Retry-After": "9"})
    assert classify(group(first, second, TimeoutError())).retry_after == 9.0
    assert classify(group(TimeoutError())).retry_after is None
    assert classify(group(answer(429, {"Retry-After": "0"}))).retry_after == 0.0


def test_a_group_is_safe_to_repeat_only_if_every_error_in_it_is() -> None:
    safe = classify(group(answer(429), ConnectionRefusedError()), idempotent=False)
    assert (safe.executed, safe.safe_to_retry) == ("no", True)
    unsafe = classify(group(answer(429), ConnectionResetError()), idempotent=False)
    assert (unsafe.executed, unsafe.safe_to_retry) == ("maybe", False)
    assert classify(group(answer(429), ConnectionResetError())).safe_to_retry


@pytest.mark.parametrize("leaving", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_what_must_leave_is_never_retried_in_a_group_or_out_of_one(leaving: BaseException) -> None:
    for error in (leaving, group(TimeoutError(), leaving), group(group(leaving))):
        assert (classify(error).transient, classify(error).safe_to_retry) == (False, False)
        assert classify(error).kind is Kind.CANCELLED
        assert not is_retryable(error)
        assert not is_transient(error)


def test_a_given_up_error_in_a_group_ends_it() -> None:
    assert not classify(group(TimeoutError(), gave_up("deadline", 3, None))).transient
    assert classify(group(ResultRejected(), TimeoutError())).transient


def test_a_group_too_large_to_be_looked_into_is_permanent() -> None:
    deep: BaseException = TimeoutError()
    for _ in range(10_000):
        deep = group(deep)
    for large in (deep, group(*(TimeoutError() for _ in range(10_000)))):
        assert not classify(large).transient
        assert not classify(large, idempotent=False).safe_to_retry
    assert classify(group(*(TimeoutError() for _ in range(500)))).transient


def test_a_group_that_holds_itself_is_permanent() -> None:
    class Circle(ExceptionGroup[Exception]):
        exceptions = property(lambda self: (self,))  # type: ignore[assignment]

    circle = Circle("circle", [TimeoutError()])
    assert not classify(circle).transient
    assert not classify(circle, idempotent=False).safe_to_retry


# ---- errors of our own -------------------------------------------------------------------------------------------


def test_a_refused_result_may_pass_next_time() -> None:
    assert meaning(ResultRejected("pending")) == (Kind.REJECTED_RESULT, True, "no")


@pytest.mark.parametrize(
    "error",
    [
        gave_up("max_attempts", 3, ApiError(503)),
        gave_up("deadline", 3, ApiError(503)),
        gave_up("budget", 3, ApiError(503)),
        CircuitOpenError(1.0),
    ],
)
def test_what_a_layer_below_gave_up_is_never_retried(error: RetryError | CircuitOpenError) -> None:
    assert meaning(error)[:2] == (Kind.GAVE_UP, False)
    assert not is_retryable(error)
    assert not is_transient(error)


# ---- rules of one's own ------------------------------------------------------------------------------------------

BUSY = Rule(kind=Kind.OVERLOADED, source="ours", statuses=frozenset({418}))
FATAL = Rule(kind=Kind.INVALID_REQUEST, source="ours", codes=frozenset({"rate_limit_exceeded"}))


def test_own_rules_are_asked_before_all_others() -> None:
    ours = Classifier(iter([BUSY, FATAL]))
    assert facts_of(ours.classify(answer(418))) == (Kind.OVERLOADED, True, "maybe")
    assert facts_of(ours.classify(answer(429, {}, RATE))) == (Kind.INVALID_REQUEST, False, "no")
    assert ours.classify(answer(418)).rule == "own rule: status 418"


def test_they_are_asked_before_the_servers_own_word() -> None:
    assert Classifier([BUSY]).classify(answer(418, {"x-should-retry": "false"})).transient
    assert not Classifier([FATAL]).classify(answer(429, {"x-should-retry": "true"}, RATE)).transient


def test_what_they_do_not_name_means_what_it_always_means() -> None:
    for error in (answer(503), answer(429, {}, QUOTA), TimeoutError(), ValueError(), group(answer(418), answer(503))):
        if not isinstance(error, BaseExceptionGroup):
            assert Classifier([BUSY]).classify(error) == classify(error) == Classifier().classify(error)
    assert Classifier([BUSY]).classify(group(answer(418), answer(503))).transient


def test_they_are_asked_about_what_an_unknown_error_was_made_from() -> None:
    assert Classifier([BUSY]).classify(chained(WebError(), answer(418))).transient
    assert not classify(chained(WebError(), answer(418))).transient


def test_a_classifier_is_a_rule_for_errors_itself() -> None:
    assert Classifier([BUSY])(answer(418)) is True
    assert Classifier()(answer(418)) is False


def test_a_rule_may_say_that_the_server_did_nothing() -> None:
    rule = Rule(kind=Kind.SERVER_ERROR, source="ours", statuses=frozenset({500}), executed="no")
    assert Classifier([rule]).classify(answer(500), idempotent=False).safe_to_retry


def test_a_rule_on_a_subclass_overrules_a_permanent_one_on_its_base() -> None:
    base: Any = foreign("ApiError", "acme")
    busy: Any = foreign("Busy", "acme", base)
    ours = Classifier(
        [
            Rule(kind=Kind.INVALID_REQUEST, source="ours", classes=frozenset({"acme.ApiError"})),
            Rule(kind=Kind.OVERLOADED, source="ours", classes=frozenset({"acme.Busy"})),
        ]
    )
    assert facts_of(ours.classify(busy())) == (Kind.OVERLOADED, True, "maybe")
    assert facts_of(ours.classify(base()))[:2] == (Kind.INVALID_REQUEST, False)


# ---- readers of hints of one's own -------------------------------------------------------------------------------


def wait_of(body: Mapping[str, Any]) -> float | None:
    return body.get("wait")


def test_a_reader_of_hints_is_asked_about_the_error_its_group_and_what_it_came_from() -> None:
    ours = Classifier(hints=[wait_of])
    limited = answer(429, {}, {"wait": 7})
    for error in (limited, group(limited, TimeoutError()), chained(WebError(), limited)):
        assert ours.classify(error).retry_after == 7.0
        assert classify(error).retry_after is None


def test_what_it_finds_counts_for_rules_on_hints() -> None:
    assert not classify(answer(403, {}, {"wait": 7})).transient
    assert Classifier(hints=iter([wait_of])).classify(answer(403, {}, {"wait": 7})).transient
    assert Classifier(hints=[wait_of]).classify(answer(503, {}, {"wait": 7})).executed == "no"


def test_a_reader_must_be_a_function() -> None:
    with pytest.raises(ValueError, match="functions of a body, not str"):
        Classifier(hints=["wait"])  # type: ignore[list-item]


# ---- rules that can't match --------------------------------------------------------------------------------------


def naming(*names: str) -> Rule:
    return Rule(kind=Kind.OVERLOADED, source="ours", classes=frozenset(names))


def test_a_rule_on_a_class_that_does_not_exist_is_told_where_it_is_made() -> None:
    with pytest.warns(
        UserWarning, match=r"httpx\.ReadTimout, which does not exist \(httpx\.ReadTimeout does\)"
    ) as told:
        Classifier([naming("httpx.ReadTimout"), naming("httpx.ReadTimeout", "acme.Busy")])
    assert [one.filename for one in told] == [__file__]


def test_or_when_the_first_error_of_its_package_comes_and_no_rule_matches_it() -> None:
    ours = Classifier([naming("acme_late.Buzy"), BUSY])
    busy: Any = foreign("Busy", "acme_late.errors")
    assert ours.classify(busy(status_code=418)).transient
    with pytest.warns(UserWarning, match=r"acme_late\.Buzy"):
        assert not ours.classify(busy()).transient
    ours.classify(busy())  # told once: a second warning would be an error here


def test_what_a_wrapper_came_from_tells_too() -> None:
    ours = Classifier([naming("acme_old.ReadTimeout")])
    with pytest.warns(UserWarning, match=r"acme_old\.ReadTimeout, but what has come is acme_old2\.ReadTimeout"):
        ours.classify(chained(OPENAI(), foreign("ReadTimeout", "acme_old2")()))


def test_where_warnings_are_errors_the_verdict_is_the_same() -> None:
    ours = Classifier([naming("acme_strict.Buzy")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ours.classify(foreign("Busy", "acme_strict", ConnectionResetError)()).kind is Kind.CONNECTION_LOST


# ---- the two short rules -----------------------------------------------------------------------------------------


def test_the_default_rule_retries_of_an_api_error_408_429_and_every_5xx() -> None:
    assert [status for status in range(620) if is_retryable(ApiError(status))] == [408, 429, *range(500, 600)]


def test_the_default_rule_retries_of_other_errors_what_may_pass() -> None:
    retried = [status for status in range(400, 600) if is_retryable(answer(status))]
    assert retried == [408, 409, 425, 429, 500, *range(502, 505), *range(506, 600)]
    assert is_retryable(TimeoutError())
    assert not is_retryable(ValueError())


@pytest.mark.parametrize("status", [400, 408, 409, 425, 429, 500, 501, 503, 505, 599])
def test_an_api_error_in_a_group_is_retried_exactly_if_it_is_alone(status: int) -> None:
    alone = is_retryable(ApiError(status))
    assert is_retryable(group(ApiError(status))) is alone
    assert is_retryable(group(ApiError(503), group(ApiError(status), TimeoutError()))) is alone
    assert not is_retryable(group(ApiError(status), ValueError()))
    assert not is_retryable(group(ApiError(status), KeyboardInterrupt()))


def test_the_toolkit_rule_retries_eight_statuses() -> None:
    for failed in (ApiError, answer):
        assert [status for status in range(400, 600) if is_transient(failed(status))] == [
            408, 409, 429, 500, 502, 503, 504, 529,
        ]  # fmt: skip


def test_the_toolkit_rule_believes_a_permanent_code_and_the_servers_own_word_first() -> None:
    assert not is_transient(answer(429, {}, QUOTA))
    assert is_transient(answer(400, {"x-should-retry": "true"}))
    assert not is_transient(answer(503, {"x-should-retry": "false"}))


def test_the_toolkit_rule_retries_the_network_where_there_is_no_status() -> None:
    assert is_transient(httpx.ReadTimeout(""))
    assert is_transient(ConnectionResetError())
    assert not is_transient(httpx.UnsupportedProtocol(""))
    assert not is_transient(ValueError())


def test_a_status_is_that_of_a_failure_or_none() -> None:
    assert status_code_of(answer(503)) == status_code_of(ApiError(503)) == 503
    assert status_code_of(answer(200)) is status_code_of(ValueError()) is None


def test_an_object_that_can_not_be_read_does_not_take_the_place_of_the_failure() -> None:
    class Broken(dict[str, object]):
        def get(self, *_: object) -> object:
            raise RuntimeError("broken")

    for name in ("body", "details", "response", "headers"):
        error = ConnectionError()
        error.__dict__[name] = Broken()
        assert meaning(error) == (Kind.CONNECTION_LOST, True, "maybe")


def test_an_error_of_a_class_that_can_not_be_read_is_permanent() -> None:
    class Unhashable(type):
        def __eq__(cls, other: object) -> bool:
            return cls is other

        __hash__ = None  # type: ignore[assignment]

    error = Unhashable("Odd", (ConnectionError,), {})()
    verdict = classify(error, idempotent=False)
    assert (verdict.transient, verdict.safe_to_retry, verdict.rule) == (False, False, "it can't be read")
    assert not is_retryable(error)
    assert not is_transient(error)
    assert status_code_of(error) is retry_after_of(error) is None


def test_an_error_raised_from_the_group_that_holds_it_is_looked_at_once() -> None:
    for other, transient in ((ConnectionError(), True), (KeyError(), False)):
        one = Exception("unknown alone")
        group = ExceptionGroup("both", [one, other])
        one.__cause__ = group
        assert classify(one).transient is transient
        assert not classify(group).transient or transient


def test_a_group_that_holds_only_what_has_led_to_it_says_nothing() -> None:
    one = Exception("unknown alone")
    one.__cause__ = ExceptionGroup("itself", [one])
    assert not classify(one).transient


def test_groups_in_causes_of_groups_are_judged_within_one_bound() -> None:
    error: Exception = ConnectionError()
    for _ in range(12):
        wrapper = Exception("unknown alone")
        wrapper.__cause__ = error
        error = ExceptionGroup("many", [wrapper, *(ConnectionError() for _ in range(100))])
    verdict = classify(error)
    assert (verdict.transient, verdict.rule.endswith("too large to be judged")) == (False, True)


def test_two_errors_made_from_the_same_one_both_mean_what_that_one_means() -> None:
    first, second = Exception("first"), Exception("second")
    first.__cause__ = second.__cause__ = ConnectionError()
    assert classify(ExceptionGroup("both", [first, second])).transient


# ---- refused results -------------------------------------------------------------------------------------------------


class Response:
    """A result that is a failed answer itself."""

    def __init__(self, status: object, headers: dict[str, str] | None = None, name: str = "status_code") -> None:
        setattr(self, name, status)
        self.headers = headers or {}


@pytest.mark.parametrize("name", ["status_code", "status"])
@pytest.mark.parametrize(
    ("status", "headers", "kind", "retry_after"),
    [
        (503, {}, Kind.OVERLOADED, None),
        (429, {"Retry-After": "7"}, Kind.RATE_LIMITED, 7.0),
        (500, {}, Kind.SERVER_ERROR, None),
        (404, {}, Kind.NOT_FOUND, None),  # the caller asked for a retry, and may know why
    ],
)
def test_a_refused_response_is_judged_as_its_error_and_retried_as_the_caller_wishes(
    name: str, status: int, headers: dict[str, str], kind: Kind, retry_after: float | None
) -> None:
    failure = classify(ResultRejected(Response(status, headers, name)))
    assert (failure.transient, failure.kind, failure.retry_after, failure.status) == (True, kind, retry_after, status)
    assert failure.rule.startswith("a refused result: ")


@pytest.mark.parametrize("result", [None, "pending", {"status": 503}, Response(200), Response("503"), Response(True)])
def test_any_other_refused_result_is_an_answer_that_does_not_suit(result: object) -> None:
    failure = classify(ResultRejected(result))
    assert (failure.transient, failure.kind, failure.executed) == (True, Kind.REJECTED_RESULT, "no")
