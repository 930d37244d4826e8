"""T62: requests and tokens are taken together or not at all, fractions are kept, and what can never fit is told so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forbear import DeadlineExceeded, RateLimiter, Upstream
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]


def left(limiter: RateLimiter) -> tuple[float, float]:
    line: Any = limiter._line()
    now = line.clock()
    return line.room.rates.requests.left(now), line.room.rates.tokens.left(now)


def test_a_request_that_is_refused_for_its_tokens_takes_no_request() -> None:
    with FakeTime():
        limiter = RateLimiter(1000, 600)
        limiter.acquire(600)
        before = left(limiter)
        for _ in range(50):
            with pytest.raises(DeadlineExceeded):
                limiter.acquire(60, timeout=5.9)
        assert left(limiter) == before
        limiter.acquire(60, timeout=6.1)


def test_one_that_is_refused_as_a_request_takes_no_tokens() -> None:
    with FakeTime():
        limiter = RateLimiter(60, 6000, burst=1)
        limiter.acquire(10)
        before = left(limiter)
        with pytest.raises(DeadlineExceeded):
            limiter.acquire(10, timeout=0.5)
        assert left(limiter) == before


async def test_one_that_waits_takes_neither_until_it_goes() -> None:
    with FakeTime():
        limiter = RateLimiter(1000, 600)
        await limiter.acquire_async(600)
        task = asyncio.create_task(limiter.acquire_async(600))
        await asyncio.sleep(0)
        assert left(limiter) == (999.0, 0.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert left(limiter) == (999.0, 0.0)


@pytest.mark.parametrize("per_minute", [7, 0.5, 59.9, 601])
async def test_fractions_are_kept(per_minute: float) -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(per_minute, burst=1)
        for _ in range(101):
            await limiter.acquire_async()
        assert clock.now == pytest.approx(100 * 60 / per_minute, rel=1e-6)


async def test_a_limit_that_is_always_wanted_is_used_whole() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(900, burst=1)
        went: list[float] = []

        async def worker() -> None:
            while clock.now < 60.0:
                await limiter.acquire_async()
                went.append(clock.now)

        await asyncio.gather(*[worker() for _ in range(20)])
    assert 900 <= sum(instant <= 60.0 for instant in went) <= 901


def test_what_can_never_fit_is_refused_at_once_and_runs_nothing(form: Form) -> None:
    fn = Flaky(then="done")
    with FakeTime() as clock:
        upstream = Upstream("service", tokens_per_minute=100)
        with pytest.raises(ValueError, match="can never fit: at most 100"):
            form(fn, upstream=upstream, tokens=101)
        assert (clock.now, fn.calls) == (0.0, 0)
        assert form(fn, upstream=upstream, tokens=100) == "done"
        assert upstream.snapshot().in_flight == 0


def test_a_deadline_is_a_limit_of_the_wait(form: Form) -> None:
    fn = Flaky(then="done")
    with FakeTime() as clock:
        upstream = Upstream("service", requests_per_minute=60)
        form(fn, upstream=upstream)
        with pytest.raises(DeadlineExceeded) as caught:
            form(fn, upstream=upstream, deadline=0.9)
        assert (clock.now, fn.calls, caught.value.hint, caught.value.attempts) == (0.0, 1, 1.0, 0)
        assert form(fn, upstream=upstream, deadline=1.1) == "done"
