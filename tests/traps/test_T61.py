"""T61: first come, first served; a full key holds up no other; what must not block does not."""

from __future__ import annotations

import asyncio
import time

import pytest

from forbear import DeadlineExceeded, RateLimiter, Upstream
from forbear.testing import FakeTime


async def test_calls_of_a_service_go_in_the_order_in_which_they_came() -> None:
    upstream = Upstream("service", requests_per_minute=600, max_concurrency=2)
    with FakeTime() as clock:
        order: list[int] = []

        async def call(number: int) -> None:
            async def fn() -> None:
                order.append(number)
                await asyncio.sleep(1.0 if number % 3 else 0.1)

            await asyncio.sleep(number / 1000)
            await upstream.retry(fn, deadline=None)

        await asyncio.gather(*[call(number) for number in range(30)])
        assert clock.now > 9.0
    assert order == list(range(30))


async def test_a_retry_stands_behind_those_who_came_before_it() -> None:
    upstream = Upstream("service", max_concurrency=1, adaptive=False)
    with FakeTime():
        order: list[str] = []

        async def first() -> None:
            order.append("first")
            await asyncio.sleep(1.0)
            if order.count("first") == 1:
                raise ConnectionError

        async def other(name: str) -> None:
            order.append(name)
            await asyncio.sleep(1.0)

        calls = [upstream.retry(first, base=0)]
        calls += [upstream.retry(lambda name=name: other(name)) for name in "abc"]
        await asyncio.gather(*calls)
    assert order == ["first", "a", "b", "c", "first"]


async def test_a_key_that_is_full_holds_up_no_other() -> None:
    service = Upstream("service", requests_per_minute=6, max_concurrency=1)
    with FakeTime() as clock:
        full, free = service.for_("full"), service.for_("free")
        await full.retry(lambda: asyncio.sleep(0))
        waiting = asyncio.create_task(full.retry(lambda: asyncio.sleep(0)))
        await asyncio.sleep(0)
        await free.retry(lambda: asyncio.sleep(0))
        assert (clock.now, full.snapshot().waiting) == (0.0, 1)
        await waiting
        assert clock.now == 10.0


def test_what_must_not_block_does_not() -> None:
    limiter = RateLimiter(1, burst=1)
    began = time.monotonic()
    limiter.acquire(timeout=0)
    for _ in range(100):
        with pytest.raises(DeadlineExceeded):
            limiter.acquire(timeout=0)
    assert limiter.reserve() > 50
    assert time.monotonic() - began < 1.0


async def test_what_must_not_block_does_not_for_tasks_either() -> None:
    limiter = RateLimiter(1, burst=1)
    began = time.monotonic()
    await limiter.acquire_async(timeout=0)
    ended = await asyncio.gather(*[limiter.acquire_async(timeout=0) for _ in range(100)], return_exceptions=True)
    assert {type(error) for error in ended} == {DeadlineExceeded}
    assert time.monotonic() - began < 1.0
