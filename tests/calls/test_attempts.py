"""The block form, blocking and async."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from forbear import ApiError, RetriesExhausted, RetryError, attempts, constant, current_attempt
from forbear._runtime.scope import current
from forbear.testing import FakeTime, Flaky, Hang


@pytest.fixture
def time() -> Iterator[FakeTime]:
    with FakeTime(rng=lambda: 1.0) as fake:
        yield fake


def test_the_loop_ends_after_the_first_round_without_an_error(time: FakeTime) -> None:
    flaky, numbers, result = Flaky(ApiError(503), ConnectionError, "done"), [], None
    for attempt in attempts():
        with attempt:
            numbers.append((attempt.number, current_attempt().number))  # type: ignore[union-attr]
            result = flaky()
    assert (result, numbers) == ("done", [(1, 1), (2, 2), (3, 3)])
    assert time.sleeps == [0.5, 1]


async def test_the_async_loop_cuts_attempts_and_retries_them(time: FakeTime) -> None:
    flaky, result = Flaky(Hang(100), ConnectionError, "done"), None
    async for attempt in attempts():
        async with attempt:
            result = await flaky.asynchronous()
    assert result == "done"
    assert time.now == pytest.approx(11.5)


def test_it_gives_up_as_every_form_does(time: FakeTime) -> None:
    with pytest.raises(RetriesExhausted) as caught:
        for attempt in attempts(max_attempts=2):
            with attempt:
                raise ConnectionError("down")
    assert caught.value.attempts == 2
    assert str(caught.value.__cause__) == "down"


async def test_it_can_raise_the_error_itself(time: FakeTime) -> None:
    error = ConnectionError("down")
    with pytest.raises(ConnectionError) as caught:
        async for attempt in attempts(max_attempts=2, reraise=True):
            async with attempt:
                raise error
    assert caught.value is error


async def test_a_permanent_error_leaves_at_once(time: FakeTime) -> None:
    rounds = []
    with pytest.raises(ValueError, match="bad"):
        async for attempt in attempts():
            async with attempt:
                rounds.append(1)
                raise ValueError("bad")
    with pytest.raises(ValueError, match="bad"):
        for attempt in attempts():
            with attempt:
                rounds.append(1)
                raise ValueError("bad")
    assert rounds == [1, 1]


async def test_a_timeout_that_may_not_be_retried_is_raised_as_such(time: FakeTime) -> None:
    with pytest.raises(TimeoutError, match="attempt_timeout") as caught:
        async for attempt in attempts(idempotent=False):
            async with attempt:
                await asyncio.sleep(100)
    assert not isinstance(caught.value, RetryError)


async def test_a_round_that_swallows_its_timeout_is_repeated(time: FakeTime) -> None:
    numbers = []
    async for attempt in attempts():
        async with attempt:
            numbers.append(attempt.number)
            if attempt.number == 1:
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    pass
    assert numbers == [1, 2]


def test_a_result_can_be_refused(time: FakeTime) -> None:
    rounds = 0
    for attempt in attempts(retry_if_result=lambda text: not text, backoff=constant(2)):
        with attempt:
            rounds += 1
            attempt.result = "" if rounds < 3 else "text"
    assert (rounds, time.sleeps) == (3, [2, 2])
    with pytest.raises(RetryError) as caught:
        for attempt in attempts(retry_if_result=lambda _: True, max_attempts=1):
            with attempt:
                attempt.result = "never good"
    assert caught.value.last_result == "never good"


def test_a_result_that_was_forgotten_is_asked_for(time: FakeTime) -> None:
    with pytest.raises(TypeError, match=r"attempt\.result = "):
        for attempt in attempts(retry_if_result=lambda _: True):
            with attempt:
                pass


def test_leaving_the_loop_is_a_success(time: FakeTime) -> None:
    def first() -> int:
        for attempt in attempts():
            with attempt:
                return attempt.number
        raise AssertionError

    assert first() == 1
    for attempt in attempts():
        with attempt:
            break
    assert current.get() is not None
    assert current_attempt() is None


def test_one_recipe_serves_many_loops(time: FakeTime) -> None:
    recipe = attempts(max_attempts=2)
    for _ in range(3):
        numbers = []
        for attempt in recipe:
            with attempt:
                numbers.append(attempt.number)
                if attempt.number == 1:
                    raise ConnectionError
        assert numbers == [1, 2]


async def test_a_loop_without_its_block_is_answered_with_the_right_one() -> None:
    with pytest.raises(RuntimeError, match="with attempt:"):
        for _ in attempts():
            pass
    with pytest.raises(RuntimeError, match="async with attempt:"):
        async for _ in attempts():
            pass
    with pytest.raises(TypeError, match="async with attempt:"):
        async for attempt in attempts():
            with attempt:
                pass
    with pytest.raises(TypeError, match="async for"):
        for attempt in attempts():
            async with attempt:
                pass


def test_a_fallback_makes_no_sense_for_a_block() -> None:
    with pytest.raises(TypeError, match="catch RetryError"):
        attempts(fallback=lambda _: None)  # type: ignore[call-arg]


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_exception_leaves_at_once(leaving: type[BaseException], time: FakeTime) -> None:
    rounds: list[Any] = []
    with pytest.raises(leaving):
        for attempt in attempts(retryable=lambda _: True):
            with attempt:
                rounds.append(attempt)
                raise leaving
    assert len(rounds) == 1
    assert current_attempt() is None
