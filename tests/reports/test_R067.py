"""R067: a waiter that loses the race for a place must wait on, not give up or be let through without its turn."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from forbear import RateLimiter, Upstream
from forbear.testing import FakeTime

DAY = 86_400.0


async def test_ten_that_are_gathered_all_go_in_order_three_in_any_three_seconds() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60, strict_window=3)
        went: list[tuple[int, float]] = []

        async def one(number: int) -> None:
            await limiter.acquire_async(timeout=DAY)
            went.append((number, clock.now))

        await asyncio.gather(*[one(number) for number in range(10)])
    assert [number for number, _ in went] == list(range(10))
    assert [at for _, at in went] == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9]


async def test_the_same_of_an_upstream_with_a_deadline_far_away() -> None:
    upstream = Upstream("service", requests_per_minute=60, strict_window=3)
    with FakeTime() as clock:
        went: list[tuple[int, float]] = []

        async def note(number: int) -> None:
            went.append((number, clock.now))

        await asyncio.gather(
            *[upstream.retry(lambda number=number: note(number), deadline=DAY) for number in range(10)]
        )
    assert went == [(n, n // 3 * 3) for n in range(10)]


@pytest.mark.parametrize("limit", [DAY, None])
def test_ten_threads_that_race_all_go_and_never_more_than_allowed(limit: float | None) -> None:
    limiter = RateLimiter(60 * 30, strict_window=0.1)
    went: list[float] = []
    barrier = threading.Barrier(10)

    def work() -> None:
        barrier.wait(10)
        limiter.acquire(timeout=limit)
        went.append(time.monotonic())

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(went) == 10
    assert max(went) - min(went) >= 0.3 - 0.05
    assert len(limiter._line()) == 0
