"""Typed uses of every form; checked by mypy and pyright in strict mode, and run by the tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Generic, TypeVar, assert_type, overload

from forbear import (
    Attempt,
    CircuitBreaker,
    Deadline,
    Policy,
    RateLimiter,
    RetryState,
    attempts,
    constant,
    current_attempt,
    current_deadline,
    deadline,
    describe,
    exponential,
    llm_retry,
    retry,
    retry_call,
    retry_sync,
)

T = TypeVar("T")


@retry(max_attempts=3, deadline=timedelta(seconds=30))
async def ask(prompt: str, *, temperature: float = 0.0) -> str:
    return f"{prompt} {temperature}"


@retry(policy=Policy(max_attempts=3), on_retry=print, jitter="equal")
def load(url: str) -> bytes:
    return url.encode()


@retry_sync(retryable=(ConnectionError, TimeoutError), backoff=exponential(0.1, cap=2.0))
def read(number: int) -> float:
    return number / 2


limiter = RateLimiter(requests_per_minute=500, tokens_per_minute=200_000)


@llm_retry
async def chat(prompt: str, *, temperature: float = 0.0) -> str:
    return f"{prompt} {temperature}"


@llm_retry(max_attempts=8, breaker=CircuitBreaker(), on_retry=describe)
@limiter.limit(tokens=len)
def complete(prompt: str) -> list[str]:
    return [prompt]


@overload
def parse(value: int) -> int: ...
@overload
def parse(value: str) -> str: ...
@retry()
def parse(value: int | str) -> int | str:
    return value


@retry()
def first(items: list[T]) -> T:
    return items[0]


class Client(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value

    @retry()
    async def get(self, count: int) -> list[T]:
        return [self.value] * count

    @classmethod
    @retry()
    def make(cls, value: T) -> Client[T]:
        return cls(value)

    @staticmethod
    @retry()
    def double(number: int) -> int:
        return number * 2


def on_retry(state: RetryState) -> None:
    assert_type(state.delay, float)
    assert_type(state.attempt, int)


async def forms() -> None:
    assert_type(await ask("hello", temperature=0.5), str)
    assert_type(load("x"), bytes)
    assert_type(read(3), float)
    assert_type(await chat("hello", temperature=0.5), str)
    assert_type(complete("x"), list[str])
    assert_type(parse(3), int)
    assert_type(parse("3"), str)
    assert_type(first([1, 2]), int)
    assert_type(await Client("a").get(2), list[str])
    assert_type(Client.double(2), int)

    coroutine: Coroutine[Any, Any, str] = retry(lambda: ask("hello"), max_attempts=4, on_retry=on_retry)
    assert_type(await coroutine, str)
    assert_type(retry_sync(functools.partial(load, "x"), backoff=[0.1, 0.5]), bytes)
    assert_type(retry_call(load, "x", retry_options={"max_attempts": 2, "backoff": constant(1.0)}), bytes)
    assert_type(await retry_call(ask, "x", retry_options={"deadline": 2.0}), str)

    async for attempt in attempts(max_attempts=2):
        async with attempt:
            assert_type(attempt.number, int)
            assert_type(attempt.timeout, float | None)
    for attempt in attempts(max_attempts=2):
        with attempt as entered:
            assert_type(entered.idempotency_key, str)

    async with deadline(3.0, margin=0.2) as granted:
        assert_type(granted, Deadline | None)
    with deadline(timedelta(seconds=3)):
        assert_type(current_deadline(), Deadline | None)
        assert_type(current_attempt(), Attempt | None)


decorated: Callable[[int], float] = read
