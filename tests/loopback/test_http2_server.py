"""The scripted server speaks HTTP/2 as its script says, as seen by httpx and by a bare client that counts frames.

Proven: it is agreed on with or without TLS, many streams share a connection and one script, bodies keep to the windows,
each way to fail reaches the client on its stream or on the whole connection, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loopback import (
    Choose,
    Close,
    Cut,
    GoAway,
    Hang,
    RefuseStream,
    Reply,
    Reset,
    Server,
    Speak,
    Step,
    Stream,
    TurnAway,
)

h2 = pytest.importorskip("h2", reason="h2 is not installed")
import httpx  # noqa: E402
from h2.config import H2Configuration  # noqa: E402
from h2.connection import H2Connection  # noqa: E402
from h2.events import ConnectionTerminated, DataReceived, Event, StreamEnded  # noqa: E402
from h2.exceptions import InvalidBodyLengthError, ProtocolError  # noqa: E402

if TYPE_CHECKING:
    from loopback.certificates import Authority

SHORT = 0.2  # seconds a client waits for what never comes
WINDOW = 65_535  # bytes that may come before the receiver says that it has taken some
LARGE = bytes(range(256)) * 1_200  # 307,200 bytes, several windows
both = pytest.mark.parametrize("form", ["sync", "async"])


@pytest.fixture
def server() -> Iterator[Server]:
    """A running server that speaks HTTP/2 without TLS."""
    with Server(http2=True) as running:
        yield running


def options(**given: Any) -> dict[str, Any]:
    """A client that speaks HTTP/2 and nothing else, unless told otherwise."""
    return {"http1": False, "http2": True, "timeout": 10.0, "trust_env": False} | given


def fetch(form: str, server: Server, method: str = "GET", path: str = "/", content: Any = None, **given: Any) -> Any:
    """One request with a client of its own."""
    if form == "sync":
        with httpx.Client(**options(**given)) as client:
            return client.request(method, server.url + path, content=content)

    async def request() -> httpx.Response:
        async with httpx.AsyncClient(**options(**given)) as client:
            return await client.request(method, server.url + path, content=content)

    return asyncio.run(request())


def eventually(true: Callable[[], bool]) -> bool:
    """Whether it becomes true while we wait."""
    ends = time.monotonic() + 5
    while not true() and time.monotonic() < ends:
        time.sleep(0.002)
    return true()


class Bare:
    """A client that does only what it is told: it never takes data off the window by itself."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.h2 = H2Connection(H2Configuration())
        self.h2.initiate_connection()

    def say(self) -> None:
        self.line.sendall(self.h2.data_to_send())

    def get(self, stream: int) -> None:
        names = {":method": "GET", ":path": f"/{stream}", ":scheme": "http", ":authority": "127.0.0.1"}
        self.h2.send_headers(stream, list(names.items()), end_stream=True)
        self.say()

    def until(self, enough: Callable[[list[Event]], bool]) -> list[Event]:
        """What comes until it is enough."""
        heard: list[Event] = []
        while not enough(heard):
            data = self.line.recv(65_536)
            assert data, f"the server left, after {heard}"
            heard += self.h2.receive_data(data)
            self.say()
        return heard


@contextmanager
def bare(server: Server) -> Iterator[Bare]:
    with socket.create_connection(("127.0.0.1", server.port), 10) as line:
        yield Bare(line)


def size(events: list[Event]) -> int:
    return sum(len(event.data) for event in events if isinstance(event, DataReceived))


def frames(events: list[Event]) -> list[bytes]:
    return [bytes(event.data) for event in events if isinstance(event, DataReceived) and event.data]


def has(kind: type[Event], events: list[Event]) -> bool:
    return any(isinstance(event, kind) for event in events)


# ---- what is agreed on -----------------------------------------------------------------------------------------------


@both
def test_a_client_with_prior_knowledge_is_answered_and_logged(server: Server, form: str) -> None:
    server.script(Reply(429, [("Retry-After", "2"), ("X-A", "1"), ("X-A", "2")], {"a": 1}))
    answer = fetch(form, server, "PUT", "/p?q=1", b'{"b": 2}', headers={"X-Mark": "m"})
    assert (answer.http_version, answer.status_code, answer.json()) == ("HTTP/2", 429, {"a": 1})
    assert (answer.headers["retry-after"], answer.headers["x-a"]) == ("2", "1, 2")
    assert (answer.headers["content-type"], answer.headers["content-length"]) == ("application/json", "8")
    (logged,) = server.requests
    assert (logged.method, logged.path, logged.json(), logged.header("X-Mark")) == ("PUT", "/p?q=1", {"b": 2}, "m")
    assert (logged.connection, logged.stream, logged.header("Host")) == (1, 1, server.host)
    assert not any(name.startswith(":") for name, _ in logged.headers)


@both
def test_over_tls_each_connection_speaks_what_was_agreed_on(authority: Authority, form: str) -> None:
    trusting = ssl.create_default_context(cafile=str(authority.bundle))
    with Server(http2=True, tls=authority.context()) as server:
        found = [fetch(form, server, http1=True, http2=asked, verify=trusting) for asked in (True, False, True)]
    assert [answer.http_version for answer in found] == ["HTTP/2", "HTTP/1.1", "HTTP/2"]
    assert [(logged.connection, logged.stream) for logged in server.requests] == [(1, 1), (2, 0), (3, 1)]


@both
def test_over_tls_it_must_be_asked_for(authority: Authority, form: str) -> None:
    trusting = ssl.create_default_context(cafile=str(authority.bundle))
    with Server(tls=authority.context()) as server:
        assert fetch(form, server, http1=True, verify=trusting).http_version == "HTTP/1.1"


def test_h2_is_not_needed_where_http2_is_not_used() -> None:
    code = (
        "import sys, urllib.request; sys.modules['h2'] = None\n"
        "from loopback import Server\n"
        "with Server() as server: print(urllib.request.urlopen(server.url, timeout=10).status)\n"
        "print('loopback.http2' in sys.modules)\n"
    )
    folder = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder, env={"no_proxy": "*"}
    )
    assert done.stdout.split() == ["200", "False"]


# ---- many streams ----------------------------------------------------------------------------------------------------


def test_twenty_streams_at_once_share_a_connection(server: Server) -> None:
    server.script(Choose(lambda request: Reply(body=request.path, after=SHORT)))

    async def ask() -> list[str]:
        async with httpx.AsyncClient(**options()) as client:
            answers = await asyncio.gather(*(client.get(f"{server.url}/{number}") for number in range(20)))
        return [answer.text for answer in answers]

    begun = time.monotonic()
    assert asyncio.run(ask()) == [f"/{number}" for number in range(20)]
    assert time.monotonic() - begun < 10 * SHORT, "they were answered one after another"
    assert server.connections == 1
    assert sorted(logged.stream for logged in server.requests) == list(range(1, 40, 2))


def test_all_streams_take_their_steps_from_one_script(server: Server) -> None:
    server.script(Reply(503), Hang(), Reply(201), Reply(202))
    with bare(server) as client:
        for stream in (1, 3, 5, 7, 9):
            client.get(stream)
        heard = client.until(lambda events: sum(isinstance(event, StreamEnded) for event in events) == 4)
    answered = {event.stream_id: dict(event.headers)[b":status"] for event in heard if hasattr(event, "headers")}
    assert answered == {1: b"503", 5: b"201", 7: b"202", 9: b"202"}
    assert [(logged.path, logged.stream) for logged in server.requests] == [(f"/{at}", at) for at in (1, 3, 5, 7, 9)]


@pytest.mark.parametrize("step", [RefuseStream(), Reset(), Cut("part", reset=True), Stream([b"a"], ends="reset")])
@both
def test_a_stream_breaks_and_its_connection_is_kept(server: Server, form: str, step: Step) -> None:
    server.script(step, Reply(body="next"))

    async def ask() -> str:
        async with httpx.AsyncClient(**options()) as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(server.url)
            return (await client.get(server.url)).text

    if form == "async":
        assert asyncio.run(ask()) == "next"
    else:
        with httpx.Client(**options()) as client:
            with pytest.raises(httpx.RemoteProtocolError):
                client.get(server.url)
            assert client.get(server.url).text == "next"
    assert [(logged.connection, logged.stream) for logged in server.requests] == [(1, 1), (1, 3)]


# ---- large and slow bodies -------------------------------------------------------------------------------------------


@both
def test_large_bodies_come_whole_both_ways(server: Server, form: str) -> None:
    server.script(Choose(lambda request: Reply(body=request.body[::-1])))
    assert fetch(form, server, "POST", content=LARGE).content == LARGE[::-1]
    assert server.requests[0].body == LARGE


def test_no_more_is_sent_than_the_client_allows(server: Server) -> None:
    server.script(Reply(body=LARGE))
    with bare(server) as client:
        client.get(1)
        first = client.until(lambda events: size(events) >= WINDOW)
        client.line.settimeout(SHORT)
        with pytest.raises(TimeoutError):
            client.until(lambda events: size(events) > 0)
        client.line.settimeout(10)
        client.h2.increment_flow_control_window(len(LARGE))
        client.say()  # the connection may go on, and the stream may not
        client.h2.increment_flow_control_window(len(LARGE), stream_id=1)
        client.say()
        rest = client.until(partial(has, StreamEnded))
    assert (size(first), size(rest)) == (WINDOW, len(LARGE) - WINDOW)


def test_one_stream_that_must_wait_does_not_keep_another_from_its_answer(server: Server) -> None:
    server.script(Reply(body=LARGE), Reply(204))
    with bare(server) as client:
        client.get(1)
        client.until(lambda events: size(events) >= WINDOW)
        client.get(3)
        (ended,) = (each for each in client.until(partial(has, StreamEnded)) if isinstance(each, StreamEnded))
        assert ended.stream_id == 3


def test_an_answer_can_come_byte_by_byte(server: Server) -> None:
    server.script(Reply(body="drops", drip=0.0), Reply(body="at once"))
    with bare(server) as client:
        client.get(1)
        assert frames(client.until(partial(has, StreamEnded))) == [b"d", b"r", b"o", b"p", b"s"]
        client.get(3)
        assert frames(client.until(partial(has, StreamEnded))) == [b"at once"]


@both
def test_an_answer_can_be_late_and_slow(server: Server, form: str) -> None:
    server.script(Reply(body="abc", after=0.05, drip=0.02))
    begun = time.monotonic()
    assert fetch(form, server).text == "abc"
    assert time.monotonic() - begun >= 0.05 + 2 * 0.02


def test_a_stream_gives_its_chunks_as_they_are_with_pauses(server: Server) -> None:
    server.script(Stream([b"one", 0.05, b"two"]))
    with httpx.Client(**options()) as client, client.stream("GET", server.url) as answer:
        came = [(chunk, time.monotonic()) for chunk in answer.iter_raw()]
        assert answer.headers["content-type"] == "text/event-stream"
    assert [chunk for chunk, _ in came if chunk] == [b"one", b"two"]
    assert came[-1][1] - came[0][1] >= 0.04


@pytest.mark.parametrize(("method", "status", "length"), [("HEAD", 200, "4"), ("GET", 204, None)])
def test_an_answer_may_have_no_body(server: Server, method: str, status: int, length: str | None) -> None:
    server.script(Reply(status, body="body"))
    answer = fetch("sync", server, method)
    assert (answer.status_code, answer.content, answer.headers.get("content-length")) == (status, b"", length)


def test_a_header_that_http2_does_not_have_is_left_out(server: Server) -> None:
    server.script(Reply(headers={"Connection": "close", "Transfer-Encoding": "chunked", "X-Mark": "m"}))
    answer = fetch("sync", server)
    assert sorted(answer.headers) == ["content-length", "content-type", "x-mark"]


# ---- ways to fail ----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("step", "error", "says"),
    [
        (RefuseStream(), httpx.RemoteProtocolError, "StreamReset stream_id:1, error_code:7"),
        (Reset(), httpx.RemoteProtocolError, "StreamReset stream_id:1, error_code:2"),
        (GoAway(), httpx.RemoteProtocolError, "ConnectionTerminated error_code:0, last_stream_id:0"),
        (GoAway(last=1), httpx.RemoteProtocolError, "ConnectionTerminated error_code:0, last_stream_id:1"),
        (Close(), httpx.RemoteProtocolError, "Server disconnected"),
        (Cut("part"), InvalidBodyLengthError, "Expected 516 bytes, received 4"),  # httpx lets h2's own error through
        (Cut("part", reset=True), httpx.RemoteProtocolError, "StreamReset stream_id:1, error_code:2"),
        (Stream([b"one"], ends="close"), httpx.RemoteProtocolError, "Server disconnected"),
        (Stream([b"one"], ends="reset"), httpx.RemoteProtocolError, "StreamReset stream_id:1, error_code:2"),
        (Stream([b"one"], ends="hang"), httpx.ReadTimeout, None),
        (Hang(), httpx.ReadTimeout, None),
        (TurnAway(), httpx.RemoteProtocolError, "Server disconnected"),
        (TurnAway("hang"), httpx.ReadTimeout, None),
    ],
    ids=repr,
)
def test_each_way_to_fail_reaches_the_client(
    server: Server, form: str, step: Step, error: type[Exception], says: str | None
) -> None:
    server.script(step)
    with pytest.raises(error, match=says):
        fetch(form, server, timeout=SHORT if error is httpx.ReadTimeout else 10.0)
    server.wait_until_idle()


@both
@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Close(), httpx.RemoteProtocolError),
        (GoAway(), httpx.RemoteProtocolError),
        (Stream([b"one"], ends="close"), httpx.RemoteProtocolError),
        (Hang(), httpx.ReadTimeout),
    ],
    ids=repr,
)
def test_each_way_to_end_a_connection_works_over_tls(
    authority: Authority, form: str, step: Step, error: type[Exception]
) -> None:
    trusting = ssl.create_default_context(cafile=str(authority.bundle))
    with Server(step, http2=True, tls=authority.context()) as server:
        with pytest.raises(error):
            fetch(form, server, timeout=SHORT if error is httpx.ReadTimeout else 10.0, verify=trusting)
        server.wait_until_idle()
        assert server.requests[0].stream == 1


def test_what_came_before_the_break_can_be_read(server: Server) -> None:
    server.script(Stream([b"one"], ends="reset"), Cut("part", reset=True), Stream([b"two"], ends="close"))
    read: list[bytes] = []
    with httpx.Client(**options()) as client:
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError), client.stream("GET", server.url) as answer:
                read.extend(answer.iter_raw())
    assert [chunk for chunk in read if chunk] == [b"one", b"part", b"two"]


def test_a_farewell_is_followed_by_the_end_of_the_connection(server: Server) -> None:
    server.script(Hang(), GoAway(last=1), Reply())
    with bare(server) as client:
        client.get(1)
        client.get(3)
        heard = client.until(partial(has, ConnectionTerminated))
        assert [each.last_stream_id for each in heard if isinstance(each, ConnectionTerminated)] == [1]
        assert client.line.recv(1) == b"", "it goes away with FIN, and what is not answered yet is not answered"
    assert fetch("sync", server).status_code == 200
    assert [(logged.connection, logged.stream) for logged in server.requests] == [(1, 1), (1, 3), (2, 1)]


@pytest.mark.parametrize("step", [Close(), GoAway(last=1), Stream([b"one"], ends="close")], ids=repr)
def test_a_client_that_still_speaks_after_the_end_meets_no_reset(server: Server, step: Step) -> None:
    server.script(step)
    with bare(server) as client:
        client.get(1)
        while client.line.recv(65_536):
            pass
        for _ in range(3):
            client.h2.ping(b"12345678")
            client.say()
            time.sleep(0.01)
        assert client.line.recv(1) == b""


# ---- faults ----------------------------------------------------------------------------------------------------------


def broken(_request: object) -> Reply:
    raise KeyError("no such path")


@pytest.mark.parametrize(
    ("http2", "step", "error", "says"),
    [
        (True, Choose(broken), KeyError, "no such path"),
        (True, Speak(b"x"), AssertionError, r"Speak\(.*\) is a step for HTTP/1.1, and this connection speaks HTTP/2"),
        (False, RefuseStream(), AssertionError, r"RefuseStream\(\) is a step for HTTP/2, .* speaks HTTP/1.1"),
        (False, GoAway(), AssertionError, r"GoAway\(last=0\) is a step for HTTP/2, .* speaks HTTP/1.1"),
    ],
)
def test_a_fault_of_the_script_is_told_when_the_server_stops(
    http2: bool, step: Step, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says), Server(step, http2=http2) as server:  # noqa: SIM117
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):  # FIN, or RST where more was on its way
            fetch("sync", server, http1=not http2, http2=http2)


def test_a_client_that_speaks_something_else_is_told_of_too() -> None:
    with pytest.raises(ProtocolError, match="Invalid HTTP/2 preamble"), Server(http2=True) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            fetch("sync", server, http1=True, http2=False)
        server.wait_until_idle()


# ---- nothing is left behind ------------------------------------------------------------------------------------------


def tasks_of(server: Server) -> int:
    """How many tasks the server has, besides the one that is the server."""
    return len(asyncio.all_tasks(server._loop)) - 1


def open_sockets() -> Counter[type]:
    gc.collect()
    return Counter(type(one) for one in gc.get_objects() if issubclass(type(one), socket.socket) and one.fileno() != -1)


def test_a_request_that_the_client_takes_back_is_not_answered_any_more(server: Server) -> None:
    server.script(Hang(), Reply(body=LARGE), Stream([b"x", 60.0]), Reply(204))
    with bare(server) as client:
        for stream in (1, 3, 5):
            client.get(stream)
        client.until(lambda events: size(events) >= WINDOW)
        assert eventually(lambda: server.open_requests == 3)
        for stream in (1, 3, 5):
            client.h2.reset_stream(stream)
        client.say()
        server.wait_until_idle(kept=1)
        assert eventually(lambda: tasks_of(server) == 2), "the connection's own, and the one that reads"
        client.get(7)
        assert has(StreamEnded, client.until(partial(has, StreamEnded)))
    server.wait_until_idle()
    assert eventually(lambda: tasks_of(server) == 0)


def test_a_client_that_leaves_takes_its_streams_with_it(server: Server) -> None:
    server.script(Hang(), Reply(after=60.0), Stream([b"x", 60.0]), Reply(body=LARGE))
    with bare(server) as client:
        for stream in (1, 3, 5, 7):
            client.get(stream)
        client.until(lambda events: size(events) >= WINDOW)
    server.wait_until_idle()
    assert eventually(lambda: tasks_of(server) == 0)


@pytest.mark.parametrize("http2", [True, False])
def test_open_connections_are_counted_and_waited_for(http2: bool) -> None:
    with Server(http2=http2) as server:
        assert (server.open_connections, server.open_requests) == (0, 0)
        with httpx.Client(**options(http1=not http2, http2=http2)) as client:
            client.get(server.url)
            server.wait_until_idle(kept=1)
            assert server.open_connections == 1
            with pytest.raises(TimeoutError, match=r"0 requests and 1 connections are still open after 0\.02 s"):
                server.wait_until_idle(0.02)
        server.wait_until_idle()
        assert server.open_connections == 0


@pytest.mark.parametrize("http2", [True, False])
def test_stopping_at_once_leaves_no_connection_half_accepted(http2: bool) -> None:
    before = open_sockets()
    for _ in range(10):
        with Server(http2=http2) as server:
            socket.create_connection(("127.0.0.1", server.port), 10).close()
    assert open_sockets() == before


@pytest.mark.parametrize("secured", [False, True])
def test_stopping_leaves_no_thread_task_or_socket(authority: Authority, secured: bool) -> None:
    trusting = ssl.create_default_context(cafile=str(authority.bundle))
    before, threads = open_sockets(), threading.active_count()
    begun = time.monotonic()

    async def ask() -> None:
        async with httpx.AsyncClient(**options(verify=trusting)) as client:
            asked = [asyncio.ensure_future(client.get(server.url)) for _ in range(4)]
            await asyncio.to_thread(eventually, lambda: server.open_requests == 4)
            await asyncio.to_thread(server.stop)
            answers = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(answer, httpx.TransportError) for answer in answers)

    tls = authority.context() if secured else None
    steps = Hang(), Reply(after=60), Stream([b"x", 60.0]), Stream([], ends="hang")
    with Server(*steps, http2=True, tls=tls) as server:
        asyncio.run(ask())
    assert (server.open_connections, server.open_requests) == (0, 0)
    assert asyncio.all_tasks(server._loop) == set()
    assert (open_sockets(), threading.active_count()) == (before, threads)
    assert time.monotonic() - begun < 5
