"""T47: calls that share a policy or a decorated function must not share attempts, waits, history or keys."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from forbear import Policy, RetriesExhausted, attempts, current_attempt, decorrelated, retry, retry_sync
from forbear.testing import FakeTime, Flaky

POLICIES: list[Policy] = [
    Policy(max_attempts=4, attempt_timeout=None, deadline=None),
    Policy(max_attempts=4, backoff=decorrelated(0.5, cap=60.0), deadline=None),
    Policy(max_attempts=4, backoff=[1.0, 2.0, 4.0], deadline=None),
    Policy(max_attempts=4, backoff=lambda attempt: 1.5 * attempt, deadline=None),
]
CALLS = 25


def dice() -> float:
    return 0.75


def alone(policy: Policy) -> list[float]:
    """The waits of a call that nothing else runs beside."""
    waits: list[float] = []
    with pytest.raises(RetriesExhausted):
        retry_sync(Flaky(then=ConnectionError()), policy=policy, sleep=waits.append, rng=dice)
    return waits


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy.waits.growth).__name__)
async def test_tasks_that_run_at_once_wait_as_each_would_alone(policy: Policy) -> None:
    started: dict[int, list[float]] = {n: [] for n in range(CALLS)}
    numbers: dict[int, list[int]] = {n: [] for n in range(CALLS)}

    @retry(policy=policy, rng=dice)
    async def call(n: int) -> None:
        attempt = current_attempt()
        assert attempt is not None
        started[n].append(clock.now)
        numbers[n].append(attempt.number)
        await asyncio.sleep(0.1 * n)
        raise ConnectionError

    with FakeTime() as clock:
        ended = await asyncio.gather(*map(call, range(CALLS)), return_exceptions=True)
    for n, error in enumerate(ended):
        assert isinstance(error, RetriesExhausted)
        assert error.attempts == 4
        assert [summary.number for summary in error.history] == numbers[n] == [1, 2, 3, 4]
        waits = [later - sooner - 0.1 * n for sooner, later in zip(started[n], started[n][1:], strict=False)]
        assert waits == pytest.approx(alone(policy))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy.waits.growth).__name__)
def test_threads_that_run_at_once_wait_as_each_would_alone(policy: Policy) -> None:
    slept: dict[int, list[float]] = {}
    ended: list[int] = []
    barrier = threading.Barrier(8)

    def sleep(delay: float) -> None:
        slept.setdefault(threading.get_ident(), []).append(delay)
        barrier.wait(30)

    @retry(policy=policy, rng=dice, sleep=sleep)
    def call() -> None:
        raise ConnectionError

    def work() -> None:
        barrier.wait(30)
        with pytest.raises(RetriesExhausted) as caught:
            call()
        ended.append(caught.value.attempts)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == [4] * 8
    assert list(slept.values()) == [pytest.approx(alone(policy))] * 8


def test_calls_one_after_the_other_begin_anew(form: Callable[..., Any]) -> None:
    policy = Policy(max_attempts=4, backoff=decorrelated(0.5, cap=60.0), deadline=None)
    recorded = []
    for _ in range(3):
        with FakeTime(rng=dice) as clock, pytest.raises(RetriesExhausted):
            form(Flaky(then=ConnectionError()), policy=policy)
        recorded.append(clock.sleeps)
    assert recorded == [pytest.approx(alone(policy))] * 3


async def test_each_call_has_its_own_key_on_all_its_attempts() -> None:
    keys: dict[int, set[str]] = {n: set() for n in range(CALLS)}

    @retry(max_attempts=3)
    async def call(n: int) -> None:
        attempt = current_attempt()
        assert attempt is not None
        keys[n].add(attempt.idempotency_key)
        await asyncio.sleep(0)
        raise ConnectionError

    with FakeTime():
        await asyncio.gather(*map(call, range(CALLS)), return_exceptions=True)
    assert [len(own) for own in keys.values()] == [1] * CALLS
    assert len(set.union(*keys.values())) == CALLS


async def test_one_recipe_for_blocks_serves_many_loops_at_once() -> None:
    recipe = attempts(max_attempts=3, backoff=[1.0, 2.0])
    numbers: dict[int, list[int]] = {n: [] for n in range(CALLS)}

    async def work(n: int) -> None:
        async for attempt in recipe:
            async with attempt:
                numbers[n].append(attempt.number)
                await asyncio.sleep(0.1 * n)
                if attempt.number < 3:
                    raise ConnectionError

    with FakeTime():
        await asyncio.gather(*map(work, range(CALLS)))
        for attempt in recipe:
            with attempt:
                numbers[0].append(attempt.number)
    assert numbers.pop(0) == [1, 2, 3, 1]
    assert list(numbers.values()) == [[1, 2, 3]] * (CALLS - 1)


def test_a_function_that_calls_itself_counts_each_call(form: Callable[..., Any]) -> None:
    depths: list[tuple[int, int]] = []

    def down(depth: int) -> str:
        attempt = current_attempt()
        assert attempt is not None
        depths.append((depth, attempt.number))
        if depth < 3:
            retry_sync(lambda: down(depth + 1))
        if attempt.number < 2:
            raise ConnectionError
        return "done"

    with FakeTime():
        assert form(lambda: down(1)) == "done"
    assert sorted(set(depths)) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]
    assert len(depths) == 2 + 4 + 8


async def test_tasks_that_raise_one_error_object_do_not_end_each_others_retries() -> None:
    error, slow_calls = ConnectionError("a constant"), []

    async def quick() -> None:
        raise error

    async def slow() -> None:
        slow_calls.append(1)
        await asyncio.sleep(1.0)
        raise error

    with FakeTime():
        calls = [retry(slow, max_attempts=3, reraise=True), retry(quick, max_attempts=1, reraise=True)]
        await asyncio.gather(*calls, return_exceptions=True)
    assert len(slow_calls) == 3
