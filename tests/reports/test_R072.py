"""R072: while the first trial is out, a hundred waiting callers must not pass to a service that is slow and sick."""

from __future__ import annotations

import asyncio

import pytest

from forbear import CircuitOpenError
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker


@pytest.mark.parametrize("trials", [1, 5])
async def test_the_trials_pass_and_the_others_are_refused_at_once(trials: int) -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(1, 30, trials=trials)
        breaker.enter().leave("failure")
        await asyncio.sleep(30.0)
        reached: list[float] = []
        refused: list[tuple[float, float]] = []

        async def caller() -> None:
            try:
                async with breaker:
                    reached.append(time.now)
                    await asyncio.sleep(5.0)
            except CircuitOpenError as refusal:
                refused.append((time.now, refusal.retry_in))

        await asyncio.gather(*(caller() for _ in range(100)))
        assert reached == [30.0] * trials
        assert refused == [(30.0, 30.0)] * (100 - trials)
        assert breaker.state == "closed"


async def test_callers_who_keep_asking_do_not_pass_either() -> None:
    with FakeTime():
        breaker = CircuitBreaker(1, 30)
        breaker.enter().leave("failure")
        await asyncio.sleep(30.0)
        reached = []

        @breaker
        async def call() -> None:
            reached.append(1)
            await asyncio.sleep(5.0)
            raise OSError

        async def caller() -> None:
            for _ in range(20):
                try:
                    await call()
                except (CircuitOpenError, OSError):
                    await asyncio.sleep(0.5)

        await asyncio.gather(*(caller() for _ in range(100)))
        assert len(reached) == 1
        assert breaker.state == "open"
