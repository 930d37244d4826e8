"""Time on real sockets, under httpx and httpx2: which limit ends a call, and what is said about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from forbear.integrations import sole_owner
from loopback import Hang, Reply, Server, Talk

PARTNERS = ["httpx", "httpx2"]
KINDS = ["blocking", "async"]


class Way:
    """A client of one library, blocking or async, whose requests are made alike."""

    def __init__(self, name: str, kind: str) -> None:
        self.library: Any = pytest.importorskip(name)
        self.ours: Any = import_module(f"forbear.integrations.{name}")
        self.blocking = kind == "blocking"

    def get(self, url: str, read: Callable[[Any], Any] = lambda answer: answer, **options: Any) -> Any:
        """The answer to one request, or what `read` makes of it."""
        if self.blocking:
            with self.library.Client(transport=self.ours.Transport(**options), timeout=30.0) as client:
                return read(client.get(url))

        async def main() -> Any:
            transport = self.ours.AsyncTransport(**options)
            async with self.library.AsyncClient(transport=transport, timeout=30.0) as client:
                return read(await client.get(url))

        return asyncio.run(main())


@pytest.fixture(params=[(name, kind) for name in PARTNERS for kind in KINDS], ids=" ".join)
def way(request: pytest.FixtureRequest) -> Way:
    return Way(*request.param)


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
def test_an_attempt_that_the_deadline_cuts_ends_the_call_by_it(way: Way, loopback: Server, max_attempts: int) -> None:
    """Also where it was the last that was allowed: a gateway answers 504 then, and not 502."""
    loopback.script(Hang())
    each = 10.0 if max_attempts == 1 else 0.3
    with pytest.raises(way.ours.DeadlineExceeded) as caught:
        way.get(loopback.url, deadline=0.4, attempt_timeout=each, max_attempts=max_attempts, backoff=[0.0] * 4)
    assert caught.value.reason == "deadline"
    assert isinstance(caught.value, way.library.TimeoutException)


def test_an_answer_that_falls_silent_is_given_up_and_asked_for_again(way: Way) -> None:
    body = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nabc"
    began = time.monotonic()
    with Server(_silent(body), Reply(body="whole")) as server:
        answer = way.get(server.url, attempt_timeout=None, gap_timeout=0.2, deadline=20.0, backoff=[0.0])
        assert (answer.text, len(server.requests) + 1) == ("whole", 2)
    assert time.monotonic() - began < 10


def _silent(said: bytes) -> Any:
    """Says this, and nothing more."""

    async def talk(line: Any) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.send(said)
        await line.until_gone()

    return Talk(talk)


def test_a_failure_whose_body_never_ends_is_judged_by_its_status(way: Way) -> None:
    """Without forbear its status would be known at once; it must not be asked for again and again."""
    with Server(_silent(b"HTTP/1.1 404 Not Found\r\ncontent-length: 1000\r\n\r\nabc")) as server:
        with pytest.raises(way.library.ReadError, match="its body broke off"):
            way.get(server.url, attempt_timeout=None, gap_timeout=0.2, deadline=20.0)
        assert server.connections == 1


def test_a_kept_connection_that_was_there_before_is_read_in_time_too(loopback: Server) -> None:
    httpx = pytest.importorskip("httpx")
    loopback.script(Reply(body="warm"), Reply(body="." * 100, drip=0.05))
    with httpx.Client(timeout=30.0) as plain:
        assert plain.get(loopback.url).text == "warm"
        owned = sole_owner(plain, deadline=1.0)
        began = time.monotonic()
        with pytest.raises(httpx.TimeoutException):
            owned.get(loopback.url)
        assert time.monotonic() - began < 3
    assert loopback.connections == 1
