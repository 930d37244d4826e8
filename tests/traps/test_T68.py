"""T68: a window that is counted from fixed instants lets twice its share out at its edges; ours has no edges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forbear import RateLimiter, Upstream
from forbear.testing import FakeTime


def most_in(window: float, instants: list[float]) -> int:
    """The most of them in any window that begins with one."""
    return max(sum(begin <= instant < begin + window - 1e-6 for instant in instants) for begin in instants)


@pytest.mark.parametrize("start", [0.0, 0.5, 0.99, 0.995, 59.999])
async def test_no_window_of_one_second_holds_more_than_ten_wherever_it_begins(start: float) -> None:
    with FakeTime(start=start) as clock:
        limiter = RateLimiter(600, strict_window=1.0)
        went: list[float] = []

        async def worker() -> None:
            for _ in range(4):
                await limiter.acquire_async()
                went.append(clock.now)

        await asyncio.sleep(0.99)
        await asyncio.gather(*[worker() for _ in range(20)])
    assert most_in(1.0, went) == 10
    assert max(went) - min(went) == pytest.approx(7.0)


async def test_the_same_of_an_upstream_whose_attempts_fail() -> None:
    upstream = Upstream("service", requests_per_minute=600, strict_window=1.0, budget=None, adaptive=False)
    with FakeTime() as clock:
        went: list[float] = []

        async def fn() -> None:
            went.append(clock.now)
            raise ConnectionError

        calls = [upstream.retry(fn, max_attempts=3, base=0.3, deadline=None) for _ in range(20)]
        await asyncio.gather(*calls, return_exceptions=True)
    assert len(went) == 60
    assert most_in(1.0, went) == 10


def test_bookings_count_from_when_they_are_due() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(12, strict_window=10.0)
        due: list[float] = []
        for _ in range(40):
            due.append(clock.now + limiter.reserve())
            clock.advance(0.7)
    assert most_in(10.0, due) == 2


async def test_what_is_given_back_at_an_edge_lets_no_more_out() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(600, strict_window=1.0)
        went: list[float] = []

        async def one(cancelled: bool) -> None:
            await limiter.acquire_async()
            if not cancelled:
                went.append(clock.now)

        tasks = [asyncio.create_task(one(number % 3 == 0)) for number in range(60)]
        await asyncio.sleep(0.999)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert most_in(1.0, went) <= 10


@pytest.mark.parametrize("late", [0.0, 0.01, 0.04])
def test_a_late_timer_makes_no_window_fuller(late: float) -> None:
    went: list[float] = []
    clock = FakeTime()
    sleep: Callable[[float], None] = clock.sleep

    def oversleep(delay: float) -> None:
        sleep(delay + late * (len(went) % 2))

    object.__setattr__(clock.world, "sleep", oversleep)
    with clock:
        limiter: Any = RateLimiter(60, strict_window=1.0)
        for _ in range(20):
            limiter.acquire()
            went.append(clock.now)
    assert most_in(1.0, went) == 1
