"""T09: context variables set around a call reach its attempts, in whatever thread they run, and come back out."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forbear import RetryError, attempts, current_attempt, current_deadline, deadline, retry, retry_sync
from forbear.testing import FakeTime, Flaky

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="none")
AsyncForm = Callable[..., Coroutine[Any, Any, Any]]


def remember(seen: list[str], failures: int) -> Callable[[], str]:
    def fn() -> str:
        seen.append(request_id.get())
        request_id.set(f"set by attempt {len(seen)}")
        if len(seen) <= failures:
            raise ConnectionError
        return "done"

    return fn


EXPECTED = ["outer", "set by attempt 1", "set by attempt 2"]


async def test_the_variables_go_in_and_out_as_without_a_retry(async_form: AsyncForm) -> None:
    seen: list[str] = []
    fn = remember(seen, failures=2)

    async def asynchronous() -> str:
        return fn()

    request_id.set("outer")
    with FakeTime():
        assert await async_form(asynchronous) == "done"
    assert seen == EXPECTED
    assert request_id.get() == "set by attempt 3"


def test_the_variables_of_blocking_code_do_the_same(blocking_form: Callable[..., Any]) -> None:
    seen: list[str] = []
    token = request_id.set("outer")
    try:
        with FakeTime():
            assert blocking_form(remember(seen, failures=2)) == "done"
        assert seen == EXPECTED
        assert request_id.get() == "set by attempt 3"
    finally:
        request_id.reset(token)


def test_a_copied_context_carries_variables_and_time_into_a_thread(blocking_form: Callable[..., Any]) -> None:
    seen: list[str] = []
    answers: list[Any] = []

    def work() -> None:
        answers.append(blocking_form(remember(seen, failures=2)))

    with FakeTime() as clock:
        token = request_id.set("outer")
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        thread.join()
        request_id.reset(token)
        assert len(clock.sleeps) == 2
    assert (seen, answers) == (EXPECTED, ["done"])


async def test_a_worker_thread_of_an_attempt_knows_its_attempt_and_its_deadline() -> None:
    told: list[tuple[int, str, bool]] = []

    def work() -> None:
        attempt, limit = current_attempt(), current_deadline()
        assert attempt is not None
        assert limit is not None
        told.append((attempt.number, request_id.get(), limit.remaining() <= 20.0))
        raise ConnectionError

    request_id.set("outer")
    with pytest.raises(RetryError), deadline(20.0):
        await retry(lambda: asyncio.to_thread(work), max_attempts=3, backoff=[0])
    assert told == [(1, "outer", True), (2, "outer", True), (3, "outer", True)]


async def test_a_blocking_call_in_a_worker_thread_obeys_the_deadline_around_it(
    blocking_form: Callable[..., Any],
) -> None:
    fn = Flaky(then=ConnectionError())
    with deadline(30.0), pytest.raises(RetryError) as caught:
        await asyncio.to_thread(blocking_form, fn, backoff=[31.0], deadline=None)
    assert (caught.value.reason, fn.calls) == ("deadline", 1)


def test_no_call_leaves_its_own_scope_behind_in_a_pooled_thread(form: Callable[..., Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        for outcome in ("done", ValueError(), KeyboardInterrupt()):
            pool.submit(form, Flaky(outcome)).exception()
            assert pool.submit(current_attempt).result() is None
            assert pool.submit(current_deadline).result() is None


async def test_tasks_that_start_in_an_attempt_have_its_variables() -> None:
    async def child() -> tuple[str, int | None]:
        attempt = current_attempt()
        return request_id.get(), attempt and attempt.number

    request_id.set("outer")
    seen = []
    with FakeTime():
        async for attempt in attempts(max_attempts=2):
            async with attempt:
                seen.append(await asyncio.create_task(child()))
                if attempt.number == 1:
                    raise ConnectionError
    assert seen == [("outer", 1), ("outer", 2)]


def test_a_blocking_call_inside_a_copied_context_changes_only_the_copy() -> None:
    context = contextvars.copy_context()
    context.run(retry_sync, lambda: request_id.set("inside"))
    assert request_id.get() == "none"
    assert context[request_id] == "inside"
