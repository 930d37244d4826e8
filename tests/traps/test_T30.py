"""T30: with nothing configured only failures known to pass are retried, a few times, with waits between."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear import ApiError, RetriesExhausted, attempts, retry
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]
REQUEST = httpx.Request("GET", "https://example.org")


def http_status(status: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("failed", request=REQUEST, response=httpx.Response(status, request=REQUEST))


PERMANENT: list[Exception] = [
    TypeError(), ValueError(), KeyError("k"), IndexError(), AttributeError(), AssertionError(), ZeroDivisionError(),
    NotImplementedError(), RecursionError(), MemoryError(), RuntimeError(), LookupError(), NameError(), ImportError(),
    UnicodeDecodeError("utf-8", b"", 0, 1, ""), json.JSONDecodeError("", "", 0), FileNotFoundError(), PermissionError(),
    IsADirectoryError(), Exception(), ExceptionGroup("several", [ValueError(), ConnectionError()]),
    type("TransientError", (Exception,), {})(), type("TimeoutException", (Exception,), {})(),
    *map(ApiError, (400, 401, 402, 403, 404, 405, 410, 413, 422)), *map(http_status, (400, 401, 403, 404, 501)),
    httpx.UnsupportedProtocol("ftp"), httpx.InvalidURL("?"), httpx.DecodingError("gzip"), httpx.TooManyRedirects("20"),
]  # fmt: skip
TRANSIENT: list[Exception] = [
    ConnectionError(), ConnectionResetError(), ConnectionRefusedError(), BrokenPipeError(), TimeoutError(),
    TimeoutError(), socket.gaierror(), *map(ApiError, (408, 429, 500, 502, 503, 504, 529)),
    *map(http_status, (408, 409, 425, 429, 500, 502, 503, 504, 520, 529)), httpx.ConnectError(""),
    httpx.ReadTimeout(""),
    httpx.ConnectTimeout(""), httpx.PoolTimeout(""), httpx.ReadError(""), httpx.RemoteProtocolError(""),
]  # fmt: skip


def test_an_error_not_known_to_be_transient_leaves_at_once(form: Form) -> None:
    for error in PERMANENT:
        fn = Flaky(then=error)
        with FakeTime() as clock:
            with pytest.raises(type(error)) as caught:
                form(fn)
            assert clock.now == 0.0, error
        assert caught.value is error
        assert fn.calls == 1, error


def test_a_transient_error_is_retried_a_few_times_with_waits(form: Form) -> None:
    for error in TRANSIENT:
        fn = Flaky(then=error)
        with FakeTime() as clock:
            with pytest.raises(RetriesExhausted) as caught:
                form(fn)
            assert len(clock.sleeps) == 4, error
            assert min(clock.sleeps) > 0.0
            assert 0.1 < clock.now < 60.0
        assert fn.calls == caught.value.attempts == 5
        assert caught.value.last_error is error


@pytest.mark.parametrize("retryable", [ValueError, (ValueError, KeyError), lambda error: isinstance(error, ValueError)])
def test_a_rule_of_the_users_own_takes_the_place_of_the_default(form: Form, retryable: Any) -> None:
    with FakeTime():
        assert form(Flaky(ValueError(), then="done"), retryable=retryable) == "done"
        fn = Flaky(then=ConnectionError())
        with pytest.raises(ConnectionError):
            form(fn, retryable=retryable)
    assert fn.calls == 1


def test_an_error_that_turns_permanent_ends_the_call_there(form: Form) -> None:
    fn = Flaky(ConnectionError(), ApiError(503), ApiError(401), then="never")
    with FakeTime(), pytest.raises(ApiError) as caught:
        form(fn)
    assert (caught.value.status, fn.calls) == (401, 3)


async def test_a_function_that_returns_no_awaitable_is_called_once_however_broad_the_rule() -> None:
    calls: list[int] = []
    with FakeTime(), pytest.raises(TypeError, match="retry_sync"):
        await retry(lambda: calls.append(1), retryable=Exception)  # type: ignore[arg-type,return-value]
    assert calls == [1]


def test_a_block_without_its_result_runs_once_however_broad_the_rule() -> None:
    calls: list[int] = []
    with FakeTime(), pytest.raises(TypeError, match=r"set attempt\.result"):
        for attempt in attempts(retryable=Exception, retry_if_result=lambda _: False):
            with attempt:
                calls.append(1)
    assert calls == [1]


def test_a_rule_for_results_that_raises_does_not_repeat_what_has_succeeded(form: Form) -> None:
    calls: list[int] = []

    def rule(_: object) -> bool:
        raise ConnectionError("the rule's own")

    with FakeTime(), pytest.raises(ConnectionError, match="the rule's own"):
        form(lambda: calls.append(1), retry_if_result=rule)
    assert calls == [1]
