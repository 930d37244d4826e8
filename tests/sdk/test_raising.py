"""The harness is honest: what it raises has the classes, status, headers, body and causes that each case states.

They were seen with the versions that `cases.json` names. Where a newer SDK differs, this is the test that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sdk.cases import CASES, Case
from sdk.places import Missing
from sdk.raising import calls_of, raise_case, raise_when

LOSES_THE_TEXT = {"anthropic"}  # litellm's anthropic route: its response is an empty one of its own
UNIMPORTANT = {"Exception", "BaseException", "Call", "RpcContext", "Future", "ABC"}


def raised(case: Case) -> BaseException:
    """The exception of a case; skips where its SDK is not installed."""
    try:
        error = raise_case(case)
    except Missing as missing:
        pytest.skip(str(missing))
    assert error is not None, "the call raised nothing"
    return error


def name_of(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def names_of(error: BaseException) -> list[str]:
    """The classes of an exception, without those that every exception has and those that botocore vendors."""
    kinds = (kind for kind in type(error).__mro__ if kind.__name__ not in UNIMPORTANT and kind is not object)
    return [name_of(kind) for kind in kinds if "vendored" not in kind.__module__]


def causes_of(error: BaseException) -> Iterator[tuple[str, str]]:
    """Each further exception of a chain, with the way that leads to it."""
    while True:
        cause, context = error.__cause__, error.__context__
        way = "cause" if cause else "suppressed context" if error.__suppress_context__ else "context"
        following = cause or context
        if following is None:
            return
        yield way, name_of(type(following))
        error = following


def at(path: str, error: object) -> Any:
    """What is found by a path of attributes and keys."""
    for step in path.split("."):
        error = error[step] if isinstance(error, Mapping) else getattr(error, step)
    return error


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_raised_exception_is_as_the_case_says(case: Case):
    error = raised(case)
    assert names_of(error) == list(case.mro)
    for path, value in case.found.get("status", {}).items():
        assert at(path, error) == value, path
    for path in case.found.get("headers", ()):
        headers = {str(name).lower(): value for name, value in at(path, error).items()}
        assert {name: headers.get(name) for name in case.headers} == case.headers, path
    for path in case.found.get("body", ()):
        assert at(path, error) is not None, path
        if path == "response.text" and case.happens == "reply" and case.call not in LOSES_THE_TEXT:
            assert at(path, error) == case.body
    assert list(causes_of(error))[: len(case.chain)] == [tuple(link) for link in case.chain]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_names_a_call_that_exists(case: Case):
    try:
        assert case.call in calls_of(case.sdk)
    except Missing as missing:
        pytest.skip(str(missing))


def test_the_cases_are_complete_and_have_names_of_their_own():
    assert len({case.id for case in CASES}) == len(CASES) == 139
    assert all(case.mro and case.kind and case.provider and case.retryable is not None for case in CASES)


def test_a_failure_that_is_no_case_is_raised_too():
    error = raise_when("httpx", "post", status=418, headers={"x-mark": "a"}, body={"a": 1})
    assert at("response.status_code", error) == 418
    assert at("response.headers", error)["x-mark"] == "a"
    assert raise_when("httpx", "post", status=200) is None


# What the cases have too few of: other protocols than HTTP, and proxies.
OTHERS = [
    ("redis", "get", {"error": "LOADING Redis is loading the dataset in memory"}, "redis.exceptions.BusyLoadingError"),
    (
        "redis",
        "get",
        {"error": "TRYAGAIN Multiple keys request during rehashing of slot"},
        "redis.exceptions.TryAgainError",
    ),
    (
        "redis",
        "get",
        {"error": "WRONGTYPE Operation against a key holding the wrong kind"},
        "redis.exceptions.ResponseError",
    ),
    ("asyncpg", "execute", {"sqlstate": "40001", "message": "x"}, "asyncpg.exceptions.SerializationError"),
    (
        "asyncpg",
        "execute",
        {"sqlstate": "53300", "message": "x", "at": "start"},
        "asyncpg.exceptions.TooManyConnectionsError",
    ),
    ("asyncpg", "execute", {}, "asyncpg.exceptions.ConnectionDoesNotExistError"),
    ("psycopg", "execute", {"sqlstate": "40P01", "message": "x"}, "psycopg.errors.DeadlockDetected"),
    ("psycopg", "execute", {"sqlstate": "53300", "message": "x", "at": "start"}, "psycopg.OperationalError"),
    ("psycopg", "execute", {}, "psycopg.OperationalError"),
    ("websockets", "receive", {"close": 1001, "reason": "going away"}, "websockets.exceptions.ConnectionClosedOK"),
    ("websockets", "receive", {}, "websockets.exceptions.ConnectionClosedError"),
    ("grpcio", "unary-async", {"code": "UNAVAILABLE"}, "grpc.aio._call.AioRpcError"),
]


@pytest.mark.parametrize(("sdk", "call", "body", "name"), OTHERS)
def test_another_protocol_fails_in_its_own_way(sdk: str, call: str, body: dict[str, Any], name: str):
    try:
        error = raise_when(sdk, call, "talk", body=body)
    except Missing as missing:
        pytest.skip(str(missing))
    assert error is not None
    assert name_of(type(error)) == name


@pytest.mark.parametrize("sdk", ["httpx", "httpx2"])
@pytest.mark.parametrize("status", [407, 503])
def test_a_proxy_that_declines_is_known_by_its_text_only(sdk: str, status: int):
    try:
        error = raise_when(sdk, "by-proxy", status=status)
    except Missing as missing:
        pytest.skip(str(missing))
    assert error is not None
    assert name_of(type(error)) == f"{sdk}.ProxyError"
    assert str(error).startswith(str(status))
