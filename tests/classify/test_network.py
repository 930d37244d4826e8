"""What a class of network failure means, and that a bare name means nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl

import httpx
import pytest

from forbear.classify.network import Transport, transport_of
from forbear.core.failure import Kind

NOT_SENT = Transport(Kind.CONNECTION_REFUSED, "no")
LOST = Transport(Kind.CONNECTION_LOST, "maybe")
LATE = Transport(Kind.TIMEOUT, "maybe")
LATE_UNSENT = Transport(Kind.TIMEOUT, "no")
PERMANENT = Transport(None, "no")


def foreign(name: str, module: str, base: type[Exception] = Exception) -> type[Exception]:
    """A class as another library would define it."""
    return type(name, (base,), {"__module__": module})


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (ConnectionRefusedError(), NOT_SENT),
        (socket.gaierror(), NOT_SENT),
        (ConnectionError(), LOST),
        (ConnectionResetError(), LOST),
        (ConnectionAbortedError(), LOST),
        (BrokenPipeError(), LOST),
        (TimeoutError(), LATE),
        (asyncio.TimeoutError(), LATE),  # noqa: UP041  # the old names are what old code raises
        (socket.timeout(), LATE),  # noqa: UP041
    ],
)
def test_what_python_itself_raises(error: Exception, meaning: Transport) -> None:
    assert transport_of(error) == meaning


@pytest.mark.parametrize(
    ("kind", "meaning"),
    [
        (httpx.ConnectError, NOT_SENT),
        (httpx.ConnectTimeout, LATE_UNSENT),
        (httpx.PoolTimeout, LATE_UNSENT),
        (httpx.ReadTimeout, LATE),
        (httpx.WriteTimeout, LATE),
        (httpx.ReadError, LOST),
        (httpx.WriteError, LOST),
        (httpx.CloseError, LOST),
        (httpx.RemoteProtocolError, LOST),
        (httpx.LocalProtocolError, PERMANENT),
        (httpx.ProxyError, PERMANENT),
        (httpx.UnsupportedProtocol, PERMANENT),
    ],
)
def test_what_httpx_raises(kind: type[httpx.TransportError], meaning: Transport) -> None:
    assert transport_of(kind("")) == meaning


@pytest.mark.parametrize("error", [httpx.TooManyRedirects(""), httpx.DecodingError(""), httpx.InvalidURL("")])
def test_what_httpx_raises_above_the_network_says_nothing(error: Exception) -> None:
    assert transport_of(error) is None


@pytest.mark.parametrize("error", [ValueError(), OSError(), ssl.SSLError(), KeyboardInterrupt(), Exception()])
def test_other_errors_say_nothing_about_the_network(error: BaseException) -> None:
    assert transport_of(error) is None


def test_the_same_name_in_another_library_means_nothing() -> None:
    assert transport_of(foreign("ConnectError", "acme.errors")()) is None
    assert transport_of(foreign("TimeoutException", "acme")()) is None
    assert transport_of(foreign("ConnectionRefusedError", "acme")()) is None
    assert transport_of(foreign("ConnectError", "httpxtra")()) is None


def test_the_same_name_in_the_same_library_means_the_same_in_any_of_its_modules() -> None:
    assert transport_of(foreign("ConnectError", "httpx._exceptions")()) == NOT_SENT
    assert transport_of(foreign("PoolTimeout", "httpx2")()) == LATE_UNSENT


def test_a_subclass_means_what_its_nearest_known_ancestor_means() -> None:
    assert transport_of(foreign("Refused", "acme", ConnectionRefusedError)()) == NOT_SENT
    assert transport_of(foreign("Late", "acme", httpx.ReadTimeout)("")) == LATE
    assert transport_of(foreign("ConnectError", "httpx", ConnectionResetError)()) == NOT_SENT
