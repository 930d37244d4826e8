"""What a class of network failure means: its name and the package that it comes from, never the name alone."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import ssl
import threading
import urllib.error
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear.classify.network import UNREACHABLE, Transport, errno_of, nothing_was_sent, transport_of
from forbear.classify.providers import transports
from forbear.core.failure import PERMITS, Executed, Kind
from foreign import Thing, chained, foreign
from loopback import unanswered


def meaning(error: BaseException) -> tuple[Kind, Executed]:
    found = transport_of(error)
    assert found is not None
    return found.kind, found.executed


NOT_MADE = (Kind.CONNECTION_REFUSED, "no")
LOST = (Kind.CONNECTION_LOST, "maybe")
LATE = (Kind.TIMEOUT, "maybe")
LATE_UNSENT = (Kind.TIMEOUT, "no")
POOL_FULL = (Kind.POOL_FULL, "no")
MISTAKE = (Kind.INVALID_REQUEST, "no")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ConnectionRefusedError(), NOT_MADE),
        (socket.gaierror(), NOT_MADE),
        (socket.herror(), NOT_MADE),
        (ConnectionError(), LOST),
        (ConnectionResetError(), LOST),
        (ConnectionAbortedError(), LOST),
        (BrokenPipeError(), LOST),
        (TimeoutError(), LATE),
        (asyncio.TimeoutError(), LATE),  # noqa: UP041  # the old names are what old code raises
        (socket.timeout(), LATE),  # noqa: UP041
        (ssl.SSLCertVerificationError(), (Kind.INSECURE, "no")),
        (ssl.SSLError(), LOST),
        (ssl.SSLEOFError(), LOST),
        (asyncio.IncompleteReadError(b"", 1), LOST),
        (http.client.RemoteDisconnected(), LOST),
        (http.client.BadStatusLine(""), LOST),
        (http.client.IncompleteRead(b""), LOST),
        (urllib.error.URLError(""), LOST),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_python_itself_raises(error: Exception, wanted: tuple[Kind, Executed]) -> None:
    assert meaning(error) == wanted


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (httpx.ConnectError, NOT_MADE),
        (httpx.ConnectTimeout, LATE_UNSENT),
        (httpx.PoolTimeout, POOL_FULL),
        (httpx.ReadTimeout, LATE),
        (httpx.WriteTimeout, LATE),
        (httpx.ReadError, LOST),
        (httpx.WriteError, LOST),
        (httpx.CloseError, LOST),
        (httpx.RemoteProtocolError, LOST),
        (httpx.LocalProtocolError, MISTAKE),
        (httpx.UnsupportedProtocol, MISTAKE),
        (httpx.TooManyRedirects, MISTAKE),
        (httpx.InvalidURL, MISTAKE),
        (httpx.ProxyError, (Kind.AUTH, "no")),
    ],
)
def test_what_httpx_raises(kind: type[Exception], wanted: tuple[Kind, Executed]) -> None:
    assert meaning(kind("")) == wanted


def test_its_successor_raises_the_same_under_another_name() -> None:
    for package in ("httpx2", "httpcore", "httpcore2"):
        for name in ("ConnectError", "ConnectTimeout", "NetworkError", "RemoteProtocolError", "TimeoutException"):
            same = foreign(name, "httpx")()
            assert meaning(foreign(name, f"{package}._exceptions")()) == meaning(same)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(), OSError(), Exception(), KeyboardInterrupt(), FileNotFoundError(), EOFError(),
        httpx.DecodingError(""), asyncio.CancelledError(), asyncio.InvalidStateError(),
        ExceptionGroup("several", [ConnectionError()]),
    ],
    ids=repr,
)  # fmt: skip
def test_other_errors_say_nothing_about_the_network(error: BaseException) -> None:
    assert transport_of(error) is None


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("ConnectError", "acme.errors"), ("TimeoutException", "acme"), ("ConnectionRefusedError", "acme"),
        ("ConnectError", "httpxtra"), ("ConnectError", "acme.httpx"), ("TimeoutError", "asyncpg"), ("gaierror", "acme"),
    ],
)  # fmt: skip
def test_the_same_name_in_another_library_means_nothing(name: str, module: str) -> None:
    assert transport_of(foreign(name, module)()) is None


def test_the_same_name_in_the_same_library_means_the_same_in_any_of_its_modules() -> None:
    assert meaning(foreign("PoolTimeout", "httpx")()) == meaning(foreign("PoolTimeout", "httpx.a.b")()) == POOL_FULL


def test_the_most_specific_class_that_is_known_decides() -> None:
    assert meaning(foreign("Refused", "acme", ConnectionRefusedError)()) == NOT_MADE
    assert meaning(foreign("Late", "acme", httpx.ReadTimeout)("")) == LATE
    assert meaning(foreign("ConnectError", "httpx", ConnectionResetError)()) == NOT_MADE
    assert meaning(foreign("AuthenticationError", "redis", foreign("ConnectionError", "redis"))()) == (Kind.AUTH, "no")
    assert meaning(foreign("NewConnectionError", "urllib3", foreign("ConnectTimeoutError", "urllib3"))()) == NOT_MADE


def test_a_class_that_says_too_little_is_known_as_such() -> None:
    generic = transport_of(foreign("APIConnectionError", "openai")())
    exact = transport_of(TimeoutError())
    assert generic is not None
    assert exact is not None
    assert (generic.generic, exact.generic) == (True, False)


def test_it_says_which_class_of_which_package_was_known() -> None:
    found = transport_of(foreign("Mine", "acme", httpx.ReadTimeout)(""))
    assert found is not None
    assert found.name == "httpx.TimeoutException"


def test_the_number_of_an_operating_systems_error_is_known() -> None:
    assert errno_of(OSError(errno.ENETUNREACH, "unreachable")) == errno.ENETUNREACH
    assert {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL} <= UNREACHABLE
    assert errno.ENOSPC not in UNREACHABLE
    assert None not in UNREACHABLE


def test_the_number_of_any_other_error_is_its_librarys_own() -> None:
    assert errno_of(OSError()) is None
    for error in (foreign("Error", "acme", OSError)(), FileNotFoundError(errno.ENETUNREACH, ""), ValueError()):
        error.__dict__["errno"] = errno.ENETUNREACH
        assert errno_of(error) is None


@pytest.mark.parametrize("kind", Kind)
def test_the_kind_says_whether_the_next_attempt_may_pass(kind: Kind) -> None:
    assert Transport(kind, "maybe", generic=False, name="").passes is PERMITS[kind].transient


def test_every_class_of_the_table_is_found() -> None:
    for row in transports.ROWS:
        for package in row.packages:
            for name in row.classes:
                found = transport_of(foreign(name, f"{package}.errors")())
                assert found is not None
                executed = row.executed or PERMITS[row.kind].executed
                assert found == Transport(row.kind, executed, row.generic, found.name, row.carries)
                assert found.name == f"{package}.{name}"


# ---- what proves that nothing was done ---------------------------------------------------------------------------


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("it must fail")


class Turning(threading.Thread):
    """A server that says a word to whoever comes, and hangs up."""

    def __init__(self, word: bytes) -> None:
        super().__init__(daemon=True)
        self.word = word
        self.door = socket.create_server(("127.0.0.1", 0))
        self.start()

    def run(self) -> None:
        line, _ = self.door.accept()
        line.recv(65_536)
        line.sendall(self.word)
        line.close()
        self.door.close()


@pytest.mark.parametrize("word", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_handshake_that_fails_came_before_anything_was_sent(word: bytes) -> None:
    def call() -> None:
        with socket.create_connection(Turning(word).door.getsockname()) as line:
            ssl.create_default_context().wrap_socket(line, server_hostname="localhost")

    error = raised(call)
    assert isinstance(error, ssl.SSLError)
    assert meaning(error) == (Kind.CONNECTION_LOST, "no")
    assert meaning(type(error)("the same", "raised elsewhere")) == LOST


def test_so_did_a_connection_that_was_not_made_in_time() -> None:
    with unanswered() as address:
        host, _, port = address.partition(":")
        error = raised(lambda: socket.create_connection((host, int(port)), timeout=0.05))
    assert isinstance(error, TimeoutError)
    assert meaning(error) == LATE_UNSENT


def unsent(error: BaseException) -> bool:
    found = transport_of(error)
    assert found is not None
    return nothing_was_sent(found, error)


def test_it_is_believed_from_whatever_a_library_made_its_error_from() -> None:
    late: Any = foreign("ReadTimeoutError", "urllib3.exceptions", foreign("TimeoutError", "urllib3.exceptions"))
    wrapped: Any = foreign("ReadTimeout", "requests.exceptions", foreign("Timeout", "requests.exceptions"))
    assert unsent(chained(wrapped(), late(), ConnectionRefusedError()))
    assert not unsent(chained(wrapped(), late(), TimeoutError(), ValueError()))
    assert not unsent(wrapped())
    assert unsent(ConnectionRefusedError())


def test_but_not_from_what_came_before_an_error_of_pythons_own() -> None:
    assert not unsent(chained(ConnectionResetError(), ConnectionRefusedError()))


@pytest.mark.parametrize(
    ("event", "executed"),
    [
        (Thing(stream_id=1, error_code=7, remote_reset=True), "no"),
        (Thing(stream_id=1, error_code=7, remote_reset=False), "maybe"),
        (Thing(stream_id=1, error_code=2, remote_reset=True), "maybe"),
        (Thing(stream_id=1, error_code=None, remote_reset=True), "maybe"),
        (Thing(error_code=0, last_stream_id=0), "no"),
        (Thing(error_code=7, last_stream_id=1), "maybe"),
        (Thing(error_code=0, last_stream_id=False), "maybe"),
        ("<StreamReset stream_id:1, error_code:7, remote_reset:True>", "maybe"),
        (None, "maybe"),
    ],
    ids=repr,
)
def test_a_stream_that_http_2_refused_was_not_looked_at(event: object, executed: Executed) -> None:
    inner: Any = foreign("RemoteProtocolError", "httpcore._exceptions")
    assert meaning(inner(event)) == (Kind.CONNECTION_LOST, executed)
    assert unsent(chained(httpx.RemoteProtocolError(str(event)), inner(event))) is (executed == "no")
    assert meaning(httpx.RemoteProtocolError("")) == meaning(inner()) == LOST


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("503 Service Unavailable", NOT_MADE),
        ("502", NOT_MADE),
        ("429 Too Many Requests", NOT_MADE),
        ("504 ", NOT_MADE),
        ("407 Proxy Authentication Required", (Kind.AUTH, "no")),
        ("404 Not Found", (Kind.NOT_FOUND, "no")),
        ("501 Not Implemented", (Kind.INVALID_REQUEST, "no")),
        ("302 Found", (Kind.AUTH, "no")),
        ("503Service", (Kind.AUTH, "no")),
        ("\u0665\u0660\u0663 x", (Kind.AUTH, "no")),
        ("Invalid username/password", (Kind.AUTH, "no")),
        ("", (Kind.AUTH, "no")),
    ],
)
def test_a_proxy_that_declines_says_its_status_in_the_text(text: str, wanted: tuple[Kind, Executed]) -> None:
    for package in ("httpx", "httpx2", "httpcore", "httpcore2"):
        assert meaning(foreign("ProxyError", package)(text)) == wanted
