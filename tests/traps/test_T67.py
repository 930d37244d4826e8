"""T67: a budget is shared by all that it was handed to, and a retry that is not sent gives its place back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forbear import BudgetExhausted, RetryBudget, RetryError, Upstream, attempts, retry, retry_call, retry_sync
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]


def test_five_functions_share_one_retry() -> None:
    budget = RetryBudget(initial=1)
    functions = [Flaky(then=ConnectionError()) for _ in range(5)]
    with FakeTime():
        for fn in functions:
            with pytest.raises(BudgetExhausted) as caught:
                retry_sync(max_attempts=9, budget=budget)(fn)()
            assert isinstance(caught.value.__cause__, ConnectionError)
    assert sum(fn.calls for fn in functions) == 6


def test_it_is_the_same_one_in_every_form() -> None:
    budget = RetryBudget(initial=4)
    fn = Flaky(then=ConnectionError())

    async def asynchronous() -> None:
        await retry(fn.asynchronous, budget=budget)

    def block() -> None:
        for attempt in attempts(budget=budget):
            with attempt:
                fn()

    def of_upstream() -> None:
        Upstream("service", budget=budget).retry_sync(fn)

    ways: list[Callable[[], Any]] = [
        lambda: retry_sync(fn, max_attempts=2, budget=budget),
        lambda: retry_call(fn, retry_options={"max_attempts": 2, "budget": budget}),
        lambda: asyncio.run(asynchronous()),
        block,
        of_upstream,
    ]
    with FakeTime():
        for way in ways:
            with pytest.raises(RetryError):
                way()
    assert fn.calls == 5 + 4


async def test_tasks_share_it_too() -> None:
    budget = RetryBudget(initial=3)
    fn = Flaky(then=ConnectionError())
    with FakeTime():
        calls = [retry(fn.asynchronous, max_attempts=9, budget=budget) for _ in range(20)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in ended} == {BudgetExhausted}
    assert fn.calls == 20 + 3


def test_what_one_function_earns_another_may_spend(form: Form) -> None:
    budget = RetryBudget(initial=0)
    with FakeTime():
        with pytest.raises(BudgetExhausted):
            form(Flaky(then=ConnectionError()), budget=budget)
        for _ in range(10):
            form(Flaky(then="done"), budget=budget)
        fn = Flaky(ConnectionError(), then="done")
        assert form(fn, budget=budget) == "done"


def test_an_empty_budget_hides_no_error(form: Form) -> None:
    error = ConnectionError("mine")
    with FakeTime():
        with pytest.raises(BudgetExhausted) as caught:
            form(Flaky(then=error), budget=RetryBudget(initial=0))
        assert (caught.value.__cause__, caught.value.attempts) == (error, 1)
        with pytest.raises(ConnectionError) as raised:
            form(Flaky(then=error), budget=RetryBudget(initial=0), reraise=True)
        assert raised.value is error
        assert "(budget)" in error.__notes__[0]
