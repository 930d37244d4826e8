"""R061: a request whose estimated cost is above the whole limit is told so at once; it never waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import RateLimiter, Upstream
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]
GUARDS: dict[str, Callable[[], dict[str, Any]]] = {
    "upstream": lambda: {"upstream": Upstream("service", tokens_per_minute=100)},
    "limiter": lambda: {"limiter": RateLimiter(None, 100)},
    "strict": lambda: {"upstream": Upstream("service", tokens_per_minute=600, strict_window=10)},
}


@pytest.mark.parametrize("guards", GUARDS)
@pytest.mark.parametrize("deadline", [None, 60.0])
def test_the_very_first_call_is_refused_with_the_reason(form: Form, guards: str, deadline: float | None) -> None:
    fn = Flaky(then="done")
    options = GUARDS[guards]()
    with FakeTime() as clock:
        with pytest.raises(ValueError, match="one request of 1024 tokens can never fit: at most 100 "):
            form(fn, tokens=1024, deadline=deadline, retryable=lambda _: True, **options)
        assert (clock.now, fn.calls) == (0.0, 0)
        assert form(fn, tokens=100, deadline=deadline, **options) == "done"


@pytest.mark.parametrize("wrong", [-1, float("nan"), "many", None])
def test_a_cost_that_is_no_number_is_told_at_once(wrong: Any) -> None:
    upstream = Upstream("service", tokens_per_minute=100)
    ask = upstream.retry_sync(tokens=lambda _: wrong)(lambda prompt: prompt)
    with pytest.raises(ValueError, match="tokens"):
        ask("hello")
    assert upstream.snapshot().in_flight == 0


def test_a_function_of_the_cost_that_fails_leaves_nothing_behind() -> None:
    upstream = Upstream("service", tokens_per_minute=100, max_concurrency=1)
    ask = upstream.retry_sync(tokens=lambda _: 1 / 0)(lambda prompt: prompt)
    with pytest.raises(ZeroDivisionError):
        ask("hello")
    assert (upstream.snapshot().in_flight, upstream.snapshot().waiting) == (0, 0)
