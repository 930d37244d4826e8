"""T59: a bucket that starts full lets twice a minute's quota out in the first minute; by default it must not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forbear import RateLimiter, Upstream
from forbear.testing import FakeTime


async def admissions(wait: Callable[[], Any], clock: FakeTime, number: int = 130) -> list[float]:
    went: list[float] = []

    async def one() -> None:
        await wait()
        went.append(clock.now)

    await asyncio.gather(*[one() for _ in range(number)])
    return went


def most_in(window: float, instants: list[float]) -> int:
    """The most of them in any window that begins with one."""
    return max(sum(begin <= instant < begin + window - 1e-6 for instant in instants) for begin in instants)


async def test_an_upstream_lets_no_more_than_a_minutes_quota_and_one_second_out() -> None:
    upstream = Upstream("service", requests_per_minute=60)
    with FakeTime() as clock:
        went = await admissions(lambda: upstream.retry(lambda: asyncio.sleep(0), deadline=None), clock)
    assert most_in(60.0, went) <= 61


async def test_the_same_after_a_long_pause() -> None:
    upstream = Upstream("service", requests_per_minute=60)
    with FakeTime() as clock:
        await upstream.retry(lambda: asyncio.sleep(0))
        clock.advance(3600.0)
        went = await admissions(lambda: upstream.retry(lambda: asyncio.sleep(0), deadline=None), clock)
    assert most_in(60.0, went) <= 61


async def test_tokens_are_bounded_in_proportion() -> None:
    upstream = Upstream("service", requests_per_minute=600, tokens_per_minute=6000)
    with FakeTime() as clock:
        went = await admissions(lambda: upstream.retry(lambda: asyncio.sleep(0), tokens=100, deadline=None), clock)
    assert most_in(60.0, went) * 100 <= 6000 + 100 * 2


@pytest.mark.parametrize(("burst", "most"), [(1, 60), (10, 69), (None, 119)])
async def test_a_limiters_burst_is_what_its_name_says(burst: float | None, most: int) -> None:
    limiter = RateLimiter(60, burst=burst)
    with FakeTime() as clock:
        went = await admissions(limiter.acquire_async, clock)
    assert most_in(60.0, went) == most


async def test_a_strict_window_never_holds_more_than_its_share() -> None:
    limiter = RateLimiter(60, strict_window=60)
    with FakeTime() as clock:
        went = await admissions(limiter.acquire_async, clock, 200)
    assert most_in(60.0, went) == 60
