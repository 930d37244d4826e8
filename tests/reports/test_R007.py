"""R007: a byte now and then keeps a per-read timeout content for ever; an attempt's limit is for the whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest

from forbear import DeadlineExceeded, RetriesExhausted, attempts, deadline, retry

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
