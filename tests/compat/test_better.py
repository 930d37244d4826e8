"""Where this surface does better than the library whose names it has, and what it shares with the rest of forbear."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import os
import pickle
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest

import forbear
from compat.doubles import Clock, Script, StatusError, nap
from forbear.compat.retryhop import (
    CircuitBreaker,
    CircuitOpenError,
    RateLimiter,
    RetryError,
    RetryState,
    constant,
    describe,
    exponential,
    is_transient,
    linear,
    llm_retry,
    retry,
    retry_after_of,
    retry_call,
)
from forbear.testing import FakeTime, Flaky, Hang, instant_waits, record_events


def no_sleep(_: float) -> None:
    pass


class CodeError(StatusError):
    """An error whose body names a code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(status)
        self.body = {"error": {"code": code}}


# ---- waits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [1_100, 10**9])
def test_no_attempt_number_overflows(attempt: int) -> None:
    assert exponential(jitter=False)(attempt) == 30
    assert exponential(0.1, 2, float("inf"), jitter=False)(10**9) == float("inf")
    assert linear(1, 1)(attempt) == 60
    assert constant(3)(attempt) == 3
    assert 0 <= exponential()(attempt) <= 30


def test_an_endless_wait_ends_the_call() -> None:
    for options in ({"backoff": lambda _: float("inf")}, {"wait_hint": lambda *_: float("inf")}):
        script = Script(OSError())
        with pytest.raises(RetryError) as caught:
            retry(sleep=no_sleep, **options)(script)()
        assert (script.calls, caught.value.reason) == (1, "deadline")


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_date_without_a_zone_is_in_utc(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        soon = time.time() + 90
        for date in (formatdate(soon), time.asctime(time.gmtime(soon))):
            found = retry_after_of(StatusError(503, Retry_After=date))
            assert found is not None
            assert 85 < found <= 90
    finally:
        monkeypatch.undo()
        time.tzset()
    assert os.environ.get("TZ") != zone


@pytest.mark.parametrize("value", ["nan", "inf", "-5", "1e400", "1_000", "9" * 400])
def test_nonsense_is_no_hint(value: str) -> None:
    assert retry_after_of(StatusError(429, Retry_After=value)) is None


def test_time_can_be_virtual() -> None:
    with FakeTime() as clock:
        states: list[RetryState] = []
        wrapped = retry(attempts=9, deadline=100, backoff=constant(40), on_retry=states.append)(Flaky(then=OSError()))
        with pytest.raises(RetryError) as caught:
            wrapped()
        assert clock.sleeps == [40, 40, 20]
        assert [state.elapsed for state in states] == [0, 40, 80]
        assert (caught.value.attempts, caught.value.reason, caught.value.elapsed) == (4, "deadline", 100)
    with instant_waits(max_attempts=1), pytest.raises(OSError):
        retry(reraise=True)(Script(OSError()))()


async def test_a_running_attempt_is_not_cut_at_the_deadline() -> None:
    with FakeTime():
        assert await llm_retry(deadline=5)(Flaky(Hang(60, "late")).asynchronous)() == "late"


async def test_a_deadline_of_forbear_binds_all_the_same() -> None:
    with FakeTime() as clock:
        with forbear.deadline(3), pytest.raises(RetryError) as caught:
            await retry(backoff=constant(1))(Flaky(then=Hang(60)).asynchronous)()
        assert clock.now == 3
        assert caught.value.reason == "deadline"
        assert isinstance(caught.value.last_exception, TimeoutError)
        with forbear.deadline(0), pytest.raises(RetryError) as caught:
            retry(Script("ok"))()
        assert (caught.value.attempts, caught.value.last_exception) == (0, None)


# ---- what leaves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_must_leave_leaves_even_where_it_is_listed(leaving: type[BaseException]) -> None:
    script = Script(leaving())
    with pytest.raises(leaving):
        retry(exceptions=BaseException, sleep=no_sleep)(script)()
    assert script.calls == 1


async def test_a_cancellation_leaves_at_once_even_where_it_is_listed() -> None:
    calls = []

    @retry(attempts=9, exceptions=BaseException, sleep=nap)
    async def hang() -> None:
        calls.append(1)
        await asyncio.sleep(60)

    task = asyncio.create_task(hang())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(calls) == 1


def test_a_hook_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def hook(_: RetryState) -> None:
        raise KeyError("secret")

    with caplog.at_level(logging.ERROR, "forbear"):
        assert retry(on_retry=hook, sleep=no_sleep)(Script(OSError(), "ok"))() == "ok"
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_hook_may_be_async() -> None:
    told = []

    async def hook(state: RetryState) -> None:
        told.append(state.attempt)

    assert await retry(on_retry=hook, sleep=nap)(Flaky(OSError(), "ok").asynchronous)() == "ok"
    assert told == [1]


def test_a_refusal_of_the_circuit_tells_what_has_failed() -> None:
    error = StatusError(503)
    for breaker in (CircuitBreaker(2), forbear.CircuitBreaker(2)):
        with pytest.raises(CircuitOpenError) as caught:
            llm_retry(circuit=breaker, sleep=no_sleep)(Script(error))()
        assert caught.value.__cause__ is error


# ---- layers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reraise", [False, True])
@pytest.mark.parametrize("mixed", [retry, forbear.retry_sync])
def test_layers_do_not_multiply(reraise: bool, mixed: Any) -> None:
    script = Script(ConnectionError())
    name = "attempts" if mixed is retry else "max_attempts"
    inner = mixed(**{name: 3}, reraise=reraise, sleep=no_sleep)(script)
    middle = retry(attempts=3, reraise=reraise, sleep=no_sleep)(inner)
    outer = llm_retry(attempts=3, sleep=no_sleep)(middle)
    with pytest.raises((ConnectionError, forbear.RetryError)):
        outer()
    assert script.calls == 3


async def test_layers_do_not_multiply_in_async_code() -> None:
    flaky = Flaky(then=ConnectionError())
    inner = llm_retry(attempts=3, sleep=nap)(flaky.asynchronous)
    with pytest.raises(ConnectionError):
        await retry(attempts=3, sleep=nap, reraise=True)(inner)()
    assert flaky.calls == 3


@pytest.mark.parametrize("in_loop", [False, True])
def test_who_lists_a_retry_error_by_name_gets_it_retried(in_loop: bool) -> None:
    flaky = Flaky(then=ConnectionError())
    states: list[RetryState] = []
    outer = retry(attempts=3, exceptions=RetryError, sleep=nap if in_loop else no_sleep, on_retry=states.append)
    with pytest.raises(RetryError) as caught:
        if in_loop:
            asyncio.run(outer(retry(attempts=2, sleep=nap)(flaky.asynchronous))())
        else:
            outer(retry(attempts=2, sleep=no_sleep)(flaky))()
    assert flaky.calls == 6
    assert caught.value.attempts == 3
    assert isinstance(caught.value.last_exception, RetryError)
    assert caught.value.__cause__ is caught.value.last_exception
    assert all(isinstance(state.exception, RetryError) for state in states)
    with pytest.raises(RetryError) as caught:
        retry(attempts=2, exceptions=RetryError, reraise=True, sleep=no_sleep)(
            retry(attempts=2, sleep=no_sleep)(Script(OSError("last")))
        )()
    assert str(caught.value.last_exception) == "last"


def test_an_error_of_an_inner_layer_leaves_as_it_is() -> None:
    inner = RetryError(7, OSError())
    with pytest.raises(RetryError) as caught:
        retry(sleep=no_sleep)(Script(OSError(), inner))()
    assert caught.value is inner
    inner = forbear.RetriesExhausted("max_attempts", 7, OSError())
    with pytest.raises(forbear.RetriesExhausted) as native:
        retry(sleep=no_sleep)(Script(OSError(), inner))()
    assert native.value is inner


def test_a_function_that_returns_a_coroutine_is_retried() -> None:
    flaky = Flaky(OSError(), OSError(), "ok", then=OSError("last"))

    async def main() -> None:
        breaker = CircuitBreaker(9)
        assert await retry(circuit=breaker, sleep=nap)(lambda *_: flaky.asynchronous())() == "ok"
        assert breaker.snapshot().consecutive_failures == 0
        with pytest.raises(RetryError) as caught:
            await retry(circuit=breaker, sleep=nap)(lambda *_: flaky.asynchronous())()
        assert str(caught.value.last_exception) == "last"
        assert breaker.snapshot().consecutive_failures == 3

    asyncio.run(main())


def test_a_generator_runs_as_before_and_says_that_nothing_is_retried() -> None:
    def lines() -> Iterator[int]:
        yield 1

    async def events() -> AsyncIterator[int]:
        yield 2

    with pytest.warns(RuntimeWarning, match="lines is a generator"):
        assert list(retry()(lines)()) == [1]
    with pytest.warns(RuntimeWarning, match="events is a generator"):
        assert asyncio.run(anext(retry(events)())) == 2


def test_class_methods_can_be_retried_from_above() -> None:
    script = Script(OSError(), "ok")

    class Client:
        @retry(sleep=no_sleep)
        @classmethod
        def make(cls) -> tuple[type[Client], str]:
            return cls, script()

    assert Client.make() == (Client, "ok")


# ---- what errors mean --------------------------------------------------------------------------------------------


def test_what_no_wait_can_mend_costs_one_request() -> None:
    script = Script(CodeError(429, "insufficient_quota"))
    with pytest.raises(CodeError):
        llm_retry(sleep=no_sleep)(script)()
    assert script.calls == 1


def test_an_errors_origin_and_a_group_are_looked_through() -> None:
    wrapped = RuntimeError()
    wrapped.__cause__ = StatusError(503)
    assert is_transient(wrapped)
    assert is_transient(ExceptionGroup("", [ConnectionError(), StatusError(503)]))
    assert not is_transient(ExceptionGroup("", [ConnectionError(), ValueError()]))


def test_an_error_that_can_not_be_read_is_none_that_passes() -> None:
    class Broken(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError

        @property
        def headers(self) -> Any:
            raise RuntimeError

    assert not is_transient(Broken())
    assert retry_after_of(Broken()) is None
    assert describe(RetryState(1, 1.0, Broken(), None, 0.0)).startswith("attempt 1 failed: Broken; ")


def test_the_word_of_the_server_comes_before_a_name() -> None:
    class ReadTimeout(Exception):
        def __init__(self, word: str) -> None:
            self.headers = {"x-should-retry": word}

    assert not is_transient(ReadTimeout("false"))
    assert is_transient(ReadTimeout("maybe"))


# ---- values ------------------------------------------------------------------------------------------------------


class Unpicklable(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} {second}")


def given_up(script: Script, **options: Any) -> RetryError:
    with FakeTime(), pytest.raises(RetryError) as caught:
        retry(attempts=2, backoff=constant(3), **options)(script)()
    return caught.value


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_and_states_survive_a_copy(again: Any) -> None:
    error = again(given_up(Script(OSError("last"))))
    assert (type(error), error.attempts, str(error.last_exception)) == (RetryError, 2, "last")
    assert (error.reason, error.waited, len(error.history)) == ("max_attempts", 3, 2)
    assert (str(error), error.__cause__) == (str(given_up(Script(OSError("last")))), error.last_exception)
    error = again(given_up(Script("no"), retry_if_result=lambda result: result == "no"))
    assert (error.last_exception, error.last_result) == (None, "no")
    assert again(given_up(Script(Unpicklable(1, 2)))).attempts == 2
    assert again(CircuitOpenError(2.5)).retry_in == 2.5
    state = again(RetryState(1, 2.0, OSError("x"), "y", 3.0, True))
    assert (state.attempt, str(state.exception), state.result, state.from_server) == (1, "x", "y", True)
    again(RetryState(1, 2.0, Unpicklable(1, 2), None, 3.0))


def test_no_foreign_text_gets_into_messages() -> None:
    error = given_up(Script(OSError("secret")))
    for said in (str(error), repr(error), repr(RetryState(1, 2.0, OSError("secret"), "secret", 0.0))):
        assert "secret" not in said
    assert str(error) == "gave up after 2 attempts; the last one raised OSError"
    refused = given_up(Script("secret"), retry_if_result=lambda result: result == "secret")
    assert str(refused) == "gave up after 2 attempts; the last one returned a refused str"
    assert str(RetryError(1)) == "gave up after 1 attempt; the last one returned a refused NoneType"


def test_its_errors_are_forbears_too() -> None:
    assert issubclass(RetryError, forbear.RetryError)
    assert CircuitOpenError is forbear.CircuitOpenError
    error = given_up(Script(OSError("last")))
    assert error.last_error is error.last_exception


def test_those_who_listen_hear_who_asked_for_a_wait() -> None:
    with FakeTime(), record_events() as events:
        llm_retry()(Script(StatusError(429, Retry_After="3"), ConnectionError(), "ok"))()
    assert [(wait.source, wait.status) for wait in events.waits] == [("hint", 429), ("backoff", None)]
    with FakeTime(), record_events() as events, pytest.raises(StatusError):
        llm_retry(deadline=5)(Script(StatusError(429, Retry_After="30")))()
    assert [(end.reason, end.attempts) for end in events.ends] == [("deadline", 1)]
    assert events.ends[0].call == "Script"


class Held:
    pass


@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.parametrize("options", [{}, {"reraise": True}, {"exceptions": RetryError}, {"circuit": 2}])
def test_an_error_dies_with_its_last_holder(options: dict[str, Any], in_loop: bool) -> None:
    refs: list[weakref.ref[Held]] = []
    options = {**options, "sleep": nap if in_loop else no_sleep}

    def fail() -> None:
        held = Held()
        refs.append(weakref.ref(held))
        raise RetryError(3, OSError()) if "exceptions" in options else OSError

    async def fail_async() -> None:
        fail()

    async def main() -> None:
        with suppress(OSError, RetryError, CircuitOpenError):
            if in_loop:
                await retry(**options)(fail_async)()
            else:
                retry(**options)(fail)()
        assert [ref() for ref in refs] == [None] * len(refs)

    if "circuit" in options:
        options["circuit"] = CircuitBreaker(2)
    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
    assert len(refs) >= 2


# ---- circuit -----------------------------------------------------------------------------------------------------


def opened(clock: Clock, **settings: Any) -> CircuitBreaker:
    breaker = CircuitBreaker(1, 10, clock, **settings)
    breaker.record_failure()
    assert breaker.state == "open"
    return breaker


async def test_a_late_result_of_an_older_call_changes_nothing() -> None:
    clock = Clock()
    breaker = CircuitBreaker(1, 10, clock)
    gate = asyncio.Event()

    @retry(circuit=breaker, attempts=1)
    async def call(error: Exception | None, *, wait: bool = False) -> None:
        if wait:
            await gate.wait()
        if error is not None:
            raise error

    old = [asyncio.create_task(call(end, wait=True)) for end in (None, OSError())]
    await asyncio.sleep(0)
    with pytest.raises(RetryError):
        await call(OSError())
    clock.now = 10
    gate_before, gate = gate, asyncio.Event()
    trial = asyncio.create_task(call(None, wait=True))
    await asyncio.sleep(0)
    gate_before.set()
    await asyncio.gather(*old, return_exceptions=True)
    assert breaker.state == "half_open"
    gate.set()
    await trial
    assert breaker.state == "closed"


def test_a_result_while_it_is_open_changes_nothing() -> None:
    clock = Clock()
    breaker = opened(clock)
    breaker.record_success()
    assert breaker.state == "open"
    clock.now = 9
    breaker.record_failure()
    clock.now = 10
    assert breaker.state == "half_open"


def test_a_trial_that_is_never_heard_of_loses_its_place() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10
    breaker.before_call()
    clock.now = 609
    with pytest.raises(CircuitOpenError):
        breaker.before_call()
    clock.now = 610
    breaker.before_call()


def test_who_comes_during_a_trial_is_told_when_to_ask_again() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10
    breaker.before_call()
    with pytest.raises(CircuitOpenError) as caught:
        breaker.before_call()
    assert caught.value.retry_in == 10


def test_a_call_inside_a_call_is_part_of_the_trial() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10
    inner = retry(circuit=breaker)(lambda: "ok")
    assert retry(circuit=breaker)(lambda *_: inner())() == "ok"
    assert breaker.state == "closed"


async def test_a_coroutine_takes_its_place_in_the_circuit_along() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10

    async def nested() -> str:
        return retry(circuit=breaker)(lambda: "ok")()

    trial = retry(circuit=breaker)(lambda: nested())()  # noqa: PLW0108  # that is the case
    with pytest.raises(CircuitOpenError):  # nothing of this is part of it
        retry(circuit=breaker)(lambda: "ok")()
    assert await trial == "ok"
    assert breaker.state == "closed"


def test_what_inner_layers_gave_up_counts_as_a_failure() -> None:
    for reraise in (False, True):
        breaker = CircuitBreaker(1)
        inner = retry(attempts=2, reraise=reraise, sleep=no_sleep)(Script(OSError()))
        with pytest.raises((RetryError, OSError)):
            retry(circuit=breaker)(inner)()
        assert breaker.state == "open"
        with pytest.raises(CircuitOpenError):
            retry(circuit=CircuitBreaker(1))(retry(circuit=breaker)(inner))()


def test_a_class_of_ones_own_is_asked_by_its_own_methods() -> None:
    told = []

    class Counting(CircuitBreaker):
        def record_failure(self) -> None:
            told.append("failure")
            super().record_failure()

    breaker = Counting(2)
    with pytest.raises(CircuitOpenError):
        retry(circuit=breaker, sleep=no_sleep)(Script(OSError()))()
    assert told == ["failure", "failure"]


def test_a_breaker_serves_forbears_own_forms() -> None:
    breaker = CircuitBreaker(2)
    with FakeTime(), pytest.raises(CircuitOpenError):
        forbear.retry_sync(Script(StatusError(429)), breaker=breaker, max_attempts=9)
    assert breaker.snapshot().state == "closed"  # outside of that time it begins anew
    with breaker:
        pass
    with pytest.raises(OSError), breaker:
        raise OSError
    assert breaker.snapshot().consecutive_failures == 1


def test_without_a_clock_of_its_own_it_lives_in_the_time_around() -> None:
    breaker, limiter = CircuitBreaker(1, 30), RateLimiter(60)
    with FakeTime() as clock:
        breaker.record_failure()
        for _ in range(61):
            limiter.acquire()
        assert clock.now == 1
        clock.advance(29)
        assert breaker.state == "half_open"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_breaker_and_a_limiter_can_be_copied(again: Any) -> None:
    breaker = again(CircuitBreaker(3, 12.5))
    assert (type(breaker), breaker.failure_threshold, breaker.recovery_time) == (CircuitBreaker, 3, 12.5)
    limiter = again(RateLimiter(60, 600))
    assert (type(limiter), limiter.reserve(600), limiter.reserve(60)) == (RateLimiter, 0.0, pytest.approx(6, abs=0.1))


def test_its_threshold_may_be_any_number() -> None:
    assert CircuitBreaker(1.5).failure_threshold == 2  # type: ignore[arg-type]
    breaker = CircuitBreaker(float("inf"))  # type: ignore[arg-type]
    for _ in range(100):
        breaker.record_failure()
    assert breaker.state == "closed"


def test_one_trial_is_let_through_however_many_threads_ask() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10
    answers: list[str] = []
    barrier = threading.Barrier(16)

    def ask() -> None:
        barrier.wait()
        try:
            breaker.before_call()
            answers.append("let through")
        except CircuitOpenError:
            answers.append("refused")

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["let through"] + ["refused"] * 15


# ---- limiter -----------------------------------------------------------------------------------------------------


async def test_a_wait_that_is_cancelled_is_given_back() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60)
        for _ in range(60):
            limiter.reserve()
        first, second = (asyncio.create_task(limiter.acquire_async()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert clock.now == 1


def test_each_attempt_pays() -> None:
    with FakeTime() as clock:
        limiter = RateLimiter(60)
        for _ in range(60):
            limiter.reserve()
        script = Script(OSError(), OSError(), "ok")
        assert retry(backoff=constant(0))(limiter.limit()(script))() == "ok"
        assert clock.now == 3


def test_many_threads_and_tasks_may_use_one_function() -> None:
    @retry(attempts=2, sleep=no_sleep)
    def call(number: int) -> int:
        if failed.setdefault(number, True):
            failed[number] = False
            raise OSError
        return number

    failed: dict[int, bool] = {}
    found: list[int] = []
    threads = [threading.Thread(target=lambda n=n: found.append(call(n))) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(50))


def test_a_world_around_the_call_is_asked_for_the_date() -> None:
    time_there = FakeTime()
    time_there.world = replace(time_there.world, wall=lambda: 1_000_000_000.0)
    error = StatusError(503, Retry_After=formatdate(1_000_000_040, usegmt=True))
    with time_there:
        assert retry_after_of(error) == 40
        assert retry_call(Script("ok"), retry_options={"attempts": 1}) == "ok"
        with pytest.raises(StatusError):
            llm_retry(deadline=39)(Script(error))()
        assert time_there.sleeps == []
