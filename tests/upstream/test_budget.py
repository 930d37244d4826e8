"""A retry budget as users hold it: shared, whole again where a retry was not sent, and of use to those who wait."""

from __future__ import annotations

import asyncio
import copy
import pickle
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
    Kind,
    RetriesExhausted,
    RetryBudget,
    Upstream,
    attempts,
    retry,
    retry_sync,
)
from forbear.testing import FakeTime, Flaky, Hang
from forms import form as form

Form = Callable[..., Any]


# ---- what it is made of ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"initial": -1},
        {"initial": 200},
        {"capacity": float("inf")},
        {"earned": "much"},
        {"fresh_for": 0},
        {"when_empty": "panic"},
        {"costs": {Kind.TIMEOUT: -1}},
        {"costs": {Kind.TIMEOUT: float("inf")}},
        {"costs": {"no kind": 1}},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RetryBudget(**options)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_the_settings_and_begins_anew(copied: Callable[[RetryBudget], RetryBudget]) -> None:
    budget = RetryBudget(initial=3, capacity=7, earned=0.5, costs={Kind.AUTH: 4.0}, when_empty="wait")
    assert budget.try_take()
    twin = copied(budget)
    assert twin.settings == budget.settings
    assert (twin.balance, budget.balance) == (3.0, 2.0)
    assert repr(twin) == "<RetryBudget, 3.0 of 7>"


def test_retries_that_are_not_forbears_share_it() -> None:
    budget = RetryBudget(initial=2, earned=0.25)
    assert [budget.try_take() for _ in range(3)] == [True, True, False]
    for _ in range(4):
        budget.succeeded()
    assert budget.try_take()
    budget.succeeded(1.0)
    assert budget.balance >= 1.0


# ---- what a retry costs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "cost"),
    [(ConnectionError(), 1.0), (TimeoutError(), 2.0), (ApiError(429), 0.5), (ApiError(503), 1.0)],
)
def test_a_retry_costs_what_the_failure_before_it_says(error: Exception, cost: float) -> None:
    budget = RetryBudget(initial=10)
    with FakeTime():
        with pytest.raises(RetriesExhausted):
            retry_sync(Flaky(then=error), max_attempts=2, budget=budget)
        assert budget.balance == 10.0 - cost


def test_a_retry_that_succeeds_earns_back_what_it_cost(form: Form) -> None:
    budget = RetryBudget(initial=10)
    with FakeTime():
        for _ in range(50):
            form(Flaky(ConnectionError(), then="done"), budget=budget)
        assert budget.balance >= 10.0


def test_a_permanent_error_costs_nothing(form: Form) -> None:
    budget = RetryBudget(initial=1)
    with FakeTime():
        for _ in range(5):
            with pytest.raises(ApiError):
                form(Flaky(then=ApiError(400)), budget=budget)
        assert budget.balance == 1.0


def test_the_last_attempt_costs_no_retry(form: Form) -> None:
    budget = RetryBudget(initial=1)
    with FakeTime():
        for _ in range(5):
            with pytest.raises(RetriesExhausted):
                form(Flaky(then=ConnectionError()), max_attempts=1, budget=budget)
        assert budget.balance == 1.0


# ---- a retry that is not sent ------------------------------------------------------------------------------------


def test_one_that_does_not_fit_the_deadline_costs_nothing(form: Form) -> None:
    budget = RetryBudget(initial=1)
    with FakeTime():
        with pytest.raises(DeadlineExceeded):
            form(Flaky(then=ConnectionError()), backoff=[5.0], deadline=3.0, budget=budget)
        assert budget.balance == 1.0


def test_one_whose_hook_takes_all_the_time_costs_nothing(form: Form) -> None:
    budget = RetryBudget(initial=1)
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            form(
                Flaky(then=ConnectionError()), deadline=3.0, budget=budget, on_retry=lambda _: clock.advance(9.0)
            )  # fmt: skip
        assert budget.balance == 1.0


def test_one_whose_sleep_fails_costs_nothing(form: Form) -> None:
    def sleep(_: float) -> None:
        raise ZeroDivisionError

    budget = RetryBudget(initial=1)
    with pytest.raises(ZeroDivisionError):
        form(Flaky(then=ConnectionError()), sleep=sleep, budget=budget)
    assert budget.balance == 1.0


def test_one_whose_hook_ends_the_program_costs_nothing(form: Form) -> None:
    def hook(_: object) -> None:
        raise KeyboardInterrupt

    budget = RetryBudget(initial=1)
    with pytest.raises(KeyboardInterrupt):
        form(Flaky(then=ConnectionError()), on_retry=hook, budget=budget)
    assert budget.balance == 1.0


def test_a_hook_that_fails_changes_nothing(form: Form, caplog: pytest.LogCaptureFixture) -> None:
    budget = RetryBudget(initial=1)
    with FakeTime():
        with pytest.raises(BudgetExhausted) as caught:
            form(Flaky(then=ConnectionError()), on_retry=lambda _: 1 / 0, budget=budget)
        assert (caught.value.attempts, budget.balance) == (2, 0.0)
    assert "on_retry raised ZeroDivisionError" in caplog.text


def test_one_that_finds_no_place_in_line_costs_nothing(form: Form) -> None:
    budget = RetryBudget(initial=1)
    upstream = Upstream("service", requests_per_minute=6, budget=budget)
    with FakeTime():
        with pytest.raises(DeadlineExceeded):
            form(Flaky(then=ConnectionError()), base=0, deadline=5.0, upstream=upstream)
        assert budget.balance == 1.0


def test_one_that_finds_the_circuit_open_costs_nothing(form: Form) -> None:
    budget, breaker = RetryBudget(initial=1), CircuitBreaker(1)
    with FakeTime():
        with pytest.raises(CircuitOpenError):
            form(Flaky(then=ConnectionError()), budget=budget, breaker=breaker)
        assert budget.balance == 1.0
        breaker.reset()
        with pytest.raises(CircuitOpenError) as caught:
            form(
                Flaky(then=ApiError(429)), budget=budget, breaker=breaker, on_retry=lambda _: breaker.force_open()
            )  # fmt: skip
        assert isinstance(caught.value.__cause__, ApiError)
        assert budget.balance == 1.0


@pytest.mark.parametrize("where", ["backoff", "hook", "line"])
async def test_one_that_is_cancelled_before_it_is_sent_costs_nothing(where: str) -> None:
    budget = RetryBudget(initial=1)
    upstream = Upstream("service", requests_per_minute=1 if where == "line" else None, budget=budget)

    async def hook(_: object) -> None:
        await asyncio.sleep(100 if where == "hook" else 0)

    with FakeTime():
        fn = Flaky(then=ConnectionError())
        call = upstream.retry(
            fn.asynchronous, backoff=[100.0 if where == "backoff" else 0.0], on_retry=hook, deadline=None
        )
        task = asyncio.create_task(call)
        await asyncio.sleep(5)
        assert (budget.balance, fn.calls) == (0.0, 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert budget.balance == 1.0
        assert upstream.snapshot().waiting == 0


async def test_one_that_was_sent_has_cost_though_it_is_cancelled() -> None:
    """Else callers with a timeout of their own would send two requests for each call, for ever."""
    budget = RetryBudget(initial=1)
    with FakeTime():
        fn = Flaky(ConnectionError(), then=Hang(60))
        task = asyncio.create_task(retry(fn.asynchronous, budget=budget))
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (fn.calls, budget.balance) == (2, 0.0)


def test_one_that_was_sent_has_cost_though_its_block_is_interrupted() -> None:
    budget = RetryBudget(initial=1)
    with FakeTime():
        with pytest.raises(KeyboardInterrupt):
            for attempt in attempts(budget=budget):
                with attempt:
                    raise ConnectionError if attempt.number == 1 else KeyboardInterrupt
        assert budget.balance == 0.0


# ---- waiting for ones turn ---------------------------------------------------------------------------------------


def test_a_retry_waits_for_its_turn_inside_its_deadline(form: Form) -> None:
    budget = RetryBudget(initial=0, when_empty="wait")
    with FakeTime() as clock:
        fn = Flaky(*[ConnectionError()] * 4, "done")
        assert form(fn, budget=budget, base=0, deadline=None) == "done"
        assert clock.now == pytest.approx(1 + 2 + 4, abs=0.1)  # a few are let through, at growing distances


def test_one_whose_turn_does_not_come_in_time_ends_with_the_real_error(form: Form) -> None:
    error = ConnectionError("mine")
    for reraise in (False, True):
        budget = RetryBudget(initial=0, when_empty="wait")
        with FakeTime() as clock:
            with pytest.raises(ConnectionError if reraise else DeadlineExceeded) as caught:
                form(Flaky(then=error), budget=budget, base=0, deadline=5.0, max_attempts=None, reraise=reraise)
            assert clock.now <= 5.05
        assert error in (caught.value, caught.value.__cause__)


async def test_it_is_released_by_the_successes_of_others() -> None:
    budget = RetryBudget(initial=0, earned=0.5, when_empty="wait")
    upstream = Upstream("service", budget=budget)
    with FakeTime() as clock:
        first = Flaky(ConnectionError(), ConnectionError(), then="done")
        task = asyncio.create_task(upstream.retry(first.asynchronous, base=0, deadline=60.0))
        await asyncio.sleep(0.1)
        assert upstream.snapshot().waiting_retries == 1
        for _ in range(2):
            await upstream.retry(Flaky(then="done").asynchronous)
        assert await task == "done"
        assert clock.now == pytest.approx(0.1, abs=0.01)
        assert upstream.snapshot().waiting_retries == 0


async def test_a_cheap_retry_does_not_pass_a_dear_one_that_waits() -> None:
    budget = RetryBudget(initial=1, earned=0.0, when_empty="wait")
    with FakeTime() as clock:
        dear = Flaky(TimeoutError(), then="done")
        line = budget.line(clock)
        line.room.paced_at = 1e9  # type: ignore[attr-defined]
        task = asyncio.create_task(retry(dear.asynchronous, budget=budget, base=0))
        await asyncio.sleep(0.1)
        assert (len(line), budget.balance) == (1, 1.0)
        assert not budget.try_take(0.5)
        budget.succeeded(1.0)
        assert await task == "done"
        assert budget.try_take(0.5)


async def test_those_who_wait_are_served_in_doubling_numbers_once_the_service_is_back() -> None:
    budget = RetryBudget(initial=10, when_empty="wait")
    while budget.try_take():
        pass
    with FakeTime() as clock:
        for _ in range(10):
            budget.try_take()

        async def call() -> float:
            async def answer() -> None:
                await asyncio.sleep(0.1)
                if clock.now < 5.0:
                    raise ConnectionError

            await retry(answer, budget=budget, base=0, deadline=1000.0, max_attempts=None)
            return clock.now

        ends = await asyncio.gather(*[call() for _ in range(64)])
    served_from = min(ends)
    assert max(ends) - served_from <= 2.0  # one after the other would be 6.4 s


def test_threads_pay_and_earn_without_losing_any() -> None:
    budget = RetryBudget(initial=0, capacity=1e6, earned=1.0)

    def work() -> None:
        for _ in range(500):
            budget.succeeded()
            budget.try_take()
            budget.succeeded()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.balance == 8 * 500


def test_a_waiting_thread_is_released_by_another() -> None:
    budget = RetryBudget(initial=0, when_empty="wait")
    budget.line(time.monotonic).room.paced_at = 1e12  # type: ignore[attr-defined]
    thread = threading.Thread(
        target=retry_sync, args=(Flaky(ConnectionError(), then="done"),), kwargs={"budget": budget, "base": 0}
    )
    thread.start()
    line = budget.line(time.monotonic)
    while not len(line):
        thread.join(0.001)
    budget.succeeded(5.0)
    thread.join(10)
    assert not thread.is_alive()
