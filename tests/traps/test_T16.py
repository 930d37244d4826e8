"""T16: a waiter that is cancelled gives everything back, those behind move up at once, and the spacing holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from forbear import RateLimiter, RetryBudget, Upstream
from forbear.testing import FakeTime

Wait = Callable[[], Awaitable[object]]


def of_limiter() -> Wait:
    return RateLimiter(200, burst=1).acquire_async


def of_upstream() -> Wait:
    upstream = Upstream("service", requests_per_minute=200, burst=1)
    return lambda: upstream.retry(lambda: asyncio.sleep(0))


WAYS: dict[str, Callable[[], Wait]] = {"limiter": of_limiter, "upstream": of_upstream}


@pytest.fixture(params=WAYS)
def wait(request: pytest.FixtureRequest) -> Wait:
    return WAYS[request.param]()


@pytest.mark.parametrize("at", [0.0, 0.1, 0.29, 0.3])
async def test_those_behind_a_cancelled_waiter_go_at_the_instants_of_those_before_them(wait: Wait, at: float) -> None:
    with FakeTime() as clock:
        went: dict[str, float] = {}

        async def one(name: str) -> None:
            await wait()
            went[name] = clock.now

        await wait()
        tasks = {name: asyncio.create_task(one(name)) for name in "ABCD"}
        await asyncio.sleep(at)
        tasks["A"].cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    if tasks["A"].cancelled():
        assert went == pytest.approx({"B": 0.3, "C": 0.6, "D": 0.9})
    else:
        assert at == 0.3
        assert went == pytest.approx({"A": 0.3, "B": 0.6, "C": 0.9, "D": 1.2})


@pytest.mark.parametrize("leaving", ["ABC", "BD", "AC", "ABCD", "D"])
async def test_it_does_not_matter_who_leaves(wait: Wait, leaving: str) -> None:
    with FakeTime() as clock:
        went: list[float] = []

        async def one() -> None:
            await wait()
            went.append(clock.now)

        await wait()
        tasks = {name: asyncio.create_task(one()) for name in "ABCDE"}
        await asyncio.sleep(0.2)
        for name in leaving:
            tasks[name].cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert went == pytest.approx([0.3, 0.6, 0.9, 1.2, 1.5][: 5 - len(leaving)])
        await wait()
        assert clock.now == pytest.approx(0.3 * (6 - len(leaving)))


async def test_cancelled_attempts_and_waiters_leave_all_places_of_a_bulkhead() -> None:
    upstream = Upstream("service", max_concurrency=3)
    with FakeTime():
        for round_ in range(5):
            tasks = [asyncio.create_task(upstream.retry(lambda: asyncio.sleep(60))) for _ in range(10)]
            await asyncio.sleep(1.0)
            assert (upstream.snapshot().in_flight, upstream.snapshot().waiting) == (3, 7)
            for task in tasks[round_::2]:
                task.cancel()
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert (upstream.snapshot().in_flight, upstream.snapshot().waiting) == (0, 0)
        await asyncio.gather(*[upstream.retry(lambda: asyncio.sleep(1)) for _ in range(3)])


async def test_a_cancelled_wait_for_the_budget_lets_the_next_one_go() -> None:
    with FakeTime() as clock:
        budget = RetryBudget(initial=0, when_empty="wait")
        upstream = Upstream("service", budget=budget)
        went: list[float] = []

        def failing_once() -> Callable[[], Awaitable[None]]:
            calls: list[int] = []

            async def fn() -> None:
                calls.append(1)
                if len(calls) == 1:
                    raise ConnectionError
                went.append(clock.now)
                raise ConnectionError

            return fn

        tasks = [
            asyncio.create_task(upstream.retry(failing_once(), max_attempts=2, base=0, deadline=None)) for _ in range(3)
        ]
        await asyncio.sleep(0.5)
        assert upstream.snapshot().waiting_retries == 2
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert went == pytest.approx([0.0, 1.0], abs=0.01)
        assert upstream.snapshot().waiting_retries == 0
