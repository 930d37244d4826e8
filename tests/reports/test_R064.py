"""R064: with a thousand waiters that each poll with a timer of their own, the loop has no time for anything else."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forbear import RateLimiter, Upstream
from forbear._runtime.tickets import LoopTicket

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def limiter_wait() -> Callable[[], Coroutine[Any, Any, Any]]:
    return RateLimiter(600, burst=1).acquire_async


def upstream_wait() -> Callable[[], Coroutine[Any, Any, Any]]:
    upstream = Upstream("service", requests_per_minute=600, burst=1)
    return lambda: upstream.retry(lambda: asyncio.sleep(0), deadline=None)


@pytest.mark.parametrize("make", [limiter_wait, upstream_wait])
def test_ten_thousand_waiters_share_one_timer_and_leave_the_loop_alone(
    run: Run, make: Callable[[], Callable[[], Coroutine[Any, Any, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = [0]
    fire = LoopTicket._fire

    def counting(ticket: LoopTicket[Any, Any], line: Any) -> None:
        fired[0] += 1
        fire(ticket, line)

    monkeypatch.setattr(LoopTicket, "_fire", counting)

    async def main() -> tuple[int, int, float, float]:
        wait = make()
        tasks = [asyncio.create_task(wait()) for _ in range(10_000)]
        await asyncio.sleep(0.3)
        before, began, worked, ticks = fired[0], time.monotonic(), time.process_time(), [time.monotonic()]
        while time.monotonic() - began < 1.0:
            await asyncio.sleep(0.01)
            ticks.append(time.monotonic())
        worked, wake_ups = time.process_time() - worked, fired[0] - before
        granted = sum(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return wake_ups, granted, worked, max(later - sooner for sooner, later in itertools.pairwise(ticks))

    wake_ups, granted, worked, longest = run(main())
    assert granted >= 8
    assert wake_ups <= 4 * granted  # one for each, and one more where the loop rounds
    assert longest < 0.5
    assert worked < 0.7


def test_a_grant_costs_the_same_however_many_wait() -> None:
    async def main(waiters: int) -> float:
        limiter = RateLimiter(60 * 20_000, burst=1)
        limiter.acquire()
        line = limiter._line()
        line.act(lambda now: setattr(line.room, "cool_until", now + 1.0))
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(waiters)]
        while sum(task.done() for task in tasks[:10]) < 10:
            await asyncio.sleep(0.01)
        began = time.process_time()
        await tasks[1500]
        spent = time.process_time() - began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return spent

    few, many = asyncio.run(main(2_000)), asyncio.run(main(16_000))
    assert many <= 5 * few + 0.05
