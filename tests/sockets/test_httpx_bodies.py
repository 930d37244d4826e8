"""Bodies of requests, through httpx and httpx2 on real sockets: the bytes that arrive are the bytes that were meant.

Each kind of body is sent, breaks half way, and is sent again, whole; one that can be read only once is sent again only
where nobody has begun to read it, and never in part.
"""

from __future__ import annotations

import asyncio
import io
import logging
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from forbear import RetriesExhausted
from forbear.testing import record_events
from loopback import Choose, Close, Cut, Hang, Line, Reply, Request, Reset, Server, Talk, refused
from loopback.wire import read_chunks
from sockets.ways import Way

BIG = bytes(at % 251 for at in range(300_000))


async def sent_twice(way: Way, loopback: Server, method: str = "PUT", **body: Any) -> list[Request]:
    """What arrives of a request whose first attempt is cut after it was read, and whose second is refused."""
    loopback.requests.clear()
    loopback.script(Reset(), Reply(503), Reply(body="well"))
    async with way.client() as client:
        response = await way.do(client.request, method, loopback.url, **body)
        assert response.text == "well"
    first, second, third = loopback.requests
    assert first.body == second.body == third.body
    assert first.header("content-type") == second.header("content-type") == third.header("content-type")
    assert first.header("content-length") == third.header("content-length")
    return loopback.requests


class Sips:
    """A server's side that takes a part of the first upload and resets it; what comes later is answered and kept."""

    def __init__(self, cuts: int = 1) -> None:
        self.cuts = cuts
        self.came: list[bytes] = []

    async def __call__(self, line: Line) -> None:
        head = await line.reader.readuntil(b"\r\n\r\n")
        if self.cuts:
            self.cuts -= 1
            self.came.append(await line.reader.read(1000))
            line.reset()
            return
        if b"chunked" in head.lower():
            self.came.append(await read_chunks(line.reader))
        else:
            length = next(
                row.split(b":")[1] for row in head.lower().split(b"\r\n") if row.startswith(b"content-length")
            )
            self.came.append(await line.reader.readexactly(int(length)))
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell")


# ---- what is sent again ----------------------------------------------------------------------------------------------


async def test_what_is_in_memory_is_sent_again_whole(way: Way, loopback: Server) -> None:
    for body, meant in (
        ({"content": b"bytes"}, b"bytes"),
        ({"content": b""}, b""),
        ({}, b""),
        ({"content": "t\u00e9xt"}, "t\u00e9xt".encode()),
        ({"json": {"a": [1]}}, b'{"a":[1]}'),
        ({"data": {"a": "1", "b": ["2", "3"]}}, b"a=1&b=2&b=3"),
    ):
        for request in await sent_twice(way, loopback, **body):
            assert request.body.replace(b" ", b"") == meant


@pytest.mark.parametrize("kind", ["bytes", "file", "pair", "text"])
async def test_a_form_with_files_is_sent_again_whole(way: Way, loopback: Server, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "upload.bin"
    path.write_bytes(BIG)
    with path.open("rb") as opened:
        opened.read(10)  # a form sends its files from their beginning, as without us
        file = {"bytes": BIG, "file": opened, "pair": ("n.bin", opened, "application/x-thing"), "text": ("n", "txt")}
        requests = await sent_twice(way, loopback, files={"upload": file[kind]}, data={"field": "value"})
    for request in requests:
        assert (b"txt" if kind == "text" else BIG) in request.body
        assert b'name="field"\r\n\r\nvalue' in request.body
        assert int(request.header("content-length") or 0) == len(request.body)


async def test_an_upload_that_breaks_half_way_begins_anew(blocking: Way, tmp_path: Path) -> None:
    path = tmp_path / "upload.bin"
    path.write_bytes(BIG * 10)
    bodies: list[Any] = [
        lambda: path.open("rb"),
        lambda: io.BytesIO(BIG * 10),
        lambda: BIG * 10,
        lambda: [BIG] * 10,
        lambda: (BIG,) * 10,
        lambda: blocking.ours.Body(lambda: path.open("rb")),
        lambda: blocking.ours.Body(lambda: (BIG for _ in range(10))),
        lambda: blocking.ours.Body(lambda: BIG * 10),
    ]
    for make in bodies:
        sips, body = Sips(cuts=2), make()
        with Server(Talk(sips)) as server:
            async with blocking.client() as client:
                response = await blocking.do(client.put, server.url, content=body)
                assert response.text == "well"
                assert response.extensions["forbear"].attempts == 3
        assert sips.came[-1] == BIG * 10
        if hasattr(body, "close"):
            body.close()


async def test_a_file_goes_back_to_where_it_stood_and_not_to_its_beginning(blocking: Way, loopback: Server) -> None:
    file = io.BytesIO(b"0123456789" + BIG)
    loopback.script(Reset(), Cut(), Reply(503), Reply(body="well"))
    async with blocking.client() as client:
        file.seek(10)
        # The length is announced here: httpx takes that of the whole file, wherever it stands.
        response = await blocking.do(client.put, loopback.url, content=file, headers={"Content-Length": str(len(BIG))})
        assert response.text == "well"
    assert [request.body for request in loopback.requests] == [BIG] * 4


async def test_a_file_that_was_read_before_is_sent_as_it_stands(blocking: Way, loopback: Server) -> None:
    """At its end nothing of it is left, and nothing is sent, in no attempt."""
    file = io.BytesIO(BIG)
    file.read()
    loopback.script(Reset(), Reply(body="well"))
    async with blocking.client() as client:
        await blocking.do(client.put, loopback.url, content=file, headers={"Content-Length": "0"})
    assert [request.body for request in loopback.requests] == [b"", b""]


async def test_a_packed_file_is_set_back_too(blocking: Way, loopback: Server) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", BIG)
    loopback.script(Reset(), Reply(body="well"))
    with zipfile.ZipFile(packed) as archive, archive.open("a") as file:
        async with blocking.client() as client:
            headers = {"Content-Length": str(len(BIG))}
            await blocking.do(client.put, loopback.url, content=file, headers=headers)
    assert [request.body for request in loopback.requests] == [BIG, BIG]


async def test_what_is_made_anew_is_made_once_for_each_attempt_and_closed(blocking: Way, loopback: Server) -> None:
    made: list[io.BytesIO] = []

    def make() -> io.BytesIO:
        made.append(io.BytesIO(BIG))
        return made[-1]

    for request in await sent_twice(blocking, loopback, content=blocking.ours.Body(make)):
        assert request.body == BIG
    assert len(made) == 3
    assert all(file.closed for file in made)


async def test_what_is_made_anew_is_closed_where_the_upload_breaks(blocking: Way) -> None:
    open_now: list[int] = []

    def rows() -> Iterator[bytes]:
        open_now.append(1)
        try:
            yield from [BIG] * 30
        finally:
            open_now.pop()

    with Server(Talk(Sips(cuts=9))) as server:
        async with blocking.client(max_attempts=2) as client:
            with pytest.raises(RetriesExhausted):
                await blocking.do(client.put, server.url, content=blocking.ours.Body(rows))
    assert open_now == []


async def test_async_bodies_are_made_anew(unblocking: Way, loopback: Server) -> None:
    open_now: list[int] = []

    async def rows() -> AsyncIterator[bytes]:
        open_now.append(1)
        try:
            for at in range(3):
                await asyncio.sleep(0)
                yield BIG[at * 100_000 : (at + 1) * 100_000]
        finally:
            open_now.pop()

    for request in await sent_twice(unblocking, loopback, content=unblocking.ours.AsyncBody(rows)):
        assert request.body == BIG
    assert open_now == []


async def test_an_async_body_that_can_be_iterated_again_is(unblocking: Way, loopback: Server) -> None:
    class Rows:
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"one"
            yield b"two"

    for request in await sent_twice(unblocking, loopback, content=Rows()):
        assert request.body == b"onetwo"


async def test_a_body_whose_function_fails_is_a_mistake_of_the_callers_own(blocking: Way) -> None:
    def make() -> Any:
        raise ZeroDivisionError

    async def listen(line: Line) -> None:
        came.append(await line.reader.read())

    came: list[bytes] = []
    with Server(Talk(listen)) as server:
        async with blocking.client() as client:
            with pytest.raises(ZeroDivisionError):
                await blocking.do(client.put, server.url, content=blocking.ours.Body(make))
            with pytest.raises(TypeError, match="Body"):
                await blocking.do(client.put, server.url, content=blocking.ours.Body(lambda: 7))
            assert client._transport.upstream_of(server.url).snapshot().in_flight == 0
        for _ in range(500):  # it may not even have accepted the last connection yet
            if len(came) == 2:
                break
            await asyncio.sleep(0.01)
    assert len(came) == 2


# ---- what can be read only once --------------------------------------------------------------------------------------


class Numbers:
    """An iterator that is no generator: read again, it goes on where it stood."""

    def __init__(self) -> None:
        self.left = [b"one", b"two"]

    def __iter__(self) -> Numbers:
        return self

    def __next__(self) -> bytes:
        if not self.left:
            raise StopIteration
        return self.left.pop(0)


class AsyncNumbers:
    """The same in async code."""

    def __init__(self) -> None:
        self.left = [b"one", b"two"]

    def __aiter__(self) -> AsyncNumbers:
        return self

    async def __anext__(self) -> bytes:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


class Pipe(io.RawIOBase):
    """A file that can't be set back."""

    def __init__(self) -> None:
        self._file = io.BytesIO(b"onetwo")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)


def one_two() -> Iterator[bytes]:
    yield b"one"
    yield b"two"


async def one_two_async() -> AsyncIterator[bytes]:
    yield b"one"
    yield b"two"


ONCE: dict[str, tuple[bool, Any]] = {
    "a generator": (True, one_two),
    "an iterator": (True, Numbers),
    "an iterator of a list": (True, lambda: iter([b"one", b"two"])),
    "a map": (True, lambda: map(bytes, [b"one", b"two"])),
    "a pipe": (True, Pipe),
    "an async generator": (False, one_two_async),
    "an async iterator": (False, AsyncNumbers),
}


@pytest.fixture(params=[(name, kind) for name in ("httpx", "httpx2") for kind in ONCE], ids=", ".join)
def once(request: pytest.FixtureRequest) -> tuple[Way, Any]:
    """A way of calling, and a body for it that can be read only once and says `onetwo`."""
    name, kind = request.param
    blocking, make = ONCE[kind]
    return Way(name, blocking), make()


@pytest.mark.parametrize("step", [Reset(), Close(), Hang(), Cut("half"), Reply(503, body="later")], ids=repr)
async def test_once_begun_it_is_never_sent_again(
    once: tuple[Way, Any], loopback: Server, step: Any, caplog: pytest.LogCaptureFixture
) -> None:
    way, body = once
    loopback.script(step, Reply(body="well"))
    caplog.set_level(logging.WARNING, "forbear")
    with record_events() as events:
        async with way.client(attempt_timeout=0.25) as client:
            if isinstance(step, Reply):
                response = await way.do(client.put, loopback.url, content=body)
                assert (response.status_code, response.text) == (503, "later")
            else:
                with pytest.raises(way.library.TransportError) as caught:
                    await way.do(client.put, loopback.url, content=body)
                assert not isinstance(caught.value, RetriesExhausted)
            assert client._transport.upstream_of(loopback.url).snapshot().in_flight == 0
    assert [request.body for request in loopback.requests] == [b"onetwo"]
    assert [event.reason for event in events.ends] == ["unsafe"]
    assert "can be read only once" in caplog.text
    assert "Body(function)" in caplog.text


@pytest.mark.parametrize("limit", [0.02, 0.05, 0.1, 0.2, 0.3])
async def test_whoever_ends_the_attempt_it_is_never_sent_again(unblocking: Way, loopback: Server, limit: float) -> None:
    """The timer of the attempt and those of the library are a hair apart."""
    for body in (AsyncNumbers(), one_two_async()):
        loopback.requests.clear()
        loopback.script(Hang(), Reply(body="well"))
        async with unblocking.client(attempt_timeout=limit) as client:
            with pytest.raises(unblocking.library.TimeoutException):
                await client.put(loopback.url, content=body)
        assert len(loopback.requests) <= 1


async def test_a_form_with_a_file_that_can_not_be_set_back_is_sent_once(way: Way, loopback: Server) -> None:
    loopback.script(Reset(), Reply(body="well"))
    async with way.client() as client:
        with pytest.raises(way.library.TransportError):
            await way.do(client.put, loopback.url, files={"upload": ("n", Pipe())})
    (request,) = loopback.requests
    assert b"onetwo" in request.body


async def test_a_stream_of_ones_own_is_sent_once(way: Way, loopback: Server) -> None:
    """Nobody knows whether it can be read again."""
    library = way.library

    class Own(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            return one_two()

        def __aiter__(self) -> AsyncIterator[bytes]:
            return one_two_async()

    loopback.script(Reset(), Reply(body="well"))
    async with way.client() as client:
        request = client.build_request("PUT", loopback.url, headers={"Transfer-Encoding": "chunked"})
        request.stream = Own()
        with pytest.raises(library.TransportError):
            await way.do(client.send, request)
    assert [request.body for request in loopback.requests] == [b"onetwo"]


async def test_one_that_was_not_begun_is_sent_after_all(once: tuple[Way, Any], loopback: Server) -> None:
    """A connection is refused, then the server is there: nobody has read the body before."""
    way, body = once
    with refused() as address:
        async with way.client(max_attempts=2) as client:
            transport = client._transport
            there = transport.inner
            transport.inner = Elsewhere(way, there, f"http://{address}")
            response = await way.do(client.post, loopback.url, content=body)
            assert response.extensions["forbear"].attempts == 2
    assert [request.body for request in loopback.requests] == [b"onetwo"]


class Elsewhere:
    """A transport that sends the first attempt to another address."""

    def __init__(self, way: Way, there: Any, url: str) -> None:
        self.way, self.there, self.url = way, there, url
        self.sent = 0

    def _directed(self, request: Any) -> Any:
        self.sent += 1
        if self.sent == 1:
            request.url = self.way.library.URL(self.url)
        return request

    def handle_request(self, request: Any) -> Any:
        return self.there.handle_request(self._directed(request))

    async def handle_async_request(self, request: Any) -> Any:
        return await self.there.handle_async_request(self._directed(request))

    def close(self) -> None:
        self.there.close()

    async def aclose(self) -> None:
        await self.there.aclose()


async def test_after_a_redirect_what_is_in_memory_is_sent_whole_again(way: Way, loopback: Server) -> None:
    def of(request: Request) -> Any:
        seen = [one.path for one in loopback.requests].count(request.path)
        if request.path == "/":
            return Reply(503) if seen == 1 else Reply(307, {"Location": "/there"})
        return Reset() if seen == 1 else Reply(body="well")

    loopback.script(Choose(of))
    async with way.client() as client:
        response = await way.do(client.put, loopback.url, content=BIG, follow_redirects=True)
        assert response.text == "well"
    assert [request.path for request in loopback.requests] == ["/", "/", "/there", "/there"]
    assert all(request.body == BIG for request in loopback.requests)


# ---- keys ------------------------------------------------------------------------------------------------------------


async def test_one_key_goes_with_all_attempts_and_another_with_the_next_call(way: Way, loopback: Server) -> None:
    loopback.script(Reset(), Hang(), Reply(503), Reply(body="well"))
    async with way.client(idempotency_key=True, attempt_timeout=0.3) as client:
        for _ in range(2):
            assert (await way.do(client.post, loopback.url, content=b"order")).text == "well"
    keys = [request.header("idempotency-key") for request in loopback.requests]
    assert len(keys) == 5
    assert len(set(keys)) == 2
    assert keys[0] == keys[3]
    assert None not in keys
    assert all(request.body == b"order" for request in loopback.requests)


async def test_a_body_that_can_be_read_only_once_is_not_sent_again_for_its_key(way: Way, loopback: Server) -> None:
    loopback.script(Reset(), Reply(body="well"))
    async with way.client(idempotency_key=True, idempotent=True) as client:
        with pytest.raises(way.library.TransportError):
            await way.do(client.post, loopback.url, content=Numbers() if way.blocking else AsyncNumbers())
    assert [request.body for request in loopback.requests] == [b"onetwo"]
