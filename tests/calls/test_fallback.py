"""`fallback` answers in the place of a call that was given up, in what is left of its time and budget."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from forbear import (
    ApiError,
    BudgetExhausted,
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    RetriesExhausted,
    RetryBudget,
    RetryError,
    StreamInterrupted,
    Upstream,
    attempts,
    current_deadline,
    deadline,
    first_ready,
    hedge,
    llm_retry,
    retry,
    retry_call,
    retry_sync,
    stream,
)
from forbear.core.events import CallEnded, FellBack
from forbear.errors import UsageError
from forbear.testing import FakeTime, Flaky, Hang, record_events
from forms import ASYNC_FORMS, BLOCKING_FORMS, async_version, to_the_end

Form = Callable[..., Any]
NO_BLOCKS = [name for name in (*ASYNC_FORMS, *BLOCKING_FORMS) if not name.startswith("block")]


@pytest.fixture(params=NO_BLOCKS)
def form(request: pytest.FixtureRequest) -> Form:
    """Each form of call that has a result."""
    name = request.param
    return BLOCKING_FORMS[name] if name in BLOCKING_FORMS else to_the_end(ASYNC_FORMS[name])


@pytest.fixture(params=[name for name in ASYNC_FORMS if not name.startswith("block")])
def async_form(request: pytest.FixtureRequest) -> Form:
    """Each async form of call that has a result."""
    return ASYNC_FORMS[request.param]


def failing(*outcomes: Any) -> Flaky:
    return Flaky(*outcomes, then=ConnectionError())


# ---- what answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["a default", 0, [], {}, False, b""])
def test_a_value_answers(form: Form, value: Any) -> None:
    fn = failing()
    with FakeTime():
        assert form(fn, fallback=value, max_attempts=2) is value
    assert fn.calls == 2


def test_a_function_gets_the_final_error(form: Form) -> None:
    got: list[Exception] = []

    def instead(error: Exception) -> str:
        got.append(error)
        return "instead"

    with FakeTime():
        assert form(failing(), fallback=instead, max_attempts=2) == "instead"
    assert [type(error) for error in got] == [RetriesExhausted]
    assert isinstance(got[0].__cause__, ConnectionError)


def test_a_call_that_succeeds_needs_none(form: Form) -> None:
    def never(_: Exception) -> None:
        raise AssertionError

    with FakeTime():
        assert form(Flaky(ConnectionError(), "done"), fallback=never) == "done"


def test_an_async_function_is_awaited_too(async_form: Form) -> None:
    async def main() -> None:
        async def instead(error: Exception) -> str:
            await asyncio.sleep(1)
            return type(error).__name__

        with FakeTime() as clock:
            assert await async_form(async_version(failing()), fallback=instead, max_attempts=1) == "RetriesExhausted"
            assert clock.now == pytest.approx(1.0)

    asyncio.run(main())


def test_its_own_error_leaves_with_the_first_as_context(form: Form) -> None:
    def broken(_: Exception) -> None:
        raise ZeroDivisionError

    with FakeTime(), pytest.raises(ZeroDivisionError) as caught:
        form(failing(), fallback=broken, max_attempts=1)
    assert isinstance(caught.value.__context__, RetriesExhausted)


@pytest.mark.parametrize("reraise", [False, True])
def test_reraise_or_not_a_call_that_was_given_up_is_answered(form: Form, reraise: bool) -> None:
    got: list[Exception] = []

    def instead(error: Exception) -> str:
        got.append(error)
        return "instead"

    with FakeTime():
        assert form(failing(), fallback=instead, reraise=reraise) == "instead"
    assert isinstance(got[0], ConnectionError if reraise else RetriesExhausted)


async def test_a_guarded_function_gets_the_arguments_of_the_call() -> None:
    one, other = Upstream("one"), Upstream("other")

    @other.retry(max_attempts=2)
    async def ask_other(prompt: str, *, size: int = 1) -> str:
        return f"{prompt} {size}"

    @one.retry(max_attempts=2, fallback=ask_other)
    async def ask(prompt: str, *, size: int = 1) -> str:
        raise ConnectionError

    with FakeTime():
        assert await ask("hello", size=3) == "hello 3"
    assert one.snapshot().successes == 0
    assert other.snapshot().successes == 1


def test_so_it_does_in_blocking_code() -> None:
    one, other = Upstream("one"), Upstream("other")

    @other.retry_sync(max_attempts=2)
    def ask_other(prompt: str) -> str:
        return f"other {prompt}"

    @one.retry_sync(max_attempts=2, fallback=ask_other)
    def ask(prompt: str) -> str:
        raise ConnectionError

    with FakeTime():
        assert ask("hello") == "other hello"


async def test_methods_fall_back_to_functions_and_chains_go_on() -> None:
    third = Upstream("third").retry(max_attempts=1)(async_version(lambda: "third"))
    asked: list[str] = []

    @Upstream("second").retry(max_attempts=1, fallback=lambda error: "third")
    async def second(url: str) -> str:
        asked.append(url)
        raise ConnectionError

    class Client:
        @retry(max_attempts=1, fallback=lambda _: second("/a"))
        async def get(self, url: str) -> str:
            asked.append(url)
            raise ConnectionError

    with FakeTime():
        assert await Client().get("/a") == "third"
        assert asked == ["/a", "/a"]
        assert await retry(failing().asynchronous, max_attempts=1, fallback=third) == "third"


# ---- which errors it answers -------------------------------------------------------------------------------------


def test_an_error_that_was_raised_at_once_is_not_answered(form: Form) -> None:
    error = ApiError(400)
    with FakeTime(), pytest.raises(ApiError) as caught:
        form(Flaky(error), fallback="instead")
    assert caught.value is error


@pytest.mark.parametrize(
    "on",
    [ApiError, (KeyError, ApiError), lambda error: getattr(error, "status", 0) == 400],
    ids=["class", "classes", "function"],
)
def test_fallback_on_names_errors_that_are_raised_at_once(form: Form, on: Any) -> None:
    with FakeTime():
        assert form(Flaky(ApiError(400)), fallback="instead", fallback_on=on) == "instead"


@pytest.mark.parametrize(
    "on",
    [ConnectionError, RetriesExhausted, RetryError, (KeyError, OSError), lambda error: type(error).__name__[0] == "C"],
)
def test_it_is_asked_of_the_error_itself_and_of_the_last_one(form: Form, on: Any) -> None:
    with FakeTime():
        assert form(failing(), fallback="instead", fallback_on=on, max_attempts=2) == "instead"


@pytest.mark.parametrize("on", [KeyError, (KeyError, DeadlineExceeded), lambda _: False])
def test_what_it_does_not_name_is_not_answered(form: Form, on: Any) -> None:
    with FakeTime(), pytest.raises(RetriesExhausted):
        form(failing(), fallback="instead", fallback_on=on, max_attempts=2)


def test_a_refused_result_is_answered(form: Form) -> None:
    got: list[Any] = []
    with FakeTime():
        form(
            Flaky(then="bad"), retry_if_result=lambda result: result == "bad", max_attempts=2,
            fallback=lambda error: got.append(error.last_result),
        )  # fmt: skip
    assert got == ["bad"]


def test_what_was_written_wrongly_is_not_answered_and_a_cancellation_neither() -> None:
    with pytest.raises(UsageError):
        asyncio.run(retry(lambda: 1, fallback="instead"))  # type: ignore[arg-type, return-value]

    async def main() -> None:
        with FakeTime():
            task = asyncio.create_task(retry(Flaky(Hang(9)).asynchronous, fallback="instead"))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fallback_on": ConnectionError}, "and there is none"),
        ({"fallback": ValueError}, "fallback is an error"),
        ({"fallback": ValueError("x")}, "fallback is an error"),
        ({"fallback": 1, "fallback_on": BaseException}, "is no Exception class"),
        ({"fallback": 1, "fallback_on": "ConnectionError"}, "fallback_on must be a function of the error"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        retry(**options)


def test_an_async_rule_is_refused() -> None:
    async def rule(_: Exception) -> bool:
        return True

    with pytest.raises(ValueError, match="fallback_on is async"):
        retry(fallback=1, fallback_on=rule)  # type: ignore[arg-type]


def test_blocks_have_no_result_to_replace() -> None:
    with pytest.raises(TypeError, match="fallback"):
        attempts(fallback=1)  # type: ignore[call-arg]


# ---- its time ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ambient", [False, True])
def test_a_plain_function_still_answers_when_the_time_is_over(form: Form, ambient: bool) -> None:
    def instead(error: Exception) -> str:
        left = current_deadline()
        assert left is not None
        assert left.remaining() < 2
        return type(error).__name__

    options: dict[str, Any] = {"deadline": None} if ambient else {"deadline": 2.0}
    with FakeTime() as clock, deadline(2.0 if ambient else None):
        fn = Flaky(then=Hang(0.9, ConnectionError()))
        assert form(fn, fallback=instead, backoff=[0.1], max_attempts=50, **options) == "DeadlineExceeded"
        assert clock.now <= 2.0


@pytest.mark.parametrize("ambient", [False, True])
async def test_an_async_one_is_cut_at_the_calls_deadline(async_form: Form, ambient: bool) -> None:
    async def slow(_: Exception) -> str:
        await asyncio.sleep(60)
        return "too late"

    options: dict[str, Any] = {"deadline": None} if ambient else {"deadline": 2.0}
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            async with deadline(2.0 if ambient else None):
                await async_form(async_version(failing()), fallback=slow, max_attempts=1, **options)
        assert clock.now == pytest.approx(2.0, abs=0.03)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_one_that_is_quick_enough_is_not_cut_and_without_a_deadline_none_is(async_form: Form) -> None:
    async def instead(_: Exception) -> str:
        await asyncio.sleep(1.5)
        return "instead"

    with FakeTime():
        assert await async_form(async_version(failing()), fallback=instead, max_attempts=1, deadline=2) == "instead"
        assert await async_form(async_version(failing()), fallback=instead, max_attempts=1, deadline=None) == "instead"


def test_calls_inside_it_have_the_rest_of_the_time(form: Form) -> None:
    left: list[float] = []

    def instead(_: Exception) -> None:
        granted = current_deadline()
        assert granted is not None
        left.append(granted.remaining())
        retry_sync(Flaky(then=Hang(1.0, ConnectionError())), max_attempts=None, deadline=500, backoff=[1.0])

    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            form(Flaky(then=Hang(2.0, ConnectionError())), fallback=instead, max_attempts=1, deadline=7)
        assert clock.now <= 7.0
        assert current_deadline() is None
    assert left == pytest.approx([5.0])


async def test_a_guarded_fallback_ends_with_the_calls_deadline() -> None:
    other = Upstream("other")
    server = Flaky(then=Hang(60))
    slow = other.retry(attempt_timeout=None, deadline=500)(server.asynchronous)
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            await retry(Flaky(Hang(1, ConnectionError())).asynchronous, max_attempts=1, deadline=3, fallback=slow)
        assert clock.now == pytest.approx(3.0, abs=0.03)
    assert other.snapshot().in_flight == 0


def test_an_async_fallback_of_a_blocking_call_is_told() -> None:
    async def instead(_: Exception) -> str:
        raise AssertionError

    for name in ("call_blocking", "decorate_blocking"):
        with pytest.raises(ValueError, match="fallback is async, and retry_sync is for blocking functions"):
            BLOCKING_FORMS[name](Flaky(), fallback=instead)
    for name in ("decorate", "retry_call_blocking"):  # which can't know before
        with FakeTime(), pytest.raises(UsageError, match="this call is blocking: give it a plain function"):
            BLOCKING_FORMS[name](failing(), fallback=instead, max_attempts=1)


def test_a_cancellation_while_it_is_awaited_leaves() -> None:
    async def slow(_: Exception) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        with FakeTime() as clock:
            task = asyncio.create_task(retry(failing().asynchronous, max_attempts=1, fallback=slow))
            await asyncio.sleep(5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelling() == 1
            assert clock.now == pytest.approx(5.0)

    asyncio.run(main())


# ---- its budget --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("same", ["service", "budget", "another"])
@pytest.mark.parametrize("blocking", [True, False])
def test_one_that_goes_to_the_same_service_needs_a_place_in_its_budget(same: str, blocking: bool) -> None:
    budget = RetryBudget(initial=2, earned=0)
    one = Upstream("one", budget=budget, adaptive=False)
    other = {
        "service": one,
        "budget": Upstream("two", budget=budget, adaptive=False),
        "another": Upstream("other", budget=RetryBudget(initial=0, earned=0)),
    }[same]
    plan_b = Flaky(then="plan b")

    def call() -> Any:
        form = BLOCKING_FORMS["call_blocking"] if blocking else to_the_end(ASYNC_FORMS["call_async"])
        decorate = other.retry_sync if blocking else other.retry
        fallback = decorate(max_attempts=1)(plan_b if blocking else plan_b.asynchronous)
        return form(failing(), upstream=one, max_attempts=1, fallback=fallback)

    with FakeTime():
        assert [call(), call()] == ["plan b"] * 2
        if same == "another":
            assert call() == "plan b"
            assert budget.balance == 2.0
            return
        assert budget.balance == 0.0
        with pytest.raises(RetriesExhausted):
            call()
    assert plan_b.calls == 2


def test_a_value_and_a_plain_function_need_none() -> None:
    one = Upstream("one", budget=RetryBudget(initial=0, earned=0))
    with FakeTime():
        assert one.retry_sync(failing(), fallback="value") == "value"
        assert one.retry_sync(failing(), fallback=type) is BudgetExhausted


def test_an_error_that_it_does_not_answer_costs_nothing() -> None:
    budget = RetryBudget(initial=2, earned=0)
    one = Upstream("one", budget=budget)
    fallback = one.retry_sync(max_attempts=1)(Flaky(then="plan b"))
    with FakeTime(), pytest.raises(ApiError):
        one.retry_sync(Flaky(ApiError(400)), fallback=fallback)
    assert budget.balance == 2.0


def test_an_open_circuit_is_answered() -> None:
    breaker = CircuitBreaker()
    one, other = Upstream("one", breaker=breaker), Upstream("other")
    fallback = other.retry_sync(max_attempts=1)(Flaky(then="plan b"))
    with FakeTime():
        breaker.force_open()
        fn = Flaky()
        assert one.retry_sync(fn, fallback=fallback) == "plan b"
    assert fn.calls == 0


# ---- what is told ------------------------------------------------------------------------------------------------


def test_the_end_is_told_first_and_then_what_answers(form: Form) -> None:
    def plan_b(_: Exception) -> str:
        return "instead"

    with FakeTime(), record_events() as events:
        form(failing(), fallback=plan_b, max_attempts=1)
    ended, fell = events[-2:]
    assert isinstance(ended, CallEnded)
    assert isinstance(fell, FellBack)
    assert ended.reason == "max_attempts"
    assert fell.call == ended.call
    assert fell.fallback.endswith("plan_b")
    assert fell.error_type == "forbear.errors.RetriesExhausted"


def test_a_value_is_never_shown(form: Form) -> None:
    with FakeTime(), record_events() as events:
        form(failing(), fallback="sk-secret", max_attempts=1)
    assert [event.fallback for event in events if isinstance(event, FellBack)] == ["a value"]
    assert "sk-secret" not in repr(events)


def test_nothing_is_told_where_it_does_not_answer(form: Form) -> None:
    with FakeTime(), record_events() as events, pytest.raises(ApiError):
        form(Flaky(ApiError(400)), fallback="instead")
    assert not any(isinstance(event, FellBack) for event in events)


# ---- with other things -------------------------------------------------------------------------------------------


def test_it_works_under_trio() -> None:
    async def fail() -> str:
        raise ConnectionError

    async def quick(error: Exception) -> str:
        await trio.sleep(0.01)
        return type(error).__name__

    async def slow(_: Exception) -> None:
        await trio.sleep(60)

    async def main() -> None:
        assert await retry(fail, max_attempts=1, fallback="value") == "value"
        assert await retry(fail, max_attempts=1, fallback=quick) == "RetriesExhausted"
        assert await retry(fail, max_attempts=1, fallback=quick, deadline=None) == "RetriesExhausted"
        began = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await retry(fail, max_attempts=1, fallback=slow, deadline=0.1)
        assert trio.current_time() - began < 5
        with trio.move_on_after(0.05) as scope:
            await retry(fail, max_attempts=1, fallback=slow)
        assert scope.cancelled_caught

    trio.run(main)


async def test_a_hedge_falls_back_too() -> None:
    with FakeTime() as clock:
        fn = Flaky(then=Hang(0.5, ConnectionError()))
        assert await hedge(fn.asynchronous, delay=0.1, max_attempts=2, fallback="instead") == "instead"
        assert fn.calls == 2
        assert clock.now == pytest.approx(0.6)


async def test_llm_retry_and_retry_call_fall_back_too() -> None:
    with FakeTime():
        assert await llm_retry(fallback="instead")(failing().asynchronous)() == "instead"
        answer: Any = retry_call(failing(), retry_options={"fallback": "instead"})
        assert answer == "instead"
        with pytest.raises(ConnectionError):
            await llm_retry()(failing().asynchronous)()


async def test_a_function_that_turns_out_to_be_async_is_answered_once() -> None:
    asked: list[Exception] = []

    async def instead(error: Exception) -> str:
        asked.append(error)
        return "instead"

    server = failing()

    @retry(max_attempts=2, fallback=instead)
    def plain() -> Awaitable[Any]:
        return server.asynchronous()

    with FakeTime():
        assert await plain() == "instead"
    assert (server.calls, len(asked)) == (2, 1)


# ---- first_ready -------------------------------------------------------------------------------------------------


class Services:
    """Three services with a function each; `asked` tells who was."""

    def __init__(self, *, blocking: bool, **options: Any) -> None:
        self.asked: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.upstreams = {
            name: Upstream(name, breaker=CircuitBreaker(1, 30), adaptive=True, **options) for name in ("a", "b", "c")
        }
        self.blocking = blocking
        self.calls: list[Callable[..., Any]] = [self._call(name) for name in self.upstreams]
        self.choose = first_ready(*self.calls)

    def _call(self, name: str) -> Callable[..., Any]:
        upstream = self.upstreams[name]

        def work(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(name)
            if name in self.fails:
                raise self.fails[name]
            return (name, args, kwargs)

        if self.blocking:
            return upstream.retry_sync(max_attempts=1)(work)

        async def async_work(*args: Any, **kwargs: Any) -> Any:
            return work(*args, **kwargs)

        return upstream.retry(max_attempts=1)(async_work)

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        """The answer; whoever is async gets a loop of their own."""
        return self.run(lambda: self.choose(*args, **kwargs))

    def run(self, call: Callable[[], Any]) -> Any:
        if self.blocking:
            return call()

        async def main() -> Any:
            return await call()

        return to_the_end(lambda fn: fn())(main)

    def cool(self, name: str, seconds: float) -> None:
        with pytest.raises(RetryError):
            self.upstreams[name].retry_sync(Flaky(ApiError(429, retry_after=seconds)), max_attempts=1)


@pytest.fixture(params=["blocking", "async"])
def services(request: pytest.FixtureRequest) -> Services:
    return Services(blocking=request.param == "blocking")


def test_of_those_that_are_ready_the_first_in_the_order_given_is_asked(services: Services) -> None:
    with FakeTime():
        assert services.ask("x", y=1) == ("a", ("x",), {"y": 1})
    assert services.asked == ["a"]


def test_one_whose_circuit_is_open_is_skipped(services: Services) -> None:
    with FakeTime():
        for upstream in list(services.upstreams.values())[:2]:
            assert upstream.breaker is not None
            upstream.breaker.force_open()
        assert services.ask()[0] == "c"
    assert services.asked == ["c"]


def test_one_that_has_asked_for_a_pause_is_skipped_until_it_is_over(services: Services) -> None:
    with FakeTime() as clock:
        services.cool("a", 20)
        assert services.upstreams["a"].ready_in() == pytest.approx(20, abs=1)
        assert services.ask()[0] == "b"
        clock.advance(60)
        assert services.ask()[0] == "a"


@pytest.mark.parametrize("blocking", [True, False])
def test_one_whose_limits_are_used_up_is_skipped(blocking: bool) -> None:
    services = Services(blocking=blocking, requests_per_minute=1, burst=1)
    with FakeTime():
        assert [services.ask()[0] for _ in range(3)] == ["a", "b", "c"]


def test_where_none_is_ready_the_one_that_will_be_soonest_is_waited_for(services: Services) -> None:
    with FakeTime() as clock:
        for name, seconds in (("a", 20), ("b", 5), ("c", 10)):
            services.cool(name, seconds)
            services.upstreams[name].breaker.reset()  # type: ignore[union-attr]
        assert services.ask()[0] == "b"
        assert clock.now == pytest.approx(5, abs=1)
    assert services.asked == ["b"]


def test_none_that_is_ready_in_time_is_told_with_the_least_wait(services: Services) -> None:
    with FakeTime() as clock:
        for name, seconds in (("a", 20), ("b", 15), ("c", 30)):
            services.cool(name, seconds)
        with pytest.raises(DeadlineExceeded, match="none is ready before the deadline") as caught, deadline(3):
            services.ask()
        assert caught.value.hint == pytest.approx(min(one.ready_in() for one in services.upstreams.values()))
        assert caught.value.hint is not None
        assert caught.value.hint >= 15
        assert clock.now == 0
    assert services.asked == []


def test_one_that_gives_up_is_followed_by_the_next_with_the_same_arguments(services: Services) -> None:
    services.fails = {"a": ConnectionError(), "b": ApiError(503)}
    with FakeTime():
        assert services.ask("x", y=1) == ("c", ("x",), {"y": 1})
    assert services.asked == ["a", "b", "c"]


def test_if_all_give_up_the_last_error_leaves(services: Services) -> None:
    services.fails = {"a": ConnectionError(), "b": ConnectionError(), "c": ApiError(503)}
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        services.ask()
    assert caught.value.last_error is services.fails["c"]
    assert services.asked == ["a", "b", "c"]


def test_an_error_that_no_retry_can_help_leaves_at_once(services: Services) -> None:
    services.fails = {"a": ApiError(400)}
    with FakeTime(), pytest.raises(ApiError):
        services.ask()
    assert services.asked == ["a"]


def test_the_order_begins_anew_with_each_call(services: Services) -> None:
    with FakeTime() as clock:
        services.fails = {"a": ConnectionError()}
        assert services.ask()[0] == "b"
        services.fails = {}
        assert services.ask()[0] == "b", "its circuit is open"
        clock.advance(31)
        assert services.ask()[0] == "a"


def test_it_stops_when_the_rest_will_not_be_ready_in_time(services: Services) -> None:
    services.fails = {"a": ConnectionError()}
    with FakeTime() as clock:
        services.cool("b", 20)
        services.cool("c", 20)
        with pytest.raises(RetriesExhausted), deadline(5):
            services.ask()
        assert clock.now == 0
    assert services.asked == ["a"]


def test_one_that_was_not_ready_at_first_is_waited_for_when_all_others_have_given_up(services: Services) -> None:
    services.fails = {"b": ConnectionError(), "c": ConnectionError()}
    with FakeTime() as clock:
        services.cool("a", 5)
        services.upstreams["a"].breaker.reset()  # type: ignore[union-attr]
        assert services.ask()[0] == "a"
        assert clock.now == pytest.approx(5, abs=1)
    assert services.asked == ["b", "c", "a"]


def test_it_is_a_fallback(services: Services) -> None:
    first = Upstream("first")
    services.fails = {"a": ConnectionError()}
    retried: Any = first.retry_sync if services.blocking else first.retry

    def fail(prompt: str) -> None:
        raise ConnectionError

    async def fail_async(prompt: str) -> None:
        raise ConnectionError

    ask = retried(max_attempts=1, fallback=services.choose)(fail if services.blocking else fail_async)
    with FakeTime():
        assert services.run(lambda: ask("hello")) == ("b", ("hello",), {})
    assert services.asked == ["a", "b"]


async def test_its_choice_keeps_the_deadline_of_the_call_that_falls_back() -> None:
    services = Services(blocking=False)
    with FakeTime() as clock:
        for name in services.upstreams:
            services.cool(name, 20)
            services.upstreams[name].breaker.reset()  # type: ignore[union-attr]
        with pytest.raises(DeadlineExceeded):
            await retry(failing().asynchronous, max_attempts=1, deadline=5, fallback=services.choose)
        assert clock.now <= 5
    assert services.asked == []


async def test_it_has_the_name_of_the_first_and_is_async_as_they_are() -> None:
    services = Services(blocking=False)
    assert services.choose.__name__ == "async_work"
    assert asyncio.iscoroutinefunction(services.choose)
    assert not asyncio.iscoroutinefunction(Services(blocking=True).choose)


async def unguarded() -> None: ...


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ((), "takes one or more functions"),
        ((unguarded,), r"unguarded is no call of an Upstream: decorate it with upstream\.retry"),
        ((1,), "takes functions one by one, not int"),
        (([unguarded],), "takes functions one by one, not list"),
        ((retry(max_attempts=1)(unguarded),), "no call of an Upstream"),
        ((Upstream("a").retry()(unguarded), Upstream("b").retry_sync()(lambda: 1)), "all of them async or all"),
    ],
)
def test_what_it_can_not_choose_between_is_refused(calls: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        first_ready(*calls)


def test_a_stream_is_refused() -> None:
    @Upstream("a").retry()
    async def chunks() -> Any:
        yield 1

    with pytest.raises(TypeError, match="is a stream: first_ready takes functions with one result"):
        first_ready(chunks)


async def test_open_circuits_alone_are_asked_for_in_vain() -> None:
    services = Services(blocking=False)
    with FakeTime():
        for upstream in services.upstreams.values():
            assert upstream.breaker is not None
            upstream.breaker.force_open()
        with pytest.raises((CircuitOpenError, DeadlineExceeded)):
            await services.choose()
    assert services.asked == []


# ---- one chunk, or many ------------------------------------------------------------------------------------------


class Model:
    """One chunk as libraries of models make it: its fields can be iterated, but it is no stream of them."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        yield "text", "sorry"


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("given", ["itself", "by a function", "by an async function"])
def test_a_chunk_whose_fields_can_be_iterated_is_one_chunk(given: str, blocking: bool) -> None:
    chunk: Any = Model()

    async def by_an_async_function(_: Exception) -> Model:
        return chunk

    fallbacks: dict[str, Any] = {
        "itself": chunk, "by a function": lambda _: chunk, "by an async function": by_an_async_function
    }  # fmt: skip

    def source() -> Iterator[str]:
        raise ConnectionError
        yield ""

    async def source_async() -> AsyncIterator[str]:
        raise ConnectionError
        yield ""

    async def main() -> list[Any]:
        return [one async for one in stream(source_async, max_attempts=1, fallback=fallbacks[given])]

    with FakeTime():
        if not blocking:
            assert asyncio.run(main()) == [chunk]
        elif given == "by an async function":
            with pytest.raises(UsageError, match="fallback is async"):
                list(stream(source, max_attempts=1, fallback=fallbacks[given]))
        else:
            assert list(stream(source, max_attempts=1, fallback=fallbacks[given])) == [chunk]


# ---- one that is cut ---------------------------------------------------------------------------------------------


def assert_cut(error: DeadlineExceeded, primary: Exception, *, attempts: int, elapsed: float, off: float) -> None:
    """The error of a call whose fallback was cut says what the call itself had come to."""
    assert error.attempts == attempts
    assert error.last_error is primary
    assert error.elapsed == pytest.approx(elapsed, abs=off)
    assert isinstance(error.__cause__, RetriesExhausted)
    assert error.__cause__.last_error is primary
    assert error.reason == "deadline"


async def test_one_that_is_cut_leaves_what_is_known_of_the_call(async_form: Form) -> None:
    primary = ConnectionError("primary")

    async def slow(_: Exception) -> None:
        await asyncio.sleep(60)

    with FakeTime() as clock, pytest.raises(DeadlineExceeded) as caught:
        await async_form(
            async_version(Flaky(then=primary)), max_attempts=2, backoff=[1.0], jitter="none", deadline=5, fallback=slow
        )
    assert clock.now == pytest.approx(5, abs=0.03)
    assert_cut(caught.value, primary, attempts=2, elapsed=5, off=0.03)
    assert caught.value.waited == pytest.approx(1.0)


def test_so_it_does_under_trio() -> None:
    primary = ConnectionError("primary")

    async def fail() -> None:
        raise primary

    async def slow(_: Exception) -> None:
        await trio.sleep(60)

    async def main() -> None:
        with pytest.raises(DeadlineExceeded) as caught:
            await retry(fail, max_attempts=2, backoff=[0.0], deadline=0.1, fallback=slow)
        assert_cut(caught.value, primary, attempts=2, elapsed=0.1, off=0.0999)

    trio.run(main)


# ---- told when it has answered -----------------------------------------------------------------------------------


def names_of(events: list[Any]) -> list[tuple[str, str]]:
    """The ends of calls and the fallbacks, in the order in which they were told."""
    short = [(one, one.call.rpartition(".")[2]) for one in events if isinstance(one, (CallEnded, FellBack))]
    return [(call, one.reason if isinstance(one, CallEnded) else one.fallback) for one, call in short]


@pytest.mark.parametrize("blocking", [True, False])
def test_it_is_told_after_its_answer_and_named_by_all_that_it_chooses_between(blocking: bool) -> None:
    primary, east, west = Upstream("primary"), Upstream("east", breaker=CircuitBreaker(1, 600)), Upstream("west")

    def ask_east() -> str:
        raise ConnectionError

    def ask_west() -> str:
        return "west"

    def ask() -> str:
        raise ConnectionError

    def made(upstream: Upstream, fn: Callable[[], str], **options: Any) -> Any:
        if blocking:
            return upstream.retry_sync(max_attempts=1, **options)(fn)

        @functools.wraps(fn)
        async def asynchronous() -> str:
            return fn()

        return upstream.retry(max_attempts=1, **options)(asynchronous)

    async def main() -> Any:
        return await call()

    choice = first_ready(made(east, ask_east), made(west, ask_west))
    call = made(primary, ask, fallback=choice)
    with FakeTime(), record_events() as events:
        assert (call() if blocking else asyncio.run(main())) == "west"
    told = names_of(list(events))
    assert [name for name, _ in told] == ["ask", "ask_east", "ask_west", "ask"]
    assert [what for _, what in told[:3]] == ["max_attempts", "max_attempts", "success"] or told[1][1] != "success"
    assert told[2] == ("ask_west", "success")
    assert told[3][1].startswith("first_ready(")
    assert "ask_east" in told[3][1]
    assert "ask_west" in told[3][1]


def test_one_that_fails_itself_is_not_told(form: Form) -> None:
    def broken(_: Exception) -> None:
        raise ZeroDivisionError

    with FakeTime(), record_events() as events, pytest.raises(ZeroDivisionError):
        form(failing(), fallback=broken, max_attempts=1)
    assert [type(event) for event in events if isinstance(event, FellBack)] == []


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_that_of_a_stream_is_told_with_its_first_chunk(fails: bool, blocking: bool) -> None:
    def source() -> Iterator[str]:
        raise ConnectionError
        yield ""

    async def source_async() -> AsyncIterator[str]:
        raise ConnectionError
        yield ""

    told: list[int] = []

    def plan_b(_: Exception) -> Iterator[str]:
        told.append(fell())
        if fails:
            raise ZeroDivisionError
        yield "a"
        told.append(fell())
        yield "b"

    async def plan_b_async(error: Exception) -> AsyncIterator[str]:
        for chunk in plan_b(error):
            yield chunk

    def fell() -> int:
        return sum(isinstance(event, FellBack) for event in events)

    async def main() -> list[str]:
        return [one async for one in stream(source_async, max_attempts=1, fallback=plan_b_async)]

    def use() -> list[str]:
        return list(stream(source, max_attempts=1, fallback=plan_b)) if blocking else asyncio.run(main())

    with FakeTime(), record_events() as events:
        if fails:
            with pytest.raises(ZeroDivisionError):
                use()
        else:
            assert use() == ["a", "b"]
    assert told == ([0] if fails else [0, 1])
    assert fell() == (0 if fails else 1)


# ---- what a choice pays ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [True, False])
def test_a_choice_pays_for_the_same_service_and_for_no_other(blocking: bool) -> None:
    budget = RetryBudget(initial=2, earned=0)
    one, other = Upstream("one", budget=budget, adaptive=False), Upstream("other", breaker=CircuitBreaker(1, 600))
    asked: list[str] = []
    down: set[str] = set()

    def asking(name: str) -> Callable[[], str]:
        def ask() -> str:
            asked.append(name)
            if name in down:
                raise ConnectionError
            return name

        return ask

    def made(upstream: Upstream, fn: Callable[[], str], **options: Any) -> Any:
        async def asynchronous() -> str:
            return fn()

        decorate = upstream.retry_sync if blocking else upstream.retry
        return decorate(max_attempts=1, **options)(fn if blocking else asynchronous)

    down.add("primary")
    choice = first_ready(made(other, asking("other")), made(one, asking("same")))
    call = made(one, asking("primary"), fallback=choice)

    async def main() -> Any:
        return await call()

    def ask() -> Any:
        return call() if blocking else asyncio.run(main())

    with FakeTime():
        assert ask() == "other"
        assert budget.balance == 2.0
        down.add("other")  # it fails, and from then on its circuit is open
        assert ask() == "same"
        assert budget.balance == 1.0
        assert ask() == "same"
        assert budget.balance == 0.0
        with pytest.raises(RetryError):
            ask()
    assert asked == ["primary", "other", "primary", "other", "same", "primary", "same", "primary"]


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("choice", [False, True])
def test_a_partial_of_what_goes_to_the_same_service_pays_as_that_itself(choice: bool, partial: bool) -> None:
    budget = RetryBudget(initial=1, earned=0)
    one = Upstream("one", budget=budget, adaptive=False)
    same: Any = one.retry_sync(max_attempts=1)(lambda: "same")
    fallback = first_ready(same) if choice else same
    with FakeTime():
        answer = one.retry_sync(
            failing(), max_attempts=1, fallback=functools.partial(fallback) if partial else fallback
        )
        assert answer == "same"
        assert budget.balance == 0.0


@pytest.mark.parametrize("begun", [False, True])
async def test_a_fallback_stream_that_is_cut_leaves_what_is_known_of_the_call(begun: bool) -> None:
    primary = ConnectionError("primary")

    async def source() -> AsyncIterator[str]:
        raise primary
        yield ""

    async def slow(_: Exception) -> AsyncIterator[str]:
        if begun:
            yield "a"
        await asyncio.sleep(60)
        yield "b"

    chunks: list[str] = []
    with FakeTime(), pytest.raises(StreamInterrupted if begun else DeadlineExceeded) as caught:
        async for chunk in stream(source, max_attempts=2, backoff=[1.0], jitter="none", deadline=5, fallback=slow):
            chunks.append(chunk)  # noqa: PERF401  # they are needed after the error too
    error = caught.value.__cause__ if begun else caught.value
    assert chunks == ["a"] * begun
    assert isinstance(error, DeadlineExceeded)
    assert_cut(error, primary, attempts=2, elapsed=5, off=0.03)
