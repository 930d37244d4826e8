"""R070: a step of the wall clock must not keep a breaker shut, nor change a wait or a deadline that is running."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

from forbear import CircuitOpenError, deadline
from forbear._runtime.world import REAL
from forbear.testing import Flaky
from forbear.upstream.breaker import CircuitBreaker

HOUR = 3600.0
STEPS = [HOUR, -HOUR]


class WallClock:
    def __init__(self) -> None:
        self.now = 1.7e9

    def seconds(self) -> float:
        return self.now


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Generator[WallClock]:
    """Takes the place of every wall clock that the code under test could read."""
    clock, real = WallClock(), REAL.wall
    monkeypatch.setattr(time, "time", clock.seconds)
    monkeypatch.setattr(time, "time_ns", lambda: int(clock.now * 1e9))
    object.__setattr__(REAL, "wall", clock.seconds)
    yield clock
    object.__setattr__(REAL, "wall", real)


@pytest.mark.parametrize("step", STEPS)
def test_an_open_breaker_stays_open_for_its_own_seconds(wall: WallClock, step: float) -> None:
    breaker = CircuitBreaker(1, 60.0)
    breaker.enter().leave("failure")
    wall.now += step
    assert breaker.state == "open"
    assert 30.0 < breaker.retry_in <= 60.0
    with pytest.raises(CircuitOpenError) as caught:
        breaker.enter()
    assert 30.0 < caught.value.retry_in <= 60.0


@pytest.mark.parametrize("step", STEPS)
def test_it_opens_again_when_its_seconds_are_over(wall: WallClock, step: float) -> None:
    breaker = CircuitBreaker(1, 0.05)
    breaker.enter().leave("failure")
    wall.now += step
    time.sleep(0.06)
    breaker.enter().leave("success")
    assert breaker.state == "closed"


@pytest.mark.parametrize("step", STEPS)
def test_the_lease_of_a_trial_and_the_window_count_their_own_seconds(wall: WallClock, step: float) -> None:
    breaker = CircuitBreaker(None, 0.0, failure_rate=1.0, minimum_calls=2, window=60.0)
    breaker.enter().leave("failure")
    wall.now += step
    breaker.enter().leave("failure")
    assert breaker.state == "half_open"
    breaker.enter().detach()
    wall.now += step
    assert breaker.snapshot().trials == 1


@pytest.mark.parametrize("step", STEPS)
def test_a_wait_and_a_deadline_go_on_as_they_were(form: Callable[..., Any], wall: WallClock, step: float) -> None:
    def jump(_: object) -> None:
        wall.now += step

    began = time.monotonic()
    with deadline(30.0):
        assert form(Flaky(ConnectionError(), then="done"), backoff=[0.01], on_retry=jump) == "done"
    assert 0.01 <= time.monotonic() - began < 20.0
