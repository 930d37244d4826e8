"""The transports for httpx and httpx2 on real sockets: what a server does to a connection, and what the caller sees.

Refused, reset, silent, cut short, every status, every form of Retry-After, TLS, HTTP/1.1 and HTTP/2; blocking and
async. What the caller gets is the library's own response or error, or one of ours that is the library's too.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import ssl
import threading
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest
import trio

from forbear import RetriesExhausted, Upstream
from loopback import (
    Choose,
    Close,
    Cut,
    GoAway,
    Hang,
    Line,
    RefuseStream,
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
from sockets.ways import PATIENT, Way

if TYPE_CHECKING:
    from loopback.certificates import Authority


def free(client: Any, url: str) -> bool:
    """Whether nothing of a service is held."""
    snapshot = client._transport.upstream_of(url).snapshot()
    return (snapshot.in_flight, snapshot.waiting, snapshot.waiting_retries) == (0, 0, 0)


# ---- connections that fail -------------------------------------------------------------------------------------------


async def test_a_refused_connection_is_tried_again_for_any_method(way: Way) -> None:
    with refused() as address:
        url = f"http://{address}"
        async with way.client(max_attempts=3) as client:
            for method in ("GET", "POST"):
                with pytest.raises(way.library.TransportError) as caught:
                    await way.do(client.request, method, url)
                assert isinstance(caught.value, RetriesExhausted)
                assert isinstance(caught.value.last_error, way.library.ConnectError)
                assert caught.value.attempts == 3
            assert free(client, url)


async def test_a_name_that_nobody_knows_is_an_error_of_the_library(way: Way) -> None:
    with unresolvable() as address:
        async with way.client() as client:
            with pytest.raises(way.library.TransportError):
                await way.do(client.get, f"http://{address}")
            assert free(client, f"http://{address}")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_silent_network_ends_at_the_attempts_time(way: Way, method: str) -> None:
    with unanswered() as address:
        async with way.client(attempt_timeout=0.2, max_attempts=2) as client:
            began = time.monotonic()
            with pytest.raises(RetriesExhausted) as caught:
                await way.do(client.request, method, f"http://{address}")
            assert 0.4 <= time.monotonic() - began < 5
            assert isinstance(caught.value.last_error, (way.library.ConnectTimeout, TimeoutError))
            assert caught.value.attempts == 2


@pytest.mark.parametrize("step", [Reset(), Close(), Hang(), Cut("half", missing=4), Cut("half", missing=4, reset=True)])
async def test_what_breaks_is_sent_again_where_it_is_repeatable(way: Way, loopback: Server, step: Any) -> None:
    loopback.script(step, Reply(body="whole"))
    async with way.client(attempt_timeout=0.3) as client:
        response = await way.do(client.get, loopback.url)
        assert (response.status_code, response.text) == (200, "whole")
        assert response.extensions["forbear"].attempts == 2
        assert free(client, loopback.url)
    assert len(loopback.requests) == 2


@pytest.mark.parametrize("step", [Reset(), Close(), Hang(), Cut("half", missing=4)])
async def test_what_breaks_is_not_sent_again_where_it_may_have_been_done(
    way: Way, loopback: Server, step: Any, caplog: pytest.LogCaptureFixture
) -> None:
    loopback.script(step, Reply(body="whole"))
    async with way.client(attempt_timeout=0.3) as client:
        with pytest.raises(way.library.TransportError):
            await way.do(client.post, loopback.url, content=b"order")
        assert free(client, loopback.url)
    assert len(loopback.requests) == 1
    assert "not retried" in caplog.text


@pytest.mark.parametrize("ends", ["close", "reset", "hang"])
async def test_a_body_without_a_length_that_breaks_raises_the_librarys_own_error(
    way: Way, loopback: Server, ends: Any
) -> None:
    loopback.script(Stream([b"one", b"two"], ends=ends), Reply())
    async with way.client(attempt_timeout=0.4) as client:
        response = await way.open(client, loopback.url)
        assert response.status_code == 200
        with pytest.raises(way.library.TransportError) as caught:
            await way.raw(response)
        assert not isinstance(caught.value, RetriesExhausted)
        assert isinstance(caught.value, way.library.ReadTimeout) is (ends == "hang")
        assert free(client, loopback.url)
    assert len(loopback.requests) == 1


async def test_an_answer_that_is_no_http_is_an_error_of_the_library(way: Way, loopback: Server) -> None:
    loopback.script(Speak(b"SSH-2.0-OpenSSH_9.6\r\n"), Speak(b"\x16\x03\x01\r\n\r\n"), Reply(body="well"))
    async with way.client() as client:
        assert (await way.do(client.get, loopback.url)).text == "well"
        assert free(client, loopback.url)
    assert len(loopback.requests) == 3


# ---- answers ---------------------------------------------------------------------------------------------------------

PASSING = {408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529, 530}


async def test_each_status_is_answered_sensibly(way: Way, loopback: Server) -> None:
    passed: set[int] = set()
    async with way.client(max_attempts=2, reraise=True, upstream=None, base=0) as client:
        for status in range(200, 600):
            loopback.requests.clear()
            loopback.script(Reply(status, body="" if status in (204, 205, 304) else f"body of {status}"))
            response = await way.do(client.get, loopback.url)
            assert response.status_code == status
            assert response.text == ("" if status in (204, 205, 304) else f"body of {status}")
            attempts = response.extensions["forbear"].attempts
            assert attempts == len(loopback.requests)
            assert (response.extensions["forbear"].gave_up is not None) is (attempts > 1)
            passed |= {status} if attempts > 1 else set()
    assert passed >= PASSING
    assert not passed & {*range(200, 400), 400, 401, 403, 404, 405, 410, 411, 412, 413, 414, 415, 422, 426, 501, 505}


@pytest.mark.parametrize("status", [600, 799, 999])
async def test_a_status_outside_of_the_standard_is_returned(way: Way, loopback: Server, status: int) -> None:
    loopback.script(Reply(status, body="odd"))
    async with way.client(reraise=True) as client:
        response = await way.do(client.get, loopback.url)
        assert (response.status_code, response.text) == (status, "odd")


async def test_answers_that_only_inform_are_passed_over(way: Way, loopback: Server) -> None:
    last = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast"
    loopback.script(Speak(b"".join(b"HTTP/1.1 %d Wait\r\n\r\n" % status for status in (100, 102, 103, 199)) + last))
    async with way.client(max_attempts=1) as client:
        assert (await way.do(client.get, loopback.url)).text == "last"


@pytest.mark.parametrize("extra", [b"", b"Content-Length: 0\r\n"], ids=["bare", "with a length"])
async def test_a_connection_that_changes_its_protocol_stays_open(way: Way, extra: bytes) -> None:
    async def echo(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.send(b"HTTP/1.1 101 Echo\r\nConnection: upgrade\r\nUpgrade: echo\r\n" + extra + b"\r\n")
        while said := await line.reader.read(100):
            await line.send(said.upper())

    with Server(Talk(echo)) as server:
        async with way.client() as client:
            headers = {"connection": "upgrade", "upgrade": "echo"}
            response = await way.open(client, server.url, headers=headers)
            assert response.status_code == 101
            line = response.extensions["network_stream"]
            for word in (b"one", b"two"):
                await way.do(line.write, word, 1.0)
                assert await way.do(line.read, 100, 1.0) == word.upper()
            await way.close(response)
            assert free(client, server.url)


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_an_answer_to_head_has_a_length_and_no_body(way: Way, loopback: Server, status: int) -> None:
    loopback.script(Reply(status, body="x" * 5000))
    async with way.client(reraise=True, max_attempts=2) as client:
        for _ in range(2):
            response = await way.do(client.head, loopback.url)
            assert (response.status_code, response.headers["content-length"], response.content) == (status, "5000", b"")
        assert free(client, loopback.url)
    assert loopback.connections == 1  # each was read to its end


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_has_no_body_is_whole_with_its_head(way: Way, loopback: Server, status: int) -> None:
    loopback.script(Reply(status, {"Content-Length": "7"} if status == 304 else ()))
    async with way.client() as client:
        for _ in range(2):
            response = await way.open(client, loopback.url)
            assert free(client, loopback.url)
            assert await way.raw(response) in ([], [b""])
    assert loopback.connections == 1


async def test_an_empty_body_in_chunks_is_empty(way: Way, loopback: Server) -> None:
    loopback.script(Stream([]))
    async with way.client() as client:
        for _ in range(2):
            response = await way.do(client.get, loopback.url)
            assert response.content == b""
            assert free(client, loopback.url)
    assert loopback.connections == 1


@pytest.mark.parametrize("status", [200, 404, 503])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_compressed_body_is_read_once_decoded_and_once_as_it_came(
    way: Way, loopback: Server, status: int, chunked: bool
) -> None:
    packed = gzip.compress(b"much " * 1000)
    headers = {"Content-Encoding": "gzip"}
    loopback.script(Stream([packed[:9], packed[9:]], status=status, headers=headers) if chunked else
                    Reply(status, headers, packed))  # fmt: skip
    async with way.client(reraise=True, max_attempts=2) as client:
        response = await way.do(client.get, loopback.url)
        assert (response.status_code, response.content) == (status, b"much " * 1000)
        response = await way.open(client, loopback.url)
        assert b"".join(await way.raw(response)) == packed
        assert response.num_bytes_downloaded == len(packed)
        assert free(client, loopback.url)


async def test_a_body_that_can_not_be_unpacked_is_an_error_of_the_library(way: Way, loopback: Server) -> None:
    for status in (200, 404):
        loopback.script(Reply(status, {"Content-Encoding": "gzip"}, b"this is no gzip"))
        async with way.client() as client:
            with pytest.raises(way.library.DecodingError):
                await way.do(client.get, loopback.url)
            assert free(client, loopback.url)


@pytest.mark.parametrize("size", [99, 100, 101, 5000])
@pytest.mark.parametrize("status", [200, 404])
async def test_a_body_is_the_same_however_much_of_it_is_held(
    way: Way, loopback: Server, size: int, status: int
) -> None:
    body = bytes(at % 251 for at in range(size))
    loopback.script(Reply(status, body=body), Stream([body[:50], body[50:]], status=status))
    async with way.client(hold_body=100) as client:
        for _ in range(2):
            response = await way.do(client.get, loopback.url)
            assert (response.status_code, response.content) == (status, body)
            assert free(client, loopback.url)


async def test_a_long_body_of_a_passing_failure_is_left_alone_and_the_call_goes_on(way: Way, loopback: Server) -> None:
    loopback.script(Reply(503, body=b"x" * 500_000), Reply(body="well"))
    async with way.client(hold_body=100) as client:
        response = await way.do(client.get, loopback.url)
        assert response.text == "well"
        assert free(client, loopback.url)
        await asyncio.to_thread(loopback.wait_until_idle, kept=1)


async def test_a_long_failure_that_is_not_retried_keeps_its_body(way: Way, loopback: Server) -> None:
    body = b"why " * 1000
    loopback.script(Reply(503, body=body))
    async with way.client(hold_body=100) as client:
        response = await way.do(client.post, loopback.url, content=b"order")
        assert (response.status_code, response.content) == (503, body)
    assert len(loopback.requests) == 1


# ---- what the server asks for ----------------------------------------------------------------------------------------


async def waits_after(way: Way, loopback: Server, status: int, headers: Any) -> list[float]:
    """The waits of a call that is answered so once."""
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    loopback.script(Reply(status, headers, "later"), Reply(body="well"))
    sleep = waits.append if way.blocking else pause
    async with way.client(sleep=sleep, deadline=None, upstream=None) as client:
        assert (await way.do(client.get, loopback.url)).text == "well"
    return waits


@pytest.mark.parametrize("status", [429, 503])
async def test_each_form_of_retry_after_is_obeyed(way: Way, loopback: Server, status: int) -> None:
    now = time.time()
    for headers, least, most in (
        ({"Retry-After": "7"}, 7, 12),
        ({"retry-after": " 7 "}, 7, 12),
        ({"Retry-After": "1.5"}, 1.5, 5),
        ({"Retry-After": "0"}, 0, 1),
        ({"Retry-After-Ms": "7000"}, 7, 12),
        ({"Retry-After": formatdate(now + 20, usegmt=True)}, 17, 25),
        ({"Retry-After": formatdate(now + 3600, usegmt=True), "Date": formatdate(now + 3590, usegmt=True)}, 9, 15),
        ({"Retry-After": formatdate(now - 20, usegmt=True)}, 0, 1),
        ({"Retry-After": "soon"}, 0, 1),
        ({"Retry-After": "-5"}, 0, 1),
        ({"Retry-After": "nan"}, 0, 1),
        ({"Retry-After": "9" * 400}, 0, 1e9),
        ({"Retry-After": ""}, 0, 1),
        ([("Retry-After", "3"), ("Retry-After", "7")], 0, 12),
    ):
        if str(headers).count("9") == 400:
            continue
        (wait,) = await waits_after(way, loopback, status, headers)
        assert least <= wait <= most, (headers, wait)


async def test_a_wait_that_would_end_too_late_is_not_begun(way: Way, loopback: Server) -> None:
    loopback.script(Reply(503, {"Retry-After": "30"}, "later"))
    async with way.client(deadline=5) as client:
        began = time.monotonic()
        with pytest.raises(way.library.TimeoutException) as caught:
            await way.do(client.get, loopback.url)
        assert time.monotonic() - began < 3
        assert isinstance(caught.value, way.ours.DeadlineExceeded)
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value.__cause__, way.library.HTTPStatusError)
        assert caught.value.__cause__.response.text == "later"
        assert free(client, loopback.url)


# ---- TLS -------------------------------------------------------------------------------------------------------------


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.bundle))


async def test_over_tls_it_is_the_same(way: Way, authority: Authority) -> None:
    script = (TurnAway("close"), TurnAway("reset"), Reset(), Cut("half"), Reply(503), Reply(body="well"))
    with Server(*script, tls=authority.context()) as server:
        async with way.client({"verify": trusting(authority)}, max_attempts=9) as client:
            assert (await way.do(client.get, server.url)).text == "well"
            assert free(client, server.url)


@pytest.mark.parametrize("flaw", ["self-signed", "expired", "other-name"])
async def test_a_certificate_that_is_not_trusted_is_asked_for_once(way: Way, authority: Authority, flaw: Any) -> None:
    with Server(tls=authority.context(flaw)) as server:
        async with way.client({"verify": trusting(authority)}) as client:
            with pytest.raises(way.library.ConnectError):
                await way.do(client.get, server.url)
            assert free(client, server.url)
        assert server.connections == 1


# ---- an attempt's time, phase by phase -------------------------------------------------------------------------------


async def test_a_handshake_that_hangs_ends_at_the_attempts_time(way: Way) -> None:
    """And its socket with it: nobody has to wait for the collector."""
    with Server(TurnAway("hang")) as server:
        async with way.client({"verify": False}, attempt_timeout=0.3, max_attempts=2) as client:
            gc.disable()
            try:
                began = time.monotonic()
                with pytest.raises(RetriesExhausted):
                    await way.do(client.get, server.url.replace("http:", "https:"))
                assert 0.5 <= time.monotonic() - began < 3
                await asyncio.to_thread(server.wait_until_idle, 1.0)
            finally:
                gc.enable()


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
async def test_the_phases_of_an_attempt_share_its_time(name: str) -> None:
    """A connection that is free late, and then a handshake that hangs: no phase begins with a whole limit anew."""
    way = Way(name, blocking=True)
    inner = {"verify": False, "limits": way.library.Limits(max_connections=1)}
    with Server(Stream([b"a"], ends="hang")) as server, Server(TurnAway("hang")) as silent:
        async with way.client(inner, deadline=1.0, attempt_timeout=1.0, max_attempts=1, upstream=None) as client:
            response = await way.open(client, server.url)
            began = time.monotonic()
            call = asyncio.create_task(way.do(client.get, silent.url.replace("http:", "https:")))
            await asyncio.sleep(0.8)
            await way.close(response)
            with pytest.raises(way.library.TransportError):
                await call
            assert time.monotonic() - began < 1.5


async def test_an_upload_that_is_taken_slowly_ends_at_the_attempts_time(way: Way) -> None:
    async def sips(line: Line) -> None:
        while await line.reader.read(200_000):
            await asyncio.sleep(0.05)

    with Server(Talk(sips)) as server:
        async with way.client(attempt_timeout=0.5, max_attempts=1) as client:
            began = time.monotonic()
            with pytest.raises(way.library.TransportError):
                await way.do(client.put, server.url, content=(b"x" * 65536 for _ in range(200)) if way.blocking else
                             b"x" * 65536 * 200)  # fmt: skip
            assert time.monotonic() - began < 1.5


async def test_reading_goes_on_for_longer_than_one_attempt_may_be_silent(way: Way, loopback: Server) -> None:
    loopback.script(Stream([b"a", 0.1] * 8))
    async with way.client(attempt_timeout=0.5) as client:
        response = await way.do(client.get, loopback.url)
        assert response.content == b"a" * 8


async def test_a_tighter_timeout_of_the_callers_own_still_holds(way: Way, loopback: Server) -> None:
    loopback.script(Hang())
    async with way.client(attempt_timeout=20, max_attempts=2) as client:
        began = time.monotonic()
        with pytest.raises(RetriesExhausted) as caught:
            await way.do(client.get, loopback.url, timeout=0.2)
        assert time.monotonic() - began < 5
        assert isinstance(caught.value.last_error, way.library.ReadTimeout)


# ---- HTTP/2 ----------------------------------------------------------------------------------------------------------

H2: dict[str, Any] = {"http2": True, "http1": False}


@pytest.fixture
def needs_h2() -> None:
    pytest.importorskip("h2")


@pytest.mark.usefixtures("needs_h2")
async def test_a_stream_that_the_server_has_not_looked_at_is_sent_again_even_by_post(way: Way) -> None:
    with Server(RefuseStream(), RefuseStream(), Reply(body="well"), http2=True) as server:
        async with way.client(H2) as client:
            response = await way.do(client.post, server.url, content=b"order")
            assert (response.text, response.extensions["forbear"].attempts) == ("well", 3)
            assert response.http_version == "HTTP/2"
            assert free(client, server.url)
        assert [request.body for request in server.requests] == [b"order"] * 3
        assert server.connections == 1


@pytest.mark.usefixtures("needs_h2")
async def test_a_connection_that_the_server_ends_before_it_looked_is_made_anew(way: Way) -> None:
    with Server(GoAway(0), Reply(body="well"), http2=True) as server:
        async with way.client(H2) as client:
            response = await way.do(client.post, server.url, content=b"order")
            assert response.text == "well"
            assert free(client, server.url)
        assert server.connections == 2


@pytest.mark.usefixtures("needs_h2")
async def test_a_request_that_the_server_may_have_looked_at_is_not(way: Way) -> None:
    with Server(Reset(), Reply(body="well"), http2=True) as server:
        async with way.client(H2) as client:
            with pytest.raises(way.library.RemoteProtocolError):
                await way.do(client.post, server.url, content=b"order")
            assert (await way.do(client.get, server.url)).text == "well"
            assert free(client, server.url)


@pytest.mark.usefixtures("needs_h2")
async def test_many_streams_of_one_connection_are_refused_and_sent_again(way: Way) -> None:
    seen: set[bytes] = set()

    def once_refused(request: Request) -> Any:
        if request.body in seen:
            return Reply(body=request.body, after=0.01)
        seen.add(request.body)
        return RefuseStream()

    with Server(Choose(once_refused), http2=True) as server:
        async with way.client({**H2, "limits": way.library.Limits(max_connections=1)}, upstream=None) as client:
            bodies = [b"%d" % at for at in range(30)]
            answers = await asyncio.gather(*(way.do(client.post, server.url, content=body) for body in bodies))
        assert [answer.content for answer in answers] == bodies
        assert len(server.requests) == 60
        assert server.connections == 1


@pytest.mark.usefixtures("needs_h2")
async def test_a_stream_that_is_cut_leaves_its_connection_usable(way: Way) -> None:
    with Server(Reply(body="first"), Hang(), Reply(body="well"), http2=True) as server:
        async with way.client(H2, attempt_timeout=0.4) as client:
            assert (await way.do(client.get, server.url)).text == "first"
            assert (await way.do(client.get, server.url)).text == "well"
            for _ in range(3):
                assert (await way.do(client.get, server.url)).text == "well"
            assert free(client, server.url)


@pytest.mark.usefixtures("needs_h2")
async def test_a_stream_that_is_cut_does_not_break_the_others(way: Way) -> None:
    def of(request: Request) -> Any:
        return Hang() if request.path == "/hang" else Reply(body="slow", after=0.7)

    with Server(Choose(of), http2=True) as server:
        inner = {**H2, "limits": way.library.Limits(max_connections=1)}
        async with way.client(inner, max_attempts=2, upstream=None) as client:
            slow = asyncio.create_task(way.do(client.get, f"{server.url}/slow"))
            await asyncio.sleep(0.2)
            with pytest.raises(RetriesExhausted):
                await way.do(client.get, f"{server.url}/hang", timeout=0.2)
            assert (await slow).text == "slow"
        assert [request.path for request in server.requests].count("/slow") == 1


# ---- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_one_transport_serves_many_threads(name: str) -> None:
    way = Way(name, blocking=True)

    def of(request: Request) -> Any:
        steps = {"0": Reply(503), "1": Cut("half"), "2": Reset()}
        if request.header("x-again") == "0" and (step := steps.get(request.path[-1])) is not None:
            return step
        return Reply(body=request.path)

    wrong: list[Any] = []
    with Server(Choose(of)) as server:
        transport = way.transport(attempt_header="x-again", upstream=Upstream("service", adaptive=False))
        with way.library.Client(transport=transport, timeout=PATIENT) as client:

            def work(number: int) -> None:
                for at in range(10):
                    path = f"/{number}/{at}"
                    try:
                        got = client.get(server.url + path).text
                    except Exception as error:
                        got = repr(error)
                    if got != path:
                        wrong.append((path, got))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert wrong == []
            assert free(client, server.url)
        server.wait_until_idle()


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_one_async_transport_serves_loop_after_loop(name: str) -> None:
    way = Way(name, blocking=False)
    with Server(Choose(lambda request: Reply(503 if request.header("x-again") == "0" else 200, body="well"))) as server:
        transport = way.transport(attempt_header="x-again")

        async def once() -> None:
            # The pool of the library belongs to its loop; a new one each time, under the same guards.
            transport.inner = way.library.AsyncHTTPTransport()
            async with way.library.AsyncClient(transport=transport) as client:
                answers = await asyncio.gather(*(client.get(server.url) for _ in range(5)))
                assert [answer.text for answer in answers] == ["well"] * 5
                assert free(client, server.url)

        for _ in range(3):
            asyncio.run(once())
            trio_run(once_under_trio(way, transport, server))


async def once_under_trio(way: Way, transport: Any, server: Server) -> None:
    transport.inner = way.library.AsyncHTTPTransport()
    async with way.library.AsyncClient(transport=transport) as client:
        assert (await client.get(server.url)).text == "well"
        assert free(client, server.url)


def trio_run(coroutine: Any) -> None:
    async def main() -> None:
        await coroutine

    trio.run(main)


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_under_trio_what_breaks_is_sent_again_and_what_hangs_is_cut(name: str) -> None:
    with Server(Reset(), Hang(), Reply(503), Cut("half"), Reply(body="well")) as server:
        way = Way(name, blocking=False)
        transport = way.transport(attempt_timeout=0.3, max_attempts=9)

        async def run() -> None:
            async with way.library.AsyncClient(transport=transport, timeout=PATIENT) as client:
                response = await client.get(server.url)
                assert (response.text, response.extensions["forbear"].attempts) == ("well", 5)
                assert free(client, server.url)

        trio.run(run)
        server.wait_until_idle()
