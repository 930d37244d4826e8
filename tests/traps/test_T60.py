"""T60: a large request must get its turn, however many small ones come after it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from forbear import RateLimiter, Upstream
from forbear.testing import FakeTime


@pytest.mark.parametrize("size", [100, 3000, 6000])
@pytest.mark.parametrize("options", [{}, {"burst": 60}, {"strict_window": 60}])
async def test_small_requests_that_come_later_wait_for_it(size: int, options: dict[str, Any]) -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(None, 6000, **options)
        await limiter.acquire_async(6000)
        served: dict[int, float] = {}

        async def request(number: int, tokens: int) -> None:
            await limiter.acquire_async(tokens)
            served[number] = clock.now

        async def flood() -> None:
            for number in range(1, 1200):
                await asyncio.sleep(0.1)
                tasks.append(asyncio.create_task(request(number, 5)))

        tasks = [asyncio.create_task(request(0, size))]
        await flood()
        await asyncio.gather(*tasks)
    assert served[0] <= 61.0
    assert served[0] == min(served.values())
    assert list(served) == sorted(served)


async def test_an_upstream_serves_it_in_turn_too() -> None:
    upstream = Upstream("service", requests_per_minute=6000, tokens_per_minute=6000)
    with FakeTime() as clock:
        served: list[tuple[int, float]] = []

        async def request(tokens: int) -> None:
            await upstream.retry(lambda: asyncio.sleep(0), tokens=tokens, deadline=None)
            served.append((tokens, clock.now))

        await asyncio.gather(request(100), request(6000), *[request(1) for _ in range(200)])
    assert [tokens for tokens, _ in served[:3]] == [100, 6000, 1]
    assert served[1][1] == pytest.approx(1.0)


def test_threads_do_not_pass_it() -> None:
    limiter = RateLimiter(None, 60_000, burst=200)
    limiter.acquire(200)
    served: list[int] = []
    large = threading.Thread(target=lambda: (limiter.acquire(200), served.append(200)))
    large.start()
    while not len(limiter._line()):
        time.sleep(0.001)
    small = [threading.Thread(target=lambda: (limiter.acquire(1), served.append(1))) for _ in range(8)]
    for thread in small:
        thread.start()
    for thread in (large, *small):
        thread.join(10)
    assert served[0] == 200 or served.index(200) < 8  # it was let through first; threads note it in any order
    assert len(served) == 9
