"""R073: a call inside a call of the same breaker must not be refused by its own outer trial, and counts once."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from forbear import CircuitOpenError
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker


def cooled(time: FakeTime) -> CircuitBreaker:
    breaker = CircuitBreaker(1, 30)
    breaker.enter().leave("failure")
    time.advance(30.0)
    return breaker


def test_the_outer_trial_s_inner_call_passes_and_the_circuit_closes() -> None:
    with FakeTime() as time:
        breaker = cooled(time)
        inner = breaker(lambda: "done")
        outer = breaker(lambda: inner() + "!")
        assert outer() == "done!"
        assert breaker.state == "closed"


async def test_under_asyncio_too_and_in_tasks_started_inside() -> None:
    with FakeTime() as time:
        breaker = cooled(time)

        @breaker
        async def inner() -> str:
            await asyncio.sleep(1.0)
            return "done"

        @breaker
        async def outer() -> list[str]:
            return [await inner(), *await asyncio.gather(inner(), inner())]

        assert await outer() == ["done"] * 3
        assert breaker.state == "closed"


def test_it_counts_once_also_when_both_fail() -> None:
    breaker = CircuitBreaker(2)

    @breaker
    def inner() -> None:
        raise OSError

    with pytest.raises(OSError):
        breaker(inner)()
    assert breaker.snapshot().consecutive_failures == 1
    with pytest.raises(OSError):
        breaker(inner)()
    assert breaker.state == "open"


def test_an_inner_failure_that_the_outer_call_survives_is_no_failure() -> None:
    with FakeTime() as time:
        breaker = cooled(time)
        with breaker:
            with pytest.raises(OSError), breaker:
                raise OSError
            assert breaker.state == "half_open"
        assert breaker.state == "closed"


def test_a_thread_with_a_copied_context_is_inside_and_one_without_is_not() -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(1, 30, clock=time)
        breaker.enter().leave("failure")
        time.advance(30.0)
        ended: list[str] = []

        def work() -> None:
            try:
                with breaker:
                    ended.append("passed")
            except CircuitOpenError:
                ended.append("refused")

        with breaker:
            inherited = contextvars.copy_context()
            for target in (lambda: inherited.run(work), work):
                thread = threading.Thread(target=target)
                thread.start()
                thread.join()
        assert ended == ["passed", "refused"]
        assert breaker.state == "closed"


async def test_a_task_that_outlives_the_outer_call_counts_for_itself() -> None:
    with FakeTime() as time:
        breaker = cooled(time)
        async with breaker:
            pass
        over = asyncio.Event()

        async def lingering() -> None:
            await over.wait()
            with pytest.raises(OSError):
                async with breaker:
                    raise OSError

        async with breaker:
            task = asyncio.create_task(lingering())
        over.set()
        await task
        assert breaker.state == "open"
