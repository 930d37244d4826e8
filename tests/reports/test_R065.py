"""R065: "2 per 10 s" must not let three out in 5 s where the service counts strictly; a burst is asked for by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from forbear import RateLimiter, Upstream
from forbear.testing import FakeTime


async def starts(wait: Callable[[], Awaitable[object]], clock: FakeTime) -> list[float]:
    went: list[float] = []

    async def one() -> None:
        await wait()
        went.append(clock.now)

    await asyncio.gather(*[one() for _ in range(5)])
    return went


async def test_a_strict_window_lets_two_out_in_any_ten_seconds() -> None:
    with FakeTime() as clock:
        assert await starts(RateLimiter(12, strict_window=10).acquire_async, clock) == [0, 0, 10, 10, 20]


async def test_one_of_an_upstream_does_so_too() -> None:
    upstream = Upstream("service", requests_per_minute=12, strict_window=10)
    with FakeTime() as clock:
        went = await starts(lambda: upstream.retry(lambda: asyncio.sleep(0), deadline=None), clock)
    assert went == [0, 0, 10, 10, 20]


async def test_a_burst_is_what_was_asked_for() -> None:
    with FakeTime() as clock:
        assert await starts(RateLimiter(12, burst=2).acquire_async, clock) == pytest.approx([0, 0, 5, 10, 15])
    with FakeTime() as clock:
        assert await starts(RateLimiter(12, burst=1).acquire_async, clock) == pytest.approx([0, 5, 10, 15, 20])


def test_the_two_are_not_mixed_up() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        RateLimiter(12, burst=2, strict_window=10)
    with pytest.raises(ValueError, match="less than one in that time: make it at least 5"):
        RateLimiter(12, strict_window=4)
