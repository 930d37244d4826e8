"""The forms of call, their options, and what mistakes are told."""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
import warnings
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from forbear import (
    ApiError,
    CircuitOpenError,
    DeadlineExceeded,
    Policy,
    ResultRejected,
    RetriesExhausted,
    RetryError,
    RetryState,
    Upstream,
    constant,
    deadline,
    retry,
    retry_call,
    retry_sync,
    stream,
)
from forbear.testing import FakeTime, Flaky, Hang, record_events


@pytest.fixture
def time() -> Any:
    with FakeTime(rng=lambda: 1.0) as fake:
        yield fake


# ---- forms ------------------------------------------------------------------------------------------------------


async def test_the_call_form_is_a_real_coroutine(time: FakeTime) -> None:
    coroutine = retry(Flaky(ConnectionError, "done").asynchronous)
    assert inspect.iscoroutine(coroutine)
    assert await coroutine == "done"


async def test_every_kind_of_async_callable_is_retried(time: FakeTime) -> None:
    class Callable:
        def __init__(self) -> None:
            self.flaky = Flaky(ConnectionError, "done")

        async def __call__(self) -> object:
            return await self.flaky.asynchronous()

    @types.coroutine
    def old(flaky: Flaky) -> Any:
        return (yield from flaky.asynchronous().__await__())

    flaky = [Flaky(ConnectionError, "done") for _ in range(6)]
    kinds: list[Any] = [
        flaky[0].asynchronous,
        functools.partial(flaky[1].asynchronous, 1, a=2),
        lambda: flaky[2].asynchronous(),  # noqa: PLW0108  # nothing tells that it is async
        Callable(),
        functools.partial(old, flaky[3]),
        lambda: asyncio.ensure_future(flaky[4].asynchronous()),
    ]
    for kind in kinds:
        assert await retry()(kind)() == "done"
    for kind in (flaky[5].asynchronous, Callable()):
        assert await retry(kind) == "done"


async def test_a_function_that_fails_before_its_first_await_is_retried_too(time: FakeTime) -> None:
    flaky = Flaky(ConnectionError, ConnectionError, "done")

    def make() -> Any:
        if flaky.calls < 1:
            flaky()
        return flaky.asynchronous()

    assert await retry(make) == "done"
    assert flaky.calls == 3


def test_methods_of_all_kinds_keep_their_binding(time: FakeTime) -> None:
    class Service:
        made = 0

        def __init__(self) -> None:
            self.flaky = Flaky(ConnectionError, "done")

        @retry()
        def get(self, x: int) -> tuple[object, int]:
            return self.flaky(), x

        @retry()
        @classmethod
        def outside(cls) -> type:
            return cls

        @classmethod
        @retry()
        def inside(cls) -> type:
            return cls

        @retry()
        @staticmethod
        def plain(x: int) -> int:
            return x

    assert Service().get(3) == ("done", 3)
    assert Service.outside() is Service.inside() is Service
    assert Service.plain(4) == Service().plain(4) == 4


def test_a_decorated_function_looks_like_the_original() -> None:
    async def fetch(url: str, *, retries: int = 3) -> str:
        """Fetches."""
        return url * retries

    decorated = retry()(fetch)
    assert (decorated.__name__, decorated.__doc__, decorated.__wrapped__) == ("fetch", "Fetches.", fetch)  # type: ignore[attr-defined]
    assert inspect.signature(decorated) == inspect.signature(fetch)
    assert inspect.iscoroutinefunction(decorated)
    assert not inspect.iscoroutinefunction(retry()(lambda: None))


async def test_retry_call_takes_the_arguments_beside_the_options(time: FakeTime) -> None:
    seen = []

    def load(a: int, *, b: int) -> int:
        seen.append((a, b))
        if len(seen) == 1:
            raise ConnectionError
        return a + b

    async def load_async(a: int, *, b: int) -> int:
        return load(a, b=b)

    assert retry_call(load, 1, b=2, retry_options={"max_attempts": 2}) == 3
    seen.clear()
    assert await retry_call(load_async, 1, b=2) == 3
    seen.clear()
    with pytest.raises(RetriesExhausted):
        retry_call(load, 1, b=2, retry_options={"max_attempts": 1})


# ---- options ----------------------------------------------------------------------------------------------------


def test_durations_may_be_timedeltas(time: FakeTime) -> None:
    flaky = Flaky(then=ConnectionError)
    with pytest.raises(DeadlineExceeded):
        retry_sync(flaky, deadline=timedelta(seconds=10), backoff=[timedelta(seconds=4)])  # type: ignore[list-item]
    assert time.sleeps == [4, 4]


def test_options_beside_a_policy_replace_its_fields(time: FakeTime) -> None:
    policy = Policy(max_attempts=2, base=4, jitter="none")
    with pytest.raises(RetriesExhausted):
        retry_sync(Flaky(then=ConnectionError), policy=policy, max_attempts=3)
    assert time.sleeps == [4, 8]


def test_a_refused_result_is_retried_and_kept(time: FakeTime) -> None:
    pending, done = {"status": "pending"}, {"status": "done"}
    polled = Flaky(pending, pending, done)
    polling: dict[str, Any] = {"backoff": constant(30), "deadline": None}
    assert retry_sync(polled, retry_if_result=lambda job: job["status"] != "done", **polling) is done
    assert time.sleeps == [30, 30]
    for reraise in (False, True):
        with pytest.raises(RetryError) as caught:
            retry_sync(Flaky(then=pending), retry_if_result=lambda _: True, max_attempts=2, reraise=reraise)
        assert caught.value.last_result is pending
        assert isinstance(caught.value.last_error, ResultRejected)


async def test_a_refused_result_is_retried_whether_or_not_repeating_is_safe(time: FakeTime) -> None:
    polled = Flaky("", "text")
    assert await retry(polled.asynchronous, retry_if_result=lambda text: not text, idempotent=False) == "text"


def test_what_may_have_been_done_is_not_repeated_unless_repeating_is_safe(time: FakeTime) -> None:
    for error, calls in ((ApiError(500), 1), (TimeoutError(), 1), (ConnectionResetError(), 1),
                         (ApiError(429), 2), (ConnectionRefusedError(), 2)):  # fmt: skip
        flaky = Flaky(error, "done")
        if calls == 1:
            with pytest.raises(type(error)) as caught:
                retry_sync(flaky, idempotent=False)
            assert caught.value is error
        else:
            assert retry_sync(flaky, idempotent=False) == "done"
        assert flaky.calls == calls


async def test_an_attempt_that_was_cut_may_have_done_something(time: FakeTime) -> None:
    slow = Flaky(Hang(100), "done")
    with pytest.raises(TimeoutError) as caught:
        await retry(slow.asynchronous, idempotent=False)
    assert not isinstance(caught.value, RetryError)
    assert "attempt_timeout=10" in str(caught.value)
    assert slow.calls == 1


@pytest.mark.parametrize("retryable", [ZeroDivisionError, (KeyError, ZeroDivisionError), lambda e: "zero" in str(e)])
def test_retryable_is_a_class_or_several_or_a_function(time: FakeTime, retryable: Any) -> None:
    assert retry_sync(Flaky(ZeroDivisionError("zero"), "done"), retryable=retryable) == "done"
    with pytest.raises(ValueError, match="other"):
        retry_sync(Flaky(ValueError("other")), retryable=retryable)


def test_the_error_itself_is_raised_where_that_is_asked_for(time: FakeTime) -> None:
    error = ConnectionError("down")
    with pytest.raises(ConnectionError) as caught:
        retry_sync(Flaky(then=error), reraise=True, max_attempts=2)
    assert caught.value is error
    assert ["gave up after attempt 2" in note for note in error.__notes__] == [True]
    again = Flaky(then=error)
    with pytest.raises(ConnectionError):
        retry_sync(again, reraise=True, max_attempts=3)
    assert again.calls == 3, "the same object raised anew is a new failure"
    assert len(error.__notes__) == 1


async def test_one_error_object_raised_by_many_calls_is_a_new_failure_each_time(time: FakeTime) -> None:
    error = ConnectionError("down")
    for _ in range(3):
        for options in ({}, {"reraise": True}):
            flaky = Flaky(then=error)
            with pytest.raises((ConnectionError, RetryError)):
                await retry(flaky.asynchronous, max_attempts=3, **options)  # type: ignore[call-overload]
            assert flaky.calls == 3
    for form in (retry_sync(Flaky(then=error), fallback=lambda _: "now", max_attempts=1),
                 await retry(Flaky(then=error).asynchronous, fallback=lambda _: "now", max_attempts=1)):  # fmt: skip
        assert form == "now"
    with pytest.raises(ConnectionError):  # an old mark does not make a permanent error one that was given up
        retry_sync(Flaky(then=error), fallback=lambda _: "now", retryable=lambda _: False)
    with pytest.raises(ConnectionError):
        await retry(Flaky(then=error).asynchronous, fallback=lambda _: "now", retryable=lambda _: False)


async def test_a_fallback_answers_for_a_call_that_was_given_up(time: FakeTime) -> None:
    errors: list[Exception] = []

    async def later(error: Exception) -> str:
        errors.append(error)
        return "later"

    assert retry_sync(Flaky(then=ConnectionError), fallback=lambda error: errors.append(error) or "cached") == "cached"
    assert await retry(Flaky(then=ConnectionError).asynchronous, fallback=later) == "later"
    assert await retry(Flaky(then=ConnectionError).asynchronous, fallback=lambda _: "now") == "now"
    assert await retry(fallback=later)(Flaky(then=ConnectionError).asynchronous)() == "later"
    assert all(isinstance(error, RetriesExhausted) for error in errors)
    assert retry_sync(Flaky(then=ConnectionError), fallback=type, reraise=True) is ConnectionError
    assert retry_sync(Flaky(then=CircuitOpenError(3.0)), fallback=lambda e: e.retry_in) == 3.0
    with pytest.raises(ValueError, match="permanent"):
        retry_sync(Flaky(then=ValueError("permanent")), fallback=lambda _: "never")
    with pytest.raises(ValueError, match="permanent"):
        await retry(Flaky(then=ValueError("permanent")).asynchronous, fallback=lambda _: "never")


async def test_a_hook_that_takes_its_time_does_not_move_the_deadline(time: FakeTime) -> None:
    def slow(_: RetryState) -> None:
        time.advance(9)

    async def slow_async(_: RetryState) -> None:
        await asyncio.sleep(9)

    options: dict[str, Any] = {"deadline": 10, "base": 2, "jitter": "none"}
    flaky = Flaky(then=ConnectionError)
    with pytest.raises(DeadlineExceeded) as caught:
        retry_sync(flaky, on_retry=slow, **options)
    assert (flaky.calls, time.now, caught.value.attempts) == (1, 9, 1)
    for hook in (slow, slow_async):
        flaky, began = Flaky(then=ConnectionError), time.now
        with pytest.raises(DeadlineExceeded) as caught:
            await retry(flaky.asynchronous, on_retry=hook, **options)
        assert (flaky.calls, time.now - began, caught.value.attempts) == (1, 9, 1)


def test_local_refusals_are_never_retried(time: FakeTime) -> None:
    for error in (CircuitOpenError(1.0), RetriesExhausted("max_attempts", 3, ConnectionError())):
        flaky = Flaky(then=error)
        with pytest.raises(type(error)) as caught:
            retry_sync(flaky, retryable=lambda _: True)
        assert caught.value is error
        assert flaky.calls == 1


def test_the_clock_option_alone_drives_everything() -> None:
    fake = FakeTime(rng=lambda: 1.0)
    with pytest.raises(RetriesExhausted):
        retry_sync(Flaky(then=ConnectionError), clock=fake)
    assert fake.sleeps == [0.5, 1, 2, 4]

    async def main() -> None:
        async def hang() -> None:
            await asyncio.sleep(1000)

        with pytest.raises(RetriesExhausted):
            await retry(hang, clock=fake, rng=lambda: 0.0)

    fake = FakeTime()
    asyncio.run(main())
    assert fake.now == pytest.approx(50, abs=1e-6)


# ---- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 3}, "max_attempts"),
        ({"timeout": 3}, "attempt_timeout for one attempt"),
        ({"max_attemps": 3}, "did you mean max_attempts"),
        ({"zzz": 3}, "there is no option zzz="),
    ],
)
def test_an_unknown_option_is_answered_with_the_right_one(options: dict[str, Any], message: str) -> None:
    for form in (retry, retry_sync):
        with pytest.raises(TypeError, match=message):
            form(**options)
        with pytest.raises(TypeError, match=message):
            form(lambda: None, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "counts attempts, the first included"),
        ({"max_attempts": "3"}, "whole number"),
        ({"deadline": -1}, "never negative"),
        ({"attempt_timeout": 0}, "no time at all"),
        ({"jitter": "ful"}, "'full'"),
        ({"backoff": 2.0}, "constant"),
        ({"backoff": constant(1), "base": 1}, "exponential"),
        ({"late_backoff": "shorten"}, "minimum_attempt"),
        ({"max_attempts": None, "deadline": None}, "for ever"),
        ({"policy": {"max_attempts": 3}}, "policy=Policy"),
        ({"on_retry": 3}, "on_retry must be a function"),
        ({"fallback": ValueError("cached")}, "fallback is an error"),
        ({"fallback": ValueError}, "fallback is an error"),
        ({"fallback_on": ValueError}, "fallback_on= says which errors fallback= answers"),
        ({"fallback": "cached", "fallback_on": "ValueError"}, "fallback_on must be a function"),
        ({"fallback": "cached", "fallback_on": KeyboardInterrupt}, "fallback_on names"),
        ({"retryable": KeyboardInterrupt}, "cancellation is never retried"),
        ({"retryable": (ValueError, 3)}, "no Exception class"),
        ({"retryable": "ValueError"}, "exception class"),
        ({"idempotent": 1}, "idempotent must be True or False"),
        ({"reraise": "yes"}, "reraise must be True or False"),
    ],
)
def test_a_bad_value_is_refused_at_once_with_the_correction(options: dict[str, Any], message: str) -> None:
    called = []
    for form in (retry, retry_sync):
        with pytest.raises(ValueError, match=message):
            form(**options)
        with pytest.raises(ValueError, match=message):
            form(lambda: called.append(1), **options)
    assert called == []


async def test_what_cannot_be_retried_is_refused_when_it_is_decorated() -> None:
    refused: list[tuple[Any, str]] = [
        (Policy(), "policy="),
        (3, "by name"),
        (property(lambda _: None), "under @property"),
    ]
    for thing, message in refused:
        for form in (retry(), retry, retry_sync(), retry_sync, retry_call):
            with pytest.raises(TypeError, match=message):
                form(thing)
    with pytest.raises(TypeError, match="class"):
        retry()(dict)
    coroutine = asyncio.sleep(0)
    with pytest.raises(TypeError, match=r"retry\(fetch\)"):
        retry(coroutine)  # type: ignore[call-overload]


async def test_a_generator_is_decorated_and_where_it_would_be_called_the_way_to_iterate_it_is_told() -> None:
    async def lines() -> Any:
        yield 1

    def numbers() -> Any:
        yield 1

    class Generating:
        def __call__(self) -> Any:
            yield 1

    for blocking in (numbers, functools.partial(numbers), Generating()):
        for form in (retry, retry_sync):
            with pytest.raises(TypeError, match=r"is a generator: .* for chunk in stream\(.*, or decorate it"):
                form(blocking)
            assert list(form()(blocking)()) == [1]
        assert list(retry_call(blocking)) == [1]
    for form in (retry, retry_sync):
        with pytest.raises(TypeError, match=r"lines is a generator: .* async for chunk in stream\("):
            form(lines)
    assert [one async for one in retry()(lines)()] == [1]
    assert [one async for one in retry_call(lines)] == [1]
    with pytest.raises(TypeError, match="use retry"):
        retry_sync()(lines)


async def test_a_function_of_the_wrong_kind_is_answered_with_the_right_form() -> None:
    with pytest.raises(TypeError, match="use retry_sync"):
        await retry(lambda: 3)  # type: ignore[arg-type, return-value]
    for refused in (lambda: retry_sync(asyncio.sleep), lambda: retry_sync()(asyncio.sleep)):
        with pytest.raises(TypeError, match="use retry"):
            refused()  # type: ignore[no-untyped-call]
    with pytest.raises(TypeError, match="use retry"):
        retry_sync(lambda: asyncio.sleep(0))


async def test_a_decorator_without_parentheses_is_recognised() -> None:
    async def fetch(url: str) -> str:
        return url

    with pytest.raises(TypeError, match="parentheses included"):
        retry(fetch)  # type: ignore[arg-type, call-overload]
    with pytest.raises(TypeError, match=r"retry_sync\(lambda"):
        retry_sync(lambda url: url)  # type: ignore[arg-type, call-overload, misc]


def test_an_async_sleep_in_blocking_code_is_refused() -> None:
    for form in (
        lambda: retry_sync(Flaky("done"), sleep=asyncio.sleep),
        lambda: retry_sync(sleep=asyncio.sleep)(print),
    ):
        with pytest.raises(ValueError, match="sleep is async"):
            form()  # type: ignore[no-untyped-call]
    with pytest.raises(TypeError, match=r"time\.sleep") as caught:
        retry_sync(Flaky(then=ConnectionError), sleep=lambda delay: asyncio.sleep(delay))  # noqa: PLW0108
    assert isinstance(caught.value.__context__, ConnectionError)


async def test_a_blocking_wait_in_a_running_loop_is_warned_of() -> None:
    with pytest.warns(RuntimeWarning, match="to_thread"):
        assert retry_sync(Flaky(ConnectionError, "done"), base=0.001) == "done"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert retry_sync(lambda: "done") == "done"
        assert await asyncio.to_thread(retry_sync, Flaky(ConnectionError, "done"), base=0.001) == "done"


def test_a_backoff_function_that_returns_nonsense_keeps_the_failure() -> None:
    with pytest.raises(ValueError, match=r"backoff function .*nonsense.* attempt 1") as caught:

        def nonsense(_: int) -> Any:
            return "soon"

        retry_sync(Flaky(then=ConnectionError("the failure")), backoff=nonsense)
    assert str(caught.value.__context__) == "the failure"


# ---- events -----------------------------------------------------------------------------------------------------


async def test_one_event_is_told_for_each_attempt_each_wait_and_the_end(time: FakeTime) -> None:
    with record_events() as events:
        await retry(Flaky(ApiError(429, retry_after=3), Hang(100), "done").asynchronous)
    assert [type(event).__name__ for event in events] == [
        "AttemptEnded", "RetryState", "AttemptEnded", "RetryState", "AttemptEnded", "CallEnded",
    ]  # fmt: skip
    assert [(e.attempt, e.outcome, e.error_type) for e in events.attempts] == [
        (1, "failure", "forbear.errors.ApiError"), (2, "failure", "TimeoutError"), (3, "success", None),
    ]  # fmt: skip
    assert [(w.attempt, w.delay, w.source, w.status, w.max_attempts) for w in events.waits] == [
        (1, 3, "hint", 429, 5), (2, 1, "backoff", None, 5),
    ]  # fmt: skip
    assert [w.remaining for w in events.waits] == pytest.approx([60, 47])
    end = events.ends[0]
    assert (end.reason, end.attempts, end.waited) == ("success", 3, 4)
    assert end.elapsed == pytest.approx(14)


def test_the_reason_of_the_end_is_told(time: FakeTime) -> None:
    def reason(*outcomes: Any, **options: Any) -> str:
        with record_events() as events, pytest.raises((RetryError, ApiError, ConnectionError)):
            retry_sync(Flaky(*outcomes, then=ConnectionError), **options)
        return events.ends[-1].reason

    assert reason(max_attempts=2) == "max_attempts"
    assert reason(ApiError(400)) == "permanent"
    assert reason(idempotent=False) == "unsafe"
    assert reason(ApiError(429, retry_after=100)) == "deadline"
    with deadline(5):
        assert reason(base=3, jitter="none", max_attempts=None) == "deadline"


def test_a_fallback_that_could_not_be_called_is_told_before_the_outage() -> None:
    async def ask() -> str:
        return "x"

    @Upstream("b").retry()
    async def backup(prompt: str) -> str:
        return prompt

    for fallback, said in ((lambda: 3, "a fallback is called with the error"), (backup, "which has none")):
        with pytest.raises(ValueError, match=said):
            retry(ask, fallback=fallback)
    with pytest.raises(ValueError, match="a fallback is called with the error"):
        retry(fallback=lambda: 3)
    assert asyncio.run(retry(fallback=backup)(backup)("y")) == "y"


def test_what_returns_a_stream_is_sent_to_the_form_for_it() -> None:
    async def words() -> AsyncIterator[str]:
        yield "a"

    for made in (lambda: words(), lambda: stream(words)):  # noqa: PLW0108  # the lambda is the point
        with pytest.raises(TypeError, match=r"returned a stream: use stream\(fn, \.\.\.\)"):
            asyncio.run(retry(made))
