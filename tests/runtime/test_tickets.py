"""A wait in a line ends when it should, wherever it waits, and leaves nothing behind when it is broken off."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trio
import uvloop

from forbear import DeadlineExceeded, RateLimiter, deadline
from forbear._runtime.line import Line
from forbear._runtime.threads import ThreadTicket
from forbear._runtime.tickets import LoopTicket, TrioTicket, async_ticket
from forbear._runtime.world import REAL
from forbear.core.rate import Cost
from forbear.core.room import Place
from forbear.testing import FakeTime, instant_waits

Run = Callable[[Coroutine[Any, Any, Any]], Any]
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


class Full:
    """A room that never has a place, and does not say so."""

    def wait(self, cost: float, now: float) -> float:
        return math.inf

    def predicted(self, total: float, last: float, now: float) -> float:
        return 0.0

    def take(self, cost: float, now: float) -> float:
        raise AssertionError


def used_up(requests_per_minute: float = 600.0) -> RateLimiter:
    """A limiter whose next place is free after one interval."""
    limiter = RateLimiter(requests_per_minute, burst=1)
    limiter.acquire()
    return limiter


def line_of(limiter: RateLimiter) -> Line[Cost, Place]:
    return limiter._line()


def timers(loop: asyncio.AbstractEventLoop) -> int:
    """Timers that are due some time."""
    return sum(not handle.cancelled() for handle in loop._scheduled)  # type: ignore[attr-defined]


def left(limiter: RateLimiter) -> float:
    room: Any = line_of(limiter).room
    return float(room.rates.requests.left(line_of(limiter).clock()))


# ---- which kind of ticket ----------------------------------------------------------------------------------------


async def test_under_asyncio_it_is_a_ticket_of_the_loop() -> None:
    assert async_ticket(REAL) is LoopTicket


def test_under_trio_it_is_trios() -> None:
    async def main() -> type:
        return async_ticket(REAL)  # type: ignore[return-value]

    assert trio.run(main) is TrioTicket


def test_without_any_loop_the_mistake_is_told() -> None:
    with pytest.raises(RuntimeError, match="no event loop runs here"):
        RateLimiter(60).acquire_async().send(None)


# ---- cancellation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 30.0])
def test_a_cancellation_at_any_step_gives_back_everything_and_lets_the_next_one_go(
    run: Run, limit: float | None
) -> None:
    async def cancel_after(steps: int, *, late: bool) -> bool:
        limiter = used_up(6000.0 if late else 600.0)
        first = asyncio.create_task(limiter.acquire_async(timeout=limit))
        second = asyncio.create_task(limiter.acquire_async(timeout=limit))
        if late:
            await asyncio.sleep(0)
            time.sleep(0.012)  # the timer and the cancellation come in the same step
        for _ in range(steps):
            await asyncio.sleep(0)
        first.cancel()
        ended = (await asyncio.gather(first, return_exceptions=True))[0]
        began = time.monotonic()
        await asyncio.wait_for(second, 5)
        assert time.monotonic() - began < 1.0
        assert len(line_of(limiter)) == 0
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        return isinstance(ended, asyncio.CancelledError)

    async def main() -> None:
        assert all([await cancel_after(steps, late=False) for steps in range(4)])
        [await cancel_after(steps, late=True) for steps in range(6)]

    run(main())


def test_a_cancelled_wait_leaves_no_timer_behind() -> None:
    async def main() -> None:
        limiter = used_up(1.0)
        tasks = [asyncio.create_task(limiter.acquire_async(timeout=1000)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        wheel = asyncio.get_running_loop()._forbear_wheel  # type: ignore[attr-defined]
        assert sum(len(slot.cuts) for slot in wheel.slots.values()) == 0
        wheel.last.stop()
        assert timers(asyncio.get_running_loop()) == 0
        assert len(line_of(limiter)) == 0

    asyncio.run(main())


def test_a_place_and_a_cancellation_in_one_step_leave_the_place_to_the_next(run: Run) -> None:
    async def main() -> None:
        limiter = used_up(0.01)
        first, second = (asyncio.create_task(limiter.acquire_async()) for _ in range(2))
        await asyncio.sleep(0)
        line = line_of(limiter)
        line.act(lambda now: line.room.rates.requests.give(1.0, now, now))  # type: ignore[attr-defined]
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()
        await asyncio.wait_for(second, 5)

    run(main())


@pytest.mark.parametrize("limit", [0.01, 0.06])  # an exact timer, a shared slot
def test_a_timeout_around_the_wait_that_fires_with_its_own_counts_right(run: Run, limit: float) -> None:
    async def wait(shift: float) -> str:
        line: Line[float, float] = Line(Full(), time.monotonic)
        ticket: LoopTicket[float, float] = LoopTicket(1.0, time.monotonic() + limit)
        line.join(ticket)
        try:
            async with asyncio.timeout(limit + shift):
                await ticket.wait(line, REAL)
        except TimeoutError:
            return "outer"
        finally:
            line.leave(ticket)
            assert (len(line), ticket.timer) == (0, None)
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        return "own"

    async def main() -> None:
        ends = [await wait(shift) for shift in (-limit / 2, -0.004, -0.001, 0.0, 0.001, 0.004, 0.008, 1.0)]
        assert (ends[0], ends[-1]) == ("outer", "own")

    run(main())


# ---- loops and tasks that are gone -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", LOOPS)
@pytest.mark.parametrize("limit", [None, 1000.0])
def test_tasks_that_the_collector_ends_after_their_loop_was_closed_raise_nothing(
    make: Callable[[], asyncio.AbstractEventLoop], limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda trouble: troubles.append(trouble.exc_value))

    async def leave_behind(limiter: RateLimiter) -> None:
        for _ in range(5):
            asyncio.create_task(limiter.acquire_async(timeout=limit))  # noqa: RUF006  # that is the point
        await asyncio.sleep(0)

    def work() -> None:
        limiter, loop = used_up(), make()
        loop.set_exception_handler(lambda *_: None)  # the loop's own word about pending tasks
        loop.run_until_complete(leave_behind(limiter))
        loop.close()

    work()
    gc.collect()
    assert troubles == []


def test_a_wait_whose_coroutine_is_closed_gives_back_everything(run: Run) -> None:
    async def step(coroutine: Coroutine[Any, Any, Any]) -> None:
        coroutine.send(None)

    async def main() -> None:
        limiter = used_up()
        coroutine = limiter.acquire_async(timeout=1000)
        await step(coroutine)
        assert len(line_of(limiter)) == 1
        coroutine.close()
        assert len(line_of(limiter)) == 0

    run(main())


# ---- threads -----------------------------------------------------------------------------------------------------


def test_an_exception_in_a_waiting_thread_gives_back_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    limiter = used_up(1.0)

    def interrupt(self: object, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            limiter.acquire()
    assert len(line_of(limiter)) == 0


def test_a_thread_is_woken_by_a_task_and_a_task_by_a_thread() -> None:
    limiter = used_up(1e-3 * 60)
    line = line_of(limiter)
    served: list[str] = []

    def one_more(_: object = None) -> None:
        line.act(lambda now: line.room.rates.requests.give(1.0, now, now))  # type: ignore[attr-defined]

    def work() -> None:
        limiter.acquire(timeout=1e6)
        served.append("thread")

    async def main() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        while len(line) < 1:
            await asyncio.sleep(0.001)
        task = asyncio.create_task(limiter.acquire_async(timeout=1e6))
        while len(line) < 2:
            await asyncio.sleep(0.001)
        one_more()
        await asyncio.to_thread(thread.join, 10)
        assert (served, task.done()) == (["thread"], False)
        await asyncio.to_thread(one_more)
        await asyncio.wait_for(task, 10)

    asyncio.run(main())


# ---- time that a test makes --------------------------------------------------------------------------------------


def test_time_jumps_for_threads_tasks_and_trio_alike() -> None:
    async def three(limiter: RateLimiter) -> None:
        for _ in range(3):
            await limiter.acquire_async()

    for way in (asyncio.run, lambda main: trio.run(lambda: main)):
        with FakeTime() as clock:
            way(three(RateLimiter(60, burst=1)))
            assert clock.now == 2.0
    with FakeTime() as clock:
        limiter = RateLimiter(60, burst=1)
        for _ in range(3):
            limiter.acquire()
        assert clock.now == 2.0


def test_under_trio_a_deadline_in_a_tests_time_ends_the_wait() -> None:
    async def main() -> None:
        limiter = RateLimiter(60, burst=1)
        await limiter.acquire_async()
        with deadline(0.5), pytest.raises(DeadlineExceeded):
            await limiter.acquire_async()
        with trio.move_on_after(5) as scope:
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(limiter.acquire_async)
        assert not scope.cancelled_caught

    with FakeTime() as clock:
        trio.run(main)
        assert clock.now == 4.0


def test_instant_waits_are_for_backoff_and_a_limit_is_kept_in_real_time() -> None:
    limiter = RateLimiter(600, burst=1)
    began = time.monotonic()
    with instant_waits() as waits:
        for _ in range(3):
            limiter.acquire()
    assert 0.19 <= time.monotonic() - began < 5.0
    assert len(waits) == 0


def test_where_no_wait_moves_the_time_the_thread_does_not_spin() -> None:
    with FakeTime() as clock, instant_waits() as waits:
        limiter = RateLimiter(60, burst=1)
        limiter.acquire()
        moving = threading.Timer(0.2, clock.advance, [1.0])
        moving.start()
        limiter.acquire()
        moving.join()
    assert len(waits) < 100


def test_a_clock_that_only_others_move_is_looked_at_again() -> None:
    clock = FakeTime()
    line: Line[float, float] = Line(Full(), clock)
    ticket: ThreadTicket[float, float] = ThreadTicket(1.0, deadline_at=4.0)
    line.join(ticket)
    moving = threading.Timer(0.1, clock.advance, [5.0])
    moving.start()
    ticket.wait(line, clock.world)
    moving.join()
    assert not ticket.settled
