"""R007: a byte now and then keeps a per-read timeout content for ever; an attempt's limit is for the whole."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from forbear import DeadlineExceeded, RetriesExhausted, attempts, deadline, retry
from loopback import Line, Reply, Server, Stream, Talk
from loopback.fixtures import authority as authority

if TYPE_CHECKING:
    from loopback.certificates import Authority

GAP = 0.05  # seconds between two bytes; far below every timeout of the client
LENGTH = 2000  # bytes of the body, a hundred seconds' worth
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LENGTH


class Dripping:
    """A server that answers a byte at a time, its head too or only its body, and counts who is connected."""

    def __init__(self, head_too: bool) -> None:
        self.head_too = head_too
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            answer = HEAD + b"." * LENGTH
            at_once = 0 if self.head_too else len(HEAD)
            writer.write(answer[:at_once])
            for byte in answer[at_once:]:
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(GAP)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def dripping(head_too: bool) -> AsyncGenerator[tuple[httpx.AsyncClient, str]]:
    server = Dripping(head_too)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    async with httpx.AsyncClient(timeout=30.0, trust_env=False) as client:
        yield client, url
    for _ in range(400):
        if server.open == 0:
            break
        await asyncio.sleep(0.02)
    listening.close()
    assert server.open == 0  # every cut attempt has closed its connection


@pytest.mark.parametrize("head_too", [True, False], ids=["head and body", "body only"])
async def test_the_limit_of_an_attempt_covers_head_and_body(head_too: bool) -> None:
    calls: list[httpx.AsyncClient] = []

    async def get(client: httpx.AsyncClient, url: str) -> httpx.Response:
        calls.append(client)
        return await client.get(url)

    async with dripping(head_too) as (client, url):
        began = time.monotonic()
        with pytest.raises(RetriesExhausted) as caught:
            await retry(lambda: get(client, url), attempt_timeout=0.3, max_attempts=2, backoff=[0.01])
        assert 0.6 <= time.monotonic() - began < 20.0
    assert len(calls) == 2
    assert isinstance(caught.value.last_error, TimeoutError)


async def test_a_block_that_reads_the_body_itself_is_covered_too() -> None:
    received = 0
    async with dripping(head_too=False) as (client, url):
        began = time.monotonic()
        with pytest.raises(RetriesExhausted):
            async for attempt in attempts(attempt_timeout=1.0, max_attempts=1):
                async with attempt, client.stream("GET", url) as response:
                    async for chunk in response.aiter_raw():
                        received += len(chunk)
        assert 1.0 <= time.monotonic() - began < 20.0
    assert 0 < received < LENGTH


@pytest.mark.parametrize("how", ["option", "block"])
async def test_the_limit_of_the_call_covers_them_as_well(how: str) -> None:
    async with dripping(head_too=True) as (client, url):
        began = time.monotonic()
        limit = 0.3 if how == "option" else None
        with pytest.raises(DeadlineExceeded):
            async with deadline(0.3 if how == "block" else None):
                await retry(lambda: client.get(url), attempt_timeout=None, deadline=limit)
        assert 0.3 <= time.monotonic() - began < 20.0


# ---- through the transports for HTTP clients -------------------------------------------------------------------------

PARTNERS = ["httpx", "httpx2"]
HEAD_TOO = {"head and body": True, "body only": False}


class Drips:
    """A server's side that drips its whole answer, or only its body."""

    def __init__(self, head_too: bool) -> None:
        self.head_too = head_too

    async def __call__(self, line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        answer = HEAD + b"." * LENGTH
        at_once = 0 if self.head_too else len(HEAD)
        await line.send(answer[:at_once])
        for byte in answer[at_once:]:
            await line.send(bytes((byte,)))
            await asyncio.sleep(GAP)


@pytest.fixture(params=HEAD_TOO)
def drips(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(Talk(Drips(HEAD_TOO[request.param]))) as server:
        yield server
        server.wait_until_idle()  # every cut attempt has closed its connection


CUT: dict[str, Any] = {"attempt_timeout": 0.3, "max_attempts": 2, "base": 0.01, "cap": 0.01}


@pytest.mark.parametrize("name", PARTNERS)
def test_a_blocking_client_ends_at_the_attempts_limit(drips: Server, name: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    transport = ours.Transport(library.HTTPTransport(trust_env=False), **CUT)
    with library.Client(transport=transport, timeout=30.0) as client:
        began = time.monotonic()
        with pytest.raises(RetriesExhausted) as caught:
            client.get(drips.url)
        assert 0.55 <= time.monotonic() - began < 3.0
    assert caught.value.attempts == 2
    assert isinstance(caught.value.last_error, library.ReadTimeout)


@pytest.mark.parametrize("name", PARTNERS)
async def test_an_async_client_does_too(drips: Server, name: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    transport = ours.AsyncTransport(library.AsyncHTTPTransport(trust_env=False), **CUT)
    async with library.AsyncClient(transport=transport, timeout=30.0) as client:
        began = time.monotonic()
        with pytest.raises(RetriesExhausted) as caught:
            await client.get(drips.url)
        assert 0.55 <= time.monotonic() - began < 3.0
    assert caught.value.attempts == 2
    assert isinstance(caught.value.last_error, (TimeoutError, library.ReadTimeout))


@pytest.mark.parametrize("name", PARTNERS)
def test_over_tls_a_blocking_client_does_too(authority: Authority, name: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    context = ssl.create_default_context(cafile=str(authority.bundle))
    with Server(Reply(body="." * LENGTH, drip=GAP), tls=authority.context()) as server:
        transport = ours.Transport(library.HTTPTransport(trust_env=False, verify=context), **CUT)
        with library.Client(transport=transport, timeout=30.0) as client:
            began = time.monotonic()
            with pytest.raises(RetriesExhausted):
                client.get(server.url)
            assert 0.55 <= time.monotonic() - began < 3.0


@pytest.mark.parametrize("name", PARTNERS)
def test_a_connection_that_is_kept_is_read_in_time_as_well(name: str) -> None:
    """And by the limit of whoever uses it now, not of the call that it was made for."""
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    with Server(Reply(), Reply(body="." * 10, drip=0.02), Reply(body="." * LENGTH, drip=GAP)) as server:
        inner = library.HTTPTransport(trust_env=False)
        short, long = ours.Transport(inner, **CUT), ours.Transport(inner, attempt_timeout=20.0)
        with library.Client(transport=short, timeout=30.0) as client:
            assert client.get(server.url).status_code == 200
            with library.Client(transport=long, timeout=30.0) as patient:
                assert len(patient.get(server.url).content) == 10
                began = time.monotonic()
                with pytest.raises(RetriesExhausted):
                    client.get(server.url)
            assert 0.55 <= time.monotonic() - began < 3.0


@pytest.mark.parametrize("name", PARTNERS)
def test_the_limit_of_the_call_covers_a_body_without_a_length(name: str) -> None:
    library, ours = pytest.importorskip(name), import_module(f"forbear.integrations.{name}")
    chunks: list[bytes | float] = [b".", GAP] * LENGTH
    with Server(Stream(chunks)) as server:
        transport = ours.Transport(library.HTTPTransport(trust_env=False), attempt_timeout=0.3, deadline=0.6)
        with library.Client(transport=transport, timeout=30.0) as client:
            began = time.monotonic()
            with pytest.raises(library.TimeoutException) as caught:
                client.get(server.url)
            assert 0.55 <= time.monotonic() - began < 3.0
    assert isinstance(caught.value, DeadlineExceeded)
