"""HTTP/2 as httpx speaks it: what a peer says when it refuses a stream, or hangs up before it has looked at one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forbear.classify.failures import classify
from loopback import Cut, Server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, GOAWAY = 1, 3, 4, 7
REFUSED_STREAM, INTERNAL_ERROR = 7, 2


def frame(kind: int, stream: int, *numbers: int) -> bytes:
    """A frame whose content is numbers of four bytes."""
    content = b"".join(number.to_bytes(4) for number in numbers)
    return len(content).to_bytes(3) + bytes((kind, 0)) + stream.to_bytes(4) + content


@contextmanager
def peer(word: bytes) -> Iterator[str]:
    """A server that says this word to the first request; without a word it hangs up."""

    def serve() -> None:
        line, _ = door.accept()
        with line:
            line.sendall(frame(SETTINGS, 0))
            heard = b""
            while not has_headers(heard):
                heard += line.recv(65_536)
            line.sendall(word)
            while word and line.recv(65_536):
                pass  # until the client hangs up

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}/"
        thread.join(5)


def has_headers(heard: bytes) -> bool:
    """Whether a whole frame of headers has come."""
    at = len(PREFACE)
    while at + 9 <= len(heard):
        size, kind = int.from_bytes(heard[at : at + 3]), heard[at + 3]
        at += 9 + size
        if kind == HEADERS:
            return at <= len(heard)
    return False


@pytest.mark.parametrize("package", ["httpx", "httpx2"])
@pytest.mark.parametrize(
    ("word", "executed"),
    [
        (frame(RST_STREAM, 1, REFUSED_STREAM), "no"),
        (frame(RST_STREAM, 1, INTERNAL_ERROR), "maybe"),
        (frame(GOAWAY, 0, 0, 0), "no"),
        (frame(GOAWAY, 0, 1, 0), "maybe"),
        (b"", "maybe"),
    ],
    ids=["refused stream", "reset stream", "farewell before it", "farewell after it", "hung up"],
)
def test_a_request_that_the_peer_did_not_look_at_was_not_done(package: str, word: bytes, executed: str) -> None:
    pytest.importorskip("h2")
    httpx = pytest.importorskip(package)
    client = httpx.Client(http1=False, http2=True, timeout=5)
    with peer(word) as url, client, pytest.raises(httpx.TransportError) as caught:
        client.get(url)
    verdict = classify(caught.value, idempotent=False)
    assert (verdict.transient, verdict.executed, verdict.safe_to_retry) == (True, executed, executed == "no")


@pytest.mark.parametrize("package", ["httpx", "httpx2"])
def test_a_body_that_is_shorter_than_announced_may_be_whole_next_time(package: str) -> None:
    pytest.importorskip("h2")
    httpx = pytest.importorskip(package)
    client = httpx.Client(http1=False, http2=True, timeout=5)
    with Server(Cut(b"part"), http2=True) as server, client, pytest.raises(Exception) as caught:  # h2's own
        client.get(server.url)
    verdict = classify(caught.value, idempotent=False)
    assert (verdict.transient, verdict.executed) == (True, "maybe")
