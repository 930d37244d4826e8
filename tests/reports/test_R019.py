"""R019: what is made once, at import, must work in every later event loop and thread: nothing is bound to a loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from forbear import (
    CircuitBreaker,
    CircuitOpenError,
    Policy,
    RateLimiter,
    RetriesExhausted,
    RetryBudget,
    Upstream,
    attempts,
    current_attempt,
    current_deadline,
    deadline,
    retry,
)
from forbear.testing import Flaky

Run = Callable[[Coroutine[Any, Any, Any]], Any]
POLICY = Policy(max_attempts=3, base=0.001, cap=0.002, attempt_timeout=20.0, deadline=40.0)
RECIPE = attempts(policy=POLICY)
LIMIT = deadline(30.0)


class Service:
    """A client as it is kept at module level."""

    @retry(policy=POLICY)
    async def decorated(self) -> int:
        return self.answer()

    @retry(policy=POLICY)
    def plain(self) -> Coroutine[Any, Any, int]:
        return self.later()

    async def later(self) -> int:
        return self.answer()

    def answer(self) -> int:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number < 3:
            raise ConnectionError
        return attempt.number


SERVICE = Service()


async def in_a_block() -> int:
    async for attempt in RECIPE:
        async with attempt:
            return SERVICE.answer()
    raise AssertionError


async def under_a_deadline() -> int:
    async with LIMIT:
        return await SERVICE.decorated()


async def timed_out() -> int:
    with pytest.raises(RetriesExhausted):
        await retry(lambda: asyncio.sleep(60), policy=POLICY.replace(attempt_timeout=0.1, max_attempts=1))
    return 3


USES: dict[str, Callable[[], Coroutine[Any, Any, int]]] = {
    "decorated": SERVICE.decorated,
    "plain": SERVICE.plain,
    "call": lambda: retry(SERVICE.later, policy=POLICY),
    "block": in_a_block,
    "deadline": under_a_deadline,
    "timeout": timed_out,
}


@pytest.fixture(params=USES)
def use(request: pytest.FixtureRequest) -> Callable[[], Coroutine[Any, Any, int]]:
    return USES[request.param]


def test_it_works_in_three_loops_one_after_the_other(run: Run, use: Callable[[], Coroutine[Any, Any, int]]) -> None:
    assert [run(use()) for _ in range(3)] == [3, 3, 3]


@pytest.mark.parametrize("name", [name for name in USES if name != "deadline"])
def test_it_works_in_two_threads_with_loops_of_their_own(run: Run, name: str) -> None:
    answers: list[int] = []
    barrier = threading.Barrier(2)

    async def several() -> list[int]:
        return list(await asyncio.gather(*[USES[name]() for _ in range(10)]))

    def work() -> None:
        barrier.wait(30)
        answers.extend(run(several()))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [3] * 20


def test_a_loop_that_was_closed_over_waiting_calls_leaves_nothing_to_the_next(run: Run) -> None:
    async def leave_behind() -> None:
        hanging, waiting = Flaky(then=ConnectionError()), Flaky(then=ConnectionError())
        for _ in range(5):
            tasks.append(asyncio.create_task(retry(hanging.asynchronous, backoff=[60.0], deadline=None)))
            tasks.append(asyncio.create_task(retry(lambda: asyncio.sleep(60), policy=POLICY)))
        await asyncio.sleep(0.01)
        assert waiting.calls == 0

    for _ in range(3):
        tasks: list[asyncio.Task[Any]] = []
        run(leave_behind())
        assert all(task.cancelled() for task in tasks)
        assert run(SERVICE.decorated()) == 3


def test_blocking_and_async_calls_of_one_object_take_turns() -> None:
    call = retry(policy=POLICY)(Flaky(ConnectionError(), then="done"))
    for _ in range(2):
        assert call() == "done"
        assert asyncio.run(SERVICE.decorated()) == 3


def test_a_block_in_use_refuses_a_second_user_with_the_correction() -> None:
    block = deadline(5.0)
    with block, pytest.raises(RuntimeError, match="write a new deadline"), block:
        raise AssertionError


async def hang_in_a_block() -> None:
    async for attempt in RECIPE:
        async with attempt:
            await asyncio.sleep(60)


async def hang_under_an_async_deadline() -> None:
    async with deadline(9.0):
        await asyncio.sleep(60)


async def hang_under_a_deadline() -> None:
    with deadline(9.0):
        await asyncio.sleep(60)


async def hang_in_a_call() -> None:
    await retry(lambda: asyncio.sleep(60), policy=POLICY)


@pytest.mark.parametrize("hang", [hang_in_a_block, hang_under_an_async_deadline, hang_under_a_deadline, hang_in_a_call])
def test_a_coroutine_of_a_dead_loop_that_the_collector_ends_changes_no_scope_elsewhere(
    hang: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    task = loop.create_task(hang())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with deadline(5.0):
        del task, loop
        gc.collect()
        assert current_deadline() is not None
    assert current_deadline() is None


async def test_blocks_that_end_in_another_order_leave_no_scope_behind() -> None:
    async def source(seconds: float) -> AsyncGenerator[None]:
        with deadline(seconds):
            yield

    first, second = source(5.0), source(7.0)
    await anext(first)
    await anext(second)
    await first.aclose()
    await second.aclose()
    assert current_deadline() is None


def kept_at_module_level() -> dict[str, Any]:
    return {
        "limiter": RateLimiter(60_000, burst=5),
        "breaker": CircuitBreaker(3, 3600.0),
        "budget": RetryBudget(initial=50),
    }


def test_limiter_breaker_and_budget_serve_three_loops_and_two_threads_and_remember(run: Run) -> None:
    guards = kept_at_module_level()
    answers: list[str] = []

    async def several() -> None:
        fns = [Flaky(ConnectionError(), then="done") for _ in range(10)]
        call = [retry(fn.asynchronous, base=0.001, retryable=lambda _: True, **guards) for fn in fns]
        answers.extend([await coroutine for coroutine in call])

    for _ in range(3):
        run(several())
    threads = [threading.Thread(target=run, args=(several(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join(20)
    assert answers == ["done"] * 50
    assert guards["budget"].balance > 50.0  # what they have earned

    async def broken() -> None:
        with pytest.raises(CircuitOpenError):
            await retry(Flaky(then=ConnectionError()).asynchronous, base=0.001, **guards)

    run(broken())
    fn = Flaky(then="done")
    with pytest.raises(CircuitOpenError):  # in another loop it is open all the same
        run(retry(fn.asynchronous, **guards))
    assert fn.calls == 0
    assert len(guards["limiter"]._line()) == 0


def test_an_upstream_serves_loops_in_two_threads_at_the_same_time(run: Run) -> None:
    upstream = Upstream("service", requests_per_minute=60_000, max_concurrency=2, adaptive=False)
    running, most = [0], [0]
    barrier = threading.Barrier(2)

    async def fn() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.001)
        running[0] -= 1

    async def several() -> None:
        barrier.wait(20)
        await asyncio.gather(*[upstream.retry(fn) for _ in range(40)])

    threads = [threading.Thread(target=run, args=(several(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most[0] == 2
    snapshot = upstream.snapshot()
    assert (snapshot.successes, snapshot.in_flight, snapshot.waiting) == (80, 0, 0)
