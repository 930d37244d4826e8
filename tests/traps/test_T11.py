"""T11: a step of the wall clock, forwards or back, must change no wait, no deadline and no attempt timeout."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, current_deadline, deadline
from forbear._runtime.world import REAL
from forbear.testing import Flaky, Hang

Form = Callable[..., Any]
HOUR = 3600.0


class WallClock:
    """A wall clock that can be set while the program runs."""

    def __init__(self) -> None:
        self.now = 1.7e9

    def seconds(self) -> float:
        return self.now

    def nanoseconds(self) -> int:
        return int(self.now * 1e9)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Generator[WallClock]:
    """Takes the place of every wall clock that the code under test could read."""
    clock, real = WallClock(), REAL.wall
    monkeypatch.setattr(time, "time", clock.seconds)
    monkeypatch.setattr(time, "time_ns", clock.nanoseconds)
    object.__setattr__(REAL, "wall", clock.seconds)
    yield clock
    object.__setattr__(REAL, "wall", real)


@pytest.mark.parametrize("step", [HOUR, -HOUR, 24 * HOUR, -1.7e9])
def test_a_step_between_attempts_changes_nothing(form: Form, wall: WallClock, step: float) -> None:
    calls = []

    def fn() -> str:
        calls.append(time.monotonic())
        wall.now += step
        if len(calls) < 4:
            raise ConnectionError
        return "done"

    assert form(fn, deadline=30.0, attempt_timeout=20.0, backoff=[0.01]) == "done"
    waits = [after - before for before, after in itertools.pairwise(calls)]
    assert min(waits) >= 0.01
    assert max(waits) < 5.0


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_step_during_the_wait_changes_nothing(form: Form, wall: WallClock, step: float) -> None:
    fn = Flaky(ConnectionError(), ConnectionError(), then="done")

    def jump(_: object) -> None:
        wall.now += step

    assert form(fn, on_retry=jump, deadline=30.0, backoff=[0.01]) == "done"
    assert fn.calls == 3


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_step_during_an_attempt_neither_ends_nor_prolongs_it(
    async_form: Form, wall: WallClock, step: float
) -> None:
    fn = Flaky(Hang(60.0), then="done")

    async def hang() -> Any:
        wall.now += step
        return await fn.asynchronous()

    began = time.monotonic()
    assert await async_form(hang, attempt_timeout=0.1, backoff=[0.01], deadline=40.0) == "done"
    assert 0.1 <= time.monotonic() - began < 20
    assert fn.calls == 2


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_deadline_block_counts_its_own_seconds(form: Form, wall: WallClock, step: float) -> None:
    with deadline(30.0):
        wall.now += step
        left = current_deadline()
        assert left is not None
        assert 0 < left.remaining() <= 30.0
        with pytest.raises(DeadlineExceeded):
            form(Flaky(then=ConnectionError()), backoff=[31.0], deadline=None)
        assert form(Flaky(ConnectionError(), then="done"), backoff=[0.01]) == "done"


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_wait_that_the_server_names_in_seconds_does_not_move_with_the_clock(
    form: Form, wall: WallClock, step: float
) -> None:
    fn = Flaky(ConnectionError(), ApiError(503, retry_after=0.01), then="done")

    def jump(_: object) -> None:
        wall.now += step

    began = time.monotonic()
    assert form(fn, deadline=30.0, base=0.01, on_retry=jump) == "done"
    with pytest.raises(DeadlineExceeded) as caught:
        form(Flaky(then=ApiError(503, retry_after=100.0)), deadline=30.0, on_retry=jump)
    assert caught.value.hint == 100.0
    assert 0.01 <= time.monotonic() - began < 20
