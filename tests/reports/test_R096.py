"""R096: test suites take minutes because waits are real; with a fake clock they take none, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from forbear import Policy, RetriesExhausted, current_attempt, current_deadline, deadline, retry, retry_sync
from forbear.testing import FakeTime, Flaky, Hang, instant_waits, record_events

WAITS = 50
FEW = 20.0  # real seconds; the waits themselves would be fifty minutes or two days


@pytest.fixture(params=[60.0, 3600.0])
def policy(request: pytest.FixtureRequest) -> Policy:
    return Policy(max_attempts=WAITS + 1, backoff=[request.param], attempt_timeout=None, deadline=None)


def failing() -> Flaky:
    return Flaky(*[ConnectionError()] * WAITS, then="done")


def test_fifty_waits_take_no_time_and_can_be_asserted(form: Callable[..., Any], policy: Policy) -> None:
    began, wait = time.monotonic(), policy.bound(1)
    with FakeTime() as clock:
        fn = failing()
        assert form(fn, policy=policy) == "done"
        assert clock.sleeps == [wait] * WAITS
        assert clock.now == pytest.approx(WAITS * wait)
        assert fn.started_at == pytest.approx([n * wait for n in range(WAITS + 1)])
    assert time.monotonic() - began < FEW


def test_the_clock_can_be_given_to_one_call_alone(form: Callable[..., Any], policy: Policy) -> None:
    began, clock = time.monotonic(), FakeTime()
    assert form(failing(), policy=policy, clock=clock) == "done"
    assert clock.sleeps == [policy.bound(1)] * WAITS
    assert time.monotonic() - began < FEW


def test_threads_with_a_copied_context_live_in_the_same_time(blocking_form: Callable[..., Any], policy: Policy) -> None:
    began, answers = time.monotonic(), []
    with FakeTime() as clock:
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(lambda: answers.append(blocking_form(failing(), policy=policy)),),
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(FEW)
        assert clock.sleeps == [policy.bound(1)] * WAITS * 4
    assert answers == ["done"] * 4
    assert time.monotonic() - began < FEW


async def test_a_worker_thread_of_async_code_lives_in_it_too(policy: Policy) -> None:
    with FakeTime() as clock:
        assert await asyncio.to_thread(retry_sync, failing(), policy=policy) == "done"
        assert len(clock.sleeps) == WAITS


async def test_tasks_wait_side_by_side(policy: Policy) -> None:
    with FakeTime() as clock:
        calls = [retry(failing().asynchronous, policy=policy) for _ in range(10)]
        assert await asyncio.gather(*calls) == ["done"] * 10
        assert clock.now == pytest.approx(WAITS * policy.bound(1))
        assert len(clock.sleeps) == WAITS * 10


async def test_hours_of_other_waits_pass_as_well() -> None:
    began = time.monotonic()
    with FakeTime() as clock:
        await asyncio.sleep(3600.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600.0):
                await asyncio.Event().wait()
        with pytest.raises(RetriesExhausted):
            await retry(
                Flaky(then=Hang(1e6)).asynchronous, attempt_timeout=3600.0, max_attempts=2, deadline=None, backoff=[0]
            )
        assert clock.now == pytest.approx(4 * 3600.0)
    assert time.monotonic() - began < FEW


def test_where_time_does_not_matter_waits_can_be_skipped(form: Callable[..., Any], policy: Policy) -> None:
    began = time.monotonic()
    with instant_waits() as waits:
        assert form(failing(), policy=policy) == "done"
        assert waits == [policy.bound(1)] * WAITS
    with instant_waits(max_attempts=1) as waits, pytest.raises(RetriesExhausted):
        form(failing(), policy=policy)
    assert waits == []
    assert time.monotonic() - began < FEW


def traces() -> tuple[Any, ...]:
    """What a test could leave behind."""
    with record_events() as events:
        retry_sync(lambda: None)
    return time.sleep, time.monotonic, current_attempt(), current_deadline(), asyncio.sleep, len(events)


def test_nothing_stays_behind(form: Callable[..., Any], policy: Policy) -> None:
    before = traces()
    with FakeTime():
        form(failing(), policy=policy)
    with instant_waits():
        form(failing(), policy=policy)
    with pytest.raises(ZeroDivisionError), FakeTime(), instant_waits(), deadline(5.0):
        raise ZeroDivisionError
    assert traces() == before
    began = time.monotonic()
    assert form(Flaky(ConnectionError(), then="done"), backoff=[0.02]) == "done"
    assert 0.02 <= time.monotonic() - began < FEW


async def test_the_event_loop_gets_its_own_clock_back() -> None:
    loop = asyncio.get_running_loop()
    with FakeTime() as clock:
        await asyncio.sleep(3600.0)
        assert loop.time() == pytest.approx(clock.now)
    assert "time" not in vars(loop)
    assert abs(loop.time() - time.monotonic()) < FEW
    began = time.monotonic()
    await asyncio.sleep(0.02)
    assert 0.015 <= time.monotonic() - began < FEW


def test_clocks_inside_each_other_do_not_mix() -> None:
    with FakeTime() as outer:
        retry_sync(Flaky(ConnectionError(), then="done"), backoff=[60.0], deadline=None)
        with FakeTime() as inner:
            retry_sync(Flaky(ConnectionError(), then="done"), backoff=[3600.0], deadline=None)
        retry_sync(Flaky(ConnectionError(), then="done"), backoff=[60.0], deadline=None)
    assert (outer.sleeps, inner.sleeps) == ([60.0, 60.0], [3600.0])
    assert (outer.now, inner.now) == (120.0, 3600.0)
