"""A forked child goes on with what its parent knew, and never waits for the parent's threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from forbear import RateLimiter, RetryBudget, Upstream

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
SECONDS = 3  # after which a child that hangs is ended


def in_child(work: Callable[[], object]) -> int:
    """The exit code of a forked child that did `work`: 0 where it returned something true."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(SECONDS)
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def held(lock: Any) -> Iterator[None]:
    """Another thread holds the lock."""
    taken, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        go_on.set()
        thread.join()


@contextmanager
def threads(number: int, work: Callable[[], object]) -> Iterator[None]:
    """So many threads do `work` in the meantime."""
    started = [threading.Thread(target=work) for _ in range(number)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        for thread in started:
            thread.join(20)


def until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.001)


def test_the_parents_waiters_do_not_stand_in_the_childs_line() -> None:
    limiter = RateLimiter(60 * 5, burst=1)
    limiter.acquire()
    with threads(5, limiter.acquire):
        until(lambda: len(limiter._line()) == 5)
        assert in_child(lambda: len(limiter._line()) == 0 and limiter.reserve() <= 0.2) == 0
        assert in_child(lambda: limiter.acquire(timeout=0.5) is None) == 0
        assert len(limiter._line()) >= 3


def test_what_was_used_stays_used() -> None:
    limiter = RateLimiter(1)
    limiter.acquire()
    assert in_child(lambda: limiter.reserve() > 10) == 0


def test_attempts_of_the_parents_threads_take_no_place_in_the_child() -> None:
    upstream = Upstream("service", max_concurrency=2)
    go_on = threading.Event()
    with threads(4, lambda: upstream.retry_sync(go_on.wait)):
        until(lambda: upstream.snapshot().waiting == 2)
        assert in_child(lambda: upstream.snapshot().in_flight == 0) == 0
        assert in_child(lambda: upstream.retry_sync(lambda: "done", deadline=1.0) == "done") == 0
        assert upstream.snapshot().in_flight == 2
        go_on.set()
    assert (upstream.snapshot().in_flight, upstream.snapshot().waiting) == (0, 0)


def test_the_attempt_that_forked_goes_on_in_both() -> None:
    upstream = Upstream("service", max_concurrency=1)
    children: list[int] = []
    parent = os.getpid()

    def fork() -> bool:
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS)
            return upstream.snapshot().in_flight == 1 and upstream.retry_sync(lambda: True, deadline=1.0)
        children.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return False

    in_the_child = False
    try:
        in_the_child = upstream.retry_sync(fork)
    finally:
        if os.getpid() != parent:
            os._exit(0 if in_the_child and upstream.snapshot().in_flight == 0 else 1)
    assert children == [0]
    assert upstream.snapshot().in_flight == 0


@pytest.mark.parametrize("whose", ["line", "entrance", "scopes", "budget"])
def test_no_lock_that_another_thread_held_stays_held(whose: str) -> None:
    budget = RetryBudget(when_empty="wait")
    upstream = Upstream("service", requests_per_minute=600, budget=budget)
    upstream.retry_sync(lambda: None)
    budget_line = budget.line(time.monotonic)
    line = upstream.entrance.on(time.monotonic)
    locks = {
        "line": line._lock, "entrance": upstream.entrance._lock, "scopes": upstream._lock, "budget": budget_line._lock,
    }  # fmt: skip
    with held(locks[whose]):
        work = {
            "line": lambda: upstream.retry_sync(lambda: True),
            "entrance": lambda: upstream.entrance.on(lambda: 0.0) is not None,
            "scopes": lambda: upstream.for_("key"),
            "budget": budget.try_take,
        }
        assert in_child(work[whose]) == 0


def test_a_lock_that_was_held_does_not_stop_the_attempt_that_forked() -> None:
    upstream = Upstream("service")

    def fork() -> int:
        line = upstream.entrance.on(time.monotonic)
        with held(line._lock):
            child = os.fork()
            if child == 0:
                signal.alarm(SECONDS)
                return -1
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    ended, parent, join = -1, os.getpid(), threading.Thread.join
    try:
        # In the child `held` would join a thread that is in the parent: there the attempt ends by this.
        threading.Thread.join = lambda *_: None  # type: ignore[method-assign,assignment]
        ended = upstream.retry_sync(fork)
    finally:
        threading.Thread.join = join  # type: ignore[method-assign]
        if os.getpid() != parent:
            os._exit(0 if ended == -1 else 1)
    assert ended == 0
