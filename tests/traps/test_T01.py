"""T01: a deadline that is only looked at between attempts lets a slow attempt run far beyond it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from forbear import DeadlineExceeded, attempts, current_attempt, deadline, retry, retry_sync
from forbear.testing import FakeTime, Flaky, Hang

AsyncForm = Callable[..., Coroutine[Any, Any, Any]]


@pytest.mark.parametrize("hang", [1.2, 0.31, 3600.0])
@pytest.mark.parametrize("limit", [0.3, timedelta(seconds=0.3)])
async def test_a_running_attempt_is_cut_at_the_deadline(async_form: AsyncForm, hang: float, limit: Any) -> None:
    fn = Flaky(then=Hang(hang))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            await async_form(fn.asynchronous, deadline=limit)
        assert clock.now == pytest.approx(0.3)
    assert fn.calls == caught.value.attempts == 1
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value.last_error, TimeoutError)


@pytest.mark.parametrize("attempt_timeout", [None, 10.0, 0.3])
async def test_no_attempt_timeout_delays_the_cut(async_form: AsyncForm, attempt_timeout: float | None) -> None:
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            await async_form(Flaky(then=Hang(1.2)).asynchronous, deadline=0.3, attempt_timeout=attempt_timeout)
        assert clock.now == pytest.approx(0.3)


async def test_a_later_attempt_is_cut_too(async_form: AsyncForm) -> None:
    fn = Flaky(ConnectionError(), Hang(0.1, ConnectionError()), Hang(1.2))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            await async_form(fn.asynchronous, deadline=0.3, backoff=[0.05])
        assert clock.now == pytest.approx(0.3)
    assert fn.started_at == pytest.approx([0.0, 0.05, 0.2])
    assert caught.value.attempts == 3


async def test_an_ambient_deadline_cuts_as_well(async_form: AsyncForm) -> None:
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded), deadline(0.3):
            await async_form(Flaky(then=Hang(1.2)).asynchronous, deadline=None, attempt_timeout=None)
        assert clock.now == pytest.approx(0.3)


async def test_an_async_block_cuts_code_that_knows_no_deadline() -> None:
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            async with deadline(0.3):
                await asyncio.sleep(1.2)
        assert 0.3 <= clock.now <= 0.32


@pytest.mark.parametrize("limit", [0.3, 0.04])
def test_in_real_time_the_cut_comes_on_every_loop(run: Callable[..., Any], limit: float) -> None:
    async def main() -> float:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await retry(lambda: asyncio.sleep(60), deadline=limit)
        with pytest.raises(DeadlineExceeded):
            async for attempt in attempts(deadline=limit):
                async with attempt:
                    await asyncio.sleep(60)
        with pytest.raises(DeadlineExceeded):
            async with deadline(limit):
                await asyncio.sleep(60)
        return time.monotonic() - began

    assert 3 * limit <= run(main()) < 20


def test_a_blocking_attempt_is_told_its_time_and_not_repeated(blocking_form: Callable[..., Any]) -> None:
    told: list[float | None] = []
    with FakeTime() as clock:

        def slow() -> None:
            attempt = current_attempt()
            told.append(attempt and attempt.timeout)
            clock.sleep(1.2)
            raise ConnectionError

        with pytest.raises(DeadlineExceeded) as caught:
            blocking_form(slow, deadline=0.3)
        assert clock.now == pytest.approx(1.2)  # a blocking function can't be stopped from outside
    assert told == pytest.approx([0.3])
    assert caught.value.attempts == 1


def test_a_blocking_attempt_that_obeys_its_time_ends_at_the_deadline(blocking_form: Callable[..., Any]) -> None:
    with FakeTime() as clock:

        def obedient() -> None:
            attempt = current_attempt()
            assert attempt is not None
            assert attempt.timeout is not None
            clock.sleep(min(1.2, attempt.timeout))
            raise TimeoutError

        with pytest.raises(DeadlineExceeded):
            blocking_form(obedient, deadline=0.3)
        assert clock.now == pytest.approx(0.3)


def test_a_blocking_result_that_comes_late_is_still_a_result() -> None:
    with FakeTime():
        assert retry_sync(Flaky(Hang(1.2, "late")), deadline=0.3) == "late"
