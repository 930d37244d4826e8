"""R021: a blocking wait below an async client stops the whole event loop, and everything else in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forbear import RateLimiter, RetriesExhausted, RetryBudget, Upstream, retry, retry_sync
from forbear.testing import FakeTime, Flaky, Hang

Form = Callable[..., Coroutine[Any, Any, Any]]


class Heart:
    """A task that ticks, and the longest time between two ticks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.ticks: list[float] = []

    async def beat(self) -> None:
        while True:
            self.ticks.append(self.clock())
            await asyncio.sleep(0.01)

    @property
    def longest_gap(self) -> float:
        return max(later - sooner for sooner, later in zip(self.ticks, self.ticks[1:], strict=False))


@pytest.fixture
def no_blocking_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(delay: float) -> None:
        raise AssertionError(f"the event loop was put to sleep for {delay} s")

    monkeypatch.setattr(time, "sleep", refuse)


SCRIPTS: dict[str, tuple[Any, ...]] = {
    "failures": (ConnectionError(), ConnectionError(), ConnectionError(), "done"),
    "slow failures": (Hang(0.5, ConnectionError()), Hang(0.5, ConnectionError()), "done"),
    "timeouts": (Hang(60.0), Hang(60.0), "done"),
}


@pytest.mark.parametrize("script", SCRIPTS)
async def test_the_heart_beats_through_attempts_and_waits(async_form: Form, script: str) -> None:
    with FakeTime() as clock:
        heart = Heart(clock)
        beating = asyncio.create_task(heart.beat())
        fn = Flaky(*SCRIPTS[script])
        assert await async_form(fn.asynchronous, backoff=[2.0], attempt_timeout=1.0, deadline=None) == "done"
        beating.cancel()
        assert clock.now >= 4.0
    assert heart.longest_gap <= 0.02


def test_no_async_form_calls_a_blocking_sleep(
    run: Callable[..., Any], async_form: Form, no_blocking_sleep: None
) -> None:
    async def hook(_: object) -> None:
        await asyncio.sleep(0)

    async def main() -> int:
        heart = Heart(time.monotonic)
        beating = asyncio.create_task(heart.beat())
        fn = Flaky(ConnectionError(), ConnectionError(), "done")
        assert await async_form(fn.asynchronous, on_retry=hook, backoff=[0.05]) == "done"
        with pytest.raises(RetriesExhausted):
            await async_form(Flaky(then=ConnectionError()).asynchronous, max_attempts=2, backoff=[0.01])
        beating.cancel()
        return len(heart.ticks)

    assert run(main()) >= 3  # one at first, and one in each wait, however busy the machine


def test_a_function_that_fails_before_it_returns_its_coroutine_does_not_block_in_the_call_form(
    run: Callable[..., Any], no_blocking_sleep: None
) -> None:
    calls: list[int] = []

    def fn() -> Coroutine[Any, Any, str]:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        return asyncio.sleep(0, "done")

    assert run(retry(fn, backoff=[0.01])) == "done"


async def test_a_blocking_call_inside_the_loop_is_warned_of(blocking_form: Callable[..., Any]) -> None:
    fn = Flaky(ConnectionError(), then="done")
    with pytest.warns(RuntimeWarning, match="inside a running event loop"):
        blocking_form(fn, backoff=[0.001])
    assert fn.calls == 2


async def test_a_blocking_call_in_a_worker_thread_is_not_warned_of_and_does_not_stop_the_loop() -> None:
    heart = Heart(time.monotonic)
    beating = asyncio.create_task(heart.beat())
    fn = Flaky(ConnectionError(), then="done")
    assert await asyncio.to_thread(retry_sync, fn, backoff=[0.3]) == "done"
    beating.cancel()
    assert len(heart.ticks) >= 2


WAITS: dict[str, Callable[[], dict[str, Any]]] = {
    "limiter": lambda: {"limiter": RateLimiter(30, burst=1)},
    "upstream": lambda: {"upstream": Upstream("service", requests_per_minute=30)},
    "budget": lambda: {"budget": RetryBudget(initial=0, when_empty="wait")},
}


@pytest.mark.parametrize("guard", WAITS)
async def test_the_heart_beats_through_the_waits_for_a_place(async_form: Form, guard: str) -> None:
    with FakeTime() as clock:
        heart = Heart(clock)
        beating = asyncio.create_task(heart.beat())
        fn = Flaky(*[ConnectionError()] * 3, then="done")
        assert await async_form(fn.asynchronous, base=0, deadline=None, **WAITS[guard]()) == "done"
        beating.cancel()
        assert clock.now >= 2.0
    assert heart.longest_gap <= 0.02


@pytest.mark.parametrize("guard", ["limiter", "upstream"])
def test_a_wait_for_a_place_calls_no_blocking_sleep(
    run: Callable[..., Any], async_form: Form, no_blocking_sleep: None, guard: str
) -> None:
    guards: dict[str, Any] = {
        "limiter": RateLimiter(1200, burst=1),
        "upstream": Upstream("service", requests_per_minute=1200, burst=1),
    }

    async def main() -> int:
        heart = Heart(time.monotonic)
        beating = asyncio.create_task(heart.beat())
        fn = Flaky(ConnectionError(), ConnectionError(), then="done")
        assert await async_form(fn.asynchronous, base=0, **{guard: guards[guard]}) == "done"
        beating.cancel()
        return len(heart.ticks)

    assert run(main()) >= 3


def test_a_full_limiter_lets_the_heart_beat(run: Callable[..., Any], no_blocking_sleep: None) -> None:
    async def main() -> int:
        limiter = RateLimiter(600, burst=1)
        heart = Heart(time.monotonic)
        beating = asyncio.create_task(heart.beat())
        await asyncio.gather(*[limiter.acquire_async() for _ in range(4)])
        beating.cancel()
        return len(heart.ticks)

    assert run(main()) >= 4
