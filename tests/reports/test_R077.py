"""R077: no lock is held while the guarded function runs, or all calls of a service run one by one."""

from __future__ import annotations

import asyncio
import threading
import time

from forbear.core.breaker import Transition
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker


def test_twenty_threads_are_inside_at_once() -> None:
    breaker, everybody = CircuitBreaker(), threading.Barrier(20)
    call = breaker(lambda: everybody.wait(30))
    threads = [threading.Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not everybody.broken
    assert breaker.state == "closed"


def test_twenty_calls_of_a_fifth_of_a_second_do_not_take_four() -> None:
    call = CircuitBreaker()(lambda: time.sleep(0.2))
    threads = [threading.Thread(target=call) for _ in range(20)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 2.0


async def test_twenty_tasks_take_as_long_as_one() -> None:
    with FakeTime() as clock:
        await asyncio.gather(*(CircuitBreaker()(asyncio.sleep)(1.0) for _ in range(20)))
        assert clock.now == 1.0


def test_nor_while_a_listener_or_a_rule_runs() -> None:
    seen: list[str] = []

    def look() -> None:
        thread = threading.Thread(target=lambda: seen.append(breaker.state))
        thread.start()
        thread.join(30)

    def listener(_: CircuitBreaker, __: Transition) -> None:
        look()

    def rule(_: BaseException | None, __: object) -> str:
        look()
        return "failure"

    breaker = CircuitBreaker(1, on_change=listener, verdict=rule)  # type: ignore[arg-type]
    with breaker:
        look()
    assert seen == ["closed", "closed", "open"]
