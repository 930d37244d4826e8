"""R015: where a result and a cancellation arrive in the same step of the loop, the cancellation must not get lost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

Form = Callable[..., Coroutine[Any, Any, Any]]


class Resource:
    """Something an attempt opens."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0

    async def __aenter__(self) -> Resource:
        self.opened += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed += 1


class Scene:
    """A call whose attempt waits for a future, and the things that can happen to it in one step."""

    def __init__(self, form: Form, **options: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[str] = self.loop.create_future()
        self.resource = Resource()
        self.cancels = 0
        self.counts: list[int] = []
        self.task = asyncio.create_task(self.body(form, options))

    async def attempt(self) -> str:
        async with self.resource:
            return await self.future

    async def body(self, form: Form, options: dict[str, Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        try:
            return await form(self.attempt, **options)
        finally:
            self.counts.append(task.cancelling())

    def succeed(self) -> None:
        if not self.future.done():
            self.future.set_result("result")

    def fail(self) -> None:
        if not self.future.done():
            self.future.set_exception(ConnectionError())

    def cancel(self) -> None:
        self.cancels += self.task.cancel()


ORDERS = [
    ("succeed", "cancel"),
    ("cancel", "succeed"),
    ("fail", "cancel"),
    ("cancel", "fail"),
    ("cancel", "succeed", "cancel"),
    ("succeed", "cancel", "cancel"),
]


@pytest.mark.parametrize("attempt_timeout", [None, 30.0, 0.04])
def test_the_cancellation_wins_in_every_order(
    run: Callable[..., Any], async_form: Form, attempt_timeout: float | None
) -> None:
    async def one(order: tuple[str, ...], before: int, nested: int) -> None:
        scene = Scene(async_form, attempt_timeout=attempt_timeout, backoff=[30.0], retryable=lambda _: True)
        for _ in range(before):
            await asyncio.sleep(0)

        def act(depth: int) -> None:
            if depth:
                scene.loop.call_soon(act, depth - 1)
                return
            for step in order:
                getattr(scene, step)()

        act(nested)
        done, _ = await asyncio.wait([scene.task], timeout=20)
        assert done, (order, before, nested)
        assert scene.cancels >= 1
        assert scene.task.cancelled(), (order, before, nested)
        assert scene.resource.opened == scene.resource.closed <= 1
        assert scene.counts in ([], [scene.cancels])

    async def main() -> None:
        for order, before, nested in itertools.product(ORDERS, range(6), range(3)):
            await one(order, before, nested)

    run(main())


def test_the_awaited_task_of_an_attempt_is_cancelled_with_it(run: Callable[..., Any], async_form: Form) -> None:
    async def main() -> None:
        inner: list[asyncio.Task[Any]] = []

        async def attempt() -> None:
            inner.append(asyncio.create_task(asyncio.sleep(60)))
            await inner[-1]

        task = asyncio.create_task(async_form(attempt, retryable=lambda _: True))
        while not inner:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()
        assert inner[0].cancelled()
        assert len(inner) == 1

    run(main())
