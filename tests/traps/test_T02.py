"""T02: an attempt that starts late must not get its full attempt timeout, only what the deadline leaves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forbear import DeadlineExceeded, current_attempt, deadline
from forbear.testing import FakeTime, Flaky, Hang

AsyncForm = Callable[..., Coroutine[Any, Any, Any]]


@pytest.mark.parametrize(
    ("attempt_timeout", "limit", "ends_at"),
    [(1.0, 0.3, 0.3), (1.0, 0.01, 0.01), (0.31, 0.3, 0.3), (10.0, 7.5, 7.5), (1e6, 59.0, 59.0)],
)
async def test_the_first_attempt_is_clipped(
    async_form: AsyncForm, attempt_timeout: float, limit: float, ends_at: float
) -> None:
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            await async_form(Flaky(then=Hang(1e7)).asynchronous, attempt_timeout=attempt_timeout, deadline=limit)
        assert clock.now == pytest.approx(ends_at)


async def test_an_attempt_after_a_wait_is_clipped_to_the_rest(async_form: AsyncForm) -> None:
    fn = Flaky(Hang(0.2, ConnectionError()), Hang(5.0))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            await async_form(fn.asynchronous, attempt_timeout=1.0, deadline=2.0, backoff=[1.0])
        assert fn.started_at == pytest.approx([0.0, 1.2])
        assert clock.now == pytest.approx(2.0)


async def test_an_ambient_deadline_clips_as_well(async_form: AsyncForm) -> None:
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded), deadline(9.0), deadline(0.3), deadline(4.0):
            await async_form(Flaky(then=Hang(5.0)).asynchronous, attempt_timeout=1.0, deadline=8.0)
        assert clock.now == pytest.approx(0.3)


async def test_an_attempt_timeout_below_the_rest_stays_as_it_is(async_form: AsyncForm) -> None:
    fn = Flaky(Hang(5.0), then="done")
    with FakeTime():
        assert await async_form(fn.asynchronous, attempt_timeout=1.0, deadline=3.0, backoff=[0.5]) == "done"
    assert fn.started_at == pytest.approx([0.0, 1.5])


def test_every_attempt_is_told_the_smaller_of_both(form: Callable[..., Any]) -> None:
    told: list[float | None] = []
    with FakeTime() as clock:

        def ask() -> None:
            attempt = current_attempt()
            told.append(attempt and attempt.timeout)
            raise ConnectionError

        with pytest.raises(DeadlineExceeded):
            form(ask, attempt_timeout=1.0, deadline=2.5, backoff=[1.0], max_attempts=None)
        assert clock.now == pytest.approx(2.0)
    assert told == pytest.approx([1.0, 1.0, 0.5])
