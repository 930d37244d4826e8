"""Deadlines bind all that runs below them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from forbear import (
    Deadline,
    DeadlineExceeded,
    attempts,
    current_attempt,
    current_deadline,
    deadline,
    retry,
    retry_call,
    retry_sync,
)
from forbear.testing import FakeTime, Flaky, Hang

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def left() -> float:
    granted = current_deadline()
    assert granted is not None
    return granted.remaining()


def test_nested_blocks_only_tighten() -> None:
    with FakeTime():
        assert current_deadline() is None
        with deadline(10):
            assert left() == 10
            with deadline(20):
                assert left() == 10
            with deadline(4):
                assert left() == 4
                with deadline(None):
                    assert left() == 4
            assert left() == 10
        assert current_deadline() is None


def test_a_margin_is_kept_back_from_whatever_is_tighter() -> None:
    with FakeTime(), deadline(3, margin=0.5) as granted:
        assert granted is not None
        assert granted.remaining() == 2.5
        with deadline(10, margin=1):
            assert left() == 1.5
        with deadline(None, margin=0.5):
            assert left() == 2
        with deadline(1, margin=2) as gone:
            assert gone is not None
            assert gone.expired


@pytest.mark.parametrize("bad", [-1, float("nan"), "3", True])
def test_a_bad_duration_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="duration"):
        deadline(bad)
    with pytest.raises(ValueError, match="seconds"):
        Deadline(bad)


def test_endless_is_no_deadline() -> None:
    with deadline(float("inf")) as granted, deadline(None):
        assert granted is None
        assert current_deadline() is None
    with deadline(timedelta(seconds=2)):
        assert 0 < left() <= 2


def test_a_deadline_of_its_own_is_a_budget_that_only_shrinks() -> None:
    now = [100.0]
    budget = Deadline(2.5, clock=lambda: now[0])
    assert (budget.remaining(), budget.expired) == (2.5, False)
    now[0] = 103.0
    assert (budget.remaining(), budget.expired) == (0.0, True)
    assert repr(budget) == "<Deadline in 0.000 s>"


async def test_every_form_of_call_obeys_the_deadline_around_it() -> None:
    async def call() -> None:
        await retry(Flaky(then=Hang(100)).asynchronous, attempt_timeout=None)

    async def decorated() -> None:
        await retry(attempt_timeout=None)(Flaky(then=Hang(100)).asynchronous)()

    async def called() -> None:
        await retry_call(Flaky(then=Hang(100)).asynchronous)

    async def block() -> None:
        async for attempt in attempts():
            async with attempt:
                await asyncio.sleep(100)

    async def blocking() -> None:
        retry_sync(Flaky(then=Hang(0.3, ConnectionError())), base=0.5)

    for form in (call, decorated, called, block, blocking):
        for around in (deadline(2), deadline(5, margin=3)):
            with FakeTime() as fake:
                with around, pytest.raises(DeadlineExceeded):
                    await form()
                # a blocking attempt can't be cut: the last one may end late, but none begins late
                assert fake.now <= (2.3 if form is blocking else 2 + 1e-6)
    with FakeTime(), deadline(0):
        for form in (call, decorated, called, block, blocking):
            with pytest.raises(DeadlineExceeded) as caught:
                await form()
            assert caught.value.attempts == 0


def test_the_async_block_cuts_code_that_knows_nothing_of_deadlines(run: Run) -> None:
    async def main() -> None:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            async with deadline(0.03):
                await asyncio.sleep(30)
        assert 0.03 <= time.monotonic() - began < 2
        assert isinstance(caught.value, TimeoutError)
        assert "cut at its deadline" in str(caught.value)
        assert current_deadline() is None
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())


def test_a_block_that_ends_in_time_leaves_nothing_behind(run: Run) -> None:
    async def main() -> None:
        async with deadline(0.02):
            await asyncio.sleep(0)
        await asyncio.sleep(0.06)
        with pytest.raises(ValueError, match="own"):
            async with deadline(5):
                raise ValueError("own")
        assert current_deadline() is None

    run(main())


def test_a_cancellation_of_the_caller_is_no_deadline(run: Run) -> None:
    async def main() -> None:
        async def work() -> None:
            async with deadline(0.02):
                try:
                    await asyncio.sleep(30)
                finally:
                    await asyncio.sleep(30)  # both have come by the end of this

        task = asyncio.create_task(work())
        await asyncio.sleep(0.06)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_tasks_and_copied_contexts_inherit_the_deadline() -> None:
    async def main() -> None:
        async def child() -> float:
            return left()

        async with deadline(5):
            assert await asyncio.create_task(child()) <= 5
            assert await asyncio.to_thread(left) <= 5
        seen: list[float] = []
        with deadline(5):
            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(lambda: seen.append(left()),))
            thread.start()
            thread.join()
        assert 0 < seen[0] <= 5

    asyncio.run(main())


def test_a_call_is_a_deadline_for_the_calls_in_it() -> None:
    def inner() -> None:
        assert left() == 8
        retry_sync(Flaky(then=ConnectionError), deadline=100, base=3, jitter="none")

    with FakeTime() as fake:
        with pytest.raises(DeadlineExceeded):
            retry_sync(inner, deadline=8)
        assert fake.now == 3


def test_a_block_is_used_once_at_a_time() -> None:
    block = deadline(3)
    with block, pytest.raises(RuntimeError, match="new deadline"), block:
        pass
    with block:
        assert left() <= 3


def test_clocks_of_different_worlds_are_converted() -> None:
    now = [1_000_000.0]
    with FakeTime(), deadline(5):
        flaky = Flaky(then=ConnectionError)
        with pytest.raises(DeadlineExceeded):
            retry_sync(flaky, clock=lambda: now[0], base=6, jitter="none")
        assert flaky.calls == 1
        retry_sync(lambda: current_attempt(), clock=lambda: now[0])  # noqa: PLW0108


async def test_a_task_that_outlives_the_block_or_the_call_it_was_started_in_is_bound_no_longer() -> None:
    ended = asyncio.Event()

    async def outlives() -> tuple[object, object, str]:
        await ended.wait()
        return current_deadline(), current_attempt(), await retry(Flaky("done").asynchronous, deadline=100)

    async def start() -> asyncio.Task[tuple[object, object, str]]:
        return asyncio.create_task(outlives())

    with FakeTime() as fake:
        async with deadline(2):
            in_block = await start()
        in_call = await retry(start, deadline=3)
        fake.advance(10)
        ended.set()
        assert await in_block == (None, None, "done")
        assert await in_call == (None, None, "done")
