"""Every form of call, and fixtures that try one rule through all of them. Taken in by the `conftest.py` of a folder."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from forbear import Options, attempts, deadline, retry, retry_call, retry_sync
from forbear.testing import Flaky

Fn = Callable[[], Any]
AsyncFn = Callable[[], Awaitable[Any]]
FAR = 1e9  # seconds; a deadline block that never matters


async def call_async(fn: AsyncFn, **options: Any) -> Any:
    return await retry(fn, **options)


async def call_async_lambda(fn: AsyncFn, **options: Any) -> Any:
    return await retry(lambda: fn(), **options)  # noqa: PLW0108  # the lambda is the point


async def decorate_async(fn: AsyncFn, **options: Any) -> Any:
    return await retry(**options)(fn)()


async def decorate_async_lambda(fn: AsyncFn, **options: Any) -> Any:
    return await retry(**options)(lambda: fn())()  # noqa: PLW0108  # the lambda is the point


async def retry_call_async(fn: AsyncFn, **options: Any) -> Any:
    return await retry_call(fn, retry_options=Options(**options))


async def block_async(fn: AsyncFn, **options: Any) -> Any:
    result = None
    async for attempt in attempts(**options):
        async with attempt:
            result = attempt.result = await fn()
    return result


async def deadline_async(fn: AsyncFn, **options: Any) -> Any:
    async with deadline(FAR):
        return await retry(fn, **options)


def call_blocking(fn: Fn, **options: Any) -> Any:
    return retry_sync(fn, **options)


def decorate(fn: Fn, **options: Any) -> Any:
    return retry(**options)(fn)()


def decorate_blocking(fn: Fn, **options: Any) -> Any:
    return retry_sync(**options)(fn)()


def retry_call_blocking(fn: Fn, **options: Any) -> Any:
    return retry_call(fn, retry_options=Options(**options))


def block(fn: Fn, **options: Any) -> Any:
    result = None
    for attempt in attempts(**options):
        with attempt:
            result = attempt.result = fn()
    return result


def deadline_blocking(fn: Fn, **options: Any) -> Any:
    with deadline(FAR):
        return retry_sync(fn, **options)


ASYNC_FORMS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    one.__name__: one
    for one in (
        call_async, call_async_lambda, decorate_async, decorate_async_lambda, retry_call_async, block_async,
        deadline_async,
    )
}  # fmt: skip
BLOCKING_FORMS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (call_blocking, decorate, decorate_blocking, retry_call_blocking, block, deadline_blocking)
}


def async_version(fn: Fn) -> AsyncFn:
    """The same function for async forms."""
    if isinstance(fn, Flaky):
        return fn.asynchronous
    if inspect.iscoroutinefunction(fn):
        return fn

    async def call() -> Any:
        return fn()

    return call


def to_the_end(form: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """An async form, run on a loop of its own."""

    def call(fn: Fn, **options: Any) -> Any:
        ended: list[tuple[Any, BaseException | None]] = []

        async def outcome() -> None:
            try:
                ended.append((await form(async_version(fn), **options), None))
            except BaseException as error:  # handed out by hand, so that the loop sees a clean end and keeps nothing
                ended.append((None, error))

        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(outcome())
        result, error = ended.pop()
        if error is not None:
            try:
                raise error
            finally:
                del error  # no cycle: the error's own traceback has this frame
        return result

    return call


@pytest.fixture(params=ASYNC_FORMS)
def async_form(request: pytest.FixtureRequest) -> Callable[..., Coroutine[Any, Any, Any]]:
    """`await async_form(fn, **options)`: each form of call of asyncio."""
    return ASYNC_FORMS[request.param]


@pytest.fixture(params=BLOCKING_FORMS)
def blocking_form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`blocking_form(fn, **options)`: each form of call of blocking code."""
    return BLOCKING_FORMS[request.param]


@pytest.fixture(params=[*ASYNC_FORMS, *BLOCKING_FORMS])
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`form(fn, **options)`: each form of all; `fn` is a blocking function or a `Flaky`. Not for async tests."""
    name = request.param
    return BLOCKING_FORMS[name] if name in BLOCKING_FORMS else to_the_end(ASYNC_FORMS[name])
