"""R035: a plain function that returns a coroutine "succeeds" at once; its failure comes later, outside the retry."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from forbear import ApiError, ResultRejected, RetriesExhausted, retry, retry_call, retry_sync
from forbear.testing import FakeTime, Flaky, Hang, record_events
from forms import call_async, decorate_async, retry_call_async

Maker = Callable[[Flaky], Callable[[], Awaitable[Any]]]


async def awaiting(flaky: Flaky, *_: int) -> Any:
    await asyncio.sleep(0)
    return await flaky.asynchronous()


MAKERS: dict[str, Maker] = {
    "lambda": lambda flaky: lambda: awaiting(flaky),
    "partial": lambda flaky: functools.partial(awaiting, flaky),
    "partial of a lambda": lambda flaky: functools.partial(lambda *args: awaiting(flaky, *args), 1, 2),
    "lambda over a task": lambda flaky: lambda: asyncio.create_task(awaiting(flaky)),
    "lambda over wait_for": lambda flaky: lambda: asyncio.wait_for(awaiting(flaky), 60),
}
WAYS: dict[str, Callable[..., Awaitable[Any]]] = {
    "retry(fn)": call_async,
    "@retry()": decorate_async,
    "retry_call": retry_call_async,
}


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest) -> Maker:
    return MAKERS[request.param]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[..., Awaitable[Any]]:
    return WAYS[request.param]


async def test_its_failures_are_retried_with_waits(maker: Maker, way: Callable[..., Awaitable[Any]]) -> None:
    flaky = Flaky(ConnectionError(), ApiError(429, retry_after=7.0), "done")
    with FakeTime() as clock:
        assert await way(maker(flaky)) == "done"
        assert clock.sleeps[1] == 7.0
    assert flaky.calls == 3


async def test_the_attempts_are_those_that_were_allowed(maker: Maker, way: Callable[..., Awaitable[Any]]) -> None:
    flaky = Flaky(then=ConnectionError())
    with FakeTime(), record_events() as events, pytest.raises(RetriesExhausted) as caught:
        await way(maker(flaky), max_attempts=3)
    assert flaky.calls == caught.value.attempts == 3
    assert [attempt.attempt for attempt in events.attempts] == [1, 2, 3]
    assert len(events.ends) == 1


async def test_a_permanent_failure_is_raised_as_it_is(maker: Maker, way: Callable[..., Awaitable[Any]]) -> None:
    error = ApiError(401)
    flaky = Flaky(then=error)
    with FakeTime(), pytest.raises(ApiError) as caught:
        await way(maker(flaky))
    assert caught.value is error
    assert flaky.calls == 1


async def test_the_rule_for_results_sees_what_was_awaited(maker: Maker, way: Callable[..., Awaitable[Any]]) -> None:
    flaky = Flaky("", "", "text")
    with FakeTime():
        assert await way(maker(flaky), retry_if_result=lambda text: text == "") == "text"
        with pytest.raises(RetriesExhausted) as caught:
            await way(maker(Flaky(then="")), retry_if_result=lambda text: text == "", max_attempts=2)
    assert isinstance(caught.value.last_error, ResultRejected)
    assert caught.value.last_result == ""


async def test_a_hanging_one_is_cut(maker: Maker, way: Callable[..., Awaitable[Any]]) -> None:
    flaky = Flaky(Hang(50.0), "done")
    with FakeTime() as clock:
        assert await way(maker(flaky), attempt_timeout=2.0, backoff=[1.0]) == "done"
        assert clock.now == pytest.approx(3.0)


@pytest.mark.parametrize("decorated", [True, False])
def test_the_blocking_form_refuses_it_loudly_and_leaves_no_coroutine(decorated: bool) -> None:
    for fn in (lambda: awaiting(Flaky("done")), lambda: asyncio.sleep(0)):
        with pytest.raises(TypeError, match="use retry"):
            retry_sync()(fn)() if decorated else retry_sync(fn)


def test_a_coroutine_that_was_already_made_is_refused_before_anything_runs() -> None:
    for form in (retry, retry_sync, retry_call):
        with pytest.raises(TypeError, match="already been made"):
            form(asyncio.sleep(0))  # type: ignore[call-overload]


async def answer(_: object) -> bool:
    return False


@pytest.mark.parametrize("option", ["retryable", "retry_if_result"])
def test_an_async_rule_is_refused_because_a_coroutine_is_always_true(form: Callable[..., Any], option: str) -> None:
    with FakeTime(), pytest.raises((TypeError, ValueError), match="async"):
        form(Flaky(then="done"), **{option: answer})


def test_an_async_fallback_of_blocking_code_is_refused() -> None:
    with FakeTime(), pytest.raises((TypeError, ValueError), match="async"):
        retry_sync(Flaky(then=ConnectionError()), fallback=answer)
    with FakeTime(), pytest.raises((TypeError, ValueError), match="async"):
        retry(fallback=answer)(Flaky(then=ConnectionError()))()
