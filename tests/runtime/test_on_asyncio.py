"""Attempt timers: shared, never early, late by no more than a slot, and gone when the attempt is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forbear import RetryError, deadline, retry
from forbear._runtime.on_asyncio import EXACT_BELOW, SLOTS_PER_SECOND, Slot

Run = Callable[[Coroutine[Any, Any, Any]], Any]
SLACK = 1.0  # seconds that a busy machine may add


def slots() -> dict[int, Slot]:
    wheel = getattr(asyncio.get_running_loop(), "_forbear_wheel", None)
    return {} if wheel is None else wheel.slots


@pytest.mark.parametrize("limit", [0.003, 0.02, EXACT_BELOW, 0.0637, 0.1])
def test_a_timer_is_never_early(run: Run, limit: float) -> None:
    async def one() -> float:
        await asyncio.sleep(0.0007)
        began = time.monotonic()
        with pytest.raises(RetryError):
            await retry(lambda: asyncio.sleep(30), attempt_timeout=limit, max_attempts=1)
        return time.monotonic() - began

    async def main() -> list[float]:
        return [took for _ in range(3) for took in await asyncio.gather(*(one() for _ in range(20)))]

    took = run(main())
    assert min(took) >= limit
    assert max(took) < limit + 1 / SLOTS_PER_SECOND + SLACK


def test_a_stale_loop_clock_does_not_make_a_timer_early(run: Run) -> None:
    async def main() -> None:
        time.sleep(0.1)  # the loop's own idea of now is that old
        began = time.monotonic()
        with pytest.raises(RetryError):
            await retry(lambda: asyncio.sleep(30), attempt_timeout=0.06, max_attempts=1)
        assert time.monotonic() - began >= 0.06

    run(main())


def test_calls_share_timers_and_leave_none_behind(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        calls = [asyncio.create_task(retry(gate.wait)) for _ in range(1000)]
        await asyncio.sleep(0)
        held = sum(len(slot.cuts) for slot in slots().values())
        assert held == 1000
        assert len(slots()) < 200, "a thousand calls begun within a second share at most 128 slots a second"
        gate.set()
        await asyncio.gather(*calls)
        assert sum(len(slot.cuts) for slot in slots().values()) == 0

    run(main())


def test_a_slot_that_has_fired_is_forgotten(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(RetryError):
            await retry(lambda: asyncio.sleep(30), attempt_timeout=0.06, max_attempts=1, deadline=None)
        assert slots() == {}

    run(main())


def test_all_that_share_a_slot_are_cut(run: Run) -> None:
    async def main() -> list[Any]:
        calls = [retry(lambda: asyncio.sleep(30), attempt_timeout=0.06, max_attempts=1) for _ in range(300)]
        return await asyncio.gather(*calls, return_exceptions=True)

    results = run(main())
    assert all(isinstance(result, RetryError) for result in results)


def test_a_call_outside_of_any_task_says_what_to_do(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        outcome = loop.create_future()

        def by_hand() -> None:
            coroutine = retry(lambda: asyncio.sleep(0))
            try:
                coroutine.send(None)
            except BaseException as error:
                outcome.set_result(error)

        loop.call_soon(by_hand)
        assert "create_task" in str(await outcome)

    run(main())


def test_a_block_and_the_call_in_it_end_with_one_error(run: Run) -> None:
    async def main() -> None:
        for limit in (0.02, 0.06, 0.07):
            with pytest.raises(TimeoutError) as caught:
                async with deadline(limit):
                    await retry(lambda: asyncio.sleep(30), attempt_timeout=None)
            assert isinstance(caught.value, RetryError)
            assert caught.value.reason == "deadline"
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())


def test_the_same_limit_inside_and_outside_always_gives_the_same_class_of_error(run: Run) -> None:
    async def one() -> BaseException:
        try:
            await retry(lambda: asyncio.sleep(30), attempt_timeout=0.06, deadline=0.06)
        except BaseException as error:
            return error
        raise AssertionError

    async def main() -> set[tuple[type, str]]:
        errors = await asyncio.gather(*(one() for _ in range(200)))
        return {(type(error), error.reason) for error in errors}  # type: ignore[attr-defined]

    assert len(run(main())) == 1
