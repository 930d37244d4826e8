"""T04: an error that says "the time is over" is a TimeoutError, and a broad rule must not take it for a new failure."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from forbear import DeadlineExceeded, RetriesExhausted, deadline, retry, retry_sync
from forbear.testing import FakeTime, Flaky, Hang

Form = Callable[..., Any]
BROAD: list[Any] = [Exception, TimeoutError, (TimeoutError, ConnectionError), lambda _: True]


@pytest.mark.parametrize("retryable", BROAD)
def test_the_own_expiry_is_final(form: Form, retryable: Any) -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            form(fn, retryable=lambda _: True, backoff=[1.0], deadline=0.3, max_attempts=None)
        assert (fn.calls, clock.now) == (1, 0.0)


@pytest.mark.parametrize("retryable", BROAD)
def test_an_expiry_inside_is_final_for_all_layers_outside(form: Form, retryable: Any) -> None:
    fn = Flaky(then=TimeoutError())
    with FakeTime() as clock:

        def inner() -> Any:
            return retry_sync(fn, backoff=[1.0], deadline=0.3, retryable=retryable)

        def middle() -> Any:
            return retry_sync(inner, backoff=[1.0], max_attempts=3, deadline=None, retryable=retryable)

        with pytest.raises(DeadlineExceeded) as caught:
            form(middle, backoff=[1.0], max_attempts=3, deadline=None, retryable=retryable)
        assert clock.now == 0.0
    assert fn.calls == caught.value.attempts == 1


@pytest.mark.parametrize("retryable", BROAD)
async def test_a_cut_attempt_inside_is_final_outside(async_form: Any, retryable: Any) -> None:
    fn = Flaky(then=Hang(5.0))

    async def inner() -> Any:
        return await retry(fn.asynchronous, deadline=0.3, retryable=retryable)

    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            await async_form(inner, max_attempts=3, deadline=None, retryable=retryable)
        assert clock.now == pytest.approx(0.3)
    assert fn.calls == 1


@pytest.mark.parametrize("retryable", BROAD)
async def test_a_deadline_block_inside_an_attempt_is_final(async_form: Any, retryable: Any) -> None:
    fn = Flaky(then=Hang(5.0))

    async def inner() -> Any:
        async with deadline(0.3):
            return await fn.asynchronous()

    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            await async_form(inner, max_attempts=3, retryable=retryable)
        assert clock.now < 0.35
    assert fn.calls == 1


@pytest.mark.parametrize("reraise", [True, False])
def test_three_layers_of_three_attempts_make_three(form: Form, reraise: bool) -> None:
    for retryable in BROAD:
        fn = Flaky(then=TimeoutError())
        options: dict[str, Any] = {"retryable": retryable, "max_attempts": 3, "reraise": reraise, "deadline": None}
        with FakeTime(), pytest.raises(TimeoutError if reraise else RetriesExhausted):
            nested = functools.partial(retry_sync, functools.partial(retry_sync, fn, **options), **options)
            form(nested, **options)
        assert fn.calls == 3


def test_an_ordinary_timeout_of_an_attempt_is_retried(form: Form) -> None:
    fn = Flaky(TimeoutError(), TimeoutError(), "done")
    with FakeTime():
        assert form(fn) == "done"
