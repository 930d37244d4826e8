"""T17: of a hedge the winner returns at once, nothing is left running, and success beats a failure of the same tick."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forbear import ApiError, RetriesExhausted, Upstream, current_attempt, hedge, retry
from forbear.testing import FakeTime

Run = Callable[[Coroutine[Any, Any, Any]], Any]
CALLS = 30


def number() -> int:
    attempt = current_attempt()
    assert attempt is not None
    return attempt.number


def others() -> set[Any]:
    return asyncio.all_tasks() - {asyncio.current_task()}


# ---- the winner returns at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["the first", "the copy"])
async def test_the_winner_returns_at_once(slow: str) -> None:
    async def fn() -> str:
        await asyncio.sleep(1.6 if (number() == 1) == (slow == "the first") else 0.06)
        return "answer"

    with FakeTime() as clock:
        assert await hedge(fn, delay=0.04, max_extra_load=1.0) == "answer"
        assert clock.now == pytest.approx(0.1 if slow == "the first" else 0.06)
        assert others() == set()


async def test_a_loser_that_cleans_up_for_long_does_not_hold_the_winner_back() -> None:
    ended: list[int] = []

    async def fn() -> str:
        if number() == 2:
            return "answer"
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1.5)
            ended.append(1)
        return "late"

    with FakeTime() as clock:
        assert await hedge(fn, delay=0.1) == "answer"
        assert clock.now <= 0.21
        await asyncio.sleep(2)
        assert (ended, others()) == ([1], set())


def test_the_winner_returns_at_once_in_real_time_on_every_loop(run: Run) -> None:
    async def fn() -> int:
        await asyncio.sleep(5 if number() == 1 else 0.01)
        return number()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await hedge(fn, delay=0.02, max_extra_load=1.0) == 2
        assert loop.time() - began < 1.0
        assert others() == set()

    run(main())


# ---- nothing is left running -------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [2, 5])
@pytest.mark.parametrize("ends", ["with an answer", "in failure", "for good", "by a timeout", "too late"])
async def test_nothing_is_left_running_however_it_ends(ends: str, copies: int) -> None:
    running: list[int] = []

    async def fn() -> str:
        running.append(number())
        try:
            await asyncio.sleep(0.5 * number() if ends in ("with an answer", "in failure", "for good") else 60)
        finally:
            running.remove(number())
        if ends == "with an answer":
            return "answer"
        raise ApiError(400) if ends == "for good" else ConnectionError

    upstream = Upstream("service")
    with FakeTime():
        try:
            await upstream.retry(
                fn, hedge=0.1 if copies == 2 else 0.01, max_attempts=copies, attempt_timeout=2.0,
                deadline=0.7 if ends == "too late" else 60,
            )  # fmt: skip
        except Exception:
            assert ends != "with an answer"
        else:
            assert ends == "with an answer"
        assert (running, others()) == ([], set())
        assert upstream.snapshot().in_flight == 0


@pytest.mark.parametrize("after", [0.0, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 1.0])
async def test_no_orphans_after_a_cancellation(after: float) -> None:
    running: set[int] = set()

    async def fn() -> None:
        running.add(number())
        try:
            await asyncio.sleep(0.3)
            raise ConnectionError
        finally:
            running.discard(number())

    upstream = Upstream("service")
    with FakeTime():
        tasks = [
            asyncio.create_task(upstream.retry(fn, hedge=0.1, backoff=[0.2], jitter="none", max_attempts=100))
            for _ in range(3)
        ]
        await asyncio.sleep(after)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * 3
        assert (running, others()) == (set(), set())
        assert upstream.snapshot().in_flight == 0


# ---- success beats a failure of the same tick --------------------------------------------------------------------


@pytest.mark.parametrize("good", [1, 2])
@pytest.mark.parametrize("error", [ConnectionError(), ApiError(400), ApiError(503, retry_after=5.0), ValueError()])
async def test_of_thirty_calls_with_a_failure_and_a_success_in_the_same_tick_all_succeed(
    error: Exception, good: int
) -> None:
    async def fn() -> str:
        mine = number()
        await asyncio.sleep(0.5 if mine == 1 else 0.4)
        if mine != good:
            raise error
        return "answer"

    with FakeTime() as clock:
        ended = await asyncio.gather(*(hedge(fn, delay=0.1, max_extra_load=1.0) for _ in range(CALLS)))
        assert ended == ["answer"] * CALLS
        assert clock.now == pytest.approx(0.5)
        assert others() == set()


@pytest.mark.parametrize("good", [1, 2])
def test_so_they_do_where_one_event_ends_both_on_every_loop(run: Run, good: int) -> None:
    async def main() -> None:
        for _ in range(CALLS):
            gate, inside = asyncio.Event(), list[int]()

            async def fn(gate: asyncio.Event = gate, inside: list[int] = inside) -> str:
                mine = number()
                inside.append(mine)
                await gate.wait()
                if mine != good:
                    raise ConnectionError
                return "answer"

            task = asyncio.create_task(hedge(fn, delay=0.001, max_extra_load=1.0))
            while len(inside) < 2:
                await asyncio.sleep(0.001)
            gate.set()
            assert await task == "answer"
        assert others() == set()

    run(main())


async def test_of_three_copies_one_answer_is_enough() -> None:
    for good in (1, 2, 3):

        async def fn(good: int = good) -> str:
            mine = number()
            await asyncio.sleep(0.5 - 0.1 * (mine - 1))
            if mine != good:
                raise ConnectionError
            return "answer"

        with FakeTime():
            assert await hedge(fn, delay=0.1, max_copies=3) == "answer"


async def test_without_any_answer_there_is_none() -> None:
    async def fn() -> str:
        await asyncio.sleep(0.5 if number() == 1 else 0.4)
        raise ConnectionError(number())

    with FakeTime():
        with pytest.raises(RetriesExhausted) as caught:
            await retry(fn, hedge=0.1, max_attempts=2)
        assert caught.value.last_error is not None
        assert caught.value.last_error.args == (1,)
        assert others() == set()
