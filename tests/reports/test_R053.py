"""R053: on a retry a file is sent from where the first attempt stopped: an empty or cut upload, at times with a 200."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from forbear import RetriesExhausted
from loopback import Line, Reset, Server, Talk

BODY = bytes(at % 251 for at in range(1_000_000))
QUICK: dict[str, Any] = {"base": 0.001, "cap": 0.002}
PARTNERS = ["httpx", "httpx2"]


class HalfWay:
    """A server that resets the first upload after half of it, and takes the next ones whole."""

    def __init__(self) -> None:
        self.uploads: list[bytes] = []

    async def __call__(self, line: Line) -> None:
        head = await line.reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        half = not self.uploads
        self.uploads.append(await line.reader.readexactly(int(length) // (2 if half else 1)))
        if half:
            line.reset()
        else:
            await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


class Pipe(io.RawIOBase):
    """A file that can't be set back."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)


def put(name: str, url: str, body: Any) -> Any:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    with library.Client(transport=ours.Transport(library.HTTPTransport(trust_env=False), **QUICK)) as client:
        return client.put(url, content=body, headers={"Content-Length": str(len(BODY))})


@pytest.mark.parametrize("name", PARTNERS)
@pytest.mark.parametrize("offset", [0, 10])
def test_a_file_goes_back_to_where_the_call_found_it(name: str, offset: int) -> None:
    server_side = HalfWay()
    file = io.BytesIO(b"-" * offset + BODY)
    file.seek(offset)
    with Server(Talk(server_side)) as server:
        assert put(name, server.url, file).extensions["forbear"].attempts == 2
    assert server_side.uploads == [BODY[: len(BODY) // 2], BODY]


def generator() -> Iterator[bytes]:
    for at in range(10):
        yield BODY[at * 100_000 : (at + 1) * 100_000]


@pytest.mark.parametrize("name", PARTNERS)
@pytest.mark.parametrize(
    "make", [lambda: Pipe(BODY), generator, lambda: iter([BODY])], ids=["pipe", "generator", "iter"]
)
def test_what_can_be_read_only_once_is_not_sent_again(name: str, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "forbear")
    server_side = HalfWay()
    library = pytest.importorskip(name)
    with Server(Talk(server_side), Reset()) as server:
        with pytest.raises(library.TransportError) as caught:
            put(name, server.url, make())
        assert not isinstance(caught.value, RetriesExhausted)
        assert server.connections == 1
    assert server_side.uploads == [BODY[: len(BODY) // 2]]
    assert "can be read only once" in caplog.text
    assert "give bytes, a file that can seek, or Body(function)" in caplog.text
