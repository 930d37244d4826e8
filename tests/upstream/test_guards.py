"""The guards of a call work together: in their order, with the real error at hand, and each gets back what it gave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from forbear import (
    ApiError,
    BudgetExhausted,
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    RateLimiter,
    RetriesExhausted,
    RetryBudget,
    Upstream,
    retry,
    retry_sync,
)
from forbear.testing import FakeTime, Flaky, record_events
from forms import form as form

Form = Callable[..., Any]


def opened(**options: Any) -> CircuitBreaker:
    breaker = CircuitBreaker(1, **options)
    breaker.enter().leave("failure")
    return breaker


# ---- which guards ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"budget": 3}, "budget must be a RetryBudget, such as RetryBudget"),
        ({"breaker": CircuitBreaker}, "breaker must be a CircuitBreaker"),
        ({"limiter": RetryBudget()}, "limiter must be a RateLimiter"),
        ({"upstream": object()}, "upstream must be an Upstream"),
        ({"tokens": 5}, "neither is given"),
        ({"tokens": -5, "limiter": RateLimiter(60)}, "less than nothing"),
        ({"tokens": "many", "limiter": RateLimiter(60)}, "tokens must be a number"),
        ({"tokens": asyncio.sleep, "limiter": RateLimiter(60)}, "tokens is async"),
    ],
)
def test_what_is_no_guard_is_told_at_once(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        retry(**options)


def test_single_guards_may_stand_beside_each_other(form: Form) -> None:
    breaker, budget = CircuitBreaker(9), RetryBudget(initial=1)
    with FakeTime() as clock:
        limiter = RateLimiter(60, burst=1)
        fn = Flaky(ConnectionError(), then="done")
        assert form(fn, limiter=limiter, budget=budget, breaker=breaker, base=0) == "done"
        assert clock.now == pytest.approx(1.0)
        assert budget.balance >= 1.0
        assert breaker.snapshot().consecutive_failures == 0


def test_the_cost_of_a_call_is_a_function_of_its_arguments_and_asked_once() -> None:
    asked: list[tuple[Any, ...]] = []
    limiter = RateLimiter(None, 1000)

    def cost(prompt: str, *, extra: int = 0) -> float:
        asked.append((prompt, extra))
        return len(prompt) + extra

    fn = Flaky(ConnectionError(), then="done")
    with FakeTime():
        assert retry_sync(limiter=limiter, tokens=cost, base=0)(fn)("hello", extra=7) == "done"
        line: Any = limiter._line()
        assert line.room.rates.tokens.left(0.0) == pytest.approx(1000 - 2 * 12, abs=1)
    assert asked == [("hello", 7)]


# ---- breaker inside retry ----------------------------------------------------------------------------------------


def test_a_call_that_opens_the_circuit_ends_at_once_with_the_real_cause(form: Form) -> None:
    error = ConnectionError("mine")
    for kind in ("breaker", "upstream"):
        breaker = CircuitBreaker(2)
        options: dict[str, Any] = {kind: breaker if kind == "breaker" else Upstream("service", breaker=breaker)}
        fn = Flaky(then=error)
        with FakeTime() as clock:
            with pytest.raises(CircuitOpenError) as caught:
                form(fn, max_attempts=9, backoff=[0.5], **options)
            assert caught.value.__cause__ is error
            assert (fn.calls, clock.now) == (2, 0.5)
            assert breaker.state == "open"


def test_while_it_is_open_nothing_is_sent_and_nothing_is_taken(form: Form) -> None:
    with FakeTime() as clock:
        breaker = opened()
        upstream = Upstream("service", requests_per_minute=60, max_concurrency=1, breaker=breaker)
        fn = Flaky(then="done")
        with pytest.raises(CircuitOpenError) as caught:
            form(fn, upstream=upstream)
        assert (fn.calls, clock.now, caught.value.retry_in) == (0, 0.0, 30.0)
        snapshot = upstream.snapshot()
        assert (snapshot.requests_left, snapshot.in_flight, snapshot.shut_out) == (1.0, 0, 1)
        clock.advance(30.0)
        assert form(fn, upstream=upstream) == "done"
        assert breaker.state == "closed"


def test_a_refusal_is_never_retried_whatever_the_rule_says(form: Form) -> None:
    fn = Flaky(then="done")
    with FakeTime() as clock:
        with pytest.raises(CircuitOpenError):
            form(fn, breaker=opened(), retryable=lambda _: True, max_attempts=9)
        assert clock.now == 0.0


async def test_those_in_line_are_sent_away_when_it_opens() -> None:
    upstream = Upstream("service", max_concurrency=1, breaker=CircuitBreaker(1))
    with FakeTime() as clock:
        error = ConnectionError("mine")

        async def fail() -> None:
            await asyncio.sleep(1.0)
            raise error

        calls = [upstream.retry(fail, deadline=60.0) for _ in range(5)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert clock.now == 1.0
        assert [type(end) for end in ended] == [CircuitOpenError] * 5
        assert [end.__cause__ for end in ended] == [error, None, None, None, None]  # type: ignore[union-attr]
        snapshot = upstream.snapshot()
        assert (snapshot.in_flight, snapshot.waiting, snapshot.shut_out) == (0, 0, 4)


async def test_they_do_not_wait_for_their_turn_before_that() -> None:
    upstream = Upstream("service", requests_per_minute=6, breaker=CircuitBreaker(1))
    with FakeTime() as clock:

        async def fail() -> None:
            await asyncio.sleep(1.0)
            raise ConnectionError

        ended = await asyncio.gather(*[upstream.retry(fail, deadline=None) for _ in range(5)], return_exceptions=True)
        assert [type(end) for end in ended] == [CircuitOpenError] * 5
        assert clock.now == 1.0


def test_whoever_comes_to_an_open_circuit_does_not_stand_in_line(form: Form) -> None:
    with FakeTime() as clock:
        upstream = Upstream("service", requests_per_minute=6, breaker=CircuitBreaker(1))
        upstream.retry_sync(lambda: None)
        upstream.breaker.enter().leave("failure")  # type: ignore[union-attr]
        with pytest.raises(CircuitOpenError):
            form(Flaky(then="done"), upstream=upstream, deadline=None)
        assert clock.now == 0.0


def test_threads_in_line_are_sent_away_too() -> None:
    upstream = Upstream("service", max_concurrency=1, breaker=CircuitBreaker(1))
    ended: list[BaseException] = []
    go_on = threading.Event()

    def fail() -> None:
        go_on.wait(20)
        raise ConnectionError

    def work() -> None:
        try:
            upstream.retry_sync(fail)
        except CircuitOpenError as error:
            ended.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    while upstream.snapshot().waiting < 5:
        time.sleep(0.001)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(ended) == 6


async def test_half_open_lets_exactly_one_through() -> None:
    with FakeTime() as clock:
        breaker = opened(jitter=0.0)
        upstream = Upstream("service", max_concurrency=5, breaker=breaker)
        clock.advance(30.0)
        calls = [0]

        async def trial() -> str:
            calls[0] += 1
            await asyncio.sleep(1.0)
            return "done"

        ended = await asyncio.gather(*[upstream.retry(trial) for _ in range(20)], return_exceptions=True)
        assert calls == [1]
        assert sorted(type(end).__name__ for end in ended) == ["CircuitOpenError"] * 19 + ["str"]
        assert (breaker.state, upstream.snapshot().in_flight) == ("closed", 0)


@pytest.mark.parametrize("how", ["cancelled", "refused late", "left by a hook"])
async def test_a_trial_that_is_broken_off_frees_its_place(how: str) -> None:
    with FakeTime() as clock:
        breaker = opened(jitter=0.0)
        upstream = Upstream("service", breaker=breaker, tokens_per_minute=100)
        clock.advance(30.0)
        if how == "cancelled":
            task = asyncio.create_task(upstream.retry(lambda: asyncio.sleep(60)))
            await asyncio.sleep(1.0)
            assert upstream.snapshot().breaker.trials == 1  # type: ignore[union-attr]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif how == "refused late":
            with pytest.raises(ValueError, match="never fit"):
                await upstream.retry(lambda: asyncio.sleep(0), tokens=1000)
        else:
            with pytest.raises(KeyboardInterrupt):
                upstream.retry_sync(Flaky(then=KeyboardInterrupt()))
        assert upstream.snapshot().breaker.trials == 0  # type: ignore[union-attr]
        assert await upstream.retry(Flaky(then="done").asynchronous) == "done"
        assert breaker.state == "closed"


def test_a_rate_limit_says_nothing_to_the_breaker_and_a_wrong_question_is_a_success(form: Form) -> None:
    breaker = CircuitBreaker(2)
    with FakeTime():
        for error in (ApiError(429), ApiError(503), ApiError(400), ApiError(503)):
            with pytest.raises(ApiError):
                form(Flaky(then=error), breaker=breaker, max_attempts=1, reraise=True)
        assert breaker.state == "closed"
        with pytest.raises((RetriesExhausted, CircuitOpenError)):
            form(Flaky(then=ApiError(503)), breaker=breaker, max_attempts=2, base=0)
        assert breaker.state == "open"


# ---- their order -------------------------------------------------------------------------------------------------


async def test_the_breaker_is_asked_again_when_ones_turn_comes() -> None:
    with FakeTime() as clock:
        breaker = CircuitBreaker(1)
        limiter = RateLimiter(60, burst=1)
        limiter.acquire()
        fn = Flaky(then="done")
        task = asyncio.create_task(retry(fn.asynchronous, limiter=limiter, breaker=breaker))
        await asyncio.sleep(0.5)
        breaker.enter().leave("failure")
        with pytest.raises(CircuitOpenError):
            await task
        assert fn.calls == 0
        await limiter.acquire_async(timeout=0)  # what it had taken is there again
        assert clock.now == pytest.approx(1.0)


def test_the_budget_is_asked_before_the_wait_and_not_after_it(form: Form) -> None:
    with FakeTime() as clock:
        with pytest.raises(BudgetExhausted):
            form(Flaky(then=ConnectionError()), budget=RetryBudget(initial=0), limiter=RateLimiter(60, burst=1))
        assert clock.now == 0.0


async def test_a_wait_for_the_budget_and_one_in_line_share_one_deadline() -> None:
    with FakeTime() as clock:
        budget = RetryBudget(initial=0, when_empty="wait")
        upstream = Upstream("service", requests_per_minute=30, budget=budget)
        error = ConnectionError("mine")
        with pytest.raises(DeadlineExceeded) as caught:
            await upstream.retry(Flaky(then=error).asynchronous, base=0, max_attempts=None, deadline=9.0)
        assert clock.now <= 9.02
        assert caught.value.__cause__ is error
        assert (upstream.snapshot().waiting, upstream.snapshot().waiting_retries) == (0, 0)


def test_what_the_listeners_are_told_fits(form: Form) -> None:
    with FakeTime(), record_events() as events:
        with pytest.raises(CircuitOpenError):
            form(Flaky(then="done"), breaker=opened())
        with pytest.raises(DeadlineExceeded):
            limiter = RateLimiter(60, burst=1)
            limiter.acquire()
            form(Flaky(then="done"), limiter=limiter, deadline=0.5)
    assert [(end.reason, end.attempts) for end in events.ends] == [("circuit", 0), ("deadline", 0)]
    assert events.attempts == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Upstream("x", rpm=5), "Upstream has no option rpm=; use requests_per_minute"),  # type: ignore[arg-type]
        (lambda: Upstream("x", max_concurrent=5), "Upstream has no option max_concurrent=; use max_concurrency"),  # type: ignore[arg-type]
        (lambda: RateLimiter(rate=5), "RateLimiter has no option rate=; use requests_per_minute"),  # type: ignore[arg-type]
        (lambda: RetryBudget(ratio=0.2), "RetryBudget has no option ratio=; use earned (retries per success)"),  # type: ignore[arg-type]
    ],
)
def test_an_option_of_another_library_is_answered_with_ours(make: Any, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value) == said
