"""T39: layers of retries around one service must not multiply its requests, nor what they take of its guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import CircuitBreaker, RateLimiter, RetriesExhausted, RetryBudget, RetryError, Upstream, llm_retry
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]
GUARDS: dict[str, Callable[[], dict[str, Any]]] = {
    "upstream": lambda: {"upstream": Upstream("service")},
    "bounded upstream": lambda: {"upstream": Upstream("service", max_concurrency=1)},
    "budget": lambda: {"budget": RetryBudget()},
    "breaker": lambda: {"breaker": CircuitBreaker(10)},
    "limiter": lambda: {"limiter": RateLimiter(600)},
}


@pytest.mark.parametrize("guards", GUARDS)
@pytest.mark.parametrize("reraise", [True, False])
def test_three_layers_of_three_attempts_make_three_requests(form: Form, guards: str, reraise: bool) -> None:
    options, fn = GUARDS[guards](), Flaky(then=ConnectionError())
    upstream = Upstream("service") if "upstream" not in options else options.pop("upstream")
    if "upstream" in guards:
        options["upstream"] = upstream

    def inner() -> Any:
        return llm_retry(max_attempts=3, reraise=reraise, **options)(fn)()

    def middle() -> Any:
        return llm_retry(max_attempts=3, reraise=reraise, **options)(inner)()

    with FakeTime(), pytest.raises(ConnectionError if reraise else RetryError):
        form(middle, max_attempts=3, reraise=reraise, **options)
    assert fn.calls == 3
    assert (upstream.snapshot().in_flight, upstream.snapshot().waiting) == (0, 0)


def test_only_retries_that_were_made_are_paid_for(form: Form) -> None:
    budget, fn = RetryBudget(initial=10), Flaky(then=ConnectionError())

    def inner() -> Any:
        return llm_retry(max_attempts=3, budget=budget)(fn)()

    with FakeTime():
        with pytest.raises(ConnectionError):
            form(inner, max_attempts=3, budget=budget, reraise=True)
        assert budget.balance == 8.0


def test_the_breaker_counts_the_call_once(form: Form) -> None:
    breaker, fn = CircuitBreaker(2), Flaky(then=ConnectionError())

    def inner() -> Any:
        return llm_retry(max_attempts=3, breaker=breaker)(fn)()

    with FakeTime():
        with pytest.raises(ConnectionError):
            form(inner, max_attempts=3, breaker=breaker, reraise=True)
        assert fn.calls == 3
        assert breaker.state == "closed"
        assert breaker.snapshot().consecutive_failures <= 1


def test_layers_with_guards_of_their_own_do_not_multiply_either(form: Form) -> None:
    ways = [Upstream(name) for name in "abc"]
    fn = Flaky(then=ConnectionError())

    def inner() -> Any:
        return ways[0].retry(max_attempts=3)(fn)()

    def middle() -> Any:
        return ways[1].retry(max_attempts=3)(inner)()

    with FakeTime(), pytest.raises(RetriesExhausted):
        form(middle, max_attempts=3, upstream=ways[2])
    assert fn.calls == 3
    assert all(way.snapshot().in_flight == 0 for way in ways)
