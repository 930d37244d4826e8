"""A rate limiter as users hold it: threads, tasks and trio stand in one line, and none is served out of turn."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trio
import uvloop

from forbear import DeadlineExceeded, RateLimiter, RetriesExhausted, deadline, retry
from forbear.testing import FakeTime

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def waiting(limiter: RateLimiter) -> int:
    return len(limiter._line())


def left(limiter: RateLimiter, what: str = "requests") -> float:
    line: Any = limiter._line()
    return float(getattr(line.room.rates, what).left(line.clock()))


# ---- every way in ------------------------------------------------------------------------------------------------


def test_each_way_in_takes_from_the_same_limit() -> None:
    limiter = RateLimiter(60)

    @limiter.limit()
    def plain() -> str:
        return "plain"

    @limiter.limit()
    async def later() -> str:
        return "later"

    async def main() -> None:
        await limiter.acquire_async()
        assert await later() == "later"

    with FakeTime():
        limiter.acquire()
        assert plain() == "plain"
        assert limiter.reserve() == 0.0
        asyncio.run(main())
        assert left(limiter) == 55.0


@pytest.mark.parametrize("seed", range(3))
def test_threads_tasks_and_trio_share_one_object_at_the_same_time(seed: int) -> None:
    per_second, burst = 2000.0, 20.0
    limiter = RateLimiter(per_second * 60, burst=burst)
    went: list[float] = []

    def blocking() -> None:
        for _ in range(50):
            limiter.acquire()
            went.append(time.monotonic())

    async def one() -> None:
        await limiter.acquire_async()
        went.append(time.monotonic())

    async def on_asyncio() -> None:
        await asyncio.gather(*[one() for _ in range(50)])

    async def on_trio() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)

    def on_uvloop() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(on_asyncio())

    works: list[Callable[[], Any]] = [blocking, lambda: asyncio.run(on_asyncio()), on_uvloop, lambda: trio.run(on_trio)]
    threads = [threading.Thread(target=work) for work in works * 2]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert len(went) == 400
    elapsed = max(went) - began
    assert elapsed >= (400 - burst) / per_second - 0.01
    assert elapsed < 10.0
    assert waiting(limiter) == 0


def test_one_object_serves_loops_one_after_the_other_and_remembers(run: Run) -> None:
    limiter = RateLimiter(6000, burst=1)

    async def three() -> None:
        await asyncio.gather(*[limiter.acquire_async() for _ in range(3)])

    began = time.monotonic()
    for _ in range(3):
        run(three())
    assert time.monotonic() - began >= 0.079
    assert waiting(limiter) == 0


# ---- whose turn it is --------------------------------------------------------------------------------------------


async def test_tasks_go_in_the_order_in_which_they_came() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60, burst=1)
        order: list[tuple[int, float]] = []

        async def one(number: int) -> None:
            await limiter.acquire_async()
            order.append((number, clock.now))

        await asyncio.gather(*[one(number) for number in range(20)])
    assert order == [(number, float(number)) for number in range(20)]


def test_threads_go_in_the_order_in_which_they_came() -> None:
    limiter = RateLimiter(60 * 50, burst=1)
    limiter.acquire()
    order: list[int] = []

    def one(number: int) -> None:
        limiter.acquire()
        order.append(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(10)]
    limiter.consume(0)
    line = limiter._line()
    line.act(lambda now: setattr(line.room, "cool_until", now + 0.3))
    for number, thread in enumerate(threads):
        thread.start()
        while waiting(limiter) <= number:
            time.sleep(0.001)
    for thread in threads:
        thread.join(10)
    assert order == list(range(10))


async def test_a_booking_stands_behind_those_who_wait_and_before_those_who_come() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60, burst=1)
        await limiter.acquire_async()
        first = asyncio.create_task(limiter.acquire_async())
        await asyncio.sleep(0)
        assert [limiter.reserve(), limiter.reserve()] == pytest.approx([2.0, 3.0])
        last = asyncio.create_task(limiter.acquire_async())
        await first
        assert clock.now == 1.0
        await last
        assert clock.now == pytest.approx(4.0)


async def test_bookings_that_are_over_hold_nobody_up() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60, burst=1)
        await limiter.acquire_async()
        task = asyncio.create_task(limiter.acquire_async())
        await asyncio.sleep(0)
        for _ in range(5):
            limiter.reserve()
        await task
        clock.advance(100.0)
        assert limiter.reserve() == 0.0
        clock.advance(1.0)
        await limiter.acquire_async(timeout=0)
        assert waiting(limiter) == 0


async def test_cancelled_waiters_between_others_leave_no_gap(run: Run) -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60, burst=1)
        went: list[float] = []

        async def one() -> None:
            await limiter.acquire_async()
            went.append(clock.now)

        tasks = [asyncio.create_task(one()) for _ in range(9)]
        await asyncio.sleep(0)
        for task in tasks[1:8:2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert went == [0.0, 1.0, 2.0, 3.0, 4.0]


# ---- limits of the wait ------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_at_once_and_takes_nothing() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60, burst=1)
        limiter.acquire()
        with pytest.raises(DeadlineExceeded) as caught:
            limiter.acquire(timeout=0.9)
        assert (caught.value.hint, clock.now) == (1.0, 0.0)
        with pytest.raises(TimeoutError), deadline(0.9):
            limiter.acquire()
        assert clock.now == 0.0
        limiter.acquire(timeout=1.1)
        assert clock.now == 1.0


async def test_the_same_holds_for_tasks() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60, burst=1)
        await limiter.acquire_async()
        with pytest.raises(DeadlineExceeded) as caught:
            await limiter.acquire_async(timeout=0.9)
        assert (caught.value.hint, clock.now) == (1.0, 0.0)
        async with deadline(0.9):
            with pytest.raises(DeadlineExceeded):
                await limiter.acquire_async()
        await limiter.acquire_async(timeout=1.1)
        assert clock.now == 1.0


@pytest.mark.parametrize("limit", [0, 0.0])
def test_a_timeout_of_nothing_is_a_try(limit: float) -> None:
    limiter = RateLimiter(1)
    limiter.acquire(timeout=limit)
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        limiter.acquire(timeout=limit)
    assert time.monotonic() - began < 1.0


async def test_a_wait_whose_time_is_over_ends_on_time_and_says_how_long_it_still_is() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60, burst=1)
        await limiter.acquire_async()
        task = asyncio.create_task(limiter.acquire_async(timeout=1.5))
        await asyncio.sleep(0.5)
        line = limiter._line()
        line.act(lambda now: setattr(line.room, "cool_until", now + 10))  # what nobody could know before
        with pytest.raises(DeadlineExceeded) as caught:
            await task
        assert clock.now == pytest.approx(1.5, abs=0.02)
        assert caught.value.hint == pytest.approx(9.0, abs=0.02)
        assert waiting(limiter) == 0


def test_what_can_never_fit_is_refused_at_once() -> None:
    limiter = RateLimiter(None, 1000)
    for ask in (limiter.acquire, limiter.reserve, lambda tokens: limiter.acquire_async(tokens).send(None)):
        with pytest.raises(ValueError, match="1001 tokens can never fit"):
            ask(1001)
    with pytest.raises(ValueError, match="500"):
        RateLimiter(None, 1000, strict_window=30).acquire(501)
    assert left(limiter, "tokens") == pytest.approx(1000)


@pytest.mark.parametrize("tokens", [-1, float("nan"), float("inf"), "many", True])
def test_what_is_no_cost_is_refused(tokens: Any) -> None:
    limiter = RateLimiter(60, 1000)
    with pytest.raises(ValueError):
        limiter.acquire(tokens)
    if tokens != -1:
        with pytest.raises(ValueError):
            limiter.consume(tokens)
    assert (left(limiter), left(limiter, "tokens")) == pytest.approx((60, 1000))


def test_a_large_request_waits_for_a_full_bucket_only() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(None, 6000, burst=100)
        limiter.acquire(50)
        limiter.acquire(3000, timeout=1.0)
        assert clock.now == 0.5
        with pytest.raises(DeadlineExceeded):
            limiter.acquire(1, timeout=28)


async def test_a_stream_of_small_requests_does_not_starve_a_large_one() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(None, 6000)
        await limiter.acquire_async(6000)
        served: list[float] = []

        async def large() -> None:
            await limiter.acquire_async(5000)
            served.append(clock.now)

        async def small(number: int) -> None:
            await asyncio.sleep(number / 10)
            await limiter.acquire_async(10)

        await asyncio.gather(large(), *[small(number) for number in range(1, 800)])
    assert served == [pytest.approx(50.0)]


# ---- settling ----------------------------------------------------------------------------------------------------


def test_what_was_really_used_is_settled() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(None, 600)
        limiter.acquire(500)
        limiter.consume(200)
        limiter.acquire(100)
        assert clock.now == 20.0
    with FakeTime() as clock:
        limiter.acquire(600)
        limiter.consume(-300)
        limiter.acquire(300)
        assert clock.now == 0.0


async def test_what_is_given_back_lets_those_who_wait_go() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(None, 600)
        await limiter.acquire_async(600)
        task = asyncio.create_task(limiter.acquire_async(300))
        await asyncio.sleep(1.0)
        limiter.consume(-600)
        await task
        assert clock.now == 1.0


# ---- the decorator -----------------------------------------------------------------------------------------------


class Client:
    limiter = RateLimiter(None, 600)

    @limiter.limit(tokens=lambda _self, prompt, **_: len(prompt))
    def ask(self, prompt: str, *, extra: int = 0) -> str:
        """Asks."""
        return prompt.upper()

    @limiter.limit(tokens=2)
    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    @staticmethod
    @limiter.limit()
    def of_nobody() -> str:
        return "static"

    @limiter.limit()
    async def __call__(self) -> str:
        return "called"


def test_methods_of_all_kinds_are_limited_and_keep_their_name() -> None:
    with FakeTime():
        assert Client().ask("abc", extra=1) == "ABC"
        assert left(Client.limiter, "tokens") == 597
        assert Client.of_class() == "Client"
        assert Client.of_nobody() == "static"
        assert left(Client.limiter, "tokens") == 595
    assert (Client.ask.__name__, Client.ask.__doc__) == ("ask", "Asks.")


def test_an_object_or_partial_that_is_async_does_not_block() -> None:
    limiter = RateLimiter(600, burst=1)

    async def fetch(number: int) -> int:
        return number

    class Async:
        async def __call__(self) -> str:
            return "object"

    async def main() -> list[Any]:
        limiter.acquire()  # from here on a blocking wait would be warned of
        one = limiter.limit()(functools.partial(fetch, 1))
        two = limiter.limit()(Async())
        return await asyncio.gather(one(), two(), one())

    assert asyncio.run(main()) == [1, "object", 1]


def test_what_can_not_be_limited_is_told_so() -> None:
    limiter = RateLimiter(60)

    async def stream() -> Any:
        yield 1

    for wrong in (3, Client, stream, lambda: (yield)):
        with pytest.raises(TypeError):
            limiter.limit()(wrong)  # type: ignore[arg-type]


async def test_a_blocking_wait_inside_a_loop_is_warned_of() -> None:
    limiter = RateLimiter(600, burst=1)
    limiter.acquire()
    with pytest.warns(RuntimeWarning, match="use acquire_async"):
        limiter.acquire()


def test_inside_a_retry_each_attempt_pays() -> None:
    limiter = RateLimiter(60)

    @retry(max_attempts=3, base=0)
    @limiter.limit()
    def fail() -> None:
        raise ConnectionError

    with FakeTime():
        with pytest.raises(RetriesExhausted):
            fail()
        assert left(limiter) == 57


def test_a_refusal_inside_a_retry_is_not_retried() -> None:
    limiter = RateLimiter(1)
    calls: list[int] = []

    @retry(max_attempts=3, retryable=lambda _: True)
    def ask() -> None:
        calls.append(1)
        limiter.acquire(timeout=0.1)

    with FakeTime():
        ask()
        with pytest.raises(DeadlineExceeded):
            ask()
    assert calls == [1, 1]


# ---- clocks ------------------------------------------------------------------------------------------------------


def test_a_clock_of_its_own_keeps_timeouts_and_deadlines_too() -> None:
    mine = FakeTime(start=1e6)
    limiter = RateLimiter(60, burst=1, clock=lambda: mine.now)
    with FakeTime() as clock:
        limiter.acquire()
        with pytest.raises(DeadlineExceeded):
            limiter.acquire(timeout=0.5)
        with deadline(0.5), pytest.raises(DeadlineExceeded):
            limiter.acquire()
        with deadline(5.0):
            limiter.acquire()
        assert clock.sleeps[-1] == 1.0
        mine.advance(2.0)
        limiter.acquire(timeout=0)


async def test_it_does_so_for_tasks() -> None:
    mine = FakeTime(start=1e6)
    limiter = RateLimiter(60, burst=1, clock=lambda: mine.now)
    with FakeTime() as clock:
        await limiter.acquire_async()
        with pytest.raises(DeadlineExceeded):
            await limiter.acquire_async(timeout=0.5)
        with deadline(0.5), pytest.raises(DeadlineExceeded):
            await limiter.acquire_async()
        with deadline(5.0):
            await limiter.acquire_async()
        assert clock.now == 1.0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_the_settings_and_a_state_of_its_own(copied: Callable[[RateLimiter], RateLimiter]) -> None:
    for limiter in (RateLimiter(60, 1000, burst=2), RateLimiter(60, strict_window=10)):
        with FakeTime():
            before = left(limiter)
            limiter.acquire()
            twin = copied(limiter)
            assert twin.settings == limiter.settings
            assert left(twin) == before == left(limiter) + 1
            assert repr(twin) == repr(limiter)


# ---- what it costs -----------------------------------------------------------------------------------------------


def test_ten_thousand_waiters_have_one_timer(run: Run) -> None:
    async def main() -> None:
        limiter = RateLimiter(600, burst=1)
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(10_000)]
        await asyncio.sleep(0)
        handles = [ticket._handle for ticket in limiter._line()._waiting]  # type: ignore[attr-defined]
        assert len(handles) == 9_999
        assert sum(handle is not None for handle in handles) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert waiting(limiter) == 0

    run(main())
