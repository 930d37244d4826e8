"""R029: the most common failure of all, a timeout, is retried by default, and so is every failure of the network."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import http.client
import socket
import ssl
import urllib.error
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear import RetriesExhausted, is_retryable, is_transient
from forbear.testing import FakeTime, Flaky, Hang
from foreign import foreign

Form = Callable[..., Any]

RETRIED: list[Exception] = [
    TimeoutError(), asyncio.TimeoutError(), socket.timeout(), concurrent.futures.TimeoutError(),  # noqa: UP041
    OSError(errno.ETIMEDOUT, "timed out"), OSError(errno.ECONNRESET, "reset"), OSError(errno.ECONNREFUSED, "refused"),
    OSError(errno.EPIPE, "broken pipe"), ConnectionError(), ConnectionResetError(), ConnectionRefusedError(),
    ConnectionAbortedError(), BrokenPipeError(), socket.gaierror(socket.EAI_NONAME, "unknown"),
    socket.gaierror(socket.EAI_AGAIN, "later"), asyncio.IncompleteReadError(b"", 1), ssl.SSLEOFError(),
    http.client.RemoteDisconnected(), http.client.IncompleteRead(b""), urllib.error.URLError(TimeoutError()),
    urllib.error.URLError(ConnectionRefusedError()), httpx.ConnectTimeout(""), httpx.ReadTimeout(""),
    httpx.WriteTimeout(""), httpx.PoolTimeout(""), httpx.ConnectError(""), httpx.ReadError(""),
    httpx.RemoteProtocolError(""),
    *(foreign(name, "aiohttp.client_exceptions")() for name in (
        "ServerTimeoutError", "ConnectionTimeoutError", "ClientConnectorError", "ServerDisconnectedError",
    )),
    *(foreign(name, "requests.exceptions")() for name in ("ConnectTimeout", "Timeout", "ConnectionError")),
    *(foreign(name, "urllib3.exceptions")() for name in ("TimeoutError", "NewConnectionError", "ProtocolError")),
]  # fmt: skip
FINAL: list[Exception] = [
    FileNotFoundError(), PermissionError(), IsADirectoryError(), OSError(errno.ENOSPC, "no space left"), OSError(),
    ssl.SSLCertVerificationError(), urllib.error.URLError(ssl.SSLCertVerificationError()),
    httpx.UnsupportedProtocol(""), foreign("InvalidURL", "requests.exceptions")(),
    foreign("ClientConnectorCertificateError", "aiohttp")(),
]  # fmt: skip


def test_they_are_retried_without_any_configuration(form: Form) -> None:
    for error in RETRIED:
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(RetriesExhausted):
            form(fn, max_attempts=2)
        assert fn.calls == 2, error


def test_both_rules_agree_about_them() -> None:
    for error in RETRIED:
        assert is_retryable(error), error
        assert is_transient(error), error


def test_what_only_looks_like_them_is_not_retried(form: Form) -> None:
    for error in FINAL:
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(type(error)):
            form(fn)
        assert fn.calls == 1, error


async def test_an_attempt_that_hangs_is_cut_and_retried(async_form: Form) -> None:
    fn = Flaky(Hang(50.0), ConnectionResetError(), "done")
    with FakeTime() as clock:
        assert await async_form(fn.asynchronous, attempt_timeout=2.0, backoff=[1.0]) == "done"
        assert clock.now == pytest.approx(4.0)
    assert fn.calls == 3
