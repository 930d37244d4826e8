"""Behaviour that is the library's: every test here runs on it and on this surface alike."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import threading
import time
from contextlib import suppress
from email.utils import formatdate
from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compat.doubles import Clock, Script, StatusError, nap
from forbear.compat import retryhop as ours


class APIConnectionError(Exception):
    """Named as the errors of two SDKs are."""


def outcome(hop: Any, script: Script, options: dict[str, Any], *, in_loop: bool) -> tuple[Any, ...]:
    """All that can be seen of one call."""
    states: list[Any] = []
    slept: list[float] = []

    async def sleep_async(delay: float) -> None:
        slept.append(delay)

    async def fn() -> Any:
        return script()

    options = {**options, "on_retry": states.append, "sleep": sleep_async if in_loop else slept.append}
    guarded = hop.retry(**options)(fn if in_loop else script)
    try:
        ended: Any = asyncio.run(guarded()) if in_loop else guarded()
    except hop.RetryError as error:
        ended = (error.attempts, error.last_exception, error.last_result, error.__cause__)
    except Exception as error:
        ended = error
    told = [(state.attempt, state.exception, state.result, state.from_server) for state in states]
    assert slept == [state.delay for state in states]
    return ended, script.calls, told, pytest.approx(slept, abs=0.25)


OUTCOMES = st.sampled_from(
    [ConnectionError("a"), TimeoutError("b"), ValueError("c"), StatusError(503, Retry_After="4"), None, "", "done"]
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "attempts": st.integers(1, 5),
        "exceptions": st.sampled_from([OSError, (ConnectionError, StatusError), Exception, ()]),
        "retry_on": st.sampled_from([None, lambda error: not isinstance(error, ValueError)]),
        "backoff": st.sampled_from([ours.constant(2), ours.linear(1, 2), lambda attempt: -attempt]),
        "retry_if_result": st.sampled_from([None, lambda result: result is None, lambda result: not result]),
        "wait_hint": st.sampled_from(
            [None, lambda error, result: 4 if isinstance(error, StatusError) else None,
             lambda error, result: 3 if result is None and error is None else None]
        ),
        "deadline": st.sampled_from([None, 3.3, 100]),
        "reraise": st.booleans(),
    },
)  # fmt: skip


@settings(deadline=None)
@given(outcomes=st.lists(OUTCOMES, min_size=1, max_size=6), options=OPTIONS, in_loop=st.booleans())
def test_any_call_ends_as_with_the_original(outcomes: list[Any], options: dict[str, Any], in_loop: bool) -> None:
    retryhop = pytest.importorskip("retryhop")
    options = {"backoff": ours.constant(0.5), **options}
    mine = outcome(ours, Script(*outcomes), options, in_loop=in_loop)
    *ended, slept = outcome(retryhop, Script(*outcomes), options, in_loop=in_loop)
    assert mine == (*ended, slept.expected)


# ---- forms -------------------------------------------------------------------------------------------------------


def test_the_decorator_works_bare_with_options_and_as_a_call(hop: Any) -> None:
    @hop.retry
    def bare(number: int) -> int:
        """Doubles."""
        return number * 2

    @hop.llm_retry
    def asked(number: int) -> int:
        return number * 3

    assert (bare(3), asked(number=3)) == (6, 9)
    assert (bare.__name__, bare.__doc__, inspect.signature(bare)) == ("bare", "Doubles.", inspect.signature(bare))
    assert hop.retry_call(Script(OSError(), "ok"), 1, x=2, retry_options={"sleep": lambda _: None}) == "ok"
    assert hop.retry_call(func=lambda: 5) == 5


async def test_an_async_function_stays_one(hop: Any) -> None:
    @hop.retry(sleep=nap)
    async def fetch(number: int) -> int:
        return script() + number

    script = Script(OSError(), OSError(), 2)
    assert inspect.iscoroutinefunction(fetch)
    assert await fetch(1) == 3
    assert await hop.retry_call(fetch, 5) == 7
    assert await hop.retry(lambda: fetch(2))() == 4


def test_methods_partials_classes_and_mocks_can_be_retried(hop: Any) -> None:
    class Client:
        def __init__(self) -> None:
            self.script = Script(OSError(), "ok")

        @hop.retry(sleep=lambda _: None)
        def ask(self, prompt: str) -> str:
            return f"{prompt} {self.script()}"

        @staticmethod
        @hop.retry
        def double(number: int) -> int:
            return number * 2

    assert Client().ask("hello") == "hello ok"
    assert Client().double(2) == 4
    assert hop.retry(functools.partial(pow, 2))(3) == 8
    assert isinstance(hop.retry_call(Client), Client)
    mock = Mock(side_effect=[OSError(), "ok"])
    assert hop.retry(sleep=lambda _: None)(mock)("x", y=1) == "ok"
    mock.assert_called_with("x", y=1)


def test_what_a_blocking_function_returns_to_be_awaited_is_handed_on(hop: Any) -> None:
    async def main() -> None:
        @hop.retry(retry_if_result=lambda task: not isinstance(task, asyncio.Task))
        def start() -> asyncio.Task[int]:
            return asyncio.create_task(asyncio.sleep(0, 3))

        task = start()
        assert isinstance(task, asyncio.Task)
        assert await task == 3

    asyncio.run(main())


def test_senseless_options_are_refused_at_once(hop: Any) -> None:
    for options in ({"attempts": 0}, {"deadline": 0}, {"deadline": -1}):
        with pytest.raises(ValueError):
            hop.retry(**options)
        with pytest.raises(ValueError):
            hop.llm_retry(**options)
    with pytest.raises(TypeError):
        hop.retry(max_attempts=3)
    for function, arguments in (
        (hop.constant, {"delay": -1}), (hop.linear, {"start": -1}), (hop.linear, {"step": -1}),
        (hop.linear, {"max_delay": -1}), (hop.exponential, {"base": -1}), (hop.exponential, {"factor": 0.5}),
        (hop.exponential, {"max_delay": -1}), (hop.RateLimiter, {}), (hop.RateLimiter, {"requests_per_minute": -1}),
        (hop.CircuitBreaker, {"failure_threshold": 0}), (hop.CircuitBreaker, {"recovery_time": 0}),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            function(**arguments)


def test_attempts_may_be_any_number(hop: Any) -> None:
    script = Script(*[OSError()] * 9, "ok")
    assert hop.retry(attempts=float("inf"), sleep=lambda _: None)(script)() == "ok"
    script = Script(OSError())
    with pytest.raises(hop.RetryError):
        hop.retry(attempts=2.0, sleep=lambda _: None)(script)()
    assert script.calls == 2


# ---- what it ends with -------------------------------------------------------------------------------------------


def test_an_error_that_is_not_listed_leaves_as_it_is(hop: Any) -> None:
    for options, error in (({"exceptions": OSError}, KeyError()), ({"retry_on": lambda _: False}, OSError())):
        script = Script(error)
        with pytest.raises(type(error)) as caught:
            hop.retry(**options)(script)()
        assert caught.value is error
        assert script.calls == 1


def test_a_retry_error_is_caused_by_the_last_error(hop: Any) -> None:
    error = OSError("last")
    with pytest.raises(hop.RetryError) as caught:
        hop.retry(attempts=2, sleep=lambda _: None)(Script(OSError("first"), error))()
    assert caught.value.__cause__ is caught.value.last_exception is error
    assert (caught.value.attempts, caught.value.last_result) == (2, None)


def test_a_refused_result_ends_in_a_retry_error_even_where_errors_are_raised_again(hop: Any) -> None:
    wrapped = hop.retry(attempts=2, reraise=True, retry_if_result=lambda r: r == "no", sleep=lambda _: None)
    with pytest.raises(hop.RetryError) as caught:
        wrapped(Script("no"))()
    assert (caught.value.last_exception, caught.value.last_result, caught.value.__cause__) == (None, "no", None)


def test_a_mistake_in_a_rule_is_raised(hop: Any) -> None:
    def wrong(_: object) -> bool:
        raise KeyError("mine")

    for options, script in (
        ({"retry_on": wrong}, Script(OSError())),
        ({"retry_if_result": wrong}, Script("ok")),
        ({"backoff": wrong}, Script(OSError())),
        ({"wait_hint": lambda error, _: wrong(error)}, Script(OSError())),
    ):
        with pytest.raises(KeyError, match="mine"):
            hop.retry(**options)(script)()
        assert script.calls == 1


# ---- time --------------------------------------------------------------------------------------------------------


def test_a_running_attempt_is_not_cut_at_the_deadline(hop: Any) -> None:
    def slow() -> str:
        time.sleep(0.1)
        return "late"

    async def slow_async() -> str:
        await asyncio.sleep(0.1)
        return "late"

    assert hop.retry(deadline=0.02)(slow)() == "late"
    assert asyncio.run(hop.llm_retry(deadline=0.02)(slow_async)()) == "late"


def test_no_attempt_follows_when_the_deadline_has_passed(hop: Any) -> None:
    script = Script(OSError("last"))

    def slow() -> None:
        time.sleep(0.03)
        script()

    with pytest.raises(hop.RetryError) as caught:
        hop.retry(attempts=9, deadline=0.02, backoff=hop.constant(0))(slow)()
    assert (caught.value.attempts, str(caught.value.last_exception)) == (1, "last")
    with pytest.raises(OSError, match="last"):
        hop.retry(attempts=9, deadline=0.02, backoff=hop.constant(0), reraise=True)(slow)()


def test_a_backoff_is_cut_to_fit_and_a_hint_is_not(hop: Any) -> None:
    slept: list[float] = []
    hop.retry(deadline=5, backoff=hop.constant(60), sleep=slept.append)(Script(OSError(), "ok"))()
    assert slept == [pytest.approx(5, abs=1)]
    script = Script(OSError())
    with pytest.raises(hop.RetryError):
        hop.retry(deadline=5, wait_hint=lambda *_: 60, sleep=slept.append)(script)()
    assert (len(slept), script.calls) == (1, 1)


def test_a_negative_wait_is_none(hop: Any) -> None:
    for options in ({"backoff": lambda _: -3}, {"wait_hint": lambda *_: -3}, {"backoff": lambda _: float("nan")}):
        slept: list[float] = []
        assert hop.retry(sleep=slept.append, **options)(Script(OSError(), "ok"))() == "ok"
        assert slept == [0]


def test_the_state_tells_what_has_passed(hop: Any) -> None:
    states: list[Any] = []
    hop.retry(backoff=hop.constant(0.03), on_retry=states.append)(Script(OSError(), OSError(), "ok"))()
    assert 0 <= states[0].elapsed <= states[1].elapsed - 0.03 < 5


@pytest.mark.parametrize("attempt", [1, 2, 3, 7, 60, 1000])
def test_the_waits_are_the_same(attempt: int, original: Any) -> None:
    for name, arguments in (
        ("constant", ()), ("constant", (30,)), ("linear", ()), ("linear", (1, 1)), ("linear", (0.5, 2, 3)),
        ("exponential", (0.5, 2, 30, False)), ("exponential", (1, 1.5, 1e9, False)), ("exponential", ()),
        ("exponential", (3, 1)), ("exponential", (0.1, 2, float("inf"), False)), ("exponential", (0, 2)),
    ):  # fmt: skip
        random.seed(attempt)
        theirs = getattr(original, name)(*arguments)(attempt)
        random.seed(attempt)
        assert getattr(ours, name)(*arguments)(attempt) == pytest.approx(theirs)


# ---- llm_retry ---------------------------------------------------------------------------------------------------


def test_its_defaults(hop: Any) -> None:
    slept: list[float] = []
    error = StatusError(503)
    with pytest.raises(StatusError) as caught:
        hop.llm_retry(sleep=slept.append)(Script(error))()
    assert caught.value is error
    assert len(slept) == 5
    assert all(0 <= wait <= bound for wait, bound in zip(slept, (1, 2, 4, 8, 16), strict=True))
    with pytest.raises(hop.RetryError):
        hop.llm_retry(reraise=False, sleep=slept.append)(Script(error))()


def test_its_dice_are_the_programs_own(original: Any) -> None:
    waits = []
    for library in (original, ours):
        random.seed(3)
        slept: list[float] = []
        script = Script(StatusError(503), StatusError(429, Retry_After="3"), OSError(), ConnectionError(), "ok")
        with pytest.raises(OSError):  # a plain one is not the network's
            library.llm_retry(sleep=slept.append)(script)()
        waits.append(slept)
    assert waits[0] == pytest.approx(waits[1])
    assert 3 < waits[0][1] < 3.25


def test_a_hint_is_waited_for_and_cut(hop: Any) -> None:
    slept: list[float] = []
    errors = StatusError(429, Retry_After="9999"), StatusError(529, retry_after_ms="1500"), "ok"
    assert hop.llm_retry(max_retry_after=10, deadline=None, sleep=slept.append)(Script(*errors))() == "ok"
    assert 10 <= slept[0] <= 10.25
    assert 1.5 <= slept[1] <= 1.75
    script = Script(StatusError(429, Retry_After="60"))
    with pytest.raises(StatusError):
        hop.llm_retry(deadline=5, sleep=slept.append)(script)()
    assert (script.calls, len(slept)) == (1, 2)


@pytest.mark.parametrize(("status", "retried"), [
    *((status, True) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
    *((status, False) for status in (200, 302, 400, 401, 403, 404, 418, 422, 425, 501, 505, 520, 599)),
])  # fmt: skip
def test_the_statuses_that_are_retried(hop: Any, status: int, retried: bool) -> None:
    error = StatusError(status)
    assert hop.is_transient(error) is retried
    assert hop.status_code_of(error) == status
    assert hop.is_transient(StatusError(status, x_should_retry="true"))
    assert not hop.is_transient(StatusError(status, X_Should_Retry="False"))


def test_the_places_of_a_status(hop: Any) -> None:
    for place in ("status_code", "status"):
        error: Any = Exception()
        setattr(error, place, 503)
        assert hop.status_code_of(error) == 503
        carrier: Any = Exception()
        carrier.response = error
        assert hop.status_code_of(carrier) == 503
    for value in (None, "503", 99, 600, 503.0):
        error = Exception()
        error.status_code = value
        assert hop.status_code_of(error) is None


def test_errors_of_the_network_are_known_by_type_and_by_name(hop: Any) -> None:
    class Mine(APIConnectionError):
        pass

    for error in (ConnectionResetError(), TimeoutError(), APIConnectionError(), Mine()):
        assert hop.is_transient(error)
    for error in (ValueError(), KeyError("x"), OSError(), Exception(), KeyboardInterrupt(), asyncio.CancelledError()):
        assert not hop.is_transient(error)


def test_a_status_of_any_kind_decides_over_a_name(hop: Any) -> None:
    for status in (200, 302, 404):
        error: Any = APIConnectionError()
        error.status_code = status
        assert not hop.is_transient(error)


def test_the_forms_of_a_hint(hop: Any) -> None:
    assert hop.retry_after_of(StatusError(429, Retry_After="7")) == 7
    assert hop.retry_after_of(StatusError(429, Retry_After="1.5")) == 1.5
    assert hop.retry_after_of(StatusError(429, retry_after_ms="120", Retry_After="7")) == 0.12
    assert hop.retry_after_of(StatusError(429, retry_after_ms="soon", Retry_After="7")) == 7
    date = formatdate(time.time() + 30, usegmt=True)
    assert 28 < hop.retry_after_of(StatusError(503, Retry_After=date)) <= 30
    assert hop.retry_after_of(StatusError(503, Retry_After=formatdate(time.time() - 30, usegmt=True))) == 0
    for headers in ({}, {"Retry_After": "soon"}, {"Retry_After": ""}, {"Retry_After": "30s"}):
        assert hop.retry_after_of(StatusError(503, **headers)) is None
    assert hop.retry_after_of(ValueError()) is None


def test_a_wait_in_a_line(hop: Any) -> None:
    state = hop.RetryState(1, 1.104, StatusError(429), None, 0.02, True)
    assert hop.describe(state) == (
        "attempt 1 failed: StatusError (HTTP 429); waiting 1.10s (server Retry-After), elapsed 0.0s"
    )
    state = hop.RetryState(2, 1.64, OSError(), None, 1.12)
    assert hop.describe(state) == "attempt 2 failed: OSError; waiting 1.64s (backoff), elapsed 1.1s"
    state = hop.RetryState(3, 30.0, None, {"status": "queued"}, 60.0)
    assert hop.describe(state) == (
        "attempt 3 failed: rejected result {'status': 'queued'}; waiting 30.00s (backoff), elapsed 60.0s"
    )


# ---- circuit -----------------------------------------------------------------------------------------------------


class Recorder:
    """A breaker of somebody else's making."""

    def __init__(self, refusal: Exception | None = None, after: int = 99) -> None:
        self.told: list[str] = []
        self.refusal = refusal
        self.after = after

    def before_call(self) -> None:
        self.told.append("?")
        if self.refusal is not None and self.told.count("?") > self.after:
            raise self.refusal

    def record_success(self) -> None:
        self.told.append("success")

    def record_failure(self) -> None:
        self.told.append("failure")

    def release_trial(self) -> None:
        self.told.append("released")


@pytest.mark.parametrize(("outcomes", "options", "told"), [
    (["ok"], {}, "? success"),
    ([OSError(), "ok"], {}, "? failure ? success"),
    ([OSError()], {"attempts": 2}, "? failure ? failure"),
    ([OSError()], {"retry_on": lambda _: False}, "? success"),
    ([OSError()], {"exceptions": KeyError}, "? released"),
    ([KeyboardInterrupt()], {}, "? released"),
    (["no", "ok"], {"retry_if_result": lambda r: r == "no"}, "? failure ? success"),
    (["no"], {"retry_if_result": lambda r: r == "no", "attempts": 2}, "? failure ? failure"),
    (["no"], {"retry_if_result": lambda r: 1 / 0}, "? success"),
    ([OSError()], {"retry_on": lambda r: 1 / 0}, "? success"),
])  # fmt: skip
@pytest.mark.parametrize("in_loop", [False, True])
def test_what_a_breaker_is_told(
    hop: Any, outcomes: list[Any], options: dict[str, Any], told: str, in_loop: bool
) -> None:
    breaker, script = Recorder(), Script(*outcomes)

    async def fn() -> Any:
        return script()

    with suppress(OSError, hop.RetryError, ZeroDivisionError, KeyboardInterrupt):
        if in_loop:
            asyncio.run(hop.retry(circuit=breaker, sleep=nap, **options)(fn)())
        else:
            hop.retry(circuit=breaker, sleep=lambda _: None, **options)(script)()
    assert breaker.told == told.split()


def test_whatever_a_breaker_raises_leaves_at_once(hop: Any) -> None:
    for refusal in (hop.CircuitOpenError(3.0), RuntimeError("shut")):
        breaker, script = Recorder(refusal, after=1), Script(OSError())
        with pytest.raises(type(refusal)) as caught:
            hop.retry(attempts=9, circuit=breaker, sleep=lambda _: None)(script)()
        assert caught.value is refusal
        assert (script.calls, breaker.told) == (1, ["?", "failure", "?"])


def test_a_call_that_opens_the_circuit_itself_ends_with_it(hop: Any) -> None:
    breaker, script = hop.CircuitBreaker(), Script(StatusError(503))
    with pytest.raises(hop.CircuitOpenError) as caught:
        hop.llm_retry(circuit=breaker, sleep=lambda _: None)(script)()
    assert (script.calls, breaker.state) == (5, "open")
    assert 29 < caught.value.retry_in <= 30


def test_an_open_circuit_gets_one_trial_after_its_recovery_time(hop: Any) -> None:
    clock = Clock()
    breaker = hop.CircuitBreaker(2, 10, clock)
    call = hop.llm_retry(attempts=1, circuit=breaker)(lambda end: Script(end)())
    for _ in range(2):
        with pytest.raises(StatusError):
            call(StatusError(503))
    with pytest.raises(hop.CircuitOpenError) as caught:
        call("ok")
    assert caught.value.retry_in == 10
    clock.now = 10
    assert breaker.state == "half_open"
    with pytest.raises(StatusError):
        call(StatusError(503))
    assert breaker.state == "open"
    clock.now = 20
    assert call("ok") == "ok"
    assert breaker.state == "closed"
    with pytest.raises(StatusError):
        call(StatusError(503))
    assert breaker.state == "closed"


def test_a_client_error_counts_as_a_success(hop: Any) -> None:
    clock = Clock()
    breaker = hop.CircuitBreaker(2, 10, clock)
    call = hop.llm_retry(attempts=1, circuit=breaker)(lambda end: Script(end)())
    for status in (503, 400, 503):
        with pytest.raises(StatusError):
            call(StatusError(status))
    assert breaker.state == "closed"
    with pytest.raises(StatusError):
        call(StatusError(429))
    assert breaker.state == "open"
    clock.now = 10
    with pytest.raises(StatusError):
        call(StatusError(400))
    assert breaker.state == "closed"


def test_a_cancelled_trial_frees_its_place(hop: Any) -> None:
    clock = Clock()
    breaker = hop.CircuitBreaker(1, 5, clock)
    breaker.record_failure()
    clock.now = 6

    async def main() -> None:
        call = hop.retry(circuit=breaker)(asyncio.sleep)
        task = asyncio.create_task(call(60))
        await asyncio.sleep(0)
        with pytest.raises(hop.CircuitOpenError):
            await call(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert breaker.state == "half_open"
        await call(0)
        assert breaker.state == "closed"

    asyncio.run(main())


def test_a_circuit_may_stay_open_for_ever(hop: Any) -> None:
    clock = Clock()
    breaker = hop.CircuitBreaker(1, float("inf"), clock)
    breaker.record_failure()
    clock.now = 1e8
    assert breaker.state == "open"


def test_numbers_of_other_kinds_will_do(hop: Any) -> None:
    waits = [hop.constant(Fraction(3, 2)), hop.linear(Fraction(1, 2), 1), hop.exponential(Fraction(1, 2), jitter=False)]
    assert [wait(2) for wait in waits] == [1.5, 1.5, 1.0]


def test_a_breaker_can_be_told_by_hand(hop: Any) -> None:
    clock = Clock()
    breaker = hop.CircuitBreaker(failure_threshold=1, recovery_time=5, clock=clock)
    breaker.before_call()
    breaker.record_failure()
    clock.now = 5
    breaker.before_call()
    with pytest.raises(hop.CircuitOpenError):
        breaker.before_call()
    breaker.release_trial()
    breaker.before_call()
    breaker.record_failure()
    assert breaker.state == "open"
    breaker.reset()
    assert breaker.state == "closed"
    breaker.record_failure()
    clock.now = 11
    assert breaker.state == "half_open"
    breaker.record_success()  # nobody has asked for a trial
    assert breaker.state == "closed"
    breaker.record_failure()
    clock.now = 20
    breaker.record_failure()
    clock.now = 21
    with pytest.raises(hop.CircuitOpenError):
        breaker.before_call()


def test_its_settings_can_be_changed_on_the_way(hop: Any) -> None:
    clock = Clock()
    breaker = hop.CircuitBreaker(clock=clock)
    breaker.failure_threshold, breaker.recovery_time = 2, 1
    breaker.record_failure()
    assert breaker.state == "closed"
    breaker.record_failure()
    clock.now = 1
    assert breaker.state == "half_open"


STEPS = st.lists(
    st.sampled_from(
        ["success", "failure", "neutral", "wait", "long wait", "reset", "record success", "record failure"]
    ),
    max_size=30,
)


@settings(deadline=None)
@given(steps=STEPS, threshold=st.integers(1, 3))
def test_any_sequence_of_calls_leads_to_the_same_state(steps: list[str], threshold: int) -> None:
    retryhop = pytest.importorskip("retryhop")
    clock = Clock()
    pair = [library.CircuitBreaker(threshold, 10, clock) for library in (retryhop, ours)]
    says = {"success": "record_success", "failure": "record_failure", "neutral": "release_trial"}
    for step in steps:
        if step.endswith("wait"):
            clock.now += 10 if step == "long wait" else 3
        for breaker in pair:
            if step in says:
                with suppress(retryhop.CircuitOpenError, ours.CircuitOpenError):
                    breaker.before_call()
                    getattr(breaker, says[step])()
            elif step == "reset":
                breaker.reset()
            elif step.startswith("record") and breaker.state != "open":
                getattr(breaker, step.replace(" ", "_"))()
        assert pair[0].state == pair[1].state


# ---- limiter -----------------------------------------------------------------------------------------------------

LIMITS = st.sampled_from([(60, None), (None, 6000), (1000, 600), (7, 90), (0, 600), (60, 0)])
USES = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.sampled_from([0, 1, 30, 90])),
        st.tuples(st.just("consume"), st.sampled_from([-300, -1, 0, 200])),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 10, 90])),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(limits=LIMITS, uses=USES)
def test_any_sequence_of_reservations_waits_as_long(limits: Any, uses: list[tuple[str, float]]) -> None:
    retryhop = pytest.importorskip("retryhop")
    clock = Clock()
    pair = [library.RateLimiter(*limits, clock) for library in (retryhop, ours)]
    for use, amount in uses:
        if use == "wait":
            clock.now += amount
        else:
            theirs, mine = (getattr(limiter, use)(amount) for limiter in pair)
            assert mine == (None if theirs is None else pytest.approx(theirs, abs=1e-6))


def test_a_limiter_refuses_what_can_never_fit(hop: Any) -> None:
    limiter = hop.RateLimiter(tokens_per_minute=100)
    for tokens in (101, -1):
        with pytest.raises(ValueError):
            limiter.reserve(tokens)
        with pytest.raises(ValueError):
            limiter.acquire(tokens=tokens)


def test_a_limiter_of_zero_is_none(hop: Any) -> None:
    limiter = hop.RateLimiter(requests_per_minute=0)
    endless = hop.RateLimiter(float("inf"), float("inf"))
    assert [endless.reserve(10**6) for _ in range(1000)] == [0.0] * 1000
    assert [limiter.reserve(1000) for _ in range(1000)] == [0.0] * 1000
    limiter.consume(5)


def test_calls_wait_for_their_turn(hop: Any) -> None:
    limiter = hop.RateLimiter(requests_per_minute=1200)
    limiter.reserve()
    for _ in range(1199):
        limiter.reserve()

    @limiter.limit()
    def ask(prompt: str) -> str:
        return prompt.upper()

    @limiter.limit(tokens=len)
    async def ask_async(prompt: str) -> str:
        return prompt[::-1]

    began = time.monotonic()
    assert ask("a") == "A"
    assert asyncio.run(ask_async("ab")) == "ba"
    assert asyncio.iscoroutinefunction(ask_async)
    assert 0.06 < time.monotonic() - began < 5


def test_a_clock_of_ones_own_tells_the_wait_once(hop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    clock = Clock()
    monkeypatch.setattr(time, "sleep", slept.append)
    limiter = hop.RateLimiter(60, clock=clock)
    for _ in range(60):
        limiter.acquire()
    limiter.acquire()
    assert [wait for wait in slept if wait] == [pytest.approx(1.0)]


def test_a_clock_of_ones_own_does_not_hold_up_async_code(hop: Any) -> None:
    async def main() -> None:
        limiter = hop.RateLimiter(6000, clock=Clock())
        for _ in range(6000):
            limiter.reserve()
        async with asyncio.timeout(5):
            await limiter.acquire_async()

    asyncio.run(main())


def test_threads_share_a_limit(hop: Any) -> None:
    limiter, waits = hop.RateLimiter(60, clock=Clock()), []
    threads = [threading.Thread(target=lambda: waits.append(limiter.reserve())) for _ in range(80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waits) == pytest.approx([0.0] * 60 + [float(n) for n in range(1, 21)])
