"""T49: half-open must admit exactly the allowed number of trials, however many come at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from forbear import CircuitOpenError
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker


def cooled(time: FakeTime, **options: int) -> CircuitBreaker:
    """A breaker whose recovery time is over."""
    breaker = CircuitBreaker(1, 30, **options)  # type: ignore[arg-type]
    breaker.enter().leave("failure")
    time.advance(30.0)
    return breaker


@pytest.mark.parametrize("trials", [1, 3])
async def test_of_ten_tasks_only_the_trials_reach_the_service(trials: int) -> None:
    with FakeTime() as time:
        breaker = cooled(time, trials=trials)
        reached = []

        @breaker
        async def call() -> None:
            reached.append(1)
            await asyncio.sleep(1.0)

        ended = await asyncio.gather(*(call() for _ in range(10)), return_exceptions=True)
        assert len(reached) == trials
        assert sum(isinstance(one, CircuitOpenError) for one in ended) == 10 - trials
        assert breaker.state == "closed"


@pytest.mark.parametrize("trials", [1, 3])
def test_of_ten_threads_only_the_trials_reach_the_service(trials: int) -> None:
    time = FakeTime()
    breaker = CircuitBreaker(1, 30, trials=trials, clock=time)
    breaker.enter().leave("failure")
    time.advance(30.0)
    reached, refused = [], []
    go, all_asked = threading.Barrier(10), threading.Event()

    def work() -> None:
        go.wait(30)
        try:
            with breaker:
                reached.append(1)
                all_asked.wait(30)
        except CircuitOpenError:
            refused.append(1)
            if len(refused) == 10 - trials:
                all_asked.set()

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(reached), len(refused)) == (trials, 10 - trials)


async def test_trials_that_fail_do_not_let_others_slip_through() -> None:
    with FakeTime() as time:
        breaker = cooled(time)
        for _ in range(5):
            with pytest.raises(OSError):
                async with breaker:
                    raise OSError
            for _ in range(9):
                with pytest.raises(CircuitOpenError):
                    breaker.enter()
            time.advance(30.0)
