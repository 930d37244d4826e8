"""What an attempt can ask about itself."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from forbear import Attempt, current_attempt, deadline, retry, retry_sync
from forbear.testing import FakeTime


def here() -> Attempt:
    attempt = current_attempt()
    assert attempt is not None
    return attempt


def test_outside_of_any_attempt_there_is_none() -> None:
    assert current_attempt() is None
    with deadline(3):
        assert current_attempt() is None


def test_the_time_of_an_attempt_runs_down() -> None:
    seen: list[Any] = []

    def fn() -> None:
        attempt = here()
        seen.append((attempt.number, attempt.timeout, attempt.deadline.remaining()))  # type: ignore[union-attr]
        fake.advance(4)
        seen.append(attempt.timeout)
        fake.advance(20)
        seen.append(attempt.timeout)
        raise ConnectionError

    with FakeTime(rng=lambda: 1.0) as fake, pytest.raises(TimeoutError):
        retry_sync(fn, deadline=30, base=2)
    assert seen == [(1, 10, 30), 6, 0, (2, 4, 4), 0, 0]


def test_without_limits_there_is_no_timeout() -> None:
    def fn() -> tuple[object, object]:
        return here().timeout, here().deadline

    assert retry_sync(fn, attempt_timeout=None, deadline=None) == (None, None)


def test_an_attempt_within_an_attempt_has_no_more_time_than_the_outer_one() -> None:
    def inner() -> float | None:
        with deadline(1.5):
            assert here().timeout == 1.5
        return here().timeout

    def outer() -> float | None:
        fake.advance(1)
        return retry_sync(inner, attempt_timeout=100)

    with FakeTime() as fake:
        assert retry_sync(outer, attempt_timeout=3) == 2


async def test_one_idempotency_key_serves_all_attempts_of_a_call_and_no_other() -> None:
    async def fn() -> str:
        keys.append(here().idempotency_key)
        keys.append(await asyncio.to_thread(lambda: here().idempotency_key))
        if here().number < 3:
            raise ConnectionError
        return keys[-1]

    calls = []
    for _ in range(2):
        keys: list[str] = []
        with FakeTime(patience=1.0):
            calls.append(await retry(fn))
        assert len(keys) == 6
        assert set(keys) == {calls[-1]}
        assert uuid.UUID(calls[-1])
    assert calls[0] != calls[1]


def test_the_previous_error_is_at_hand() -> None:
    seen: list[object] = []

    def fn() -> None:
        seen.append(here().previous_error)
        raise ConnectionError(len(seen))

    with FakeTime(), pytest.raises(Exception, match="gave up"):
        retry_sync(fn, max_attempts=3)
    assert seen[0] is None
    assert [str(error) for error in seen[1:]] == ["1", "2"]


def test_it_shows_where_it_is() -> None:
    def fetch() -> str:
        return repr(here())

    assert retry_sync()(fetch)().startswith("<attempt 1 of ")
    assert "fetch" in retry_sync(fetch)


async def test_tasks_of_an_attempt_see_it_and_others_do_not() -> None:
    async def number() -> int | None:
        attempt = current_attempt()
        return None if attempt is None else attempt.number

    async def fn() -> int | None:
        return await asyncio.create_task(number())

    other = asyncio.create_task(number())
    assert await retry(fn) == 1
    assert await other is None


def test_an_attempt_knows_what_was_before_it() -> None:
    seen: list[Any] = []

    def fn() -> None:
        attempt = here()
        fake.advance(1)
        seen.append(([summary.number for summary in attempt.history], attempt.waited, attempt.elapsed))
        if attempt.number < 3:
            raise ConnectionError

    with FakeTime(rng=lambda: 1.0) as fake:
        retry_sync(fn, base=2)
    assert seen == [([], 0.0, 1.0), ([1], 2.0, 4.0), ([1, 2], 6.0, 9.0)]
