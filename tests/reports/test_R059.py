"""R059: tokens that are counted only when a call ends let all calls that start together through."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from forbear import RateLimiter, Upstream
from forbear.testing import FakeTime

SIZES = [58, 100, 75, 91, 66]


class Usage:
    def __init__(self, tokens: int) -> None:
        self.usage = {"total_tokens": tokens}


def most_in_a_minute(spent: list[tuple[float, int]]) -> int:
    return max(sum(size for at, size in spent if begin <= at < begin + 60 - 1e-6) for begin, _ in spent)


async def test_calls_that_start_together_stay_below_the_limit_together() -> None:
    upstream = Upstream("service", tokens_per_minute=100, strict_window=60)
    with FakeTime() as clock:
        spent: list[tuple[float, int]] = []

        def call(size: int) -> Any:
            async def ask() -> Usage:
                spent.append((clock.now, size))
                await asyncio.sleep(5.0)
                return Usage(size)

            return upstream.retry(ask, tokens=size, attempt_timeout=None, deadline=None)

        await asyncio.gather(*[call(size) for size in SIZES])
    assert [size for _, size in spent] == SIZES
    assert most_in_a_minute(spent) <= 100


async def test_one_that_alone_is_above_it_is_refused_and_the_others_are_not() -> None:
    upstream = Upstream("service", tokens_per_minute=100, burst=100)
    with FakeTime():
        calls = [upstream.retry(lambda: asyncio.sleep(0), tokens=size, deadline=None) for size in (*SIZES, 175)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ended] == [type(None)] * 5 + [ValueError]


async def test_at_no_time_is_more_reserved_and_used_than_the_limit() -> None:
    upstream = Upstream("service", tokens_per_minute=600, burst=600)
    with FakeTime() as clock:
        spent = [0]

        def call(size: int) -> Any:
            async def ask() -> Usage:
                spent[0] += size
                assert spent[0] <= 600 + clock.now * 10 + 1e-6
                await asyncio.sleep(1.0)
                return Usage(size)

            return upstream.retry(ask, tokens=size, deadline=None)

        await asyncio.gather(*[call(size) for size in SIZES * 6])
        assert spent[0] == sum(SIZES) * 6


@pytest.mark.parametrize(("estimate", "used"), [(100, 300), (300, 100), (0, 250), (200, 200)])
@pytest.mark.parametrize("shape", ["object", "dictionary", "parts", "unknown"])
def test_the_estimate_is_settled_with_what_the_answer_says(estimate: int, used: int, shape: str) -> None:
    answers: dict[str, Callable[[], Any]] = {
        "object": lambda: Usage(used),
        "dictionary": lambda: {"usage": {"total_tokens": used}},
        "parts": lambda: {"usage": {"prompt_tokens": used - 50, "completion_tokens": 50}},
        "unknown": object,
    }
    with FakeTime():
        upstream = Upstream("service", tokens_per_minute=1000, burst=1000)
        upstream.retry_sync(answers[shape], tokens=estimate)
        assert upstream.snapshot().tokens_left == 1000 - (estimate if shape == "unknown" else used)


def test_threads_that_start_together_stay_below_it_too() -> None:
    limiter = RateLimiter(None, 6000, burst=100)
    barrier = threading.Barrier(5)
    went: list[int] = []

    def work(size: int) -> None:
        barrier.wait(10)
        try:
            limiter.acquire(size, timeout=0)
        except TimeoutError:
            return
        went.append(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in (58, 58, 58, 90, 90)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(went) == 1
