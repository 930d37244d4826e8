"""R009: where an attempt's limit and the call's coincide, the same failure must not surface as two different errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forbear import DeadlineExceeded, RetriesExhausted, current_attempt, deadline, retry
from forbear.testing import FakeTime, Flaky, Hang

Form = Callable[..., Any]
STARTS = [1000.0 + 0.37 * n for n in range(200)]  # instants at which sums of floats are rounded in different ways


async def test_two_equal_limits_always_give_the_same_error(async_form: Form) -> None:
    kinds = set()
    for start in STARTS:
        with FakeTime(start) as clock:
            with pytest.raises(Exception) as caught:
                await async_form(Flaky(then=Hang(60.0)).asynchronous, attempt_timeout=1.0, deadline=1.0)
            assert clock.now == pytest.approx(start + 1.0)
        error: Any = caught.value
        kinds.add((type(error), error.reason, error.attempts, type(error.last_error)))
    assert kinds == {(DeadlineExceeded, "deadline", 1, TimeoutError)}


async def test_an_equal_limit_of_a_block_around_it_gives_the_same(async_form: Form) -> None:
    kinds = set()
    for start in STARTS:
        with FakeTime(start), pytest.raises(Exception) as caught:
            async with deadline(1.0):
                await async_form(Flaky(then=Hang(60.0)).asynchronous, attempt_timeout=1.0, deadline=None)
        error: Any = caught.value
        kinds.add((type(error), error.reason, error.attempts, type(error.last_error)))
    assert kinds == {(DeadlineExceeded, "deadline", 1, TimeoutError)}


def test_blocking_code_agrees(blocking_form: Form) -> None:
    kinds = set()
    for start in STARTS:
        with FakeTime(start) as clock:

            def slow(clock: FakeTime = clock) -> None:
                attempt = current_attempt()
                assert attempt is not None
                assert attempt.timeout is not None
                clock.sleep(attempt.timeout + 1e-9)
                raise TimeoutError

            with pytest.raises(Exception) as caught:
                blocking_form(slow, attempt_timeout=1.0, deadline=1.0)
        error: Any = caught.value
        kinds.add((type(error), error.reason, error.attempts, type(error.last_error)))
    assert kinds == {(DeadlineExceeded, "deadline", 1, TimeoutError)}


def test_in_real_time_two_hundred_runs_agree(run: Callable[..., Any]) -> None:
    async def one(n: int) -> tuple[Any, ...]:
        await asyncio.sleep(0.0005 * n)
        try:
            if n % 2:
                await retry(lambda: asyncio.sleep(60), attempt_timeout=0.3, deadline=0.3)
            else:
                async with deadline(0.3):
                    await retry(lambda: asyncio.sleep(60), attempt_timeout=0.3)
        except Exception as error:
            return type(error), getattr(error, "reason", None)
        return ()

    async def main() -> set[tuple[Any, ...]]:
        return set(await asyncio.gather(*map(one, range(200))))

    assert run(main()) == {(DeadlineExceeded, "deadline")}


@pytest.mark.parametrize(("attempt_timeout", "limit"), [(1.0, 5.0), (5.0, 1.0)])
async def test_the_error_says_which_limit_it_was(async_form: Form, attempt_timeout: float, limit: float) -> None:
    with FakeTime(), pytest.raises((DeadlineExceeded, RetriesExhausted)) as caught:
        await async_form(
            Flaky(then=Hang(60.0)).asynchronous, attempt_timeout=attempt_timeout, deadline=limit, max_attempts=2
        )
    if attempt_timeout < limit:
        assert caught.value.reason == "max_attempts"
        assert "attempt_timeout=1" in str(caught.value.last_error)
    else:
        assert caught.value.reason == "deadline"
        assert "deadline" in str(caught.value.last_error)


async def test_an_inner_call_under_an_outer_one_gives_one_error(async_form: Form) -> None:
    kinds = set()
    for start in STARTS[::10]:
        for inner, outer in [(1.0, 1.0), (1.0, 1.0 + 1e-9), (1.0 + 1e-9, 1.0)]:

            async def nested(inner: float = inner) -> Any:
                return await retry(lambda: asyncio.sleep(60), deadline=inner, attempt_timeout=None)

            with FakeTime(start), pytest.raises(Exception) as caught:
                await async_form(nested, deadline=outer, attempt_timeout=None)
            kinds.add(type(caught.value))
    assert kinds == {DeadlineExceeded}


async def test_equal_limits_always_give_the_same_text(async_form: Form) -> None:
    texts = set()
    for start in STARTS:
        with FakeTime(start), pytest.raises(DeadlineExceeded) as caught:
            await async_form(Flaky(then=Hang(60.0)).asynchronous, attempt_timeout=1.0, deadline=1.0)
        texts.add(str(caught.value.last_error))
    assert len(texts) == 1


@pytest.mark.parametrize("max_attempts", [1, 2, 3])
async def test_a_deadline_that_cuts_is_a_deadline_whatever_the_count(async_form: Form, max_attempts: int) -> None:
    fn = Flaky(*[ConnectionError()] * (max_attempts - 1), then=Hang(60.0))
    with FakeTime(), pytest.raises(DeadlineExceeded) as caught:
        await async_form(fn.asynchronous, max_attempts=max_attempts, deadline=5.0, backoff=[0.1])
    assert caught.value.attempts == max_attempts
