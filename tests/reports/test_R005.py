"""R005: a silent server must not cost the timeout times the attempts: one number can bound the whole call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import DeadlineExceeded, Policy, RetriesExhausted, current_attempt, deadline
from forbear.testing import FakeTime, Flaky, Hang

Form = Callable[..., Any]
SILENT = Hang(1e7)


@pytest.mark.parametrize("max_attempts", [1, 3, 10, None])
@pytest.mark.parametrize("attempt_timeout", [30.0, 10.0, None])
async def test_thirty_seconds_are_thirty_seconds(
    async_form: Form, max_attempts: int | None, attempt_timeout: float | None
) -> None:
    options = {"max_attempts": max_attempts, "attempt_timeout": attempt_timeout}
    with FakeTime() as clock:
        with pytest.raises((DeadlineExceeded, RetriesExhausted)) as caught:
            await async_form(Flaky(then=SILENT).asynchronous, deadline=30.0, backoff=[0.5], **options)
        assert clock.now <= 30.0
    assert isinstance(caught.value.last_error, TimeoutError)


async def test_without_a_total_the_policy_tells_the_worst_case_beforehand(async_form: Form) -> None:
    policy = Policy(max_attempts=3, attempt_timeout=30.0, deadline=None, backoff=[0.5])
    with FakeTime() as clock:
        with pytest.raises(RetriesExhausted):
            await async_form(Flaky(then=SILENT).asynchronous, policy=policy)
        assert clock.now == pytest.approx(91.0) == policy.worst_case()


async def test_the_defaults_bound_a_call_to_a_minute(async_form: Form) -> None:
    with FakeTime() as clock:
        with pytest.raises((DeadlineExceeded, RetriesExhausted)):
            await async_form(Flaky(then=SILENT).asynchronous)
        assert clock.now <= 60.0


async def test_one_total_around_several_calls_is_shared_by_them(async_form: Form) -> None:
    with FakeTime() as clock:
        with deadline(30.0):
            for _ in range(2):
                await async_form(Flaky(Hang(9.0, "done")).asynchronous)
            with pytest.raises(DeadlineExceeded):
                await async_form(Flaky(then=SILENT).asynchronous, attempt_timeout=30.0)
            with pytest.raises(DeadlineExceeded):
                await async_form(Flaky("too late").asynchronous)
        assert clock.now == pytest.approx(30.0)


def test_a_blocking_client_that_asks_for_its_time_keeps_the_total(blocking_form: Form) -> None:
    with FakeTime() as clock:

        def silent() -> None:
            attempt = current_attempt()
            assert attempt is not None
            assert attempt.timeout is not None
            clock.sleep(attempt.timeout)
            raise TimeoutError

        with pytest.raises((DeadlineExceeded, RetriesExhausted)):
            blocking_form(silent, attempt_timeout=12.0, deadline=30.0, backoff=[0.5])
        assert clock.now == pytest.approx(30.0)
