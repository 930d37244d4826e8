"""R012: a retry on any error took a cancellation for a failure, and the task lived on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forbear import current_attempt, current_deadline

Form = Callable[..., Coroutine[Any, Any, Any]]
ANY: list[Any] = [Exception, lambda _: True]
SLOW: dict[str, Any] = {"attempt_timeout": 60.0, "backoff": [60.0], "deadline": None}


class Place:
    """A function that fails or hangs, and says when the call has come so far."""

    def __init__(self, hang: bool, failures: int = 1) -> None:
        self.hang = hang
        self.failures = failures
        self.calls = 0
        self.reached = asyncio.Event()

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls < self.failures:
            raise ConnectionError
        if self.hang:
            self.reached.set()
            await asyncio.sleep(60)
        asyncio.get_running_loop().call_soon(self.reached.set)
        raise ConnectionError


@pytest.mark.parametrize("retryable", ANY)
@pytest.mark.parametrize("hang", [True, False], ids=["attempt", "wait"])
def test_a_cancelled_task_ends_at_once(run: Callable[..., Any], async_form: Form, retryable: Any, hang: bool) -> None:
    async def one(later: int) -> None:
        place, counts = Place(hang), []

        async def body() -> None:
            try:
                await async_form(place.__call__, retryable=retryable, **SLOW)
            finally:
                task = asyncio.current_task()
                counts.append(task and task.cancelling())
                assert current_attempt() is None
                assert current_deadline() is None

        task = asyncio.create_task(body())
        await place.reached.wait()
        for _ in range(later):
            await asyncio.sleep(0)
        task.cancel("enough")
        done, _ = await asyncio.wait([task], timeout=20)
        assert done
        assert task.cancelled()
        assert (place.calls, counts) == (1, [1]), later

    async def main() -> None:
        for later in range(4):
            await one(later)

    run(main())


@pytest.mark.parametrize("hang", [True, False], ids=["attempt", "wait"])
def test_it_ends_in_a_later_attempt_or_wait_as_well(run: Callable[..., Any], async_form: Form, hang: bool) -> None:
    async def main() -> None:
        place = Place(hang, failures=3)
        task = asyncio.create_task(
            async_form(place.__call__, retryable=Exception, deadline=None, backoff=[0.0, 0.0, 60.0], max_attempts=9)
        )
        await place.reached.wait()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=20)
        assert done
        assert task.cancelled()
        assert place.calls == 3

    run(main())


def test_many_calls_that_are_cancelled_together_all_end(run: Callable[..., Any], async_form: Form) -> None:
    async def main() -> None:
        places = [Place(hang=bool(n % 2)) for n in range(40)]
        tasks = [asyncio.create_task(async_form(place.__call__, retryable=Exception, **SLOW)) for place in places]
        for place in places:
            await place.reached.wait()
        for task in tasks:
            task.cancel()
        done, _ = await asyncio.wait(tasks, timeout=20)
        assert len(done) == 40
        assert all(task.cancelled() for task in tasks)
        assert [place.calls for place in places] == [1] * 40

    run(main())
