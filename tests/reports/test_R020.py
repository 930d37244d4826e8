"""R020: waiters that a dead event loop has left behind must neither hold places nor trouble the next loop."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from forbear import CircuitBreaker, RateLimiter, RetryBudget, Upstream, retry
from forbear.testing import Flaky

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def make(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


@pytest.fixture
def troubles(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the interpreter could raise nowhere."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda trouble: found.append(trouble.exc_value))
    return found


class Dead:
    """A loop that was closed over pending calls. `keep` holds on to them."""

    def __init__(self, make: Callable[[], asyncio.AbstractEventLoop], call: Callable[[], Any], number: int = 5) -> None:
        self.keep: list[asyncio.Task[Any]] = []
        self.said: list[str] = []
        loop = make()
        loop.set_exception_handler(lambda _, context: self.said.append(context["message"]))
        loop.run_until_complete(self._leave_behind(call, number))
        loop.close()

    async def _leave_behind(self, call: Callable[[], Any], number: int) -> None:
        self.keep += [asyncio.ensure_future(call()) for _ in range(number)]
        for _ in range(4):
            await asyncio.sleep(0)

    def forget(self) -> None:
        self.keep.clear()
        gc.collect()


async def timed(call: Callable[[], Any]) -> float:
    began = time.monotonic()
    await asyncio.wait_for(call(), 20)
    return time.monotonic() - began


def run(make: Callable[[], asyncio.AbstractEventLoop], coroutine: Any) -> Any:
    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(coroutine)


@pytest.mark.parametrize("forgotten", ["at once", "later", "never"])
@pytest.mark.parametrize("limit", [None, 3600.0])
def test_a_limiter_goes_on_as_if_they_had_never_been(
    make: Callable[[], asyncio.AbstractEventLoop], troubles: list[Any], forgotten: str, limit: float | None
) -> None:
    limiter = RateLimiter(600, burst=1)
    limiter.acquire()
    dead = Dead(make, lambda: limiter.acquire_async(timeout=limit))
    if forgotten == "at once":
        dead.forget()
    for _ in range(3):
        assert run(make, timed(lambda: limiter.acquire_async(timeout=0.15))) <= 0.15
    if forgotten == "later":
        dead.forget()
    assert len(limiter._line()) == 0
    limiter.acquire()
    assert troubles == []
    dead.forget()
    assert troubles == []


def test_a_booking_does_not_stand_behind_them(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    limiter = RateLimiter(60, burst=1)
    limiter.acquire()
    dead = Dead(make, limiter.acquire_async)
    assert 0.5 < limiter.reserve() <= 1.0
    dead.forget()


def test_waiters_of_an_upstream_hold_neither_places_nor_budget(
    make: Callable[[], asyncio.AbstractEventLoop], troubles: list[Any]
) -> None:
    upstream = Upstream("service", requests_per_minute=600, burst=1, max_concurrency=2, budget=RetryBudget())
    upstream.retry_sync(lambda: None)
    dead = Dead(make, lambda: upstream.retry(lambda: asyncio.sleep(0)))
    assert run(make, timed(lambda: upstream.retry(lambda: asyncio.sleep(0)))) <= 0.5
    snapshot = upstream.snapshot()
    assert (snapshot.in_flight, snapshot.waiting) == (0, 0)
    dead.forget()
    assert troubles == []


def test_attempts_under_way_give_their_places_back_when_they_are_forgotten(
    make: Callable[[], asyncio.AbstractEventLoop], troubles: list[Any]
) -> None:
    breaker = CircuitBreaker(5)
    upstream = Upstream("service", max_concurrency=3, breaker=breaker)
    dead = Dead(make, lambda: upstream.retry(lambda: asyncio.sleep(60)))
    assert (upstream.snapshot().in_flight, upstream.snapshot().waiting) == (3, 0)
    dead.forget()
    assert run(make, timed(lambda: upstream.retry(lambda: asyncio.sleep(0)))) <= 0.5
    assert (upstream.snapshot().in_flight, upstream.snapshot().waiting) == (0, 0)
    assert troubles == []


def test_retries_that_waited_for_the_budget_leave_it_whole(
    make: Callable[[], asyncio.AbstractEventLoop], troubles: list[Any]
) -> None:
    budget = RetryBudget(initial=0, when_empty="wait")
    fn = Flaky(then=ConnectionError())
    dead = Dead(make, lambda: retry(fn.asynchronous, budget=budget, base=0, max_attempts=None))
    dead.forget()
    budget.succeeded(3.0)
    again = Flaky(ConnectionError(), ConnectionError(), then="done")
    run(make, timed(lambda: retry(again.asynchronous, budget=budget, base=0)))
    assert troubles == []
