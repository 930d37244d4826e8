"""T50: a cancelled call is neither a failure nor a success, and a cancelled trial frees its place."""

from __future__ import annotations

import asyncio

import pytest

from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker


async def cancelled(breaker: CircuitBreaker) -> None:
    """A guarded call that its caller cancels."""

    @breaker
    async def hang() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_cancelled_trial_frees_its_place_and_proves_nothing() -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(1)
        breaker.enter().leave("failure")
        time.advance(30.0)
        for _ in range(3):
            await cancelled(breaker)
            assert breaker.state == "half_open"
            assert breaker.retry_in == 0.0
        breaker.enter().leave("success")
        assert breaker.state == "closed"


async def test_cancelled_calls_neither_open_it_nor_begin_the_count_anew() -> None:
    breaker = CircuitBreaker(3, failure_rate=0.1, minimum_calls=3)
    breaker.enter().leave("failure")
    for _ in range(5):
        await cancelled(breaker)
    assert breaker.state == "closed"
    assert breaker.snapshot().consecutive_failures == 1
    assert breaker.snapshot().calls == 1


async def test_a_timeout_of_the_caller_s_own_is_a_cancellation() -> None:
    breaker = CircuitBreaker(1)
    with FakeTime(), pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            async with breaker:
                await asyncio.sleep(60.0)
    assert breaker.state == "closed"


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupted_trial_frees_its_place(interrupt: type[BaseException]) -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(1)
        breaker.enter().leave("failure")
        time.advance(30.0)
        with pytest.raises(interrupt), breaker:
            raise interrupt
        assert breaker.state == "half_open"
        assert breaker.retry_in == 0.0
