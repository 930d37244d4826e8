"""What the toolkit's own questions answer about real exceptions of the clients that it names, made by hand."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import forbear
from forbear.compat import retryhop


@pytest.fixture(params=[forbear, retryhop], ids=["own names", "retryhop's names"])
def kit(request: pytest.FixtureRequest) -> Any:
    """One surface after the other."""
    return request.param


def library(name: str) -> Any:
    pytest.importorskip(name)
    return importlib.import_module(name)


def of_httpx(name: str, status: int, **headers: str) -> Any:
    client = library(name)
    found = {key.replace("_", "-"): value for key, value in headers.items()}
    return client.Response(status, headers=found, request=client.Request("POST", "https://api.example.com/v1"))


def sdk_error(name: str, kind: str, status: int, **headers: str) -> Any:
    return getattr(library(name), kind)("no", response=of_httpx("httpx2", status, **headers), body=None)


def connection_error(name: str, kind: str) -> Any:
    return getattr(library(name), kind)(request=of_httpx("httpx2", 200).request)


def client_error(name: str, status: int, **headers: str) -> Any:
    response = of_httpx(name, status, **headers)
    return library(name).HTTPStatusError("no", request=response.request, response=response)


def requests_error(status: int, **headers: str) -> Any:
    response = library("requests").Response()
    response.status_code = status
    response.headers.update({key.replace("_", "-"): value for key, value in headers.items()})
    return library("requests").HTTPError(response=response)


def aiohttp_error(status: int, **headers: str) -> Any:
    found = library("multidict").CIMultiDict({key.replace("_", "-"): value for key, value in headers.items()})
    return library("aiohttp").ClientResponseError(None, (), status=status, headers=found)


CARRIERS = {
    "openai": lambda status, **h: sdk_error(
        "openai", "RateLimitError" if status == 429 else "APIStatusError", status, **h
    ),
    "anthropic": lambda status, **h: sdk_error("anthropic", "APIStatusError", status, **h),
    "httpx": lambda status, **h: client_error("httpx", status, **h),
    "httpx2": lambda status, **h: client_error("httpx2", status, **h),
    "requests": requests_error,
    "aiohttp": aiohttp_error,
}


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 501, 502, 503, 504, 520, 529])
def test_the_statuses_of_every_client(kit: Any, carrier: str, status: int) -> None:
    retried = status in (408, 409, 429, 500, 502, 503, 504, 529)
    make = CARRIERS[carrier]
    assert kit.is_transient(make(status)) is retried
    assert kit.status_code_of(make(status)) == status
    assert kit.retry_after_of(make(status, Retry_After="4")) == 4.0
    assert kit.is_transient(make(status, x_should_retry="true"))
    assert not kit.is_transient(make(status, x_should_retry="false"))


HTTPX = "ConnectError ReadError WriteError RemoteProtocolError ConnectTimeout ReadTimeout WriteTimeout PoolTimeout"


@pytest.mark.parametrize(("name", "kinds"), [
    ("httpx", HTTPX),
    ("httpx2", HTTPX),
    ("requests", "ConnectionError Timeout ConnectTimeout ReadTimeout"),
    ("requests.exceptions", "ChunkedEncodingError"),
    ("urllib3.exceptions", "ProtocolError"),
    ("aiohttp", "ClientConnectionError ServerDisconnectedError ServerTimeoutError ClientOSError"),
])  # fmt: skip
def test_connection_errors_and_timeouts_of_every_client(kit: Any, name: str, kinds: str) -> None:
    for kind in kinds.split():
        assert kit.is_transient(getattr(library(name), kind)("no")), kind


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_connection_errors_and_timeouts_of_the_sdks(kit: Any, name: str) -> None:
    for kind in ("APIConnectionError", "APITimeoutError"):
        assert kit.is_transient(connection_error(name, kind))
