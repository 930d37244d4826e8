"""The adapter for requests sends a request's body again whole, from where it stood, or not at all."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forbear import RetriesExhausted
from forbear.testing import record_events
from loopback import Choose, Close, Line, Reply, Request, Reset, Server, Talk, refused

requests = pytest.importorskip("requests")

from forbear.integrations.requests import Adapter, Body  # noqa: E402  # once it is known that requests is there

QUICK: dict[str, Any] = {"base": 0.001, "cap": 0.002}
LARGE = bytes(at % 251 for at in range(8_000_000))  # more than the buffers between client and server take


@contextmanager
def session_with(**options: Any) -> Iterator[Any]:
    with requests.Session() as session:
        session.mount("http://", Adapter(**{**QUICK, **options}))
        yield session


async def take_half(line: Line) -> None:
    """The connection is reset while the body is on its way."""
    await line.reader.readexactly(100_000)
    line.reset()


class Pipe(io.RawIOBase):
    """A file that can't be set back."""

    def __init__(self, content: bytes) -> None:
        self._left = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._left.readinto(buffer)

    def seekable(self) -> bool:
        return False


def generated() -> Iterator[bytes]:
    yield b"one"
    yield b"two"


class Rows:
    """It can be iterated again and again."""

    def __repr__(self) -> str:
        return "rows"

    def __iter__(self) -> Iterator[bytes]:
        return generated()


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"data": b"bytes"}, b"bytes"),
        ({"data": "text"}, b"text"),
        ({"json": {"a": 1}}, b'{"a": 1}'),
        ({"data": {"a": "1", "b": "2"}}, b"a=1&b=2"),
        ({"data": Rows()}, b"onetwo"),
        ({"data": Body(generated)}, b"onetwo"),
        ({"data": Body(lambda: b"made")}, b"made"),
        ({}, b""),
    ],
    ids=repr,
)
@pytest.mark.parametrize("step", [Reply(503), Close()], ids=repr)
def test_a_body_that_can_be_sent_again_is(loopback: Server, step: Any, given: dict[str, Any], sent: bytes) -> None:
    loopback.script(step, step, Reply(body="well"))
    with session_with() as session:
        response = session.put(loopback.url, **given)
        assert (response.text, response.forbear.attempts) == ("well", 3)
    assert [request.body for request in loopback.requests] == [sent] * 3


def test_a_form_with_files_is_sent_again_whole(loopback: Server) -> None:
    loopback.script(Reply(503), Reply())
    with session_with() as session:
        session.put(loopback.url, files={"upload": ("name.txt", io.BytesIO(b"all of it"))})
    first, second = loopback.requests
    assert b"all of it" in first.body
    assert first.body == second.body


@pytest.mark.parametrize("step", [Reply(503), Close(), Talk(take_half)], ids=["answered 503", "closed", "half taken"])
def test_a_file_is_sent_again_from_where_it_stood(tmp_path: Path, step: Any) -> None:
    path = tmp_path / "upload.bin"
    path.write_bytes(LARGE)
    with Server(step, step, Reply(body="well")) as server, session_with() as session, path.open("rb") as file:
        file.seek(10)
        response = session.put(server.url, data=file)
        assert (response.text, response.forbear.attempts) == ("well", 3)
        last = server.requests[-1]
        assert last.header("content-length") == str(len(LARGE) - 10)
        assert last.body == LARGE[10:]
        assert all(len(request.body) == len(LARGE) - 10 for request in server.requests)


def test_the_callers_own_request_keeps_its_body_and_its_headers(loopback: Server) -> None:
    loopback.script(Reply(503), Reply())
    body = generated()
    with session_with(idempotency_key=True) as session:
        request = session.prepare_request(requests.Request("PUT", loopback.url, data=body))
        assert session.send(request).request is request
        assert request.body is body
        assert "Idempotency-Key" not in request.headers


@pytest.mark.parametrize(
    "make", [generated, lambda: Pipe(b"onetwo"), lambda: iter([b"one", b"two"])], ids=["generator", "pipe", "iterator"]
)
@pytest.mark.parametrize("step", [Reply(503, body="busy"), Reset()], ids=repr)
def test_a_body_that_was_begun_and_can_not_be_read_again_ends_the_call(
    loopback: Server, step: Any, make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    loopback.script(step, Reply(body="cut"))
    with session_with() as session, record_events() as events, caplog.at_level(logging.WARNING, "forbear"):
        if isinstance(step, Reply):
            assert session.put(loopback.url, data=make()).text == "busy"
        else:
            with pytest.raises(requests.ConnectionError) as caught:
                session.put(loopback.url, data=make())
            assert not isinstance(caught.value, RetriesExhausted)
    (request,) = loopback.requests
    assert request.body == b"onetwo"
    assert [end.reason for end in events.ends] == ["unsafe"]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "forbear"]
    assert "can be read only once" in line
    assert "Body(" in line


def test_a_body_that_was_not_begun_may_be_sent_later() -> None:
    body = generated()
    with refused() as address, session_with(max_attempts=3) as session, pytest.raises(RetriesExhausted) as caught:
        session.put(f"http://{address}", data=body)
    assert caught.value.attempts == 3
    assert next(body) == b"one"


def test_each_attempt_makes_its_own_body_and_closes_it(loopback: Server) -> None:
    made: list[io.BytesIO] = []

    def make() -> io.BytesIO:
        made.append(io.BytesIO(b"fresh"))
        return made[-1]

    loopback.script(Reset(), Reply(503), Reply())
    with session_with() as session:
        session.put(loopback.url, data=Body(make))
    assert [request.body for request in loopback.requests] == [b"fresh"] * 3
    assert len(made) == 3
    assert all(file.closed for file in made)


def test_a_redirect_takes_the_body_along_from_where_it_stood(loopback: Server) -> None:
    def answer(request: Request) -> Reply:
        return Reply(body=request.body) if request.path == "/there" else Reply(307, {"Location": "/there"})

    loopback.script(Reply(503), Choose(answer), Reply(503), Choose(answer))
    file = io.BytesIO(b"0123456789rest")
    file.seek(10)
    with session_with() as session:
        assert session.put(loopback.url, data=file).content == b"rest"
    assert [request.body for request in loopback.requests] == [b"rest"] * 4


def test_a_text_file_and_one_without_a_length_are_sent_whole(loopback: Server) -> None:
    with session_with() as session:
        loopback.script(Reply(503), Reply())
        session.put(loopback.url, data=io.StringIO("text"))
        assert [request.body for request in loopback.requests] == [b"text"] * 2
        loopback.requests.clear()
        loopback.script(Reply())
        session.put(loopback.url, data=Pipe(b"onetwo"))
        assert loopback.requests[0].header("transfer-encoding") == "chunked"
        assert loopback.requests[0].body == b"onetwo"
