"""R087: a table that all calls of a function share is cleared and overwritten by threads and by re-entry."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from forbear import Event, RetriesExhausted, current_attempt, listening, retry, retry_sync
from forbear.testing import FakeTime, instant_waits

THREADS = 8
CALLS = 30


class Worker:
    """Makes many calls of one function that fails so many times first, and notes what does not fit."""

    def __init__(self, call: Callable[[int, list[int]], str], failures: int) -> None:
        self.call = call
        self.failures = failures
        self.numbers = list(range(1, min(failures + 1, 4) + 1))
        self.wrong: list[Any] = []

    def once(self) -> None:
        seen: list[int] = []
        expected: tuple[Any, ...] = (f"after {self.failures}",)
        found: tuple[Any, ...]
        try:
            found = (self.call(self.failures, seen),)
        except RetriesExhausted as error:
            expected = (4, 4, str(self.failures))
            found = (error.attempts, len(error.history), str(error.last_error))
        if (found, seen) != (expected, self.numbers):
            self.wrong.append((found, seen))

    def many(self, barrier: threading.Barrier) -> None:
        barrier.wait(30)
        with instant_waits():
            for _ in range(CALLS):
                self.once()


@pytest.mark.parametrize("decorator", [retry, retry_sync], ids=["retry", "retry_sync"])
def test_threads_read_the_facts_of_their_own_call(decorator: Any) -> None:
    told: dict[int, list[int]] = {}

    def hook(state: Any) -> None:
        told.setdefault(threading.get_ident(), []).append(state.attempt)

    @decorator(max_attempts=4, on_retry=hook)
    def call(failures: int, seen: list[int]) -> str:
        attempt = current_attempt()
        assert attempt is not None
        seen.append(attempt.number)
        if len(seen) <= failures:
            raise ConnectionError(str(failures))
        return f"after {failures}"

    barrier = threading.Barrier(THREADS)
    workers = [Worker(call, n % 5) for n in range(THREADS)]
    threads = [threading.Thread(target=worker.many, args=(barrier,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [worker.wrong for worker in workers] == [[]] * THREADS
    assert all(numbers == [1, 2, 3][: len(set(numbers))] * CALLS for numbers in told.values())


def test_a_call_from_inside_itself_has_a_record_of_its_own(form: Callable[..., Any]) -> None:
    seen: list[tuple[int, int]] = []

    def fn(depth: int = 0) -> int:
        attempt = current_attempt()
        assert attempt is not None
        seen.append((depth, attempt.number))
        if depth < 3 and attempt.number == 1:
            retry_sync(lambda: fn(depth + 1), max_attempts=2)
        after = current_attempt()
        assert after is not None
        assert after.number == attempt.number
        if attempt.number == 1:
            raise ConnectionError
        return depth

    with FakeTime():
        assert form(fn, max_attempts=2) == 0
    assert seen == [(0, 1), (1, 1), (2, 1), (3, 1), (3, 2), (2, 2), (1, 2), (0, 2)]


def test_a_call_that_gives_up_inside_itself_is_counted_once(form: Callable[..., Any]) -> None:
    calls: list[int] = []

    def fn() -> None:
        calls.append(1)
        if len(calls) == 1:
            retry_sync(fn, max_attempts=3)
        raise ConnectionError

    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(fn, max_attempts=3)
    assert caught.value.attempts == 3
    assert len(calls) == 4


def test_totals_of_a_listener_add_up_over_threads() -> None:
    events: list[Event] = []
    call = retry(max_attempts=3)(_failing)

    def work() -> None:
        with instant_waits():
            for _ in range(CALLS):
                with pytest.raises(RetriesExhausted):
                    call()

    with listening(events.append):
        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    names = [type(event).__name__ for event in events]
    assert names.count("AttemptEnded") == 3 * THREADS * CALLS
    assert names.count("RetryState") == 2 * THREADS * CALLS
    assert names.count("CallEnded") == THREADS * CALLS


def _failing() -> None:
    raise ConnectionError
