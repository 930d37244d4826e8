"""T07: a timeout is an event of one attempt; it leaves no trace in later calls, in neighbours or in outer timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forbear import DeadlineExceeded, RetriesExhausted, attempts, deadline, retry
from forbear.testing import FakeTime, Flaky, Hang

AsyncForm = Callable[..., Coroutine[Any, Any, Any]]


@pytest.mark.parametrize("timeouts", [1, 4, 40])
async def test_after_many_timeouts_a_healthy_call_succeeds(async_form: AsyncForm, timeouts: int) -> None:
    fn = Flaky(*[Hang(5.0)] * timeouts, then="done")
    with FakeTime():
        for _ in range(timeouts):
            with pytest.raises(RetriesExhausted):
                await async_form(fn.asynchronous, max_attempts=1, attempt_timeout=0.2)
        assert await async_form(fn.asynchronous, max_attempts=1, attempt_timeout=0.2) == "done"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_one_decorated_function_recovers_from_its_own_timeouts() -> None:
    fn = Flaky(*[Hang(5.0)] * 8, then="done")
    call = retry(max_attempts=2, attempt_timeout=0.2, backoff=[0.1])(fn.asynchronous)
    with FakeTime():
        for _ in range(4):
            with pytest.raises(RetriesExhausted):
                await call()
        assert [await call() for _ in range(3)] == ["done"] * 3


async def test_the_timer_of_a_finished_attempt_never_fires_later(async_form: AsyncForm) -> None:
    with FakeTime() as clock:
        assert await async_form(Flaky("done").asynchronous, attempt_timeout=0.2, deadline=0.4) == "done"
        with pytest.raises(ValueError, match="mine"):
            await async_form(Flaky(ValueError("mine")).asynchronous, attempt_timeout=0.2, deadline=0.4)
        await asyncio.sleep(5.0)
        assert clock.now == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("inner", "outer", "ends_at"), [(5.0, 0.3, 0.3), (0.3, 5.0, 0.3), (0.3, 0.3, 0.3), (0.04, 0.3, 0.04)]
)
async def test_an_inner_timer_never_disarms_an_outer_one(
    async_form: AsyncForm, inner: float, outer: float, ends_at: float
) -> None:
    async def nested() -> Any:
        return await retry(Flaky(then=Hang(60.0)).asynchronous, max_attempts=1, attempt_timeout=inner)

    with FakeTime() as clock:
        with pytest.raises(RetriesExhausted):
            await async_form(nested, max_attempts=1, attempt_timeout=outer)
        assert clock.now == pytest.approx(ends_at)


async def test_an_inner_success_leaves_the_outer_timer_running(async_form: AsyncForm) -> None:
    async def nested() -> None:
        assert await retry(Flaky(Hang(0.1, "done")).asynchronous, attempt_timeout=0.2) == "done"
        async for attempt in attempts(attempt_timeout=0.2):
            async with attempt:
                await asyncio.sleep(0.1)
        async with deadline(0.2):
            await asyncio.sleep(0.05)
        await asyncio.sleep(60)

    with FakeTime() as clock:
        with pytest.raises(RetriesExhausted):
            await async_form(nested, max_attempts=1, attempt_timeout=0.3)
        assert clock.now == pytest.approx(0.3)


@pytest.mark.parametrize("limit", [0.02, 0.3])
def test_calls_that_time_out_together_do_not_hit_their_neighbours(run: Callable[..., Any], limit: float) -> None:
    async def healthy() -> str:
        await retry(lambda: asyncio.sleep(0), attempt_timeout=limit)
        await asyncio.sleep(limit + 0.2)  # past the instant at which its timer would have fired
        return "done"

    async def hung() -> str:
        with pytest.raises(RetriesExhausted):
            await retry(lambda: asyncio.sleep(60), attempt_timeout=limit, max_attempts=1)
        await asyncio.sleep(0.01)
        return "timed out"

    async def blocks() -> str:
        with pytest.raises(DeadlineExceeded):
            async with deadline(limit):
                await asyncio.sleep(60)
        return "timed out"

    async def main() -> list[str]:
        return await asyncio.gather(*[make() for _ in range(50) for make in (healthy, hung, blocks)])

    assert run(main()) == ["done", "timed out", "timed out"] * 50


async def test_attempts_that_are_over_leave_few_timers_in_the_loop() -> None:
    call = retry(attempt_timeout=600.0, deadline=None)(Flaky(then="done").asynchronous)
    for _ in range(150):
        assert await call() == "done"
        await asyncio.sleep(0.008)  # past the instant that the attempts before share
    assert len(asyncio.get_running_loop()._scheduled) < 120  # type: ignore[attr-defined]
