"""`first_ready` waits for an open circuit's trial as for a pause; what it and a fallback can't work with is refused."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio

from forbear import (
    ApiError,
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    RetriesExhausted,
    RetryError,
    Upstream,
    current_deadline,
    deadline,
    first_ready,
    retry,
    retry_sync,
)
from forbear.testing import FakeTime

Fails = Callable[..., None]
RECOVERY = 30.0
LEAST, MOST = 0.8 * RECOVERY, 1.3 * RECOVERY  # a breaker waits a little more or less


class Services:
    """Services with a function each; `asked` tells who was, and when."""

    def __init__(self, *names: str, blocking: bool) -> None:
        self.blocking = blocking
        self.asked: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.clock: Callable[[], float] = lambda: 0.0
        self.upstreams = {name: Upstream(name, breaker=CircuitBreaker(1, RECOVERY)) for name in names}
        self.calls = [self._call(name) for name in names]
        self.choose: Any = first_ready(*self.calls)

    def _call(self, name: str) -> Callable[..., Any]:
        def work(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(name)
            if name in self.fails:
                raise self.fails[name]
            return (name, args, kwargs)

        async def async_work(*args: Any, **kwargs: Any) -> Any:
            return work(*args, **kwargs)

        upstream = self.upstreams[name]
        if self.blocking:
            return upstream.retry_sync(max_attempts=1)(work)
        return upstream.retry(max_attempts=1)(async_work)

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        """The answer; whoever is async gets a loop of their own."""
        if self.blocking:
            return self.choose(*args, **kwargs)

        async def main() -> Any:
            return await self.choose(*args, **kwargs)

        return asyncio.run(main())

    def open(self, name: str) -> None:
        """Opens a circuit by a failure, as it would happen."""

        def fail() -> None:
            raise ConnectionError

        with pytest.raises((RetriesExhausted, CircuitOpenError)):
            self.upstreams[name].retry_sync(fail, max_attempts=1)
        assert self.upstreams[name].breaker.state == "open"  # type: ignore[union-attr]


@pytest.fixture(params=["blocking", "async"])
def blocking(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "blocking")


# ---- an open circuit -------------------------------------------------------------------------------------------------


def test_the_trial_of_the_only_one_is_waited_for(blocking: bool) -> None:
    services = Services("a", blocking=blocking)
    with FakeTime() as clock:
        services.open("a")
        wait = services.upstreams["a"].ready_in()
        assert LEAST <= wait <= MOST
        with deadline(2 * MOST):
            assert services.ask("x", y=1) == ("a", ("x",), {"y": 1})
        assert clock.now == pytest.approx(wait)
        assert services.upstreams["a"].breaker.state == "closed"  # type: ignore[union-attr]
    assert services.asked == ["a"]


def test_without_a_deadline_it_is_waited_for_too(blocking: bool) -> None:
    services = Services("a", blocking=blocking)
    with FakeTime() as clock:
        services.open("a")
        assert services.ask()[0] == "a"
        assert LEAST <= clock.now <= MOST


def test_of_several_the_one_whose_trial_comes_first_is_waited_for(blocking: bool) -> None:
    services = Services("a", "b", "c", blocking=blocking)
    with FakeTime() as clock:
        for name in "bca":
            services.open(name)
            clock.advance(5)
        before = clock.now
        soonest = min(services.upstreams.values(), key=Upstream.ready_in)
        wait = soonest.ready_in()
        assert wait > 0
        assert services.ask()[0] == soonest.name
        assert clock.now == pytest.approx(before + wait)
    assert services.asked == [soonest.name]


def test_one_whose_trial_comes_too_late_is_not_waited_for(blocking: bool) -> None:
    services = Services("a", "b", blocking=blocking)
    with FakeTime() as clock:
        services.open("a")
        services.open("b")
        least = min(upstream.ready_in() for upstream in services.upstreams.values())
        with pytest.raises(DeadlineExceeded, match="none is ready before the deadline") as caught, deadline(LEAST / 2):
            services.ask()
        assert caught.value.hint == pytest.approx(least)
        assert clock.now == 0.0
    assert services.asked == []


def test_after_the_others_have_given_up_its_trial_is_waited_for(blocking: bool) -> None:
    services = Services("a", "b", blocking=blocking)
    services.fails = {"b": ConnectionError()}
    with FakeTime() as clock:
        services.open("a")
        wait = services.upstreams["a"].ready_in()
        with deadline(2 * MOST):
            assert services.ask()[0] == "a"
        assert clock.now == pytest.approx(wait)
    assert services.asked == ["b", "a"]


def test_if_it_comes_too_late_the_error_of_the_other_leaves(blocking: bool) -> None:
    services = Services("a", "b", blocking=blocking)
    services.fails = {"b": ConnectionError()}
    with FakeTime() as clock:
        services.open("a")
        with pytest.raises(RetriesExhausted) as caught, deadline(LEAST / 2):
            services.ask()
        assert caught.value.last_error is services.fails["b"]
        assert clock.now == 0.0
    assert services.asked == ["b"]


def test_a_trial_that_fails_is_followed_by_the_next(blocking: bool) -> None:
    services = Services("a", "b", blocking=blocking)
    with FakeTime():
        services.open("a")
        services.open("b")
        first, second = sorted(services.upstreams.values(), key=Upstream.ready_in)
        services.fails = {first.name: ApiError(503)}
        assert services.ask()[0] == second.name
    assert services.asked == [first.name, second.name]


def test_one_that_was_opened_by_hand_is_never_ready_and_no_hang(blocking: bool) -> None:
    services = Services("a", blocking=blocking)
    with FakeTime() as clock:
        services.upstreams["a"].breaker.force_open()  # type: ignore[union-attr]
        with pytest.raises((CircuitOpenError, DeadlineExceeded)), deadline(100):
            services.ask()
        assert clock.now < 100
    assert services.asked == []


async def test_a_cancellation_while_it_waits_leaves_and_asks_nobody() -> None:
    services = Services("a", blocking=False)
    with FakeTime() as clock:
        services.open("a")
        task = asyncio.create_task(services.choose())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert clock.now == pytest.approx(1.0)
    assert services.asked == []


def test_under_trio_it_is_waited_for_too() -> None:
    services = Services("a", "b", blocking=False)

    async def main() -> Any:
        services.open("a")
        services.open("b")
        wait = min(upstream.ready_in() for upstream in services.upstreams.values())
        before = clock.now
        answer = await services.choose("x")
        assert clock.now == pytest.approx(before + wait)
        return answer

    with FakeTime() as clock:
        name, arguments, _ = trio.run(main)
    assert arguments == ("x",)
    assert services.asked == [name]


def test_under_trio_in_real_time() -> None:
    upstream = Upstream("a", breaker=CircuitBreaker(1, 0.05))

    def fail() -> None:
        raise ConnectionError

    async def main() -> str:
        with pytest.raises((RetriesExhausted, CircuitOpenError)):
            upstream.retry_sync(fail, max_attempts=1)
        wait, before = upstream.ready_in(), trio.current_time()
        assert wait > 0

        @upstream.retry(max_attempts=1)
        async def ask() -> str:
            return "answer"

        answer = await first_ready(ask)()
        assert trio.current_time() - before >= 0.9 * wait
        return answer

    assert trio.run(main) == "answer"


# ---- what it can't choose between ------------------------------------------------------------------------------------


def test_a_choice_among_choices_is_refused_with_what_to_write(blocking: bool) -> None:
    services = Services("a", "b", blocking=blocking)
    for nested in ((services.choose,), (services.calls[0], services.choose)):
        with pytest.raises(TypeError, match=r"is a choice already: name all of them in one first_ready\(\.\.\.\)"):
            first_ready(*nested)


def test_a_choice_in_a_partial_is_one_too(blocking: bool) -> None:
    services = Services("a", "b", blocking=blocking)
    with pytest.raises(TypeError, match="is a choice already"):
        first_ready(functools.partial(services.choose, 1))


def test_partials_of_calls_are_chosen_between(blocking: bool) -> None:
    services = Services("a", "b", blocking=blocking)
    services.choose = first_ready(
        *(functools.partial(call, at=name) for call, name in zip(services.calls, "xy", strict=True))
    )
    services.fails = {"a": ConnectionError()}
    with FakeTime():
        assert services.ask(1) == ("b", (1,), {"at": "y"})


# ---- a fallback ------------------------------------------------------------------------------------------------------


def test_a_partial_of_a_guarded_function_gets_the_calls_arguments(blocking: bool) -> None:
    services = Services("plan b", blocking=blocking)
    instead = functools.partial(services.calls[0], "from the partial", model="small")

    def fail(*_: Any, **__: Any) -> Any:
        raise ConnectionError

    async def fail_async(*_: Any, **__: Any) -> Any:
        raise ConnectionError

    if blocking:
        services.choose = retry_sync(max_attempts=1, fallback=instead)(fail)
    else:
        services.choose = retry(max_attempts=1, fallback=instead)(fail_async)
    with FakeTime():
        assert services.ask("hello", top=3) == ("plan b", ("from the partial", "hello"), {"model": "small", "top": 3})


def test_a_partial_of_a_plain_function_gets_the_error_as_before() -> None:
    def instead(prefix: str, error: Exception) -> str:
        return prefix + type(error).__name__

    def fail() -> str:
        raise ConnectionError

    with FakeTime():
        assert retry_sync(fail, max_attempts=1, fallback=functools.partial(instead, "after ")) == (
            "after RetriesExhausted"
        )


def test_a_partial_to_the_same_service_pays_its_budget_as_the_function_itself() -> None:
    upstream = Upstream("a", breaker=None)
    asked: list[int] = []

    @upstream.retry_sync(max_attempts=1)
    def other() -> str:
        asked.append(1)
        return "answer"

    def fail() -> str:
        raise ConnectionError

    with FakeTime():
        before = upstream.snapshot().budget
        assert before is not None
        assert upstream.retry_sync(fail, max_attempts=1, fallback=functools.partial(other)) == "answer"
        after = upstream.snapshot().budget
        assert after is not None
        assert after < before
    assert asked == [1]


class Mistake(Exception):
    """What a broken rule raises."""


def broken(error: Exception) -> bool:
    raise Mistake(f"secret of {error}")


@pytest.mark.parametrize("permanent", [True, False])
def test_a_rule_that_raises_is_logged_and_the_real_error_leaves(
    blocking: bool, permanent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    error = ApiError(400) if permanent else ConnectionError("secret")

    def fail() -> str:
        raise error

    async def fail_async() -> str:
        raise error

    async def main() -> str:
        return await retry(fail_async, max_attempts=1, fallback="never", fallback_on=broken)

    with FakeTime(), caplog.at_level(logging.ERROR, "forbear"), pytest.raises((ApiError, RetriesExhausted)) as caught:
        if blocking:
            retry_sync(fail, max_attempts=1, fallback="never", fallback_on=broken)
        else:
            asyncio.run(main())
    assert caught.value is error if permanent else caught.value.__cause__ is error
    assert len(caplog.messages) == (1 if permanent else 2)  # asked of the final error and of the last one
    for message in caplog.messages:
        assert message.startswith(f"fallback_on raised {Mistake.__module__}.Mistake at ")
        assert "secret" not in message


def test_a_rule_that_raises_for_a_stream_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    error = ApiError(400)

    @retry_sync(fallback="never", fallback_on=broken)
    def chunks() -> Any:
        raise error
        yield "never"

    with FakeTime(), caplog.at_level(logging.ERROR, "forbear"), pytest.raises(ApiError) as caught:
        list(chunks())
    assert caught.value is error
    assert len(caplog.messages) == 1


# ---- the time of each call ---------------------------------------------------------------------------------------


def made(upstream: Upstream, fn: Callable[[], Any], blocking: bool, **options: Any) -> Any:
    """A call of this service, with one attempt. What `fn` gives is awaited where it can be."""

    async def asynchronous() -> Any:
        result = fn()
        return await result if asyncio.iscoroutine(result) else result

    decorate = upstream.retry_sync if blocking else upstream.retry
    return decorate(**{"max_attempts": 1, **options})(fn if blocking else asynchronous)


def ask(choose: Any, blocking: bool) -> Any:
    async def main() -> Any:
        return await choose()

    return choose() if blocking else asyncio.run(main())


def opened(name: str, recovery: float, **options: Any) -> Upstream:
    """A service whose circuit has just opened."""
    upstream = Upstream(name, breaker=CircuitBreaker(1, recovery), **options)

    def fail() -> None:
        raise ConnectionError

    with pytest.raises((RetriesExhausted, CircuitOpenError)):
        upstream.retry_sync(fail, max_attempts=1)
    return upstream


def test_no_trial_is_waited_for_that_comes_after_the_calls_own_deadline(blocking: bool) -> None:
    asked: list[str] = []
    with FakeTime() as clock:
        services = [opened(name, 600) for name in "ab"]
        choose = first_ready(*(made(one, lambda: asked.append(""), blocking, deadline=2) for one in services))
        with pytest.raises(DeadlineExceeded) as caught:
            ask(choose, blocking)
        assert clock.now == 0.0
        assert caught.value.hint == min(one.ready_in() for one in services)
        assert 0.8 * 600 <= caught.value.hint <= 1.3 * 600
    assert asked == []


def test_the_calls_own_deadline_counts_from_the_beginning_of_the_choice() -> None:
    ended: list[float] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(clock.now)

    async def main(choose: Any) -> None:
        await choose()

    with FakeTime() as clock:
        late = opened("late", 10)
        wait = late.ready_in()
        choose = first_ready(made(late, hang, False, deadline=20, attempt_timeout=None))
        with pytest.raises(RetryError):
            asyncio.run(main(choose))
        assert 8 <= wait <= 13
        assert clock.now == pytest.approx(20)
        assert ended == [pytest.approx(20)]


def test_so_it_does_for_those_that_follow_one_that_has_given_up(blocking: bool) -> None:
    left: list[float] = []

    def slow() -> None:
        clock.advance(6)
        raise ConnectionError

    def then() -> str:
        rest = current_deadline()
        assert rest is not None
        left.append(rest.remaining())
        return "answer"

    with FakeTime() as clock:
        choose = first_ready(
            made(Upstream("a"), slow, blocking, deadline=10), made(Upstream("b"), then, blocking, deadline=10)
        )
        assert ask(choose, blocking) == "answer"
    assert left == [pytest.approx(4)]


def test_one_that_has_no_time_left_is_not_asked(blocking: bool) -> None:
    def slow() -> None:
        clock.advance(6)
        raise ConnectionError("the first")

    asked: list[str] = []
    with FakeTime() as clock:
        shut = opened("b", 10)
        choose = first_ready(
            made(Upstream("a"), slow, blocking, deadline=10),
            made(shut, lambda: asked.append("b"), blocking, deadline=7),
        )
        with pytest.raises(RetriesExhausted) as caught:
            ask(choose, blocking)
        assert clock.now == 6.0
        assert str(caught.value.last_error) == "the first"
    assert asked == []


# ---- who comes first ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [600, 300])
def test_one_whose_tokens_are_used_up_comes_behind_one_that_has_some(blocking: bool, tokens: int) -> None:
    with FakeTime() as clock:
        services = [Upstream(name, tokens_per_minute=600, burst=600) for name in "ab"]
        services[0].retry_sync(lambda: None, tokens=600)
        choose = first_ready(
            made(services[0], lambda: "a", blocking, tokens=tokens),
            made(services[1], lambda: "b", blocking, tokens=tokens),
        )
        assert ask(choose, blocking) == "b"
        assert clock.now == 0.0


async def test_one_that_is_full_comes_behind_one_that_has_a_place_and_is_waited_for_alone() -> None:
    with FakeTime() as clock:
        full, free = Upstream("full", max_concurrency=1), Upstream("free")

        async def slow() -> None:
            await asyncio.sleep(3)

        holding = asyncio.create_task(full.retry(slow))
        await asyncio.sleep(1)
        to_full = made(full, lambda: "full", False, deadline=10)
        assert await first_ready(to_full, made(free, lambda: "free", False))() == "free"
        assert clock.now == 1.0
        assert await first_ready(to_full)() == "full"
        assert clock.now == 3.0
        await holding


def test_one_that_only_observes_is_never_held_back(blocking: bool) -> None:
    asked: list[str] = []
    with FakeTime() as clock:
        upstream = opened("a", 600, observe_only=True)
        other = Upstream("b")
        choose = first_ready(
            made(upstream, lambda: asked.append("a"), blocking, deadline=2),
            made(other, lambda: asked.append("b"), blocking),
        )
        ask(choose, blocking)
        assert upstream.breaker is not None
        upstream.breaker.force_open()
        ask(choose, blocking)
        assert (asked, clock.now) == (["a", "a"], 0.0)


def test_one_that_was_opened_by_hand_is_skipped(blocking: bool) -> None:
    asked: list[str] = []
    with FakeTime() as clock:
        shut, shut_for_now = Upstream("a", breaker=CircuitBreaker(1, 600)), opened("b", 10)
        assert shut.breaker is not None
        shut.breaker.force_open()
        first = made(shut, lambda: asked.append("a"), blocking)
        ask(first_ready(first, made(Upstream("c"), lambda: asked.append("c"), blocking)), blocking)
        assert clock.now == 0.0
        ask(first_ready(first, made(shut_for_now, lambda: asked.append("b"), blocking)), blocking)
        assert 8 <= clock.now <= 13
        now = clock.now
        with pytest.raises(DeadlineExceeded):
            ask(first_ready(first), blocking)
        assert clock.now == now
    assert asked == ["c", "b"]
