"""The cases of the toolkit for LLM and HTTP APIs: retries, what is retried, waits, limits, the breaker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from forbear import (
    ApiError,
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
    read_limits,
    retry,
    retry_after_of,
    retry_call,
    retry_sync,
    status_code_of,
)
from forbear.testing import FakeTime, Flaky

REQUEST = httpx.Request("POST", "https://api.example.com/v1/chat")


def answered(status: int, **headers: str) -> httpx.HTTPStatusError:
    """The real error of httpx for an answer."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx.Response(status, headers=names, request=REQUEST)
    return httpx.HTTPStatusError(f"status {status}", request=REQUEST, response=response)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_needs_no_library_and_imports_none() -> None:
    code = (
        "import sys, forbear; [getattr(forbear, name) for name in forbear.__all__]; "
        "print({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    found = eval(done.stdout)
    assert not {name for name in found if name not in ("forbear", "__main__") and not name.startswith(("_", "site"))}


# ---- llm_retry ---------------------------------------------------------------------------------------------------


@llm_retry
def ask_bare(fn: Callable[[], Any]) -> Any:
    return fn()


@llm_retry()
def ask(fn: Callable[[], Any]) -> Any:
    return fn()


@llm_retry
async def ask_bare_async(fn: Callable[[], Any]) -> Any:
    return fn()


@llm_retry()
async def ask_async(fn: Callable[[], Any]) -> Any:
    return fn()


def blocking(form: Callable[..., Any], fn: Any) -> Any:
    return form(fn)


def in_loop(form: Callable[..., Any], fn: Any) -> Any:
    async def main() -> Any:
        return await form(fn)

    return asyncio.run(main())


FORMS = [(ask_bare, blocking), (ask, blocking), (ask_bare_async, in_loop), (ask_async, in_loop)]


@pytest.mark.parametrize(("form", "run"), FORMS)
def test_six_attempts_and_then_the_last_exception(form: Callable[..., Any], run: Callable[..., Any]) -> None:
    errors = [answered(503) for _ in range(6)]
    flaky = Flaky(*errors, "never")
    with FakeTime(rng=lambda: 1.0) as time, pytest.raises(httpx.HTTPStatusError) as caught:
        run(form, flaky)
    assert caught.value is errors[-1]
    assert flaky.calls == 6
    assert time.sleeps == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(("form", "run"), FORMS)
def test_the_jitter_is_full(form: Callable[..., Any], run: Callable[..., Any]) -> None:
    with FakeTime(rng=lambda: 0.0) as time:
        assert run(form, Flaky(*[answered(503)] * 5, "done")) == "done"
    assert time.sleeps == [0, 0, 0, 0, 0]


def test_the_bounds_end_at_sixty_seconds() -> None:
    with FakeTime(rng=lambda: 1.0) as time, pytest.raises(httpx.HTTPStatusError):
        llm_retry(max_attempts=10, deadline=None)(Flaky(then=answered(503)))()
    assert time.sleeps == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_deadline_is_three_hundred_seconds() -> None:
    flaky = Flaky(then=answered(503))
    with FakeTime(rng=lambda: 1.0) as time, pytest.raises(httpx.HTTPStatusError):
        llm_retry(max_attempts=99)(flaky)()
    assert time.sleeps[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert 299 < time.now <= 300
    assert flaky.calls == 11


def test_it_can_raise_a_retry_error_instead() -> None:
    error = answered(503)
    with FakeTime(), pytest.raises(RetryError) as caught:
        llm_retry(reraise=False)(Flaky(then=error))()
    assert (caught.value.attempts, caught.value.reason, caught.value.__cause__) == (6, "max_attempts", error)


def test_its_options() -> None:
    slept: list[float] = []
    states: list[RetryState] = []
    flaky = Flaky(answered(503), answered(429, retry_after="99"), answered(503), "done")
    wrapped = llm_retry(
        max_attempts=4, deadline=100, backoff=constant(3), max_retry_after=10, breaker=CircuitBreaker(), reraise=False,
        on_retry=states.append, sleep=slept.append, rng=lambda: 0.0,
    )(flaky)  # fmt: skip
    assert wrapped() == "done"
    assert slept == [3, 10, 3]
    assert [state.attempt for state in states] == [1, 2, 3]


async def test_a_sleep_may_be_async() -> None:
    slept: list[float] = []

    async def sleep(delay: float) -> None:
        slept.append(delay)

    flaky = Flaky(answered(503), "done")
    assert await llm_retry(sleep=sleep, backoff=[2])(flaky.asynchronous)() == "done"
    assert slept == [2]


def test_it_takes_all_the_options_of_retry() -> None:
    with FakeTime() as time:
        wrapped = llm_retry(
            retry_if_result=lambda text: text == "", fallback=lambda _: "sorry", jitter="none", base=2, cap=3
        )
        assert wrapped(Flaky(then=""))() == "sorry"
    assert time.sleeps == [2, 3, 3, 3, 3]


# ---- what is retried ---------------------------------------------------------------------------------------------

RETRIED = (408, 409, 429, 500, 502, 503, 504, 529)


@pytest.mark.parametrize("status", range(400, 600))
def test_these_statuses_are_retried_and_no_others(status: int) -> None:
    assert is_transient(answered(status)) is (status in RETRIED)
    assert is_transient(ApiError(status)) is (status in RETRIED)
    assert status_code_of(answered(status)) == status


@pytest.mark.parametrize("status", [400, 404, 409, 429, 503, 520])
def test_the_servers_word_comes_first(status: int) -> None:
    assert is_transient(answered(status, x_should_retry="true"))
    assert not is_transient(answered(status, X_Should_Retry="false"))
    assert is_transient(answered(status, x_should_retry="perhaps")) is (status in RETRIED)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError(), ConnectionResetError(), ConnectionRefusedError(), BrokenPipeError(), TimeoutError(),
        httpx.ConnectError(""), httpx.ReadError(""), httpx.WriteError(""), httpx.RemoteProtocolError(""),
        httpx.ConnectTimeout(""), httpx.ReadTimeout(""), httpx.WriteTimeout(""), httpx.PoolTimeout(""),
    ],
    ids=repr,
)  # fmt: skip
def test_without_a_status_connection_errors_and_timeouts_are_retried(error: Exception) -> None:
    assert is_transient(error)
    assert status_code_of(error) is None


@pytest.mark.parametrize(
    "error",
    [ValueError(), KeyError("x"), Exception(), RuntimeError(), httpx.InvalidURL(""), httpx.UnsupportedProtocol("")],
)
def test_anything_else_is_not(error: Exception) -> None:
    assert not is_transient(error)


def test_the_status_decides_over_the_class() -> None:
    class Refused(ConnectionError):
        status_code = 404

    assert not is_transient(Refused())


def test_an_api_with_real_conflicts_brings_a_rule_of_its_own() -> None:
    flaky = Flaky(answered(409), "never")
    with FakeTime(), pytest.raises(httpx.HTTPStatusError):
        llm_retry(retryable=lambda error: is_transient(error) and status_code_of(error) != 409)(flaky)()
    assert flaky.calls == 1
    with FakeTime():
        assert llm_retry(Flaky(answered(409), "done"))() == "done"


@pytest.mark.parametrize("make", [answered, ApiError])
@pytest.mark.parametrize("status", [*RETRIED, 400, 425, 501, 505, 520, 599])
def test_a_call_is_retried_by_this_rule(make: Callable[[int], Exception], status: int) -> None:
    flaky = Flaky(then=make(status))
    with FakeTime(), pytest.raises((httpx.HTTPStatusError, ApiError)):
        llm_retry(flaky)()
    assert flaky.calls == (6 if status in RETRIED else 1)


@pytest.mark.parametrize(("form", "run"), FORMS)
def test_what_is_not_retried_leaves_at_once(form: Callable[..., Any], run: Callable[..., Any]) -> None:
    for error in (answered(400), answered(401), answered(501), ValueError()):
        flaky = Flaky(error, "never")
        with FakeTime() as time, pytest.raises(type(error)) as caught:
            run(form, flaky)
        assert caught.value is error
        assert (flaky.calls, time.sleeps) == (1, [])


# ---- how long is waited ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("headers", "seconds"), [
    ({"retry_after_ms": "1500"}, 1.5), ({"Retry_After": "7"}, 7.0), ({"Retry_After": "1.5"}, 1.5),
    ({"Date": formatdate(1e9, usegmt=True), "Retry_After": formatdate(1e9 + 30, usegmt=True)}, 30.0),
    ({"retry_after_ms": "250", "Retry_After": "7"}, 0.25), ({"Retry_After": "0"}, 0.0),
    ({}, None), ({"Retry_After": "soon"}, None),
])  # fmt: skip
def test_a_hint_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_of(answered(429, **headers)) == seconds
    if seconds is not None:
        with FakeTime(rng=lambda: 0.0) as time:
            llm_retry(Flaky(answered(429, **headers), "done"))()
        assert time.sleeps == [seconds]


@pytest.mark.parametrize(("dice", "wait"), [(0.0, 3.0), (0.5, 3.125), (1.0, 3.25)])
def test_a_quarter_of_a_second_is_drawn_on_top_of_a_hint(dice: float, wait: float) -> None:
    with FakeTime(rng=lambda: dice) as time:
        llm_retry(Flaky(answered(429, retry_after="3"), "done"))()
    assert time.sleeps == [wait]


def test_a_hint_takes_the_place_of_the_backoff() -> None:
    with FakeTime(rng=lambda: 1.0) as time:
        llm_retry(Flaky(*[answered(503)] * 4, answered(503, retry_after="1"), "done"))()
    assert time.sleeps == [1, 2, 4, 8, 1.25]


def test_a_hint_is_cut_at_two_minutes() -> None:
    with FakeTime(rng=lambda: 0.0) as time:
        llm_retry(Flaky(answered(429, retry_after="9999"), "done"))()
    assert time.sleeps == [120]


def test_a_hint_that_does_not_fit_gives_up_without_sleeping() -> None:
    flaky = Flaky(answered(429, retry_after="60"), "never")
    with FakeTime() as time, pytest.raises(httpx.HTTPStatusError):
        llm_retry(deadline=5)(flaky)()
    assert (flaky.calls, time.sleeps) == (1, [])
    flaky = Flaky(*[answered(429, retry_after="110")] * 3, "never")
    with FakeTime(rng=lambda: 0.0) as time, pytest.raises(httpx.HTTPStatusError):
        llm_retry(flaky)()
    assert (flaky.calls, time.sleeps) == (3, [110, 110])


def test_a_backoff_is_cut_to_fit() -> None:
    flaky = Flaky(answered(503), "done")
    with FakeTime() as time:
        assert llm_retry(deadline=5, backoff=constant(60))(flaky)() == "done"
    assert len(time.sleeps) == 1
    assert 4.8 < time.sleeps[0] <= 5


# ---- a line for the log ------------------------------------------------------------------------------------------


class RateLimitError(Exception):
    status_code = 429

    def __init__(self, **headers: str) -> None:
        super().__init__()
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class InternalServerError(Exception):
    status_code = 503


def test_a_wait_is_a_line() -> None:
    lines: list[str] = []
    with FakeTime(rng=lambda: 0.4):
        wrapped = llm_retry(
            on_retry=lambda state: lines.append(describe(state)), backoff=lambda _: 1.64,
            retry_if_result=lambda text: text == "",
        )  # fmt: skip
        wrapped(Flaky(RateLimitError(retry_after="1"), InternalServerError(), ConnectionError(), "", "done"))()
    assert lines[:3] == [
        "attempt 1 failed: RateLimitError (HTTP 429); waiting 1.10s (server Retry-After), elapsed 0.0s",
        "attempt 2 failed: InternalServerError (HTTP 503); waiting 1.64s (backoff), elapsed 1.1s",
        "attempt 3 failed: ConnectionError; waiting 1.64s (backoff), elapsed 2.7s",
    ]
    assert lines[3].startswith("attempt 4 failed: rejected result")
    assert lines[3].endswith("; waiting 1.64s (backoff), elapsed 4.4s")


# ---- the rest of the surface -------------------------------------------------------------------------------------


async def test_a_call_can_be_retried_without_a_decorator() -> None:
    def load(url: str, *, timeout: float) -> str:
        return f"{url} {timeout} {flaky()}"

    async def fetch(url: str, *, timeout: float) -> str:
        return load(url, timeout=timeout)

    flaky = Flaky(ConnectionError(), "a", TimeoutError(), "b", then=ConnectionError())
    with FakeTime():
        assert retry_call(load, "x", timeout=5, retry_options={"max_attempts": 2}) == "x 5 a"
        assert await retry_call(fetch, "y", timeout=3, retry_options={"max_attempts": 2}) == "y 3 b"
        with pytest.raises(RetryError) as caught:
            retry_call(load, "z", timeout=1, retry_options={"max_attempts": 3})
    assert (caught.value.attempts, flaky.calls) == (3, 7)


class Job:
    def __init__(self, status: str) -> None:
        self.status = status


def test_a_job_is_polled_until_it_is_done() -> None:
    poll = retry(
        max_attempts=60, retry_if_result=lambda job: job.status != "completed", backoff=constant(30), deadline=None
    )
    done, queued = Job("completed"), Job("queued")
    with FakeTime() as time:
        assert poll(Flaky(*[queued] * 59, done))() is done
    assert time.sleeps == [30] * 59
    with FakeTime(), pytest.raises(RetryError) as caught:
        poll(Flaky(then=queued))()
    assert (caught.value.attempts, caught.value.last_result) == (60, queued)


def test_the_backoffs() -> None:
    assert [constant(30).delay(n, 0.5) for n in (1, 2, 99)] == [30, 30, 30]
    assert [linear(1, 1, cap=3).bound(n) for n in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert [exponential(1, factor=2, cap=5).bound(n) for n in (1, 2, 3, 4)] == [1, 2, 4, 5]
    assert exponential(1).delay(3, 0.25) == 1


# ---- limiter -----------------------------------------------------------------------------------------------------


def test_sixty_requests_a_minute() -> None:
    clock = Clock()
    limiter = RateLimiter(requests_per_minute=60, clock=clock)
    waits = [limiter.reserve() for _ in range(62)]
    assert waits == [*[0.0] * 60, pytest.approx(1.0), pytest.approx(2.0)]
    clock.now = 10
    assert limiter.reserve() == 0


@pytest.mark.parametrize(("requests", "tokens", "steps", "waits"), [
    (None, 6000, (5000, 2000), (0, 10)),
    (1000, 600, (600, 60), (0, 6)),
    (None, 600, (500, "use 200", 100), (0, None, 20)),
    (None, 600, (600, "use -300", 300), (0, None, 0)),
])  # fmt: skip
def test_tokens_a_minute(requests: float | None, tokens: float, steps: tuple[Any, ...], waits: tuple[Any, ...]) -> None:
    limiter = RateLimiter(requests, tokens, clock=Clock())
    found = [limiter.consume(float(step[4:])) if isinstance(step, str) else limiter.reserve(step) for step in steps]
    assert found == [None if wait is None else pytest.approx(wait) for wait in waits]


def test_a_call_above_the_limit_and_a_limiter_without_one_are_refused() -> None:
    limiter = RateLimiter(tokens_per_minute=1000)
    with pytest.raises(ValueError, match="5000 tokens can never fit"):
        limiter.reserve(tokens=5000)
    with pytest.raises(ValueError, match="can never fit"):
        limiter.acquire(tokens=1001)
    assert limiter.reserve(tokens=1000) == 0
    with pytest.raises(ValueError, match="needs a limit"):
        RateLimiter()


async def test_it_waits_in_threads_and_in_tasks() -> None:
    with FakeTime() as time:
        limiter = RateLimiter(tokens_per_minute=600)
        limiter.acquire(tokens=600)
        limiter.acquire(tokens=60)
        assert time.now == 6
        await limiter.acquire_async(tokens=100)
        assert time.now == 16


async def test_a_function_waits_for_what_its_arguments_cost() -> None:
    costs: list[tuple[Any, ...]] = []

    def cost(prompt: str, **options: Any) -> float:
        costs.append((prompt, options))
        return len(prompt)

    with FakeTime() as time:
        limiter = RateLimiter(tokens_per_minute=60)

        @limiter.limit(tokens=cost)
        def load(prompt: str, *, top: int = 1) -> str:
            return prompt.upper()

        @limiter.limit(tokens=cost)
        async def fetch(prompt: str) -> str:
            return prompt[::-1]

        assert load("x" * 60, top=2) == "X" * 60
        assert await fetch("abc") == "cba"
        assert time.now == 3
    assert costs == [("x" * 60, {"top": 2}), ("abc", {})]


def test_each_attempt_is_limited() -> None:
    with FakeTime():
        limiter = RateLimiter(requests_per_minute=60)
        for _ in range(60):
            limiter.reserve()

        @llm_retry(backoff=constant(0))
        @limiter.limit()
        def load() -> str:
            return flaky()

        flaky = Flaky(answered(503), answered(503), "done")
        assert load() == "done"
        assert flaky.started_at == [1, 2, 3]


async def test_first_come_first_served() -> None:
    order: list[int] = []

    async def one(number: int, tokens: int) -> None:
        await limiter.acquire_async(tokens=tokens)
        order.append(number)

    with FakeTime():
        limiter = RateLimiter(tokens_per_minute=600)
        limiter.reserve(600)
        async with asyncio.TaskGroup() as group:
            for number, tokens in enumerate((500, 1, 300, 1)):
                group.create_task(one(number, tokens))
                await asyncio.sleep(0)
    assert order == [0, 1, 2, 3]


def test_threads_never_share_a_place() -> None:
    limiter, waits = RateLimiter(60, clock=Clock()), []
    threads = [threading.Thread(target=lambda: waits.append(limiter.reserve())) for _ in range(90)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waits) == pytest.approx([0.0] * 60 + [float(n) for n in range(1, 31)])


def test_a_start_need_not_let_a_minutes_quota_out_at_once() -> None:
    limiter = RateLimiter(60, burst=5, clock=Clock())
    assert [limiter.reserve() for _ in range(8)] == [0, 0, 0, 0, 0, *map(pytest.approx, (1, 2, 3))]


def test_no_window_holds_more_than_its_share() -> None:
    clock = Clock()
    limiter = RateLimiter(60, strict_window=10, clock=clock)
    sent = sorted(limiter.reserve() for _ in range(40))
    assert sent[9] == 0
    for start in sent:
        assert sum(start <= at < start + 10 - 1e-6 for at in sent) <= 10


async def test_a_cancelled_wait_gives_back_what_it_took() -> None:
    with FakeTime() as time:
        limiter = RateLimiter(tokens_per_minute=600)
        limiter.reserve(600)
        first = asyncio.create_task(limiter.acquire_async(600))
        second = asyncio.create_task(limiter.acquire_async(10))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert time.now == 1


def test_limits_are_corrected_by_what_the_server_says() -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12s"}
    assert [(limit.resource, limit.remaining, limit.reset) for limit in read_limits(headers)] == [("requests", 0, 12)]
    with FakeTime(rng=lambda: 0.0) as time:
        limiter = RateLimiter(requests_per_minute=6000)
        flaky = Flaky(httpx.Response(200, headers=headers, request=REQUEST), "done")
        wrapped = retry_sync(limiter=limiter)(flaky)
        wrapped()
        wrapped()
        assert time.now == 12


# ---- breaker -----------------------------------------------------------------------------------------------------


def test_it_opens_after_so_many_failed_attempts_in_a_row() -> None:
    with FakeTime(rng=lambda: 0.0) as time:
        breaker = CircuitBreaker(failure_threshold=5, recovery_time=30)
        wrapped = llm_retry(breaker=breaker, max_attempts=2)
        for opens, outcomes in ((False, (503, 503)), (False, (503, 503)), (True, (503,))):
            flaky = Flaky(*map(answered, outcomes), then="never")
            with pytest.raises((httpx.HTTPStatusError, CircuitOpenError)):
                wrapped(flaky)()
            assert (breaker.state == "open") is opens
        untouched = Flaky("never")
        with pytest.raises(CircuitOpenError) as caught:
            wrapped(untouched)()
        assert (untouched.calls, caught.value.retry_in) == (0, 30)
        time.advance(10)
        with pytest.raises(CircuitOpenError) as caught:
            wrapped(untouched)()
        assert caught.value.retry_in == 20
    assert (CircuitBreaker().settings.failure_threshold, CircuitBreaker().settings.recovery_time) == (5, 30)


def test_a_success_counts_anew() -> None:
    with FakeTime():
        breaker = CircuitBreaker(failure_threshold=3)
        wrapped = llm_retry(breaker=breaker)
        for _ in range(4):
            assert wrapped(Flaky(answered(503), answered(500), "done"))() == "done"
        assert breaker.state == "closed"


async def test_one_trial_after_the_recovery_time() -> None:
    gate = asyncio.Event()
    breaker = CircuitBreaker(failure_threshold=1, recovery_time=30)

    @llm_retry(breaker=breaker, max_attempts=1)
    async def call(*, fails: bool = False, waits: bool = False) -> str:
        if waits:
            await gate.wait()
        if fails:
            raise answered(503)
        return "done"

    with FakeTime() as time:
        with pytest.raises(httpx.HTTPStatusError):
            await call(fails=True)
        time.advance(30)
        assert breaker.state == "half_open"
        with pytest.raises(httpx.HTTPStatusError):
            await call(fails=True)
        assert breaker.state == "open"
        time.advance(30)
        trial = asyncio.create_task(call(waits=True))
        await asyncio.sleep(0)
        for _ in range(3):
            with pytest.raises(CircuitOpenError):
                await call()
        gate.set()
        assert await trial == "done"
        assert breaker.state == "closed"


def test_an_error_that_is_not_retried_counts_as_a_success() -> None:
    with FakeTime():
        breaker = CircuitBreaker(failure_threshold=2)
        wrapped = llm_retry(breaker=breaker, max_attempts=1)
        for status in (503, 400, 503, 401, 503, 404):
            with pytest.raises(httpx.HTTPStatusError):
                wrapped(Flaky(answered(status)))()
        assert breaker.state == "closed"


def test_a_refusal_is_never_retried() -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(failure_threshold=1)
        with breaker, pytest.raises(ZeroDivisionError):
            raise ZeroDivisionError
        breaker.force_open()
        flaky = Flaky(then="never")
        for options in ({}, {"retryable": lambda _: True}, {"retryable": Exception}):
            with pytest.raises(CircuitOpenError):
                llm_retry(breaker=breaker, **options)(flaky)()
        refused = Flaky(then=CircuitOpenError(3))
        with pytest.raises(CircuitOpenError):
            llm_retry(retryable=Exception)(refused)()
        assert (flaky.calls, refused.calls, time.sleeps) == (0, 1, [])


@pytest.mark.parametrize("reraise", [True, False])
def test_a_call_that_opens_the_circuit_itself_ends_with_its_refusal(reraise: bool) -> None:
    with FakeTime():
        breaker, error = CircuitBreaker(), answered(503)
        flaky = Flaky(then=error)
        with pytest.raises(CircuitOpenError) as caught:
            llm_retry(breaker=breaker, reraise=reraise)(flaky)()
        assert (flaky.calls, breaker.state) == (5, "open")
        assert caught.value.__cause__ is error
        assert 0 < caught.value.retry_in <= 30


async def test_a_cancelled_trial_frees_its_place() -> None:
    breaker = CircuitBreaker(failure_threshold=1, recovery_time=30)
    call = llm_retry(breaker=breaker)(asyncio.sleep)
    with FakeTime() as time:
        with pytest.raises(CircuitOpenError):
            llm_retry(breaker=breaker)(Flaky(then=answered(503)))()
        time.advance(30)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await call(60)
        assert breaker.state == "half_open"
        await call(0)
        assert breaker.state == "closed"


def test_an_interrupted_trial_frees_its_place() -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(failure_threshold=1, recovery_time=30)
        wrapped = llm_retry(breaker=breaker)
        with pytest.raises(CircuitOpenError):
            wrapped(Flaky(then=answered(503)))()
        time.advance(30)
        with pytest.raises(KeyboardInterrupt):
            wrapped(Flaky(KeyboardInterrupt()))()
        assert wrapped(Flaky("done"))() == "done"
        assert breaker.state == "closed"


def test_it_can_look_at_a_share_of_failures() -> None:
    with FakeTime():
        breaker = CircuitBreaker(None, failure_rate=0.5, minimum_calls=4, window=60)
        wrapped = llm_retry(breaker=breaker, max_attempts=1)
        for status, state in ((503, "closed"), (200, "closed"), (503, "closed"), (503, "open")):
            with pytest.raises((httpx.HTTPStatusError, ZeroDivisionError)):
                wrapped(Flaky(answered(status) if status == 503 else ZeroDivisionError()))()
            assert breaker.state == state


@pytest.mark.parametrize(("choice", "state"), [("neutral", "closed"), ("failure", "open")])
def test_whether_a_429_counts_is_a_choice(choice: Any, state: str) -> None:
    with FakeTime():
        breaker = CircuitBreaker(failure_threshold=2, rate_limited=choice)
        with pytest.raises((httpx.HTTPStatusError, CircuitOpenError)):
            llm_retry(breaker=breaker)(Flaky(then=answered(429)))()
        assert breaker.state == state


def test_it_stays_open_for_a_time_that_grows_and_differs() -> None:
    with FakeTime(rng=lambda: 0.5) as time:
        breaker = CircuitBreaker(1, recovery_time=10, growth=2, max_recovery_time=30, jitter=0.2)
        waits = []
        for _ in range(4):
            with pytest.raises(CircuitOpenError):
                llm_retry(breaker=breaker)(Flaky(then=answered(503)))()
            waits.append(breaker.retry_in)
            time.advance(breaker.retry_in)
        assert waits == pytest.approx([11, 22, 33, 33])
