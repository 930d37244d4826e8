"""The scripted server does what its script says, as seen by the standard library's own client and by bare sockets."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import time
import urllib.error
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Literal

import pytest

from loopback import (
    Choose,
    Close,
    Cut,
    Hang,
    Line,
    Reply,
    Reset,
    Server,
    Speak,
    Step,
    Stream,
    Talk,
    TurnAway,
    event,
    json_line,
    refused,
    unanswered,
    unresolvable,
)

if TYPE_CHECKING:
    from loopback.certificates import Authority, Flaw

SHORT = 0.1  # seconds a client waits for what never comes


def get(server: Server, timeout: float = 10.0) -> tuple[http.client.HTTPResponse, bytes]:
    """One GET on a connection of its own: the answer, and its body."""
    with closing(http.client.HTTPConnection(server.host, timeout=timeout)) as connection:
        connection.request("GET", "/x?y=1")
        with connection.getresponse() as response:
            return response, response.read()


def test_a_reply_has_the_scripted_status_headers_and_body(loopback: Server):
    loopback.script(Reply(429, [("Retry-After", "2"), ("Retry-After", "3")], {"a": 1}))
    response, body = get(loopback)
    assert (response.status, body) == (429, b'{"a": 1}')
    assert response.headers.get_all("retry-after") == ["2", "3"]
    assert response.headers["content-type"] == "application/json"


def test_steps_are_taken_in_order_and_the_last_is_repeated(loopback: Server):
    loopback.script(Reply(503), Reply(200))
    assert [get(loopback)[0].status for _ in range(3)] == [503, 200, 200]


def test_every_request_is_logged(loopback: Server):
    before = time.monotonic()
    request = urllib.request.Request(f"{loopback.url}/p", b'{"q": 1}', {"X-Mark": "a"}, method="PUT")
    with urllib.request.urlopen(request, timeout=10) as response:
        response.read()
    (logged,) = loopback.requests
    assert (logged.method, logged.path, logged.json(), logged.header("x-mark")) == ("PUT", "/p", {"q": 1}, "a")
    assert before <= logged.at <= time.monotonic()
    assert logged.header("x-none") is None


def test_a_connection_is_kept_for_the_next_request_unless_the_reply_closes_it(loopback: Server):
    loopback.script(Reply(), Reply(headers={"Connection": "close"}), Reply())
    connection = http.client.HTTPConnection(loopback.host, timeout=10)
    for _ in range(3):
        connection.request(
            "POST", "/", iter([b"in ", b"chunks"]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
        )
        connection.getresponse().read()
    connection.close()
    assert [request.connection for request in loopback.requests] == [1, 1, 2]
    assert loopback.requests[0].body == b"in chunks"


def test_an_answer_can_be_late(loopback: Server):
    loopback.script(Reply(after=0.05, body="x"))
    begun = time.monotonic()
    assert get(loopback)[1] == b"x"
    assert time.monotonic() - begun >= 0.05


def test_an_answer_can_come_byte_by_byte(loopback: Server):
    loopback.script(Reply(body="x", drip=0.0))
    with socket.create_connection(("127.0.0.1", loopback.port), 10) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert client.recv(4096).startswith(b"H")
    assert get(loopback)[1] == b"x"


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Hang(), TimeoutError),
        (Close(), http.client.RemoteDisconnected),
        (Reset(), ConnectionResetError),
        (Cut("part"), http.client.IncompleteRead),
        (Cut("part", reset=True), ConnectionResetError),
        (Speak(b"\0 not HTTP"), http.client.BadStatusLine),
        (Stream([b"one"], ends="close"), http.client.IncompleteRead),
        (Stream([b"one"], ends="reset"), ConnectionResetError),
        (Stream([b"one"], ends="hang"), TimeoutError),
        (TurnAway(), http.client.RemoteDisconnected),
        (TurnAway("reset"), ConnectionResetError),
        (TurnAway("hang"), TimeoutError),
    ],
    ids=repr,
)
def test_each_way_to_fail_reaches_the_client(loopback: Server, step: Step, error: type[Exception]):
    loopback.script(step)
    with pytest.raises(error):
        get(loopback, timeout=SHORT if error is TimeoutError else 10.0)


def test_a_stream_gives_its_chunks_with_pauses(loopback: Server):
    loopback.script(Stream([event({"a": 1}), 0.01, event("[DONE]", "end"), json_line({"b": 2})]))
    assert get(loopback)[1] == b'data: {"a": 1}\n\nevent: end\ndata: [DONE]\n\n{"b": 2}\n'


def test_a_step_can_depend_on_the_request(loopback: Server):
    loopback.script(Choose(lambda request: Reply(body=request.path)))
    assert get(loopback)[1] == b"/x?y=1"


def test_another_protocol_can_be_spoken(loopback: Server):
    async def echo(line: Line) -> None:
        await line.send((await line.reader.readexactly(2)).upper())

    loopback.script(Talk(echo))
    with socket.create_connection(("127.0.0.1", loopback.port), 10) as client:
        client.sendall(b"hi")
        assert client.recv(10) + client.recv(10) == b"HI"


def test_a_fault_of_the_script_is_told_when_the_server_stops():
    def broken(_request: object) -> Reply:
        raise KeyError("no such path")

    with (
        pytest.raises(KeyError, match="no such path"),
        Server(Choose(broken)) as server,
        pytest.raises(http.client.RemoteDisconnected),
    ):
        get(server)


def test_a_script_needs_a_step(loopback: Server):
    with pytest.raises(ValueError, match="at least one step"):
        loopback.script()


def test_stopping_drops_a_client_that_is_kept_waiting():
    begun = time.monotonic()
    with Server(Hang()) as server, socket.create_connection(("127.0.0.1", server.port), 10) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while not server.requests:
            time.sleep(0.001)
        server.stop()
        assert client.recv(1) == b""
    assert time.monotonic() - begun < 5


async def test_an_async_test_uses_it_without_blocking_its_loop(loopback: Server):
    loopback.script(Reply(after=0.05))
    ticks = 0
    reader, writer = await asyncio.open_connection("127.0.0.1", loopback.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    answer = asyncio.ensure_future(reader.readuntil(b"\r\n"))
    while not answer.done():
        ticks += 1
        await asyncio.sleep(0.005)
    writer.close()
    await writer.wait_closed()
    assert await answer == b"HTTP/1.1 200 OK\r\n"
    assert ticks > 2


def test_a_refused_address_refuses():
    with refused() as host, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(host.partition(":")[2])), 10)


def test_an_unanswered_address_never_connects():
    with unanswered() as host, pytest.raises(TimeoutError):
        socket.create_connection(("127.0.0.1", int(host.partition(":")[2])), SHORT)


@pytest.mark.parametrize("error", [socket.EAI_NONAME, socket.EAI_AGAIN])
def test_a_name_is_not_resolved_and_others_are(error: int):
    with unresolvable(error) as host:
        with pytest.raises(socket.gaierror) as caught:
            socket.create_connection((host.partition(":")[0], 9), 10)
        assert caught.value.errno == error
        assert socket.getaddrinfo("127.0.0.1", 9)


@pytest.mark.parametrize(
    ("flaw", "trusts", "reason"),
    [
        ("none", True, None),
        ("self-signed", False, "self-signed certificate"),
        ("unknown-issuer", True, "unable to get local issuer certificate"),
        ("expired", True, "certificate has expired"),
        ("other-name", True, "IP address mismatch"),
    ],
)
def test_tls_fails_in_each_way(authority: Authority, flaw: Flaw, trusts: bool, reason: str | None):
    client = ssl.create_default_context(cafile=str(authority.bundle) if trusts else None)
    with Server(Reply(body="safe"), tls=authority.context(flaw)) as server:
        if reason is None:
            with urllib.request.urlopen(server.url, timeout=10, context=client) as response:
                assert response.read() == b"safe"
        else:
            with pytest.raises(urllib.error.URLError, match=reason) as caught:
                urllib.request.urlopen(server.url, timeout=10, context=client)
            assert isinstance(caught.value.reason, ssl.SSLCertVerificationError)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_tls_handshake_is_broken_off(how: Literal["close", "reset"]):
    with Server(TurnAway(how), tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) as server:
        with pytest.raises(OSError, match=r"EOF|reset"):
            urllib.request.urlopen(server.url, timeout=10)
        assert server.connections == 1
