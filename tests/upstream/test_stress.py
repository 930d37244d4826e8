"""Whatever is cancelled, refused, interrupted or late: in the end all of the capacity is there again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
import trio

from forbear import ApiError, CircuitBreaker, RateLimiter, RetryBudget, Upstream
from forbear.testing import FakeTime

Run = Callable[[Coroutine[Any, Any, Any]], Any]
STEPS = 40  # loop iterations that the scenarios below take at most, and some more


def assert_at_rest(upstream: Upstream) -> None:
    snapshot = upstream.snapshot()
    assert (snapshot.in_flight, snapshot.waiting, snapshot.waiting_retries) == (0, 0, 0)
    assert snapshot.breaker is None or snapshot.breaker.trials == 0


class Scenario:
    """Three calls to one service: one is under way, one fails and retries, one waits behind them."""

    def __init__(self) -> None:
        self.budget = RetryBudget(initial=5, when_empty="wait")
        self.breaker = CircuitBreaker(50)
        self.upstream = Upstream(
            "service", requests_per_minute=60_000, max_concurrency=1, budget=self.budget, breaker=self.breaker,
            adaptive=False,
        )  # fmt: skip
        self.sent = 0

    async def fn(self) -> None:
        self.sent += 1
        number = self.sent
        await asyncio.sleep(0)
        if number % 2:
            raise ConnectionError
        await asyncio.sleep(0)

    async def call(self) -> None:
        await self.upstream.retry(self.fn, base=0, max_attempts=3, sleep=lambda _: asyncio.sleep(0))

    async def block(self) -> None:
        async for attempt in self.upstream.attempts(base=0, max_attempts=3, sleep=lambda _: asyncio.sleep(0)):
            async with attempt:
                await self.fn()

    async def unknown_kind(self) -> None:
        await self.upstream.retry(base=0, max_attempts=3, sleep=lambda _: asyncio.sleep(0))(lambda: self.fn())()  # noqa: PLW0108


@pytest.mark.parametrize("form", [Scenario.call, Scenario.block, Scenario.unknown_kind])
@pytest.mark.parametrize("which", range(3))
def test_a_cancellation_at_any_step_of_any_of_three_calls_leaves_the_others_alone(
    run: Run, form: Callable[[Scenario], Coroutine[Any, Any, None]], which: int
) -> None:
    async def cancel_after(steps: int) -> bool:
        scenario = Scenario()
        tasks = [asyncio.create_task(form(scenario)) for _ in range(3)]
        for _ in range(steps):
            await asyncio.sleep(0)
        met = tasks[which].cancel()
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        others = [end for number, end in enumerate(ended) if number != which]
        assert others == [None, None]
        assert_at_rest(scenario.upstream)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        return met

    async def main() -> list[bool]:
        return [await cancel_after(steps) for steps in range(STEPS)]

    met = run(main())
    assert sum(met) >= 5


def test_the_budget_is_whole_but_for_the_retries_that_were_sent(run: Run) -> None:
    async def cancel_after(steps: int) -> None:
        budget, sent = RetryBudget(initial=5), [0]
        upstream = Upstream("service", budget=budget, max_concurrency=1)

        async def fail() -> None:
            sent[0] += 1
            await asyncio.sleep(0)
            raise ConnectionError

        task = asyncio.create_task(upstream.retry(fail, base=0, max_attempts=4, sleep=lambda _: asyncio.sleep(0)))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert budget.balance == pytest.approx(5 - max(0, sent[0] - 1))
        assert_at_rest(upstream)

    async def main() -> None:
        for steps in range(30):
            await cancel_after(steps)

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_cancellations_at_random_leave_all_of_the_capacity(run: Run, seed: int) -> None:
    dice = Random(seed)
    limiter = RateLimiter(60_000, 600_000, burst=20)
    upstream = Upstream(
        "service", requests_per_minute=120_000, tokens_per_minute=1_200_000, burst=50, max_concurrency=5,
        budget=RetryBudget(initial=20, when_empty=dice.choice(["stop", "wait"])),  # type: ignore[arg-type]
        breaker=CircuitBreaker(8, 0.01),
    )  # fmt: skip

    async def fn() -> dict[str, Any]:
        await limiter.acquire_async(dice.randrange(50), timeout=dice.choice([None, 0.01]))
        await asyncio.sleep(dice.random() * 0.004)
        failure = dice.random()
        if failure < 0.15:
            raise ConnectionError
        if failure < 0.2:
            raise ApiError(429, retry_after=0.01)
        if failure < 0.22:
            raise ApiError(400)
        return {"usage": {"total_tokens": dice.randrange(300)}}

    async def call() -> None:
        await asyncio.sleep(dice.random() * 0.3)
        options: dict[str, Any] = {
            "deadline": dice.choice([0.02, 0.1, 0.3]), "attempt_timeout": dice.choice([None, 0.003]),
            "max_attempts": 4, "base": 0.001, "tokens": dice.randrange(200),
        }  # fmt: skip
        if dice.random() < 0.5:
            await upstream.retry(fn, **options)
        else:
            async for attempt in upstream.attempts(**options):
                async with attempt:
                    await fn()

    async def main() -> None:
        tasks = [asyncio.create_task(call()) for _ in range(400)]
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            await asyncio.sleep(dice.random() * 0.003)
            dice.choice(tasks).cancel()
        for task in tasks[::7]:
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)

    run(main())
    assert_at_rest(upstream)
    assert len(limiter._line()) == 0


@pytest.mark.parametrize("seed", range(2))
def test_threads_tasks_and_trio_at_once_with_cancellations_leave_it_too(seed: int) -> None:
    upstream = Upstream(
        "service", requests_per_minute=600_000, burst=100, max_concurrency=3, breaker=CircuitBreaker(1000)
    )
    ended: list[int] = []

    def work(number: int) -> None:
        dice = Random(f"{seed}.{number}")

        def blocking() -> None:
            time.sleep(dice.random() * 0.001)
            if dice.random() < 0.2:
                raise ConnectionError

        async def later() -> None:
            await asyncio.sleep(dice.random() * 0.001)
            if dice.random() < 0.2:
                raise ConnectionError

        async def on_asyncio() -> None:
            tasks = [asyncio.create_task(upstream.retry(later, base=0.001)) for _ in range(50)]
            for task in tasks[::3]:
                await asyncio.sleep(dice.random() * 0.004)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        async def on_trio() -> None:
            for _ in range(15):
                with trio.move_on_after(dice.random() * 0.02):
                    async with trio.open_nursery() as nursery:
                        for _ in range(3):
                            nursery.start_soon(lambda: upstream.retry(lambda: trio.sleep(0.001), base=0.001))

        if number % 3 == 0:
            asyncio.run(on_asyncio())
        elif number % 3 == 1:
            trio.run(on_trio)
        else:
            for _ in range(50):
                upstream.retry_sync(blocking, base=0.001, max_attempts=9)
        ended.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(ended) == list(range(9))
    assert_at_rest(upstream)


@pytest.mark.parametrize("seed", range(20))
async def test_an_hour_of_trouble_in_a_tests_time_ends_with_all_of_it(seed: int) -> None:
    dice = Random(seed)
    with FakeTime(seed=seed) as clock:
        upstream = Upstream(
            "service", requests_per_minute=dice.choice([60, 600, None]), max_concurrency=dice.choice([1, 4, None]),
            budget=RetryBudget(initial=3, when_empty=dice.choice(["stop", "wait"])),  # type: ignore[arg-type]
            breaker=dice.choice([None, CircuitBreaker(3, 20.0)]), adaptive=dice.random() < 0.7,
        )  # fmt: skip

        async def fn() -> None:
            await asyncio.sleep(dice.random() * 3)
            if 600 < clock.now < 1200 or dice.random() < 0.2:
                raise dice.choice([ConnectionError(), ApiError(503), ApiError(429, retry_after=5.0), TimeoutError()])

        async def call() -> None:
            await asyncio.sleep(dice.random() * 3000)
            await upstream.retry(fn, deadline=dice.choice([5.0, 60.0, 600.0]), attempt_timeout=dice.choice([1.0, 10.0]))

        tasks = [asyncio.create_task(call()) for _ in range(300)]
        for task in tasks[::5]:
            await asyncio.sleep(dice.random() * 60)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert clock.now < 4000
        assert_at_rest(upstream)
