"""T34: whatever returns an awaitable is awaited under the retry; taking the coroutine for a success retries nothing."""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from forbear import RetriesExhausted, RetryError, retry, retry_call, retry_sync
from forbear.testing import FakeTime, Flaky, record_events

Made = Callable[[], Any]
Maker = Callable[[Flaky], Made]


class Client:
    """Awaitables from methods of all kinds."""

    flaky: Flaky

    def __init__(self, flaky: Flaky) -> None:
        self.flaky = flaky

    async def method(self) -> Any:
        return await self.flaky.asynchronous()

    def plain_method(self) -> Awaitable[Any]:
        return self.flaky.asynchronous()

    async def __call__(self) -> Any:
        return await self.flaky.asynchronous()


class PlainCallable:
    """An object whose plain `__call__` returns a coroutine."""

    def __init__(self, flaky: Flaky) -> None:
        self.flaky = flaky

    def __call__(self) -> Awaitable[Any]:
        return self.flaky.asynchronous()


class Query:
    """Awaitable, but no coroutine; as some database drivers have it."""

    def __init__(self, flaky: Flaky) -> None:
        self.flaky = flaky

    def __await__(self) -> Generator[Any, None, Any]:
        return self.flaky.asynchronous().__await__()


def wrapped(flaky: Flaky) -> Made:
    @functools.wraps(flaky.asynchronous)
    def wrapper() -> Awaitable[Any]:
        return flaky.asynchronous()

    return wrapper


def ignoring(flaky: Flaky) -> Callable[[int, int], Awaitable[Any]]:
    async def fn(_first: int, second: int) -> Any:
        return await flaky.asynchronous()

    return fn


def old_style(flaky: Flaky) -> Made:
    @types.coroutine
    def fn() -> Generator[Any, None, Any]:
        return (yield from flaky.asynchronous().__await__())

    return fn


async def flaky_result(flaky: Flaky, *_: Any) -> Any:
    return await flaky.asynchronous()


MAKERS: dict[str, Maker] = {
    "coroutine function": lambda flaky: Client(flaky).method,
    "plain method": lambda flaky: Client(flaky).plain_method,
    "object with async __call__": Client,
    "object with plain __call__": PlainCallable,
    "lambda": lambda flaky: lambda: flaky.asynchronous(),  # noqa: PLW0108  # the lambda is the point
    "lambda that makes a task": lambda flaky: lambda: asyncio.ensure_future(flaky.asynchronous()),
    "lambda that gathers": lambda flaky: lambda: asyncio.gather(flaky.asynchronous()),
    "lambda with a query object": lambda flaky: lambda: Query(flaky),
    "wrapper": wrapped,
    "partial": lambda flaky: functools.partial(flaky_result, flaky),
    "partial of a partial": lambda flaky: functools.partial(functools.partial(ignoring(flaky), 1), second=2),
    "partial of a lambda": lambda flaky: functools.partial(lambda _: flaky.asynchronous(), 1),
    "partial of an object": lambda flaky: functools.partial(Client(flaky)),
    "old-style coroutine function": old_style,
    "lambda over an old-style coroutine": lambda flaky: lambda: old_style(flaky)(),  # noqa: PLW0108
    "partialmethod": lambda flaky: (
        type("Owner", (), {"call": functools.partialmethod(lambda _, flaky: flaky.asynchronous(), flaky)})().call
    ),
    "async mock": lambda flaky: AsyncMock(side_effect=flaky),
    "mock that returns a coroutine": lambda flaky: Mock(side_effect=flaky.asynchronous),
    "magic mock that returns a coroutine": lambda flaky: MagicMock(side_effect=flaky.asynchronous),
}


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest) -> Maker:
    return MAKERS[request.param]


def unwrapped(result: Any) -> Any:
    return result[0] if isinstance(result, list) else result


async def test_it_is_retried_in_the_call_form(maker: Maker) -> None:
    flaky = Flaky(ConnectionError(), ConnectionError(), "done")
    with FakeTime():
        assert unwrapped(await retry(maker(flaky))) == "done"
    assert flaky.calls == 3


async def test_it_is_retried_where_it_is_decorated(maker: Maker) -> None:
    flaky = Flaky(ConnectionError(), ConnectionError(), "done", ConnectionError(), "again")
    with FakeTime():
        call = retry()(maker(flaky))
        assert unwrapped(await call()) == "done"
        assert unwrapped(await call()) == "again"
    assert flaky.calls == 5


async def test_it_is_retried_by_retry_call(maker: Maker) -> None:
    flaky = Flaky(ConnectionError(), ConnectionError(), "done")
    with FakeTime():
        assert unwrapped(await retry_call(maker(flaky))) == "done"
    assert flaky.calls == 3


async def test_its_attempts_are_counted_and_its_fallback_is_asked(maker: Maker) -> None:
    flaky = Flaky(then=ConnectionError())
    with FakeTime():
        with pytest.raises(RetriesExhausted) as caught:
            await retry(max_attempts=3)(maker(flaky))()
        assert await retry(max_attempts=3, fallback=lambda _: "instead")(maker(flaky))() == "instead"
    assert flaky.calls == caught.value.attempts * 2 == 6


def test_blocking_code_refuses_it_loudly(maker: Maker) -> None:
    flaky = Flaky(then="done")

    async def main() -> None:
        with pytest.raises(TypeError, match=r"is async|can't await"):
            retry_sync(maker(flaky))
        await asyncio.sleep(0)  # a task that was made is cancelled or ends

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fn", "said"),
    [(lambda: "no awaitable", "retry_sync"), (lambda: None, "retry_sync"), (lambda: iter(()), r"use stream\(fn")],
)
async def test_the_call_form_refuses_what_cannot_be_awaited(fn: Made, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        await retry(fn)


async def test_a_function_that_is_async_only_sometimes_is_retried_both_ways() -> None:
    flaky = Flaky(ConnectionError(), ConnectionError(), "done")
    modes = iter([True, True, False])
    call = retry()(lambda: flaky.asynchronous() if next(modes) else asyncio.sleep(0, "cached"))
    with FakeTime():
        assert await call() == "cached"
    assert flaky.calls == 2


class Pool:
    """First raises by itself, as a pool without a free connection, and later returns a coroutine."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> Awaitable[Any]:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError
        return Flaky(then=ConnectionError()).asynchronous()


@pytest.mark.parametrize("decorated", [True, False])
async def test_failures_before_and_after_the_coroutine_belong_to_one_call(decorated: bool) -> None:
    options: Any = {"max_attempts": 3}
    pool = Pool(failures=2)
    with FakeTime(), record_events() as events, pytest.raises(RetriesExhausted) as caught:
        await (retry(**options)(pool)() if decorated else retry_call(pool, retry_options=options))
    assert pool.calls == caught.value.attempts == 3
    assert [one.attempt for one in events.attempts] == [1, 2, 3]


@pytest.mark.parametrize("decorated", [True, False])
async def test_they_share_one_deadline(decorated: bool) -> None:
    options: Any = {"max_attempts": None, "backoff": [2.0], "deadline": 5.0}
    pool = Pool(failures=2)
    with FakeTime() as clock:
        with pytest.raises(RetryError):
            await (retry(**options)(pool)() if decorated else retry_call(pool, retry_options=options))
        assert clock.now <= 5.0
