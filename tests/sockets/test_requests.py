"""The adapter for requests on real sockets: what a server does to a connection, and what the caller sees.

Refused, reset, silent, slow, cut short, every status, Retry-After, TLS; leases, deadlines, sessions, threads. What the
caller gets is the response or the error of requests itself, or one of ours that is an error of requests too.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import gzip
import logging
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from email.utils import formatdate
from importlib.util import find_spec, module_from_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest

import forbear
from forbear import CircuitBreaker, RetryBudget, Upstream, current_attempt, deadline, retry_sync
from forbear.testing import FakeTime, record_events
from loopback import (
    Choose,
    Close,
    Cut,
    Hang,
    Line,
    Reply,
    Request,
    Reset,
    Server,
    Speak,
    Stream,
    Talk,
    TurnAway,
    refused,
    unanswered,
    unresolvable,
)

requests = pytest.importorskip("requests")
urllib3 = pytest.importorskip("urllib3")

from forbear.integrations import requests as ours  # noqa: E402  # once it is known that requests is there
from forbear.integrations.http import exchange  # noqa: E402
from forbear.integrations.http import urllib3_sending as sending  # noqa: E402

if TYPE_CHECKING:
    from loopback.certificates import Authority

QUICK: dict[str, Any] = {"base": 0.001, "cap": 0.002}
LONG = 30.0  # seconds of the caller's own timeouts, which must not be what ends anything here
SLOW = 5.0  # seconds; what is cut must end long before, and what is not takes longer
Adapter = ours.Adapter


@contextmanager
def session_with(inner: Any = None, **options: Any) -> Iterator[Any]:
    """A session whose requests go through the adapter, which is its `adapter`."""
    with requests.Session() as session:
        session.adapter = Adapter(inner, **{**QUICK, **options})
        session.mount("http://", session.adapter)
        session.mount("https://", session.adapter)
        yield session


def in_flight(session: Any, server: Server) -> int:
    return session.adapter.upstream_of(server.url).snapshot().in_flight  # type: ignore[no-any-return]


def free(session: Any, url: str) -> bool:
    """Whether nothing of a service is held."""
    snapshot = session.adapter.upstream_of(url).snapshot()
    return (snapshot.in_flight, snapshot.waiting, snapshot.waiting_retries) == (0, 0, 0)


def idle(session: Any, server: Server) -> int:
    """How many connections lie in the pool."""
    (pool,) = pools(session)
    assert pool.port == server.port
    return sum(connection is not None for connection in pool.pool.queue)


def pools(session: Any) -> list[Any]:
    manager = session.adapter.inner.poolmanager.pools
    return [manager[key] for key in manager.keys()]  # noqa: SIM118  # it can't be iterated


# ---- connections that fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_refused_connection_is_tried_again_for_any_method(method: str) -> None:
    with refused() as address, session_with(max_attempts=3) as session:
        with pytest.raises(requests.exceptions.RetryError) as caught:
            session.request(method, f"http://{address}")
        assert isinstance(caught.value, forbear.RetriesExhausted)
        assert isinstance(caught.value.last_error, requests.ConnectionError)
        assert caught.value.attempts == 3
        assert caught.value.response is None
        assert caught.value.request.method == method
        assert free(session, f"http://{address}")


def test_a_name_that_nobody_knows_is_an_error_of_requests() -> None:
    with unresolvable() as address, session_with() as session, pytest.raises(requests.RequestException):
        session.get(f"http://{address}")


def test_a_silent_network_ends_at_the_attempts_time() -> None:
    with unanswered() as address, session_with(attempt_timeout=0.2, max_attempts=2) as session:
        began = time.monotonic()
        with pytest.raises(ours.RetriesExhausted) as caught:
            session.post(f"http://{address}")  # it has not been done, so it may be sent again
        assert 0.4 <= time.monotonic() - began < SLOW
        assert isinstance(caught.value.last_error, requests.exceptions.ConnectTimeout)


@pytest.mark.parametrize(
    "step",
    [
        Reset(), Close(), Hang(), TurnAway(), Cut("half", missing=4), Cut("half", missing=4, reset=True),
        Cut("half", missing=4, status=503), Stream([b"one"], ends="hang", status=503), Speak(b"no HTTP\r\n\r\n"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_breaks_is_sent_again_where_it_is_repeatable(loopback: Server, step: Any) -> None:
    loopback.script(step, Reply(body="whole"))
    with session_with(attempt_timeout=0.4) as session:
        response = session.get(loopback.url)
        assert (response.status_code, response.text) == (200, "whole")
        assert response.forbear.attempts == 2
        assert response.forbear.gave_up is None
        assert [summary.number for summary in response.forbear.history] == [1]
        assert free(session, loopback.url)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (Reset(), "ConnectionError"),
        (Close(), "ConnectionError"),
        (Hang(), "ReadTimeout"),
        (Cut("half", missing=4), "ChunkedEncodingError"),
        (Stream([b"one"], ends="close", status=404), "ChunkedEncodingError"),
        (Stream([b"one"], ends="hang", status=404), "ReadTimeout"),
    ],
    ids=repr,
)
def test_what_may_have_been_done_is_not_sent_again_and_the_error_is_the_usual_one(
    loopback: Server, step: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    loopback.script(step, Reply())
    with session_with(attempt_timeout=0.3) as session, record_events() as events:
        with pytest.raises(requests.RequestException) as caught:
            session.post(f"{loopback.url}/pay?card=secret", data=b"order")
        assert type(caught.value) is getattr(requests.exceptions, kind)
        assert caught.value.request.body == b"order"
    assert len(loopback.requests) == 1
    assert [end.reason for end in events.ends] == ["unsafe"]
    assert "not retried" in caplog.text
    assert "secret" not in caplog.text.partition("GET")[0]


def test_a_read_that_the_callers_own_timeout_ends_is_what_it_is_without_us(loopback: Server) -> None:
    loopback.script(Stream([b"one"], ends="hang"))
    with session_with(max_attempts=1, reraise=True) as session, pytest.raises(requests.ConnectionError, match="timed"):
        session.get(loopback.url, timeout=0.2)
    with session_with() as session:
        loopback.script(Hang(), Stream([b"one"], ends="hang", status=503), Reply(body="well"))
        assert session.get(loopback.url, timeout=(LONG, 0.2)).text == "well"


@pytest.mark.parametrize(
    ("url", "kind"),
    [("http://", "InvalidURL"), ("http://.example", "InvalidURL"), ("ftp://127.0.0.1/", "InvalidSchema")],
)
def test_a_request_that_makes_no_sense_fails_at_once(url: str, kind: str) -> None:
    with session_with() as session, record_events() as events, pytest.raises(requests.RequestException) as caught:
        session.get(url)
    assert type(caught.value) is getattr(requests.exceptions, kind)
    assert len(events.attempts) <= 1


def test_tls_is_verified_as_ever(authority: Authority) -> None:
    with Server(Reply(503), Reply(body="safe"), tls=authority.context()) as server, session_with() as session:
        response = session.get(server.url, verify=str(authority.bundle))
        assert (response.text, response.forbear.attempts) == ("safe", 2)
        with pytest.raises(requests.exceptions.SSLError):
            session.get(server.url)
        assert len(server.requests) == 2


# ---- answers ---------------------------------------------------------------------------------------------------------

PASSING = {408, 425, 429, 500, 502, 503, 504}


def test_each_status_is_answered_sensibly(loopback: Server) -> None:
    retried: set[int] = set()
    with session_with(max_attempts=2, reraise=True, upstream=None, base=0) as session:
        for status in range(200, 600):
            loopback.requests.clear()
            loopback.script(Reply(status, body="" if status in (204, 205, 304) else f"body of {status}"))
            response = session.get(loopback.url)
            assert response.status_code == status
            assert response.text == ("" if status in (204, 205, 304) else f"body of {status}")
            attempts = response.forbear.attempts
            assert attempts == len(loopback.requests)
            assert (response.forbear.gave_up is not None) is (attempts > 1)
            retried |= {status} if attempts > 1 else set()
    assert retried >= PASSING
    assert not retried & {*range(200, 400), 400, 401, 403, 404, 405, 410, 412, 413, 414, 415, 422, 501, 505}
    assert loopback.connections == 1  # each was read to its end


def test_one_that_is_retried_in_vain_raises_an_error_of_requests(loopback: Server) -> None:
    loopback.script(Reply(503, {"X-Why": "full"}, body={"error": "overloaded"}))
    with session_with(max_attempts=3) as session, pytest.raises(requests.RequestException) as caught:
        session.get(loopback.url)
    error = caught.value
    assert isinstance(error, ours.RetriesExhausted)
    assert isinstance(error, (forbear.RetriesExhausted, requests.exceptions.RetryError))
    assert isinstance(error.last_error, requests.HTTPError)
    assert error.response is error.last_error.response
    assert (error.response.status_code, error.response.json()) == (503, {"error": "overloaded"})
    assert error.response.headers["x-why"] == "full"
    assert error.request.url == f"{loopback.url}/"
    assert loopback.connections == 1


def test_one_that_is_retried_in_vain_is_returned_with_reraise_and_not_retried_around(loopback: Server) -> None:
    loopback.script(Reply(503, body="last"))
    with session_with(max_attempts=2, reraise=True) as session:

        def outer() -> Any:
            response = session.get(loopback.url)
            assert (response.text, response.forbear.attempts) == ("last", 2)
            assert response.forbear.gave_up.reason == "max_attempts"
            response.raise_for_status()

        with pytest.raises(requests.HTTPError):
            retry_sync(outer, max_attempts=3, base=0)
    assert len(loopback.requests) == 2


@pytest.mark.parametrize("dated", [False, True])
def test_the_servers_wait_is_kept(loopback: Server, dated: bool) -> None:
    with FakeTime() as clock:
        hint = formatdate(clock.world.wall() + 7, usegmt=True) if dated else "7"
        loopback.script(Reply(429, {"Retry-After": hint}), Reply(body="now"))
        with session_with() as session:
            assert session.get(loopback.url, timeout=LONG).text == "now"
        assert 6 <= sum(clock.sleeps) <= 9


def test_a_wait_that_does_not_fit_the_deadline_is_not_begun(loopback: Server) -> None:
    loopback.script(Reply(503, {"Retry-After": "60"}))
    with session_with(deadline=5) as session:
        began = time.monotonic()
        with pytest.raises(requests.Timeout) as caught:
            session.get(loopback.url)
        assert time.monotonic() - began < 4
    assert isinstance(caught.value, ours.DeadlineExceeded)
    assert isinstance(caught.value, (forbear.DeadlineExceeded, TimeoutError))
    assert caught.value.hint == pytest.approx(60, abs=1)
    assert caught.value.response.status_code == 503
    assert len(loopback.requests) == 1


def test_a_response_is_offered_to_retryable_as_the_error_of_requests(loopback: Server) -> None:
    offered: list[Any] = []

    def retryable(error: Exception) -> bool:
        offered.append(error)
        return True

    loopback.script(Reply(404, body="not yet"), Reply(body="here"))
    with session_with(retryable=retryable) as session:
        assert session.get(loopback.url).text == "here"
    (error,) = offered
    assert type(error) is requests.HTTPError
    assert (error.response.status_code, error.response.text) == (404, "not yet")
    assert error.response.request.url == f"{loopback.url}/"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("hold_body", [10, 10_000])
def test_a_compressed_body_is_decoded_as_ever(
    loopback: Server, status: int, chunked: bool, stream: bool, hold_body: int
) -> None:
    packed = gzip.compress(b"much " * 1000)
    headers = {"Content-Encoding": "gzip"}
    loopback.script(Stream([packed[:9], packed[9:]], status=status, headers=headers) if chunked else
                    Reply(status, headers, packed))  # fmt: skip
    with session_with(hold_body=hold_body) as session:
        assert session.get(loopback.url, stream=stream).content == b"much " * 1000
        assert session.get(loopback.url, stream=True).raw.read() == packed
        assert session.get(loopback.url, stream=True).raw.read(10, decode_content=True) == b"much much "


def test_a_compressed_failure_can_be_read_in_the_error(loopback: Server) -> None:
    loopback.script(Reply(503, {"Content-Encoding": "gzip"}, gzip.compress(b"why")))
    with session_with(max_attempts=1) as session, pytest.raises(ours.RetriesExhausted) as caught:
        session.get(loopback.url)
    assert caught.value.response.text == "why"


@pytest.mark.parametrize(("status", "hold_body"), [(200, 100), (404, 100), (200, 0)])
def test_a_body_that_can_not_be_unpacked_is_an_error_of_requests(loopback: Server, status: int, hold_body: int) -> None:
    loopback.script(Reply(status, {"Content-Encoding": "gzip"}, b"this is no gzip"))
    with session_with(hold_body=hold_body) as session:
        with pytest.raises(requests.exceptions.ContentDecodingError):
            session.get(loopback.url)
        assert free(session, loopback.url)


@pytest.mark.parametrize("status", [200, 404, 503])
def test_an_answer_to_head_has_a_length_and_no_body(loopback: Server, status: int) -> None:
    loopback.script(Reply(status, body="x" * 5000))
    with session_with(reraise=True, max_attempts=2) as session:
        response = session.head(loopback.url)
        assert (response.status_code, response.headers["content-length"], response.content) == (status, "5000", b"")
        assert free(session, loopback.url)
    assert loopback.connections == 1


def test_a_connection_that_changes_its_protocol_stays_open() -> None:
    async def echo(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.send(b"HTTP/1.1 101 Echo\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        while said := await line.reader.read(100):
            await line.send(said.upper())

    with Server(Talk(echo)) as server, session_with() as session:
        response = session.get(server.url, headers={"connection": "upgrade", "upgrade": "echo"}, stream=True)
        assert response.status_code == 101
        assert free(session, server.url)
        for word in (b"one", b"two"):
            response.raw.connection.sock.sendall(word)
            assert response.raw.connection.sock.recv(100) == word.upper()
        response.close()


def test_an_answer_is_the_callers_own_as_without_us(loopback: Server) -> None:
    loopback.script(Reply(503), Reply(body=b"\xfc", headers={"Content-Type": "text/plain; charset=latin-1"}))
    with session_with(idempotency_key=True, attempt_header="x-attempt") as session:
        request = session.prepare_request(requests.Request("POST", loopback.url, json={"a": 1}))
        before = dict(request.headers)
        response = session.send(request)
        assert response.request is request
        assert dict(request.headers) == before
        assert response.connection is session.adapter
        assert (response.text, response.reason, response.url) == ("ü", "OK", f"{loopback.url}/")
        assert (response.raw.status, response.raw.version, response.raw.headers["content-length"]) == (200, 11, "1")
        again = pickle.loads(pickle.dumps(response))
        assert (again.text, again.status_code) == ("ü", 200)


# ---- which requests are sent again -----------------------------------------------------------------------------------


def test_a_post_that_was_answered_503_is_not_sent_again_and_that_is_told(
    loopback: Server, caplog: pytest.LogCaptureFixture
) -> None:
    loopback.script(Reply(503, body="busy"), Reply(body="ordered twice"))
    with session_with() as session, record_events() as events, caplog.at_level(logging.WARNING, "forbear"):
        response = session.post(loopback.url, data=b"order")
    assert (response.status_code, response.text, response.forbear.attempts) == (503, "busy", 1)
    assert len(loopback.requests) == 1
    assert [end.reason for end in events.ends] == ["unsafe"]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "forbear"]
    assert "not retried" in line
    assert "Idempotency-Key" in line


@pytest.mark.parametrize("how", ["option", "named", "header", "idempotent"])
def test_a_post_with_a_key_is_sent_again_with_the_same_key(loopback: Server, how: str) -> None:
    loopback.script(Reply(503), Reset(), Reply(body="ordered"))
    options: dict[str, Any] = {
        "option": {"idempotency_key": True}, "named": {"idempotency_key": "X-Once"}, "idempotent": {"idempotent": True},
    }.get(how, {})  # fmt: skip
    headers = {"idempotency-key": "mine"} if how == "header" else {}
    with session_with(**options) as session:
        assert session.post(loopback.url, data=b"order", headers=headers).text == "ordered"
        session.post(loopback.url, data=b"another", headers=headers)
    *first, other = [request.header("X-Once" if how == "named" else "Idempotency-Key") for request in loopback.requests]
    assert len(first) == 3
    assert len(set(first)) == 1
    assert {"header": first[0] == other == "mine", "idempotent": other is None}.get(how, first[0] != other)


def test_idempotent_false_forbids_it_for_all(loopback: Server) -> None:
    loopback.script(Reply(503))
    with session_with(idempotent=False) as session:
        assert session.get(loopback.url).status_code == 503
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("retries", [5, "everything"])
@pytest.mark.parametrize("step", [Reply(503, {"Retry-After": "0"}), Close()], ids=repr)
def test_the_retries_of_urllib3_are_off(loopback: Server, retries: Any, step: Any) -> None:
    if retries == "everything":
        retries = urllib3.Retry(5, status_forcelist=[503], allowed_methods=None, backoff_factor=0)
    loopback.script(step)
    inner = requests.adapters.HTTPAdapter(max_retries=retries)
    with session_with(inner, max_attempts=2) as session, pytest.raises(ours.RetriesExhausted):
        session.get(loopback.url)
    assert len(loopback.requests) == 2


def test_urllib3_does_not_try_to_connect_again_either(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    connect = urllib3.util.connection.create_connection
    monkeypatch.setattr(
        urllib3.util.connection, "create_connection", lambda *args, **more: made.append(args) or connect(*args, **more)
    )
    inner = requests.adapters.HTTPAdapter(max_retries=5)
    with refused() as address, session_with(inner, max_attempts=2) as session, pytest.raises(ours.RetriesExhausted):
        session.get(f"http://{address}")
    assert len(made) == 2


# ---- time ------------------------------------------------------------------------------------------------------------


async def drip_body(line: Line, tls: Any) -> None:
    await secured(line, tls)
    await line.reader.readuntil(b"\r\n\r\n")
    await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n")
    await drip(line)


async def drip_chunk(line: Line, tls: Any) -> None:
    await secured(line, tls)
    await line.reader.readuntil(b"\r\n\r\n")
    await line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc8\r\n")
    await drip(line)


async def secured(line: Line, tls: Any) -> None:
    if tls is not None:
        await line.secure(tls)


async def drip(line: Line) -> None:
    for _ in range(200):
        await line.send(b"x")
        await asyncio.sleep(0.05)


STEPS: dict[str, Any] = {
    "silence": Hang(),
    "a head that drips": Reply(body="x", drip=0.05),  # about 100 bytes
    "chunks that drip": Stream([b"x", 0.05] * 200),
}
TALKS = {"a body that drips": drip_body, "one chunk that drips": drip_chunk}
DRIPS = [*STEPS, *TALKS]


def dripping(name: str, tls: Any = None) -> Any:
    return STEPS[name] if name in STEPS else Talk(lambda line: TALKS[name](line, tls))


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("name", DRIPS)
def test_an_answer_that_never_ends_ends_at_the_deadline(name: str, secure: bool, request: Any) -> None:
    authority = request.getfixturevalue("authority") if secure else None
    tls = None if authority is None else authority.context()
    with Server(dripping(name, tls), tls=tls) as server, session_with(deadline=0.25) as session:
        began = time.monotonic()
        with pytest.raises(requests.Timeout) as caught:
            session.get(server.url, timeout=LONG, verify=True if authority is None else str(authority.bundle))
        assert 0.2 <= time.monotonic() - began < 2
        assert isinstance(caught.value, ours.DeadlineExceeded)
        assert isinstance(caught.value.last_error, requests.exceptions.ReadTimeout)
        assert free(session, server.url)


@pytest.mark.parametrize("name", ["silence", "a head that drips", "a body that drips"])
def test_an_attempt_that_takes_too_long_is_cut_and_another_one_follows(name: str) -> None:
    with Server(dripping(name), Reply(body="well")) as server, session_with(attempt_timeout=0.3) as session:
        began = time.monotonic()
        assert session.get(server.url).text == "well"
        assert time.monotonic() - began < 2


def test_a_connection_that_was_made_before_reads_in_time_too(loopback: Server) -> None:
    loopback.script(Reply(), Reply(drip=0.05))
    with closing(requests.Session()) as given:
        given.get(loopback.url)
        began = time.monotonic()
        with pytest.raises(requests.exceptions.ReadTimeout):
            ours.sole_owner(given, deadline=0.4).get(loopback.url)
        assert time.monotonic() - began < 2
    assert loopback.connections == 1


@pytest.mark.parametrize("pause", [0.02, SLOW], ids=["by and by", "not at all"])
def test_a_request_that_is_taken_slowly_is_cut_too(pause: float) -> None:
    async def take(line: Line) -> None:
        line.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        while await line.reader.read(16_384):
            await asyncio.sleep(pause)

    with Server(Talk(take)) as server, session_with(deadline=0.4) as session:
        began = time.monotonic()
        with pytest.raises(requests.RequestException):
            session.put(server.url, data=(b"x" * 65_536 for _ in range(300)))
        assert time.monotonic() - began < 2


def test_the_deadline_block_around_it_binds(loopback: Server) -> None:
    loopback.script(Hang())
    with session_with() as session:
        began = time.monotonic()
        with pytest.raises(forbear.DeadlineExceeded), deadline(0.3):
            session.get(loopback.url)
        assert time.monotonic() - began < 2
    assert loopback.requests[0].header("X-Request-Deadline") is not None


class Noting(requests.adapters.BaseAdapter):
    """An adapter without urllib3: it notes what it is given, and answers from a list."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers) or [200]
        self.noted: list[dict[str, Any]] = []
        self.closed = False

    def send(self, request: Any, **options: Any) -> Any:
        attempt = current_attempt()
        assert attempt is not None
        self.noted.append({"request": request, "left": attempt.timeout, **options})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, int):
            return answer()
        response = requests.Response()
        response.status_code = answer
        response.raw = BytesIO(b"a file")
        response.url = request.url
        return response

    def close(self) -> None:
        self.closed = True


def test_each_attempt_gets_the_time_that_is_left() -> None:
    inner = Noting(requests.exceptions.ConnectTimeout(), requests.exceptions.ConnectTimeout(), 200)
    with FakeTime(), session_with(inner, deadline=10, base=2.0, cap=2.0, jitter="none") as session:
        assert session.get("http://a.example").text == "a file"
        assert [noted["timeout"] for noted in inner.noted] == pytest.approx([10, 8, 6])


@pytest.mark.parametrize(
    ("given", "left", "used"),
    [
        (None, None, None),
        (None, 3.0, 3.0),
        (5, 3.0, 3.0),
        (1, 3.0, 1),
        (5, None, 5),
        ((1, 5), 3.0, (1, 3.0)),
        ((None, 2), 3.0, (3.0, 2)),
        (5, 0.0, 0.001),
        ("5", 3.0, "5"),
    ],
)
def test_a_timeout_is_never_longer_than_the_time_left(given: Any, left: float | None, used: Any) -> None:
    assert sending.within(given, left) == used


def test_a_timeout_of_urllib3_is_taken_too() -> None:
    given = urllib3.Timeout(connect=1, read=9)
    used = sending.within(given, 3.0)
    assert (used.connect_timeout, used.total, given.total) == (1, 3.0, None)
    assert sending.within(urllib3.Timeout(total=2), 3.0).total == 2
    with Server(Hang()) as server, session_with(deadline=0.3) as session:
        began = time.monotonic()
        with pytest.raises(ours.DeadlineExceeded):
            session.get(server.url, timeout=urllib3.Timeout(connect=LONG, read=LONG))
        assert time.monotonic() - began < 2


def test_a_timeout_that_makes_no_sense_is_told_by_requests(loopback: Server) -> None:
    with session_with() as session:
        for nonsense in ("x", (1, 2, 3), 0):
            with pytest.raises(ValueError, match=r"(?i)timeout"):
                session.get(loopback.url, timeout=nonsense)


def test_connections_cut_in_an_answer_do_not_fill_the_pool(loopback: Server) -> None:
    small = requests.adapters.HTTPAdapter(pool_maxsize=1, pool_block=True)
    with session_with(small, deadline=0.02, upstream=None) as session:
        for step in (Hang(), Stream([b"x"], ends="hang")):
            loopback.script(step)
            for _ in range(25):
                with pytest.raises(requests.Timeout):
                    session.get(loopback.url)
        loopback.script(Reply(body="well"))
        loopback.wait_until_idle()
        assert threading.active_count() < 20
        session.mount("http://", Adapter(small, deadline=SLOW))
        assert session.get(loopback.url).text == "well"  # the pool's only place is free
        assert idle(session, loopback) == 1


# ---- bodies that the caller reads ------------------------------------------------------------------------------------


def read_all(response: Any) -> None:
    assert b"".join(response.iter_content(2)) == b"onetwo"


def read_raw(response: Any) -> None:
    assert response.raw.read() == b"onetwo"


def leave(response: Any) -> None:
    with response:
        next(response.iter_content(1))


def close(response: Any) -> None:
    response.close()


@pytest.mark.parametrize("end", [read_all, read_raw, leave, close])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_lease_is_held_until_the_body_is_read_or_closed(
    loopback: Server, chunked: bool, end: Callable[[Any], None]
) -> None:
    loopback.script(Stream([b"one", b"two"]) if chunked else Reply(body=b"onetwo"))
    with session_with(hold_body=3) as session:
        response = session.get(loopback.url, stream=True)
        assert (response.status_code, response.forbear.attempts) == (200, 1)
        assert in_flight(session, loopback) == 1
        end(response)
        assert free(session, loopback.url)
        assert pools(session)[0].pool.full()  # a place that is lost is lost for ever
        if end in (read_all, read_raw):
            assert idle(session, loopback) == 1
        loopback.wait_until_idle(kept=1 if end in (read_all, read_raw) or not chunked else 0)


def test_a_lease_ends_with_the_response_that_nobody_has_any_more(loopback: Server) -> None:
    loopback.script(Stream([b"one", b"two"], ends="hang"))
    with session_with() as session:
        gc.disable()
        try:
            response = session.get(loopback.url, stream=True)
            assert in_flight(session, loopback) == 1
            del response
            assert free(session, loopback.url)
        finally:
            gc.enable()
        loopback.wait_until_idle()


def test_a_lease_ends_with_the_last_byte_where_the_length_is_known(loopback: Server) -> None:
    loopback.script(Reply(body=b"onetwo"))
    with session_with(hold_body=3) as session:
        response = session.get(loopback.url, stream=True)
        assert response.raw.read(6) == b"onetwo"
        assert free(session, loopback.url)
        assert idle(session, loopback) == 1
        assert response.raw.read(1) == b""


def test_what_is_sent_in_chunks_is_given_as_it_comes() -> None:
    go_on = threading.Event()

    async def talk(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await asyncio.to_thread(go_on.wait, SLOW)
        await line.send(b"4\r\n\ntwo\r\n0\r\n\r\n")

    for read in (
        lambda response: response.iter_content(None),
        lambda response: response.iter_content(3),
        lambda response: response.raw.stream(),
        lambda response: response.raw.read_chunked(),
    ):
        go_on.clear()
        with Server(Talk(talk)) as server, session_with() as session:
            pieces = read(session.get(server.url, stream=True))
            began = time.monotonic()
            assert next(pieces) == b"one"
            assert time.monotonic() - began < SLOW - 2
            go_on.set()
            assert b"".join(pieces) == b"\ntwo"
            assert free(session, server.url)


def test_chunks_are_given_whole() -> None:
    async def talk(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\none")
        await asyncio.sleep(0.05)
        await line.send(b"two\r\n5\r\nthree\r\n0\r\n\r\n")

    with Server(Talk(talk)) as server, session_with() as session:
        assert list(session.get(server.url, stream=True).iter_content(None)) == [b"onetwo", b"three"]


def test_lines_of_a_stream_are_read_as_ever(loopback: Server) -> None:
    loopback.script(Stream([b'{"a":', b'1}\n{"b"', b":2}\n"]))
    with session_with() as session:
        lines = list(session.get(loopback.url, stream=True).iter_lines())
    assert lines == [b'{"a":1}', b'{"b":2}']


def test_a_short_answer_is_read_inside_its_attempt_even_with_stream(loopback: Server) -> None:
    loopback.script(Cut("half", missing=4), Reply(body="whole"))
    with session_with() as session:
        response = session.get(loopback.url, stream=True)
        assert free(session, loopback.url)
        assert (response.raw.read(), response.forbear.attempts) == (b"whole", 2)


@pytest.mark.parametrize("step", [Cut("half", missing=4), Stream([b"half"], ends="close")], ids=repr)
def test_a_long_answer_is_the_same_with_and_without_stream(loopback: Server, step: Any) -> None:
    for stream in (True, False):
        loopback.script(step, Reply(body="whole"))
        with session_with(hold_body=0) as session:
            with pytest.raises(requests.exceptions.ChunkedEncodingError):
                _ = session.get(loopback.url, stream=stream).content
            assert free(session, loopback.url)
    assert len(loopback.requests) == 2


def test_without_stream_a_long_answer_may_take_longer_than_an_attempt(loopback: Server) -> None:
    seen: list[int] = []
    loopback.script(Stream([b"x" * 1000, 0.2] * 5))
    options: dict[str, Any] = {"attempt_timeout": 0.5, "deadline": LONG, "max_attempts": 3}
    with session_with(**options) as session:
        response = session.get(
            loopback.url, hooks={"response": lambda *_, **__: seen.append(in_flight(session, loopback))}
        )
        assert response.content == b"x" * 5000
        assert response.forbear.attempts == 1
        assert seen == [1]  # its lease is held while it is read
        assert free(session, loopback.url)
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [200, 404])
def test_a_held_answer_that_stands_still_is_left_for_another_attempt(status: int, stream: bool) -> None:
    async def talk(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.send(f"HTTP/1.1 {status} X\r\nContent-Length: 9\r\n\r\nbyte".encode())
        await asyncio.sleep(10)

    options: dict[str, Any] = {"attempt_timeout": None, "gap_timeout": 0.3, "deadline": 3, "max_attempts": 2}
    with Server(Talk(talk)) as server, session_with(**options) as session:
        began = time.monotonic()
        with pytest.raises(ours.RetriesExhausted) as caught:
            session.get(server.url, stream=stream)
        assert 0.55 < time.monotonic() - began < 2
        assert type(caught.value.last_error) is requests.exceptions.ReadTimeout
        assert server.connections == 2
        assert free(session, server.url)


def test_json_without_a_length_is_held_where_that_is_asked_for(loopback: Server) -> None:
    headers = {"Content-Type": "application/json"}
    loopback.script(Stream([b"[1"], ends="close", headers=headers), Stream([b"[1]"], headers=headers))
    with session_with(hold_json=True) as session:
        assert session.get(loopback.url, stream=True).json() == [1]
    assert len(loopback.requests) == 2


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (Stream([b"one"], ends="close"), "ChunkedEncodingError"),
        (Stream([b"one"], ends="reset"), "ChunkedEncodingError"),
        (Cut("one", missing=9), "ChunkedEncodingError"),
        (Stream([b"one"], ends="hang"), "ConnectionError"),
    ],
    ids=repr,
)
def test_a_body_that_breaks_later_raises_the_usual_error(loopback: Server, step: Any, kind: str) -> None:
    loopback.script(step)
    with session_with(hold_body=0) as session:
        response = session.get(loopback.url, stream=True, timeout=0.3)
        got: list[bytes] = []
        with pytest.raises(requests.RequestException) as caught:
            got.extend(response.iter_content(3))
        assert type(caught.value) is getattr(requests.exceptions, kind)
        assert got == [b"one"]
        assert free(session, loopback.url)
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("name", ["chunks that drip", "a body that drips", "one chunk that drips"])
def test_the_body_that_the_caller_reads_ends_at_the_deadline(name: str) -> None:
    with Server(dripping(name)) as server, session_with(hold_body=0, deadline=0.5) as session:
        began = time.monotonic()
        response = session.get(server.url, stream=True)
        with pytest.raises(requests.Timeout) as caught:
            for _ in response.iter_content(1):
                pass
        assert time.monotonic() - began < 2
        assert isinstance(caught.value, ours.DeadlineExceeded)
        assert free(session, server.url)


@pytest.mark.parametrize("option", ["gap_timeout", "total_timeout"])
def test_the_clocks_of_a_stream_hold_and_are_a_read_timeout(loopback: Server, option: str) -> None:
    loopback.script(Stream([b"one"], ends="hang"))
    with session_with(**{option: 0.3}) as session:
        began = time.monotonic()
        response = session.get(loopback.url, stream=True)
        with pytest.raises(requests.exceptions.ReadTimeout) as caught:
            list(response.iter_content(1))
        assert type(caught.value) is requests.exceptions.ReadTimeout
        assert time.monotonic() - began < 2


class Slow(BytesIO):
    """A body of which each piece takes three seconds."""

    def __init__(self, clock: FakeTime, pieces: int) -> None:
        super().__init__(b"x" * 10 * pieces)
        self._clock = clock

    def read1(self, size: int | None = -1, /) -> bytes:
        piece = super().read1(10)
        self._clock.advance(3 if piece else 0)
        return piece

    def answer(self) -> Any:
        response = requests.Response()
        response.status_code = 200
        response.headers["content-length"] = str(len(self.getvalue()))
        response.raw = urllib3.HTTPResponse(
            self, response.headers, 200, preload_content=False, decode_content=False, enforce_content_length=True
        )
        return response


@pytest.mark.parametrize("stream", [False, True])
def test_what_ends_in_time_is_whole_and_what_goes_on_is_late(stream: bool) -> None:
    for pieces in (1, 2):
        with FakeTime() as clock, session_with(Noting(Slow(clock, pieces).answer), deadline=5, hold_body=9) as session:
            assert len(session.get("http://a.example", stream=stream).content) == 10 * pieces
            assert free(session, "http://a.example")
    with FakeTime() as clock, session_with(Noting(Slow(clock, 3).answer), deadline=5, hold_body=9) as session:
        with pytest.raises(ours.DeadlineExceeded):
            _ = session.get("http://a.example", stream=stream).content
        assert free(session, "http://a.example")


@pytest.mark.parametrize(
    ("option", "kind"),
    [("deadline", ours.DeadlineExceeded), ("total_timeout", requests.exceptions.ReadTimeout)],
)
def test_a_body_that_is_asked_for_too_late_is_a_timeout(loopback: Server, option: str, kind: Any) -> None:
    loopback.script(Stream([b"one", b"two"]))
    with FakeTime() as clock, session_with(**{option: 5}) as session:
        response = session.get(loopback.url, stream=True)
        clock.advance(6)
        with pytest.raises(requests.Timeout) as caught:
            _ = response.content
        assert type(caught.value) is kind
        assert free(session, loopback.url)


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of failures a little is read."""
    monkeypatch.setattr(exchange, "HOLD_FAILURE", 1_000)


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_that_is_far_too_long_is_left_alone_and_the_call_goes_on(loopback: Server, stream: bool) -> None:
    loopback.script(Reply(503, body=b"x" * 500_000), Reply(body="well"))
    with session_with(hold_body=100) as session:
        assert session.get(loopback.url, stream=stream).text == "well"
        loopback.wait_until_idle(kept=1)


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize(("status", "attempts"), [(503, 2), (404, 1)])
def test_one_that_is_handed_out_is_cut_and_says_so(loopback: Server, status: int, attempts: int) -> None:
    loopback.script(Reply(status, body=b"x" * 500_000))
    with session_with(hold_body=100, max_attempts=2, reraise=True) as session:
        response = session.get(loopback.url, stream=True)
        assert (response.status_code, response.forbear.attempts) == (status, attempts)
        assert response.raw.read(50) == b"x" * 50
        with pytest.raises(requests.ConnectionError, match="longer than 1,000 bytes"):
            list(response.iter_content(1000))
        with pytest.raises(requests.ConnectionError, match="longer than 1,000 bytes"):
            session.get(loopback.url)
        assert free(session, loopback.url)


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("size", [900, 500_000])
def test_a_rule_of_the_callers_own_is_asked_of_a_long_failure_too(loopback: Server, size: int) -> None:
    seen: list[bytes] = []

    def rule(error: Any) -> bool:
        seen.append(error.response.content[:1])
        return True

    loopback.script(Reply(404, body=b"x" * size), Reply(body="well"))
    with session_with(hold_body=100, retryable=rule) as session:
        assert session.get(loopback.url, stream=True).text == "well"
    assert seen == [b"x"]


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_response_can_be_closed_while_another_thread_reads(secure: bool, chunked: bool, request: Any) -> None:
    authority = request.getfixturevalue("authority") if secure else None
    tls, begun, ended = None if authority is None else authority.context(), threading.Event(), list[BaseException]()

    async def talk(line: Line) -> None:
        await secured(line, tls)
        await line.reader.readuntil(b"\r\n\r\n")
        length = b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n" if chunked else b"Content-Length: 9\r\n\r\nx"
        await line.send(b"HTTP/1.1 200 OK\r\n" + length)
        await asyncio.sleep(LONG)

    def read(response: Any) -> None:
        try:
            for _ in response.iter_content(1):
                begun.set()
        except requests.RequestException as error:
            ended.append(error)

    with Server(Talk(talk), tls=tls) as server, session_with(hold_body=0, deadline=LONG) as session:
        response = session.get(server.url, stream=True, verify=True if authority is None else str(authority.bundle))
        reader = threading.Thread(target=read, args=(response,))
        reader.start()
        assert begun.wait(SLOW)
        time.sleep(0.1)  # until it waits for more
        response.close()
        reader.join(SLOW)
        assert not reader.is_alive()
        assert [type(error) for error in ended] == [requests.exceptions.ChunkedEncodingError]
        assert free(session, server.url)


def test_another_error_of_closing_is_not_swallowed() -> None:
    def chunks() -> Iterator[bytes]:
        try:
            yield b"one"
        finally:
            raise ValueError("of another kind")

    rest = sending.Rest(chunks(), lambda error: error, None)
    assert rest.read(1) == b"o"
    with pytest.raises(ValueError, match="of another kind"):
        rest.close()


@pytest.mark.parametrize("size", [99, 100, 101, 70_000, 300_000])
@pytest.mark.parametrize("status", [200, 404])
def test_a_body_is_the_same_however_it_is_read(loopback: Server, size: int, status: int) -> None:
    body = bytes(at % 251 for at in range(size))
    with session_with(hold_body=100) as session:
        for step in (Reply(status, body=body), Stream([body[:50], body[50:]], status=status)):
            loopback.script(step)
            assert session.get(loopback.url).content == body
            assert session.get(loopback.url, stream=True).content == body
            assert b"".join(session.get(loopback.url, stream=True).iter_content(7000)) == body
            assert session.get(loopback.url, stream=True).raw.read() == body
            raw = session.get(loopback.url, stream=True).raw
            assert b"".join(iter(lambda: raw.read(999), b"")) == body  # noqa: B023
            assert free(session, loopback.url)
    assert loopback.connections == 1


# ---- what the server is told -----------------------------------------------------------------------------------------


def test_the_server_is_told_until_when_somebody_waits_and_how_often_it_was_asked(loopback: Server) -> None:
    loopback.script(Reply(503), Reply())
    with session_with(deadline=60, attempt_header="x-retry-count") as session:
        session.get(loopback.url)
        told = [datetime.fromisoformat(str(request.header("X-Request-Deadline"))) for request in loopback.requests]
        assert all(50 < instant.timestamp() - time.time() <= 60 for instant in told)
        assert [request.header("x-retry-count") for request in loopback.requests] == ["0", "1"]
        session.get(loopback.url, headers={"x-request-deadline": "mine"})
        assert loopback.requests[-1].header("X-Request-Deadline") == "mine"
    with session_with(deadline=60, deadline_header="grpc-timeout") as session:
        session.get(loopback.url)
        assert str(loopback.requests[-1].header("grpc-timeout"))[-1] in "mu"
        assert loopback.requests[-1].header("X-Request-Deadline") is None
    with session_with(deadline=60, deadline_header=None) as session:
        session.get(loopback.url)
        assert loopback.requests[-1].header("X-Request-Deadline") is None


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_an_open_circuit_is_a_connection_error_of_requests(loopback: Server) -> None:
    loopback.script(Reply(500))
    with session_with(breaker=CircuitBreaker(1, 60), max_attempts=1) as session:
        with pytest.raises(ours.RetriesExhausted):
            session.get(loopback.url)
        with pytest.raises(requests.ConnectionError) as caught:
            session.get(f"{loopback.url}/two")
    assert caught.value.__cause__ is None
    error = caught.value
    assert isinstance(error, ours.CircuitOpenError)
    assert isinstance(error, forbear.CircuitOpenError)
    assert (error.response, error.request.url) == (None, f"{loopback.url}/two")
    assert len(loopback.requests) == 1
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(again), str(again), again.retry_in, again.name) == (
            type(error), str(error), error.retry_in, error.name,
        )  # fmt: skip


def test_a_circuit_that_opens_between_attempts_tells_why(loopback: Server) -> None:
    loopback.script(Reply(500))
    with session_with(breaker=CircuitBreaker(1, 60)) as session, pytest.raises(ours.CircuitOpenError) as caught:
        session.get(loopback.url)
    assert isinstance(caught.value.__cause__, requests.HTTPError)


def test_an_empty_budget_is_a_retry_error_of_requests(loopback: Server) -> None:
    loopback.script(Reply(503))
    empty = RetryBudget(initial=0)
    with session_with(budget=empty) as session, pytest.raises(requests.exceptions.RetryError) as caught:
        session.get(loopback.url)
    assert isinstance(caught.value, ours.BudgetExhausted)
    assert isinstance(caught.value, forbear.BudgetExhausted)
    assert caught.value.response.status_code == 503


@pytest.mark.parametrize("kind", ["RetriesExhausted", "DeadlineExceeded", "BudgetExhausted"])
def test_errors_survive_pickle_and_copy(loopback: Server, kind: str) -> None:
    loopback.script(Reply(503, {"Retry-After": "9"} if kind == "DeadlineExceeded" else (), body="busy"))
    options: dict[str, Any] = {
        "RetriesExhausted": {"max_attempts": 2}, "DeadlineExceeded": {"deadline": 5},
        "BudgetExhausted": {"budget": RetryBudget(initial=0)},
    }[kind]  # fmt: skip
    with session_with(**options) as session, pytest.raises(requests.RequestException) as caught:
        session.get(loopback.url)
    error = caught.value
    assert type(error) is getattr(ours, kind)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert (str(again), again.reason, again.attempts, again.history) == (
            str(error), error.reason, error.attempts, error.history,
        )  # fmt: skip
        assert (again.response.status_code, again.response.text) == (503, "busy")
        assert again.request.url == f"{loopback.url}/"


def test_an_error_that_had_no_answer_has_none() -> None:
    error = ours.DeadlineExceeded("deadline", 0, None)
    assert (error.response, error.request) == (None, None)
    assert isinstance(error, (requests.Timeout, OSError))


def test_with_reraise_the_error_is_that_of_requests(loopback: Server) -> None:
    loopback.script(Close())
    with session_with(reraise=True, max_attempts=2) as session, pytest.raises(requests.ConnectionError) as caught:
        session.get(loopback.url)
    assert type(caught.value) is requests.ConnectionError
    assert "gave up after attempt 2" in caught.value.__notes__[0]
    loopback.script(Hang())
    with session_with(reraise=True, deadline=0.2) as session, pytest.raises(requests.exceptions.ReadTimeout):
        session.get(loopback.url)


# ---- what a session does ---------------------------------------------------------------------------------------------


def test_redirects_and_cookies_are_those_of_the_session(loopback: Server) -> None:
    def answer(request: Request) -> Reply:
        if request.path == "/":
            return Reply(302, {"Location": "/there", "Set-Cookie": "seen=yes"})
        return Reply(body=request.header("cookie") or "", headers={"Set-Cookie": "more=1"})

    with session_with() as session:
        for stream in (False, True):
            loopback.script(Reply(503), Choose(answer), Reply(503), Choose(answer))
            response = session.get(loopback.url, stream=stream)
            assert "seen=yes" in response.text
            assert [(step.status_code, step.forbear.attempts) for step in response.history] == [(302, 2)]
            assert response.forbear.attempts == 2
            assert dict(session.cookies) == {"seen": "yes", "more": "1"}
        loopback.script(Choose(answer))
        assert session.get(loopback.url, allow_redirects=False).status_code == 302
        assert session.get(loopback.url, allow_redirects=False).next.url == f"{loopback.url}/there"


def test_hooks_run_once_for_an_answer_and_digest_auth_goes_the_same_way(loopback: Server) -> None:
    def answer(request: Request) -> Reply:
        if (request.header("authorization") or "").startswith("Digest"):
            return Reply(body="in")
        return Reply(401, {"WWW-Authenticate": 'Digest realm="r", nonce="n", qop="auth"'})

    seen: list[int] = []
    loopback.script(Reply(503), Choose(answer), Reply(503), Choose(answer))
    with session_with() as session:
        session.hooks["response"].append(lambda response, **_: seen.append(response.status_code))
        response = session.get(loopback.url, auth=requests.auth.HTTPDigestAuth("me", "pass"))
        assert (response.text, response.forbear.attempts) == ("in", 2)
    assert seen == [200]
    assert len(loopback.requests) == 4


def test_a_proxy_is_used_as_ever(loopback: Server) -> None:
    loopback.script(Reply(503), Reply(body="by proxy"))
    with session_with() as session:
        assert session.get("http://far.example/x", proxies={"http": loopback.url}).text == "by proxy"
    assert [request.path for request in loopback.requests] == ["http://far.example/x"] * 2


def test_closing_the_session_closes_the_inner_adapter() -> None:
    inner = Noting()
    with session_with(inner):
        assert not inner.closed
    assert inner.closed


def test_any_other_adapter_can_be_inside() -> None:
    def read_already() -> Any:
        response = requests.Response()
        response.status_code, response._content, response._content_consumed = 200, b"cached", True
        return response

    def read_from_a_connection() -> Any:
        response = read_already()
        response.raw = urllib3.HTTPResponse(BytesIO(), status=200, preload_content=False)
        return response

    failing = Noting(503, requests.ConnectionError("lost"), 200)
    with session_with(failing) as session:
        response = session.get("http://a.example")
        assert (response.content, response.forbear.attempts) == (b"a file", 3)
    for stream in (False, True):
        for answer in (read_already, read_from_a_connection):
            with session_with(Noting(answer)) as session:
                response = session.get("http://a.example", stream=stream)
                assert free(session, "http://a.example")
                assert response.content == b"cached"
        with session_with(Noting(503)) as session, pytest.raises(ours.RetriesExhausted) as caught:
            session.get("http://a.example", stream=stream)
        assert caught.value.response.content == b"a file"


def test_a_pool_whose_kind_of_connection_was_replaced_keeps_it(loopback: Server, monkeypatch: Any) -> None:
    with session_with() as session:
        session.get(loopback.url)
        (pool,) = pools(session)
        assert issubclass(pool.ConnectionCls, urllib3.connection.HTTPConnection)
        recorder = type("Recorder", (), {})
        monkeypatch.setattr(type(pool), "ConnectionCls", recorder)
        sending.clip_pool(pool)
        assert pool.ConnectionCls is recorder
        mine = type("Mine", (urllib3.connection.HTTPConnection,), {})
        pool.ConnectionCls = mine
        sending.clip_pool(pool)
        assert pool.ConnectionCls is mine


def test_one_adapter_serves_sixteen_threads(loopback: Server) -> None:
    def answer(request: Request) -> Any:
        return Reply(503) if request.header("x-retry-count") == "0" else Reply(body=request.path)

    loopback.script(Choose(answer))
    with session_with(attempt_header="x-retry-count", budget=None, upstream=None) as session:

        def ask(number: int) -> str:
            return session.get(f"{loopback.url}/{number}", stream=number % 2 == 0).text  # type: ignore[no-any-return]

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(ask, range(160))) == [f"/{number}" for number in range(160)]
    assert len(loopback.requests) == 320


def test_requests_to_one_origin_share_its_guards_and_others_do_not(loopback: Server) -> None:
    shared = Upstream("all", max_concurrency=1)
    with session_with(upstream=shared) as session:
        assert session.adapter.upstream_of("https://a.example") is shared
    with session_with() as session:
        of = session.adapter.upstream_of
        assert of("https://a.example/x?y") is of("https://user:secret@A.example:443/")
        assert of("https://a.example") is not of("http://a.example")
        assert of("https://a.example:8443") is not of("https://a.example")
        assert of("http://[::1]:80/") is of("http://[::1]/x")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"hedge": True}, TypeError), ({"max_retries": 3}, TypeError), ({"hold_body": -1}, ValueError),
        ({"idempotency_key": "a b"}, ValueError), ({"upstream": 3}, ValueError), ({"deadline_header": ""}, ValueError),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused_at_once(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Adapter(**options)


@pytest.mark.parametrize("mistake", [requests.Session(), requests.adapters.HTTPAdapter, "https://", object()], ids=type)
def test_what_is_no_adapter_is_refused_with_the_correction(mistake: Any) -> None:
    with pytest.raises(TypeError, match=r"Adapter\(HTTPAdapter\(\)\).*sole_owner\(session\)"):
        Adapter(mistake)


def test_a_class_where_an_adapter_belongs_is_told_so() -> None:
    with requests.Session() as session:
        session.adapters["http://"] = Adapter
        with pytest.raises(TypeError, match=r"Adapter\(\)"):
            session.get("http://a.example")
        del session.adapters["http://"]


# ---- sessions that exist already -------------------------------------------------------------------------------------


class MySession(requests.Session):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.token = "mine"  # what `copy.copy` would lose


def test_a_session_gets_one_owner_of_its_retries(loopback: Server) -> None:
    loopback.script(Reply(503))
    with closing(MySession()) as given:
        retrying = requests.adapters.HTTPAdapter(max_retries=urllib3.Retry(2, status_forcelist=[503], backoff_factor=0))
        given.mount("http://", retrying)
        given.headers["X-From"] = "session"
        with ours.sole_owner(given, max_attempts=2, **QUICK) as session:
            response = session.get(loopback.url)
            assert (type(session), session.token, response.status_code) == (MySession, "mine", 503)
            assert response.forbear.attempts == 2
            assert [request.header("x-from") for request in loopback.requests] == ["session"] * 2
            session.cookies.set("a", "1")
            assert given.cookies["a"] == "1"
            assert (session.headers, session.hooks) == (given.headers, given.hooks)
            # The one that was given goes on as it was, over the same connections.
            assert given.adapters["http://"] is retrying
            with pytest.raises(requests.exceptions.RetryError):
                given.get(loopback.url)
            assert len(loopback.requests) == 5
            assert loopback.connections == 1


def test_adapters_are_wrapped_once() -> None:
    with closing(requests.Session()) as given:
        inner = requests.adapters.HTTPAdapter()
        given.mount("https://", inner)
        given.mount("https://a.example", inner)
        first = ours.sole_owner(given)
        again = ours.sole_owner(first)
        assert list(again.adapters) == list(given.adapters)
        assert all(isinstance(adapter, Adapter) for adapter in again.adapters.values())
        assert not any(isinstance(adapter.inner, Adapter) for adapter in again.adapters.values())
        assert again.adapters["https://"] is again.adapters["https://a.example"]
        assert again.adapters["https://"] is not again.adapters["http://"]
        assert again.adapters["https://"].inner.poolmanager is inner.poolmanager
        first.mount("ftp://", inner)
        assert "ftp://" not in given.adapters


def test_a_session_can_be_changed_in_place() -> None:
    with closing(requests.Session()) as session:
        inner = session.adapters["https://"]
        assert ours.own(session, {}, in_place=True) is session
        assert session.adapters["https://"].inner is inner


def test_a_client_around_a_session_that_repeats_by_itself_is_noticed(loopback: Server) -> None:
    loopback.script(Reply(503))
    with closing(requests.Session()) as session:
        ours.own(session, {"reraise": True, "max_attempts": 2, **QUICK}, in_place=True, watched="somebody.Client")
        session.get(loopback.url)
        with pytest.warns(forbear.NestedRetriesWarning, match=r"somebody\.Client"):
            session.get(loopback.url)


def test_only_a_session_can_be_owned() -> None:
    with pytest.raises(TypeError, match=r"requests\.Session"):
        ours.sole_owner(object())


class MyAdapter(Adapter):
    note = ""


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_an_adapter_that_is_copied_has_the_same_settings_and_its_own_state(loopback: Server, again: Any) -> None:
    inner = requests.adapters.HTTPAdapter(pool_maxsize=3)
    first = MyAdapter(inner, max_attempts=2, reraise=True, attempt_header="x-attempt", hold_body=5, **QUICK)
    first.note = "mine"
    copied = again(first)
    assert (type(copied), copied.note) == (MyAdapter, "mine")
    assert type(copied.inner) is requests.adapters.HTTPAdapter
    assert copied.inner._pool_maxsize == 3
    assert copied.upstream_of(loopback.url) is not first.upstream_of(loopback.url)
    loopback.script(Reply(503))
    with requests.Session() as session:
        session.mount("http://", copied)
        response = session.get(loopback.url)
    assert (response.status_code, response.forbear.attempts) == (503, 2)
    assert [request.header("x-attempt") for request in loopback.requests] == ["0", "1"]


def test_an_owned_session_can_be_pickled(loopback: Server) -> None:
    loopback.script(Reply(503))
    with closing(requests.Session()) as given:
        owned = ours.own(given, {"reraise": True, "max_attempts": 2, **QUICK}, watched="somebody.Client")
        with pickle.loads(pickle.dumps(owned)) as session:
            session.get(loopback.url)
            with pytest.warns(forbear.NestedRetriesWarning, match=r"somebody\.Client"):
                session.get(loopback.url)
    assert len(loopback.requests) == 4


def test_an_old_urllib3_is_told_so_when_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (urllib3.HTTPResponse, urllib3.response.BaseHTTPResponse):
        monkeypatch.delattr(kind, "read1")
    spec: Any = find_spec(sending.__name__)
    with pytest.raises(ImportError, match=r"needs urllib3 2\.2"):
        spec.loader.exec_module(module_from_spec(spec))
