"""R025: when every target is throttled, attempts must not be used up in milliseconds while the server's wait runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forbear import DeadlineExceeded, RetriesExhausted
from forbear.testing import FakeTime
from foreign import answer

Form = Callable[..., Any]


class Router:
    """Asks one target after the other; each is throttled until its time has come."""

    def __init__(self, clock: FakeTime, free_at: dict[str, float]) -> None:
        self.clock = clock
        self.free_at = free_at
        self.asked: list[tuple[float, str]] = []
        self.turns: Iterator[str] = itertools.cycle(free_at)

    def __call__(self) -> str:
        target = next(self.turns)
        self.asked.append((self.clock.now, target))
        left = self.free_at[target] - self.clock.now
        if left > 0:
            raise answer(429, {"Retry-After": f"{left:.0f}"})
        return f"from {target}"


def test_attempts_are_spaced_by_the_servers_wait(form: Form) -> None:
    with FakeTime() as clock:
        router = Router(clock, dict.fromkeys("abc", 1e6))

        def throttled() -> None:
            router.free_at = dict.fromkeys("abc", clock.now + 3)
            router()

        with pytest.raises(RetriesExhausted) as caught:
            form(throttled, max_attempts=5)
        assert min(clock.sleeps) >= 3.0
        assert [instant for instant, _ in router.asked] == pytest.approx(
            list(itertools.accumulate(clock.sleeps, initial=0.0))
        )
    assert caught.value.attempts == 5
    assert caught.value.waited >= 12.0


def test_no_attempt_is_used_while_the_wait_still_runs(form: Form) -> None:
    with FakeTime() as clock:
        router = Router(clock, dict.fromkeys("abc", 3.0))
        assert form(router) == "from b"
        assert router.asked == [(0.0, "a"), (3.0, "b")]


def test_a_wait_that_does_not_fit_uses_no_further_attempt(form: Form) -> None:
    with FakeTime() as clock:
        router = Router(clock, dict.fromkeys("abc", 600.0))
        with pytest.raises(DeadlineExceeded) as caught:
            form(router, max_attempts=5)
        assert (len(router.asked), clock.now, caught.value.hint) == (1, 0.0, 600.0)
