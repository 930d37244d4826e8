"""The cases of the two timeouts: a limit for each attempt, and one for everything, waits included.

Real sockets on the loopback interface in real time, with wide margins; the exact figures in virtual time beside them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from forbear import (
    DeadlineExceeded,
    Policy,
    RetriesExhausted,
    RetryError,
    current_attempt,
    current_deadline,
    deadline,
    retry,
    retry_sync,
)
from forbear.testing import FakeTime, Flaky, Hang

MEASURED = Policy(max_attempts=20, attempt_timeout=0.2, deadline=1.0, base=0.05, jitter="equal")
SLACK = 1.0  # seconds that a busy machine may add


def closed_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def server(answer: bytes | None) -> AsyncIterator[int]:
    """Accepts connections; answers each with `answer`, or never."""
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        await reader.read()
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield running.sockets[0].getsockname()[1]
    finally:
        running.close()
        for writer in writers:
            writer.close()


async def fetch(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.readexactly(2)
    finally:
        writer.close()


def counted(ports: list[int]) -> tuple[list[float], Callable[[], Any]]:
    """A function that goes to one port after the other, the last one for ever, and the instants of its calls."""
    calls: list[float] = []

    async def fn() -> bytes:
        calls.append(time.monotonic())
        return await fetch(ports[min(len(calls), len(ports)) - 1])

    return calls, fn


async def test_a_server_that_refuses_twice_then_answers() -> None:
    async with server(b"ok") as port:
        calls, fn = counted([closed_port(), closed_port(), port])
        began = time.monotonic()
        assert await retry(fn, policy=MEASURED, rng=lambda: 0.5) == b"ok"
    assert len(calls) == 3
    assert 0.1 <= time.monotonic() - began < 0.26 + SLACK


async def test_a_server_that_never_answers() -> None:
    async with server(None) as port:
        calls, fn = counted([port])
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            await retry(fn, policy=MEASURED, rng=lambda: 0.5)
    elapsed = time.monotonic() - began
    assert 0.85 <= elapsed < 1.0 + SLACK
    assert len(calls) == caught.value.attempts <= 4
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert caught.value.elapsed == pytest.approx(elapsed, abs=0.2)


async def test_a_server_that_always_refuses_is_given_up_by_time_and_not_by_count() -> None:
    calls, fn = counted([closed_port()])
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded) as caught:
        await retry(fn, policy=MEASURED)
    assert time.monotonic() - began < 1.0 + SLACK
    assert 4 <= len(calls) < 20
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


async def test_one_total_timeout_alone_makes_one_attempt() -> None:
    async with server(None) as port:
        calls, fn = counted([port])
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            await retry(fn, policy=MEASURED.replace(attempt_timeout=None))
    assert 1.0 <= time.monotonic() - began < 1.0 + SLACK
    assert (len(calls), caught.value.attempts) == (1, 1)


def test_blocking_code_that_uses_the_time_it_is_offered_keeps_the_limits() -> None:
    calls = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def fn() -> bytes:
            attempt = current_attempt()
            assert attempt is not None
            calls.append(attempt.timeout)
            with closing(socket.create_connection(listening.getsockname(), timeout=attempt.timeout)) as connection:
                return connection.recv(2)

        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            retry_sync(fn, policy=MEASURED, rng=lambda: 0.5)
    assert 0.85 <= time.monotonic() - began < 1.0 + SLACK
    assert all(timeout is not None and 0 < timeout <= 0.2 for timeout in calls)


# ---- the same in virtual time, exactly --------------------------------------------------------------------------


async def test_the_last_attempt_is_clipped_and_the_total_is_never_passed() -> None:
    with FakeTime(rng=lambda: 0.5) as fake:
        hung = Flaky(then=Hang(1000))
        with pytest.raises(DeadlineExceeded) as caught:
            await retry(hung.asynchronous, policy=MEASURED)
        assert fake.now == pytest.approx(1.0, abs=1e-6)
    assert caught.value.attempts == hung.calls == 4
    assert fake.sleeps == pytest.approx([0.0375, 0.075, 0.15])


@pytest.mark.parametrize("rng", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("late", ["stop", "shorten"])
@pytest.mark.parametrize("outcome", [ConnectionError, Hang(0.07, ConnectionError()), Hang(1000)])
async def test_elapsed_time_never_passes_the_total(rng: float, late: Any, outcome: Any) -> None:
    with FakeTime(rng=lambda: rng) as fake:
        with pytest.raises(DeadlineExceeded):
            await retry(
                Flaky(then=outcome).asynchronous,
                policy=MEASURED.replace(max_attempts=None, minimum_attempt=0.01, late_backoff=late),
            )
        assert fake.now <= 1.0 + 1e-9
        if late == "shorten":
            assert fake.now == pytest.approx(1.0, abs=0.011)


async def test_a_late_backoff_is_shortened_to_fit_or_not_made() -> None:
    policy = Policy(max_attempts=None, attempt_timeout=None, deadline=10, base=8, cap=8, jitter="none")
    with FakeTime() as fake:
        stopping = Flaky(then=ConnectionError)
        with pytest.raises(DeadlineExceeded):
            await retry(stopping.asynchronous, policy=policy)
        assert (stopping.calls, fake.sleeps, fake.now) == (2, [8], 8)
    with FakeTime() as fake:
        shortening = Flaky(ConnectionError, ConnectionError, Hang(0.5, "done"))
        assert (
            await retry(shortening.asynchronous, policy=policy, late_backoff="shorten", minimum_attempt=0.6) == "done"
        )
        assert (fake.sleeps, fake.now) == ([8, 1.4], 9.9)


async def test_the_budget_of_the_caller_is_the_budget_of_the_call() -> None:
    with FakeTime() as fake:
        async with deadline(2.0, margin=0.2):
            granted = current_deadline()
            assert granted is not None
            assert granted.remaining() == pytest.approx(1.8)
            with pytest.raises(DeadlineExceeded):
                await retry(Flaky(then=Hang(1000)).asynchronous, attempt_timeout=None)
        assert fake.now == pytest.approx(1.8)


def test_a_request_that_arrives_with_little_time_makes_one_short_attempt() -> None:
    with FakeTime() as fake, deadline(0.2):
        failing = Flaky(then=Hang(0.1, ConnectionError()))
        with pytest.raises(DeadlineExceeded):
            retry_sync(failing, base=0.5, jitter="none")
        assert failing.calls == 1
        assert fake.now == pytest.approx(0.1)


async def test_nested_layers_do_not_multiply() -> None:
    failing = Flaky(then=ConnectionError)

    async def inner() -> None:
        await retry(failing.asynchronous, max_attempts=3)

    async def middle() -> None:
        await retry(inner, max_attempts=3)

    with FakeTime(), pytest.raises(RetryError) as caught:
        await retry(middle, max_attempts=3)
    assert failing.calls == 3
    assert isinstance(caught.value, RetriesExhausted)
    assert isinstance(caught.value.__cause__, ConnectionError)
