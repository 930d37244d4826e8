"""Typed uses of every form; checked by mypy and pyright in strict mode, and run by the tests."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from datetime import timedelta
from typing import Any, Generic, TypeVar, assert_type, overload

import httpx
import openai

from forbear import (
    Attempt,
    CircuitBreaker,
    Deadline,
    Hedge,
    Policy,
    RateLimiter,
    Restarted,
    RetryState,
    StreamEvents,
    StreamInterrupted,
    Upstream,
    attempts,
    constant,
    current_attempt,
    current_deadline,
    deadline,
    describe,
    exponential,
    first_ready,
    hedge,
    llm_retry,
    retry,
    retry_call,
    retry_sync,
    stream,
)
from forbear.integrations import sole_owner
from forbear.integrations.httpx import AsyncTransport, Transport

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


@retry(max_attempts=3, events=StreamEvents(content=bool), gap_timeout=timedelta(seconds=5))
async def words(prompt: str) -> AsyncGenerator[str, None]:
    yield prompt


@llm_retry(after_content="restart", hedge=Hedge(0.2))
async def tokens(prompt: str) -> AsyncIterator[str]:
    yield prompt


def rest_of(delivered: list[bytes], path: str) -> list[bytes]:
    return [path.encode()][len(delivered) :]


@retry_sync(resume=rest_of)
def lines(path: str) -> Generator[bytes, None, int]:
    yield path.encode()
    return 1


service = Upstream("service")


@service.hedge(max_extra_load=0.1, fallback=ask, fallback_on=TimeoutError)
async def fast(prompt: str, *, temperature: float = 0.0) -> str:
    return f"{prompt} {temperature}"


async def streams() -> None:
    async for word in words("x"):
        assert_type(word, str)
    async for token in tokens("x"):
        assert_type(token, str)
    for line in lines("x"):
        assert_type(line, bytes)
    async for chunk in stream(lambda: words("x"), events="openai", first_timeout=1.0):
        assert_type(chunk, str)
    async for marked in service.stream(lambda: words("x"), after_content="restart"):
        assert_type(marked, str | Restarted)
    with stream(lambda: lines("x"), after_content="buffer", hold_at_most=10) as chunks:
        for line in chunks:
            assert_type(line, bytes)
    assert_type(await hedge(lambda: ask("x"), delay=0.1), str)
    assert_type(await service.hedge(lambda: ask("x")), str)
    assert_type(await retry(lambda: ask("x"), hedge=0.1, fallback="nothing"), str)
    assert_type(await fast("x", temperature=1.0), str)
    assert_type(await first_ready(fast)("x"), str)
    assert_type(service.ready_in(), float)


def interrupted(error: StreamInterrupted) -> None:
    assert_type(error.contents, int)
    assert_type(error.delivered, tuple[Any, ...])


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


def clients() -> None:
    assert_type(sole_owner(httpx.Client(), max_attempts=3), httpx.Client)
    assert_type(sole_owner(openai.AsyncOpenAI(api_key="key"), deadline=timedelta(minutes=2)), openai.AsyncOpenAI)
    assert_type(Transport(upstream=None).upstream_of("https://service.example"), Upstream | None)
    httpx.AsyncClient(
        transport=AsyncTransport(httpx.AsyncHTTPTransport(), idempotency_key=True, deadline_header="grpc-timeout")
    )


decorated: Callable[[int], float] = read
