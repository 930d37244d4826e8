"""T10: a deadline that one form of call obeys and another forgets is none; it holds for attempts, waits and nests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from forbear import (
    ApiError,
    DeadlineExceeded,
    RetryError,
    StreamInterrupted,
    Upstream,
    attempts,
    current_attempt,
    current_deadline,
    deadline,
    retry,
    retry_sync,
    stream,
)
from forbear.testing import FakeTime, Flaky, Hang

Form = Callable[..., Any]
LIMIT = 5.0
# Alone each of these goes on for ever.
PATIENT: dict[str, Any] = {"max_attempts": 10**6, "backoff": [0.7]}
SCRIPTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "failures": (ConnectionError(), {}),
    "slow failures": (Hang(0.4, ConnectionError()), {}),
    "hints": (ApiError(429, retry_after=1.5), {}),
    "added hints": (ApiError(429, retry_after=0.3), {"retry_after": "add"}),
    "refused results": ("no", {"retry_if_result": lambda result: result == "no"}),
    "full jitter": (ConnectionError(), {"jitter": "full"}),
    "shortened waits": (ConnectionError(), {"late_backoff": "shorten", "minimum_attempt": 0.1}),
}
HANGING: dict[str, tuple[Any, dict[str, Any]]] = {
    "one hang": (Hang(1e6), {"attempt_timeout": None}),
    "many hangs": (Hang(1e6), {"attempt_timeout": 1.1}),
}


@asynccontextmanager
async def blocking_block() -> AsyncGenerator[None]:
    with deadline(LIMIT):
        yield


@asynccontextmanager
async def several_blocks() -> AsyncGenerator[None]:
    async with deadline(100.0), deadline(LIMIT):
        with deadline(50.0):
            yield


@asynccontextmanager
async def no_block() -> AsyncGenerator[None]:
    yield


BLOCKS: dict[str, tuple[Callable[[], AbstractAsyncContextManager[Any]], dict[str, Any]]] = {
    "option": (no_block, {"deadline": LIMIT}),
    "timedelta": (no_block, {"deadline": timedelta(seconds=LIMIT)}),
    "with": (blocking_block, {"deadline": None}),
    "async with": (lambda: deadline(LIMIT), {"deadline": None}),
    "several": (several_blocks, {"deadline": 20.0}),
    "margin": (lambda: deadline(LIMIT + 2.0, margin=2.0), {"deadline": None}),
}


@pytest.mark.parametrize("block", BLOCKS)
async def test_an_async_call_never_passes_its_deadline(async_form: Form, block: str) -> None:
    around, limits = BLOCKS[block]
    for name, (outcome, options) in {**SCRIPTS, **HANGING}.items():
        fn = Flaky(then=outcome)
        with FakeTime() as clock:
            with pytest.raises(DeadlineExceeded) as caught:
                async with around():
                    await async_form(fn.asynchronous, **{**PATIENT, **options, **limits})
            assert LIMIT - 2.2 <= clock.now <= LIMIT, name
        assert fn.calls == caught.value.attempts >= 1, name
        assert max(fn.started_at) < LIMIT, name


@pytest.mark.parametrize("ambient", [True, False])
def test_a_blocking_call_never_starts_or_waits_beyond_it(blocking_form: Form, ambient: bool) -> None:
    for name, (outcome, options) in SCRIPTS.items():
        fn = Flaky(then=outcome)
        with FakeTime() as clock:
            with pytest.raises(DeadlineExceeded), deadline(LIMIT if ambient else None):
                blocking_form(fn, **{**PATIENT, **options}, deadline=None if ambient else LIMIT)
            assert LIMIT - 2.2 <= clock.now <= LIMIT, name
        assert max(fn.started_at) < LIMIT, name


def test_calls_inside_calls_share_the_outermost_deadline(form: Form) -> None:
    fn = Flaky(then=ConnectionError())

    def nested() -> Any:
        return retry_sync(lambda: retry_sync(fn, deadline=50.0, **PATIENT), deadline=60.0, **PATIENT)

    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            form(nested, deadline=LIMIT, **PATIENT)
        assert clock.now <= LIMIT


async def test_calls_one_after_the_other_share_one_block(async_form: Form) -> None:
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            async with deadline(LIMIT):
                for _ in range(10):
                    await async_form(Flaky(Hang(0.4, ConnectionError()), then="done").asynchronous, backoff=[0.3])
        assert clock.now <= LIMIT + 0.01
        assert current_deadline() is None


async def test_calls_side_by_side_share_one_block(async_form: Form) -> None:
    with FakeTime() as clock:
        async with deadline(LIMIT):
            calls = [
                async_form(Flaky(then=outcome).asynchronous, **{**PATIENT, **options}, deadline=None)
                for outcome, options in [*SCRIPTS.values(), *HANGING.values()]
            ]
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert clock.now <= LIMIT
    assert [type(error) for error in ended] == [DeadlineExceeded] * len(calls)


async def test_a_block_inside_an_attempt_is_no_longer_than_the_attempts_call(async_form: Form) -> None:
    granted: list[float] = []

    async def fn() -> None:
        async with deadline(100.0) as limit:
            assert limit is not None
            granted.append(limit.remaining())
            raise ConnectionError

    with FakeTime(), pytest.raises(DeadlineExceeded):
        await async_form(fn, max_attempts=None, backoff=[2.0], deadline=LIMIT)
    assert granted == pytest.approx([5.0, 3.0, 1.0])


async def test_what_is_not_ours_is_cut_as_well_inside_a_block() -> None:
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            async with deadline(LIMIT):
                async for attempt in attempts(deadline=None):
                    async with attempt:
                        pass
                await asyncio.sleep(1e6)
        assert LIMIT <= clock.now <= LIMIT + 0.05


def test_a_hook_that_takes_its_time_is_paid_from_the_same_purse(form: Form) -> None:
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            form(
                Flaky(then=ConnectionError()), on_retry=lambda _: clock.advance(1.5), **PATIENT, deadline=LIMIT
            )  # fmt: skip
        assert clock.now <= LIMIT


async def test_an_async_hook_is_paid_from_it_too(async_form: Form) -> None:
    async def hook(_: object) -> None:
        await asyncio.sleep(1.5)

    fn = Flaky(then=ConnectionError())
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            await async_form(fn.asynchronous, on_retry=hook, **PATIENT, deadline=LIMIT)
        assert clock.now <= LIMIT + 1.5
    assert max(fn.started_at) < LIMIT


@pytest.mark.parametrize("limit", [0.0, 0.3])
def test_a_fallback_is_asked_when_the_time_is_over(limit: float) -> None:
    with FakeTime() as clock, deadline(limit):
        answer = retry_sync(
            Flaky(then=ConnectionError()), fallback=lambda error: type(error).__name__, **PATIENT, deadline=None
        )
        assert clock.now <= limit
    assert answer == "DeadlineExceeded"


async def test_an_async_fallback_is_asked_then_too() -> None:
    async def instead(error: Exception) -> str:
        return type(error).__name__

    with FakeTime():
        answer = await retry(Flaky(then=Hang(1e6)).asynchronous, fallback=instead, deadline=LIMIT, attempt_timeout=None)
    assert answer == "DeadlineExceeded"


def test_after_the_block_nothing_binds_any_more(form: Form) -> None:
    with FakeTime() as clock:
        with pytest.raises(RetryError), deadline(0.5):
            form(Flaky(then=ConnectionError()), **PATIENT)
        assert form(Flaky(*[ConnectionError()] * 20, "done"), **PATIENT, deadline=None) == "done"
        assert clock.now > LIMIT


@pytest.mark.parametrize("seconds", [LIMIT + 1.0, 3600.0])
async def test_a_hook_that_hangs_is_cut_at_the_deadline(async_form: Form, seconds: float) -> None:
    async def hook(_: object) -> None:
        await asyncio.sleep(seconds)

    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            await async_form(Flaky(then=ConnectionError()).asynchronous, on_retry=hook, deadline=LIMIT)
        assert clock.now == pytest.approx(LIMIT, abs=0.05)


# ---- streams ---------------------------------------------------------------------------------------------------------

# What a source does, again and again: a number is a wait, an error a failure, anything else a chunk.
BODIES: dict[str, list[Any]] = {
    "failures": [ConnectionError()],
    "slow failures": [0.4, ConnectionError()],
    "signs of life": [0.4, ""],
    "content": [0.4, "a"],
    "content and failures": [0.4, "a", 0.4, ConnectionError()],
    "silence": [1e6],
}
STREAMING: dict[str, dict[str, Any]] = {
    "raise": {},
    "restart": {"after_content": "restart"},
    "buffer": {"after_content": "buffer"},
    "with a limit of each wait": {"attempt_timeout": 1.1},
    "through a service": {"upstream": Upstream("service", budget=None)},
}
STREAM_OPTIONS: dict[str, Any] = {"max_attempts": 10**6, "backoff": [0.7], "attempt_timeout": None}


def steps_of(body: list[Any]) -> Iterator[Any]:
    while True:
        yield from body


@pytest.mark.parametrize("how", STREAMING)
@pytest.mark.parametrize("ambient", [True, False])
async def test_an_async_stream_never_goes_on_beyond_it(how: str, ambient: bool) -> None:
    for name, body in BODIES.items():
        opened: list[float] = []
        closed: list[float] = []

        async def source(
            body: list[Any] = body, opened: list[float] = opened, closed: list[float] = closed
        ) -> AsyncIterator[str]:
            opened.append(clock.now)
            try:
                for step in steps_of(body):
                    if isinstance(step, Exception):
                        raise step.with_traceback(None)
                    if isinstance(step, float):
                        await asyncio.sleep(step)
                    else:
                        yield step
            finally:
                closed.append(clock.now)

        with FakeTime() as clock:
            chunks: list[Any] = []
            options = {**STREAM_OPTIONS, **STREAMING[how], "deadline": 1e7 if ambient else LIMIT}
            with pytest.raises((DeadlineExceeded, StreamInterrupted)) as caught:
                async with deadline(LIMIT if ambient else None):
                    async for chunk in stream(source, **options):
                        chunks.append(chunk)  # noqa: PERF401  # what came before the error counts
            assert clock.now <= LIMIT + 0.05, name
        assert max(opened) < LIMIT, name
        assert len(closed) == len(opened), name
        assert isinstance(caught.value, StreamInterrupted) is bool(chunks), name


@pytest.mark.parametrize("how", STREAMING)
@pytest.mark.parametrize("ambient", [True, False])
def test_a_blocking_stream_begins_nothing_beyond_it(how: str, ambient: bool) -> None:
    for name, body in BODIES.items():
        opened: list[float] = []

        def source(body: list[Any] = body, opened: list[float] = opened) -> Iterator[str]:
            opened.append(clock.now)
            for step in steps_of(body):
                if isinstance(step, Exception):
                    raise step.with_traceback(None)
                if isinstance(step, float):
                    attempt = current_attempt()
                    assert attempt is not None
                    assert attempt.timeout is not None
                    clock.advance(min(step, attempt.timeout))  # a client that takes its read timeout from there
                    if step > attempt.timeout:
                        raise TimeoutError
                else:
                    yield step

        with FakeTime() as clock:
            options = {**STREAM_OPTIONS, **STREAMING[how], "deadline": 1e7 if ambient else LIMIT}
            with pytest.raises((DeadlineExceeded, StreamInterrupted)), deadline(LIMIT if ambient else None):
                for _ in stream(source, **options):
                    pass
            assert clock.now <= LIMIT + 1e-6, name
        assert max(opened) < LIMIT, name


async def test_a_stream_inside_an_attempt_and_an_attempt_inside_a_stream_are_bound_by_the_outer_one() -> None:
    async def silent() -> AsyncIterator[str]:
        yield "a"
        await asyncio.sleep(1e6)

    async def consume() -> None:
        async for _ in stream(silent, deadline=1e7, attempt_timeout=None):
            pass

    async def source() -> AsyncIterator[str]:
        yield await retry(Flaky(then=Hang(1e6)).asynchronous, deadline=1e7, attempt_timeout=None)

    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            await retry(consume, deadline=LIMIT, attempt_timeout=None)
        assert clock.now == pytest.approx(LIMIT, abs=0.05)
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            async for _ in stream(source, deadline=LIMIT, attempt_timeout=None):
                pass
        assert clock.now == pytest.approx(LIMIT, abs=0.05)


async def test_the_wait_of_a_stream_for_its_place_is_paid_from_it_too() -> None:
    service = Upstream("service", max_concurrency=1)

    async def endless() -> AsyncIterator[str]:
        while True:
            yield "a"
            await asyncio.sleep(0.1)

    with FakeTime() as clock:
        async with service.stream(endless, deadline=None) as holds:
            assert await anext(holds) == "a"
            with pytest.raises(DeadlineExceeded):
                await anext(service.stream(endless, deadline=LIMIT))
            assert clock.now == pytest.approx(LIMIT, abs=0.05)
        assert service.snapshot().in_flight == 0


def test_decorated_generators_obey_it_as_well() -> None:
    opened: list[float] = []

    @retry(**STREAM_OPTIONS, deadline=LIMIT)
    def source() -> Iterator[str]:
        opened.append(clock.now)
        yield ""
        raise ConnectionError

    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            next(source())
        assert clock.now <= LIMIT
    assert 5 <= len(opened) <= 8
