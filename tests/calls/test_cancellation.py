"""Cancellation leaves at once, at every place where a call can wait, and nothing of the call stays behind."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forbear import RetryError, attempts, current_attempt, current_deadline, deadline, retry
from forbear._runtime.scope import current
from forbear.testing import record_events

Run = Callable[[Coroutine[Any, Any, Any]], Any]
STEPS = 14  # loop iterations that the scenarios below take at most, and some more


class Log:
    """What a scenario did."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.cancelled = 0

    async def fail(self) -> None:
        attempt = current_attempt()
        assert attempt is not None
        self.attempts.append(attempt.number)
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise ConnectionError


async def hook(_: object) -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def two_steps(_: float) -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


OPTIONS: dict[str, Any] = {"max_attempts": 2, "on_retry": hook, "sleep": two_steps, "rng": lambda: 1.0}


async def call_form(log: Log) -> None:
    await retry(log.fail, **OPTIONS)


async def decorated(log: Log) -> None:
    await retry(**OPTIONS)(log.fail)()


async def partial(log: Log) -> None:
    await retry(**OPTIONS)(functools.partial(Log.fail, log))()


async def unknown_kind(log: Log) -> None:
    await retry(**OPTIONS)(lambda: log.fail())()  # noqa: PLW0108  # nothing tells that this lambda is async


async def with_fallback(log: Log) -> None:
    async def fallback(error: Exception) -> None:
        await asyncio.sleep(0)
        raise error

    await retry(log.fail, fallback=fallback, **OPTIONS)


async def block_form(log: Log) -> None:
    async for attempt in attempts(**OPTIONS):
        async with attempt:
            await log.fail()


async def under_a_deadline(log: Log) -> None:
    async with deadline(60):
        await retry(log.fail, **OPTIONS)


FORMS = [call_form, decorated, partial, unknown_kind, with_fallback, block_form, under_a_deadline]


def held_timers(loop: asyncio.AbstractEventLoop) -> int:
    wheel = getattr(loop, "_forbear_wheel", None)
    return 0 if wheel is None else sum(len(slot.cuts) for slot in wheel.slots.values())


@pytest.mark.parametrize("form", FORMS)
def test_a_cancellation_leaves_at_once_wherever_it_meets_the_call(run: Run, form: Callable[[Log], Any]) -> None:
    async def cancel_after(steps: int) -> bool:
        log = Log()
        task = asyncio.create_task(form(log))
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.done():
            return False
        started = len(log.attempts)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert len(log.attempts) == started
        assert log.cancelled <= 1
        assert held_timers(asyncio.get_running_loop()) == 0
        return True

    async def all_steps() -> list[bool]:
        return [await cancel_after(steps) for steps in range(STEPS)]

    met = run(all_steps())
    assert sum(met) >= 8, "the scenario must have been met at its attempts, its hook and its wait"
    assert not met[-1], "and it must come to its own end within the steps"


@pytest.mark.parametrize("form", FORMS)
def test_a_call_that_ends_by_itself_holds_no_timer(run: Run, form: Callable[[Log], Any]) -> None:
    async def main() -> None:
        with pytest.raises(RetryError):
            await form(Log())
        assert held_timers(asyncio.get_running_loop()) == 0
        assert current.get() is None
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())


@pytest.mark.parametrize("how", ["returns", "fails", "times out"])
def test_a_cancellation_in_the_very_step_in_which_the_attempt_ends_wins(run: Run, how: str) -> None:
    async def main() -> None:
        for before in range(4):
            for after in range(4):
                loop = asyncio.get_running_loop()
                gate = loop.create_future()
                calls = []

                async def fn(gate: asyncio.Future[str] = gate, calls: list[int] = calls) -> str:
                    calls.append(1)
                    return await gate

                task = asyncio.create_task(
                    retry(fn, sleep=two_steps, attempt_timeout=0.02 if how == "times out" else 9)
                )
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                for _ in range(before):
                    loop.call_soon(lambda: None)
                if how == "returns":
                    gate.set_result("late")
                elif how == "fails":
                    gate.set_exception(ConnectionError())
                else:
                    await asyncio.sleep(0.025)
                for _ in range(after):
                    loop.call_soon(lambda: None)
                started = len(calls)
                task.cancel()
                result = await asyncio.gather(task, return_exceptions=True)
                assert isinstance(result[0], asyncio.CancelledError)
                assert len(calls) == started
                gate.cancel()

    run(main())


def test_an_attempt_that_turns_its_cancellation_into_another_error_does_not_save_the_call(run: Run) -> None:
    calls = []

    async def fn() -> None:
        calls.append(1)
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            raise ConnectionError("broken by the cancellation") from None

    async def main() -> None:
        task = asyncio.create_task(retry(fn, sleep=two_steps))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert calls == [1]


def test_an_attempt_that_swallows_its_timeout_is_late_all_the_same(run: Run) -> None:
    calls = []

    async def fn() -> str:
        calls.append(1)
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "too late"
        raise AssertionError

    async def main() -> None:
        with pytest.raises(RetryError) as caught:
            await retry(fn, attempt_timeout=0.01, max_attempts=2, base=0)
        assert isinstance(caught.value.last_error, TimeoutError)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())
    assert calls == [1, 1]


def test_a_cancellation_during_the_unwinding_of_a_timed_out_attempt_wins(run: Run) -> None:
    cleaning = []

    async def fn() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            cleaning.append(1)
            await asyncio.sleep(10)

    async def main() -> None:
        task = asyncio.create_task(retry(fn, attempt_timeout=0.01))
        while not cleaning:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaning == [1]

    run(main())


def test_attempts_never_overlap(run: Run) -> None:
    running: list[int] = []
    most = []

    async def fn() -> None:
        running.append(1)
        most.append(len(running))
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0.02)  # unwinding takes longer than the wait between attempts
            running.pop()

    async def main() -> None:
        with pytest.raises(RetryError):
            await retry(fn, attempt_timeout=0.01, max_attempts=3, base=0)

    run(main())
    assert most == [1, 1, 1]


@pytest.mark.parametrize("limit", [0.01, 0.06])  # an exact timer, a shared slot
def test_an_outer_timeout_that_fires_with_the_attempts_own_is_the_outer_ones(run: Run, limit: float) -> None:
    calls = []

    async def fn() -> None:
        calls.append(1)
        await asyncio.sleep(10)

    async def main() -> None:
        for shift in (-0.004, -0.001, 0.0, 0.001, 0.004, 0.008):
            calls.clear()
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(limit + shift):
                    await retry(fn, attempt_timeout=limit, max_attempts=1000, base=10, jitter="none", deadline=1000)
            assert not isinstance(caught.value, RetryError)
            assert calls == [1]
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())


def test_a_task_group_cancels_its_calls_and_ends(run: Run) -> None:
    started = []

    async def fn() -> None:
        started.append(1)
        await asyncio.sleep(10)

    async def broken() -> None:
        await asyncio.sleep(0.01)
        raise ZeroDivisionError

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(retry(fn, retryable=lambda _: True))
                group.create_task(broken())
        assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]

    run(main())
    assert len(started) == 5


def test_a_cancelled_task_inside_an_attempt_is_not_retried(run: Run) -> None:
    calls = []

    async def fn() -> None:
        calls.append(1)
        inner = asyncio.create_task(asyncio.sleep(10))
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await retry(fn, retryable=lambda _: True)

    run(main())
    assert calls == [1]


def test_cancellation_is_told_as_such_and_never_as_a_failure(run: Run) -> None:
    async def main() -> None:
        with record_events() as events:
            task = asyncio.create_task(retry(lambda: asyncio.sleep(10)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            waiting = asyncio.create_task(retry(Log().fail, base=100, cap=1000, jitter="none", deadline=None))
            while not any(event.outcome == "failure" for event in events.attempts):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert [event.outcome for event in events.attempts] == ["cancelled", "failure"]
        assert [event.reason for event in events.ends] == ["cancelled", "cancelled"]

    run(main())


def test_a_call_that_the_collector_ends_leaves_the_context_there_alone(run: Run) -> None:
    async def main() -> None:
        never = asyncio.get_running_loop().create_future()
        coroutine = retry(lambda: never)
        await asyncio.wait([task := asyncio.create_task(_one_step(coroutine))])
        await task
        async with deadline(60):
            del coroutine, task
            gc.collect()
            assert current_deadline() is not None

    async def _one_step(coroutine: Coroutine[Any, Any, Any]) -> None:
        coroutine.send(None)

    run(main())


def test_a_call_in_the_clean_up_of_a_cancelled_task_works_as_usual(run: Run) -> None:
    calls: list[int] = []

    async def slow_once() -> str:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.sleep(10)
        return "cleaned up"

    async def work() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            cleaned = await retry(slow_once, attempt_timeout=0.01, base=0)
            assert asyncio.current_task().cancelling() == 1  # type: ignore[union-attr]
            return cleaned
        raise AssertionError

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        assert await task == "cleaned up"

    run(main())
    assert calls == [1, 1]


def test_a_cancellation_during_a_sleep_that_does_not_suspend_is_not_lost(run: Run) -> None:
    calls: list[int] = []

    async def fn() -> None:
        calls.append(1)
        raise ConnectionError

    async def main() -> None:
        task = asyncio.create_task(retry(fn, sleep=lambda _: task.cancel()))
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert calls == [1]
