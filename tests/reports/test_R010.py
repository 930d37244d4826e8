"""R010: a blocking attempt that is given up but goes on in a thread overlaps with the next, and threads pile up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from forbear import DeadlineExceeded, RetriesExhausted, RetryError
from forbear.testing import FakeTime

Form = Callable[..., Any]


class Watched:
    """Notes where attempts run, and whether two of them ran at once."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.threads: list[threading.Thread] = []
        self.alive: list[int] = []
        self.ended: list[float] = []

    def __enter__(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.threads.append(threading.current_thread())
        self.alive.append(threading.active_count())

    def __exit__(self, *_: object) -> None:
        self.running -= 1


@pytest.mark.parametrize("seconds", [5.0, 0.5])
def test_a_slow_blocking_attempt_runs_in_the_callers_thread_and_alone(blocking_form: Form, seconds: float) -> None:
    watched, before = Watched(), threading.active_count()
    with FakeTime() as clock:

        def slow() -> None:
            with watched:
                clock.sleep(seconds)
                raise TimeoutError

        with pytest.raises(RetriesExhausted):
            blocking_form(slow, attempt_timeout=1.0, max_attempts=3, deadline=None)
    assert watched.threads == [threading.current_thread()] * 3
    assert watched.alive == [before] * 3
    assert (watched.most, threading.active_count()) == (1, before)


def test_a_blocking_attempt_beyond_the_deadline_has_no_successor(blocking_form: Form) -> None:
    watched = Watched()
    with FakeTime() as clock:

        def slow() -> None:
            with watched:
                clock.sleep(5.0)
                raise TimeoutError

        with pytest.raises(DeadlineExceeded):
            blocking_form(slow, attempt_timeout=1.0, max_attempts=3, deadline=3.0)
    assert len(watched.threads) == 1


@pytest.mark.parametrize("unwinding", [0.0, 0.2, 7.0])
async def test_an_async_attempt_has_unwound_before_the_next_begins(async_form: Form, unwinding: float) -> None:
    watched = Watched()
    with FakeTime() as clock:

        async def stubborn() -> None:
            with watched:
                try:
                    await asyncio.sleep(60)
                finally:
                    await asyncio.sleep(unwinding)
                    watched.ended.append(clock.now)

        with pytest.raises(RetryError):
            await async_form(stubborn, attempt_timeout=1.0, max_attempts=3, deadline=None, backoff=[0.5])
        assert watched.ended == pytest.approx([n * 0.5 + (n + 1) * (1.0 + unwinding) for n in range(3)])
    assert (watched.most, len(watched.threads)) == (1, 3)


async def test_a_late_result_of_a_cut_attempt_is_not_delivered(async_form: Form) -> None:
    watched = Watched()

    async def swallowing() -> str:
        with watched:
            if len(watched.threads) == 2:
                return "in time"
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "late"
            return "never"

    with FakeTime():
        assert await async_form(swallowing, attempt_timeout=1.0, backoff=[0.5]) == "in time"
    assert watched.most == 1
