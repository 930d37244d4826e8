"""A circuit breaker as users hold it: one object for all calls to one service."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import inspect
import logging
import os
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest

from forbear import ApiError, CircuitOpenError, DeadlineExceeded, RetriesExhausted
from forbear._runtime.scope import Scope
from forbear._runtime.world import REAL, World
from forbear.core.breaker import Transition
from forbear.core.breaker_settings import BreakerSettings, Verdict
from forbear.testing import FakeTime
from forbear.upstream.breaker import CircuitBreaker, _held
from forbear.upstream.breaker_options import verdict_of_outcome

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def end(breaker: CircuitBreaker, verdict: Verdict = "failure") -> None:
    """A call that ends as it begins."""
    breaker.enter().leave(verdict)


def opened(**options: Any) -> CircuitBreaker:
    breaker = CircuitBreaker(1, **options)
    end(breaker)
    return breaker


def module_level_verdict(error: BaseException | None, result: object) -> Verdict:
    return "permanent" if isinstance(error, KeyError) else verdict_of_outcome(error, result)


# ---- what it is made of ------------------------------------------------------------------------------------------


def test_the_threshold_and_the_recovery_time_may_be_given_by_position() -> None:
    assert CircuitBreaker().settings == BreakerSettings()
    assert CircuitBreaker(3, 10).settings == BreakerSettings(failure_threshold=3, recovery_time=10)
    made = CircuitBreaker(failure_threshold=None, failure_rate=0.5, window=timedelta(minutes=2), trials=3)
    assert made.settings == BreakerSettings(failure_threshold=None, failure_rate=0.5, window=120.0, trials=3)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"reset_timeout": 3}, TypeError, "no option reset_timeout=; use recovery_time"),
        ({"expected_exception": OSError}, TypeError, "use verdict, a function of the error and the result"),
        ({"nonsense": 3}, TypeError, "no option nonsense=$"),
        ({"failure_threshold": 0}, ValueError, "failure_threshold is 0"),
        ({"on_change": 3}, ValueError, "on_change must be a plain function, neither async nor int"),
        ({"verdict": asyncio.sleep}, ValueError, "verdict must be a plain function"),
        ({"clock": 0.0}, ValueError, "clock must be a plain function"),
    ],
)
def test_mistakes_are_answered_with_the_correction(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        CircuitBreaker(**options)


def test_its_repr_tells_name_and_state() -> None:
    assert repr(CircuitBreaker()) == "<CircuitBreaker, closed>"
    assert repr(opened(name="openai/gpt")) == "<CircuitBreaker 'openai/gpt', open>"


# ---- by hand -----------------------------------------------------------------------------------------------------


def test_it_opens_refuses_and_closes_after_a_trial() -> None:
    with FakeTime() as time:
        breaker = CircuitBreaker(2, 10)
        end(breaker)
        assert breaker.state == "closed"
        end(breaker)
        assert (breaker.state, breaker.retry_in, breaker.shut_for()) == ("open", 10.0, 10.0)
        time.advance(4.0)
        with pytest.raises(CircuitOpenError) as caught:
            breaker.enter()
        assert caught.value.retry_in == 6.0
        time.advance(6.0)
        assert (breaker.state, breaker.retry_in, breaker.shut_for()) == ("half_open", 0.0, None)
        trial = breaker.enter()
        assert trial.permit is not None
        assert breaker.snapshot().trials == 1
        trial.leave("success")
        assert breaker.state == "closed"


def test_each_refusal_is_an_error_of_its_own_that_names_the_breaker() -> None:
    breaker = opened(name="openai/gpt")
    errors = []
    for _ in range(2):
        with pytest.raises(CircuitOpenError) as caught:
            breaker.enter()
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert errors[0].name == "openai/gpt"
    assert str(errors[0]).startswith("the circuit of 'openai/gpt' is open")
    with pytest.raises(CircuitOpenError) as caught:
        opened().enter()
    assert caught.value.name is None
    assert str(caught.value).startswith("the circuit is open")


def test_only_the_first_word_of_a_lease_counts() -> None:
    breaker = CircuitBreaker(2)
    lease = breaker.enter()
    for _ in range(5):
        lease.leave("failure")
    assert breaker.snapshot().consecutive_failures == 1
    lease.leave("success")
    assert breaker.snapshot().consecutive_failures == 1


def test_a_verdict_that_does_not_exist_is_refused_and_ends_nothing() -> None:
    breaker = CircuitBreaker(1)
    lease = breaker.enter()
    with pytest.raises(ValueError, match="must be one of 'success', 'failure', 'permanent', 'neutral', not 'ok'"):
        lease.leave("ok")  # type: ignore[arg-type]
    lease.leave("failure")
    assert breaker.state == "open"


def test_commands_hold_until_the_next_one() -> None:
    breaker = CircuitBreaker(1)
    breaker.force_open()
    assert (breaker.state, breaker.retry_in) == ("forced_open", 30.0)
    with pytest.raises(CircuitOpenError):
        breaker.enter()
    breaker.disable()
    for _ in range(10):
        end(breaker)
    assert breaker.state == "disabled"
    breaker.reset()
    assert breaker.state == "closed"
    end(breaker)
    assert breaker.state == "open"


def test_jitter_is_drawn_from_the_dice_of_the_world() -> None:
    with FakeTime(rng=lambda: 0.5):
        assert opened(recovery_time=10.0, jitter=0.5).retry_in == 12.5


# ---- blocks ------------------------------------------------------------------------------------------------------


def test_a_block_counts_by_how_it_ends() -> None:
    breaker = CircuitBreaker(2)
    with breaker:
        pass
    for _ in range(2):
        with pytest.raises(OSError, match="gone"), breaker:
            raise OSError("gone")
    assert breaker.state == "open"
    with pytest.raises(CircuitOpenError), breaker:
        pytest.fail("the block must not run")


async def test_an_async_block_counts_by_how_it_ends() -> None:
    breaker = CircuitBreaker(2)
    async with breaker:
        await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            async with breaker:
                raise OSError("gone")
    assert breaker.state == "open"
    with pytest.raises(CircuitOpenError):
        async with breaker:
            pytest.fail("the block must not run")


def test_a_block_may_say_itself_what_came_of_it() -> None:
    breaker = CircuitBreaker(1)
    with breaker as lease:
        lease.leave("failure")
    assert breaker.state == "open"


def test_blocks_in_blocks_count_once_and_each_end_ends_its_own() -> None:
    breaker, other = CircuitBreaker(2), CircuitBreaker(2)
    for _ in range(2):
        with pytest.raises(OSError), breaker, other, breaker:
            raise OSError
    assert (breaker.state, other.state) == ("open", "open")
    assert breaker.snapshot().openings == 1


def test_a_block_whose_lease_was_detached_is_ended_all_the_same() -> None:
    breaker = CircuitBreaker(1)
    with pytest.raises(OSError), breaker as lease:
        lease.detach()
        assert breaker.enter().permit is not None  # no part of it
        raise OSError
    assert lease.left
    assert breaker.state == "open"


def test_a_block_that_ends_in_another_context_is_lost_and_harms_nobody() -> None:
    breaker = CircuitBreaker(1)
    contextvars.Context().run(breaker.__enter__)
    breaker.__exit__(OSError, OSError(), None)
    assert breaker.state == "closed"
    end(breaker)
    assert breaker.state == "open"


# ---- decorated functions -----------------------------------------------------------------------------------------


def test_a_function_keeps_its_name_its_signature_and_its_result() -> None:
    breaker = CircuitBreaker(2)

    @breaker
    def fetch(url: str, *, size: int = 1) -> str:
        """Fetches."""
        return url * size

    assert fetch("a", size=2) == "aa"
    assert (fetch.__name__, fetch.__doc__) == ("fetch", "Fetches.")
    assert str(inspect.signature(fetch)) == "(url: 'str', *, size: 'int' = 1) -> 'str'"


def test_a_function_counts_by_how_it_ends() -> None:
    breaker = CircuitBreaker(2)
    calls = []

    @breaker
    def fetch() -> None:
        calls.append(1)
        raise OSError

    for _ in range(2):
        with pytest.raises(OSError):
            fetch()
    with pytest.raises(CircuitOpenError):
        fetch()
    assert len(calls) == 2


async def test_an_async_function_counts_when_it_is_awaited() -> None:
    breaker = CircuitBreaker(2)

    @breaker
    async def fetch() -> None:
        raise OSError

    assert inspect.iscoroutinefunction(fetch)
    waiting = [fetch() for _ in range(3)]
    assert breaker.snapshot().consecutive_failures == 0
    for one in waiting[:2]:
        with pytest.raises(OSError):
            await one
    with pytest.raises(CircuitOpenError):
        await waiting[2]


async def test_an_async_function_s_result_is_handed_on_and_counts_as_a_success() -> None:
    breaker = CircuitBreaker(2)

    @breaker
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    end(breaker)
    assert await double(4) == 8
    assert breaker.snapshot().consecutive_failures == 0


async def test_wrong_arguments_give_the_place_back() -> None:
    breaker = opened(recovery_time=0.0)

    @breaker
    async def fetch(url: str) -> str:
        return url

    with pytest.raises(TypeError):
        await fetch()  # type: ignore[call-arg]
    assert breaker.snapshot().trials == 0


def test_methods_class_methods_and_static_methods_are_guarded() -> None:
    breaker = CircuitBreaker(3)

    class Service:
        @breaker
        def method(self) -> object:
            return self

        @breaker  # type: ignore[arg-type]
        @classmethod
        def of_class(cls) -> object:
            return cls

        @breaker
        @staticmethod
        def static() -> object:
            raise OSError

    service = Service()
    assert service.method() is service
    assert service.of_class() is Service  # type: ignore[operator]
    with pytest.raises(OSError):
        service.static()
    assert breaker.snapshot().consecutive_failures == 1


def test_partials_and_callable_objects_are_guarded() -> None:
    class Fails:
        def __call__(self) -> None:
            raise OSError

    breaker = CircuitBreaker(2)
    for one in (Fails(), functools.partial(int, "no number")):
        with pytest.raises((OSError, ValueError)):
            breaker(one)()
    assert breaker.state == "open"


def test_what_can_only_seem_to_be_guarded_is_refused() -> None:
    def lines() -> Iterator[str]:
        yield ""

    async def async_lines() -> AsyncIterator[str]:
        yield ""

    breaker = CircuitBreaker()
    for generator in (lines, async_lines):
        with pytest.raises(TypeError, match="guard the function that opens the stream"):
            breaker(generator)
    for thing, name in ((3, "int"), (OSError, "type")):
        with pytest.raises(TypeError, match=f"the function that makes the call, not {name}"):
            breaker(thing)  # type: ignore[arg-type]


# ---- verdicts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (None, "success"),
        (OSError(), "failure"),
        (ApiError(400), "failure"),
        (TimeoutError(), "failure"),
        (asyncio.CancelledError(), "neutral"),
        (KeyboardInterrupt(), "neutral"),
        (GeneratorExit(), "neutral"),
        (CircuitOpenError(1.0), "neutral"),
        (DeadlineExceeded("deadline", 0, None), "neutral"),
        (RetriesExhausted("max_attempts", 3, OSError()), "failure"),
        (RetriesExhausted("max_attempts", 3, CircuitOpenError()), "neutral"),
    ],
)
def test_where_nothing_else_is_known_an_exception_is_a_failure(error: BaseException | None, verdict: Verdict) -> None:
    assert verdict_of_outcome(error) == verdict
    breaker = CircuitBreaker(1)

    @breaker
    def end_so() -> None:
        if error is not None:
            raise error

    if error is None:
        end_so()
    else:
        with pytest.raises(type(error)) as caught:
            end_so()
        assert caught.value is error
    assert (breaker.state == "open") == (verdict == "failure")


def test_a_rule_of_the_users_own_sees_the_error_or_the_result() -> None:
    seen: list[tuple[object, object]] = []

    def rule(error: BaseException | None, result: object) -> Verdict:
        seen.append((error, result))
        return "failure" if result == 503 else "success"

    breaker = CircuitBreaker(2, verdict=rule)
    error = OSError()

    @breaker
    def fetch(outcome: object) -> object:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    fetch(503)
    with pytest.raises(OSError):
        fetch(error)
    fetch(503)
    assert breaker.state == "closed"
    fetch(503)
    assert breaker.state == "open"
    assert seen == [(None, 503), (error, None), (None, 503), (None, 503)]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(), CircuitOpenError()])
def test_what_says_nothing_is_never_offered_to_a_rule(error: BaseException) -> None:
    offered: list[object] = []

    def rule(error: BaseException | None, result: object) -> Verdict:
        offered.append(error)
        return "failure"

    breaker = opened(recovery_time=0.0, verdict=rule)
    with pytest.raises(type(error)), breaker:
        raise error
    assert offered == []
    assert breaker.state == "half_open"
    assert breaker.snapshot().trials == 0


@pytest.mark.parametrize("broken", [lambda _, __: 1 / 0, lambda _, __: None, lambda _, __: "ok"])
def test_a_broken_rule_is_logged_and_changes_no_outcome(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    breaker = CircuitBreaker(1, verdict=broken)
    with caplog.at_level(logging.ERROR), breaker:
        pass
    with pytest.raises(OSError, match="gone"), breaker:
        raise OSError("gone")
    assert breaker.state == "open"
    assert [record.message.split(" raised ")[0] for record in caplog.records] == ["verdict"] * 2
    assert "gone" not in caplog.text


def test_a_rule_that_is_interrupted_gives_the_place_back() -> None:
    def rule(error: BaseException | None, result: object) -> Verdict:
        raise KeyboardInterrupt

    breaker = CircuitBreaker(1, verdict=rule)
    with pytest.raises(KeyboardInterrupt), breaker as lease:
        pass
    assert lease.left


# ---- who is told -------------------------------------------------------------------------------------------------


def test_each_change_is_told_once_after_the_fact() -> None:
    told: list[tuple[str | None, Transition, str]] = []

    def listener(breaker: CircuitBreaker, change: Transition) -> None:
        told.append((breaker.name, change, breaker.state))

    with FakeTime() as time:
        breaker = CircuitBreaker(1, 10, name="a", on_change=listener)
        end(breaker)
        time.advance(10.0)
        end(breaker, "neutral")
        end(breaker, "success")
        breaker.force_open()
        breaker.force_open()
        breaker.disable()
        breaker.reset()
        breaker.reset()
    assert [name for name, _, _ in told] == ["a"] * 6
    assert [change.after for _, change, _ in told] == [state for _, _, state in told]
    assert [change[:3] for _, change, _ in told] == [
        ("closed", "open", "tripped"),
        ("open", "half_open", "cooled"),
        ("half_open", "closed", "proven"),
        ("closed", "forced_open", "forced"),
        ("forced_open", "disabled", "disabled"),
        ("disabled", "closed", "reset"),
    ]


def test_a_listener_may_use_the_breaker_and_its_errors_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def listener(breaker: CircuitBreaker, change: Transition) -> None:
        breaker.snapshot()
        with pytest.raises(CircuitOpenError):
            breaker.enter()
        raise ValueError("secret")

    with caplog.at_level(logging.ERROR):
        assert opened(on_change=listener).state == "open"
    (record,) = caplog.records
    assert record.message.startswith("on_change raised ValueError")
    assert "secret" not in record.message


def test_a_listener_that_is_interrupted_gives_the_trial_s_place_back() -> None:
    def listener(breaker: CircuitBreaker, change: Transition) -> None:
        if change.after == "half_open":
            raise KeyboardInterrupt

    with FakeTime() as time:
        breaker = opened(on_change=listener)
        time.advance(30.0)
        with pytest.raises(KeyboardInterrupt):
            breaker.enter()
        assert breaker.snapshot().trials == 0


# ---- calls inside calls ------------------------------------------------------------------------------------------


def test_a_call_inside_a_call_is_part_of_it() -> None:
    breaker = CircuitBreaker(2)
    outer = breaker.enter()
    inner = breaker.enter()
    assert inner.permit is None
    inner.leave("failure")
    assert breaker.snapshot().consecutive_failures == 0
    outer.leave("failure")
    assert breaker.snapshot().consecutive_failures == 1


def test_a_call_inside_is_let_through_while_the_outer_is_alive_and_counts_anew_after_it() -> None:
    breaker = CircuitBreaker(1)
    outer = breaker.enter()
    contextvars.Context().run(end, breaker)  # somebody else's call opens it
    assert breaker.state == "open"
    assert breaker.shut_for() is None
    breaker.enter().leave("success")
    outer.leave("success")
    assert breaker.shut_for() == pytest.approx(30.0, abs=5.0)
    with pytest.raises(CircuitOpenError):
        breaker.enter()


def test_what_is_inside_a_part_of_a_call_that_is_over_counts_anew() -> None:
    breaker = CircuitBreaker(1)
    outer = breaker.enter()
    breaker.enter()  # goes on after the outer call
    outer.leave("success")
    end(breaker)
    assert breaker.state == "open"


def test_another_breaker_inside_counts_for_itself() -> None:
    outer, inner = CircuitBreaker(1), CircuitBreaker(1)
    with outer:
        end(inner)
    assert (outer.state, inner.state) == ("closed", "open")


async def test_tasks_started_inside_are_part_of_the_call_while_it_lasts() -> None:
    breaker = CircuitBreaker(3)
    go_on = asyncio.Event()

    @breaker
    async def fail() -> None:
        raise OSError

    async def later() -> None:
        await go_on.wait()
        with pytest.raises(OSError):
            await fail()

    async with breaker:
        await asyncio.gather(*(fail() for _ in range(5)), return_exceptions=True)
        assert breaker.snapshot().consecutive_failures == 0
        task = asyncio.create_task(later())
    go_on.set()
    await task
    assert breaker.snapshot().consecutive_failures == 1


async def test_threads_that_copy_the_context_are_part_of_the_call() -> None:
    breaker = CircuitBreaker(1)
    async with breaker:
        await asyncio.to_thread(end, breaker)
    assert breaker.state == "closed"
    await asyncio.to_thread(end, breaker)
    assert breaker.state == "open"


def test_a_context_that_remembers_a_call_that_is_over_is_no_part_of_it() -> None:
    breaker = CircuitBreaker(1)
    with breaker:
        remembered = contextvars.copy_context()
    remembered.run(end, breaker)
    assert breaker.state == "open"


def test_a_lease_that_is_left_elsewhere_does_not_linger() -> None:
    breaker = CircuitBreaker(2)
    lease = breaker.enter()
    thread = threading.Thread(target=lease.leave, args=("failure",))
    thread.start()
    thread.join()
    end(breaker)
    assert breaker.state == "open"


def test_what_is_handed_to_somebody_else_is_no_outer_call() -> None:
    breaker = CircuitBreaker(2)
    stream = breaker.enter()
    stream.detach()
    end(breaker)
    stream.leave("failure")
    assert breaker.state == "open"
    back = CircuitBreaker(2)
    body = back.enter()
    body.detach()
    body.attach()
    body.attach()
    end(back)
    assert back.snapshot().consecutive_failures == 0


async def test_calls_made_at_once_before_they_are_awaited_count_each() -> None:
    breaker = CircuitBreaker(3)

    async def fail() -> None:
        raise OSError

    @breaker
    def fetch() -> Coroutine[Any, Any, None]:
        return fail()

    await asyncio.gather(fetch(), fetch(), fetch(), return_exceptions=True)
    assert breaker.state == "open"


def test_what_the_context_remembers_does_not_grow() -> None:
    def work() -> int:
        breakers = [CircuitBreaker() for _ in range(3)]
        for _ in range(100):
            leases = [one.enter() for one in breakers]
            for lease in leases:
                lease.leave("success")
        return len(_held.get())

    def work_that_ends_elsewhere() -> int:
        breaker = CircuitBreaker()
        for _ in range(100):
            contextvars.Context().run(breaker.enter().leave, "success")
        return len(_held.get())

    assert contextvars.Context().run(work) == 0
    assert contextvars.Context().run(work_that_ends_elsewhere) <= 1


# ---- clocks, threads, loops, processes ---------------------------------------------------------------------------


def test_instants_of_two_clocks_do_not_mix() -> None:
    breaker = CircuitBreaker(1)
    with FakeTime(start=1e9):
        end(breaker)
        assert breaker.state == "open"
    assert breaker.state == "closed"
    assert breaker.retry_in == 0.0
    end(breaker, "success")
    with FakeTime():
        assert breaker.state == "closed"
        end(breaker)
        assert breaker.retry_in == 30.0


def test_looking_from_elsewhere_changes_nothing() -> None:
    breaker = CircuitBreaker(1)
    with FakeTime():
        end(breaker)
        assert contextvars.Context().run(lambda: (breaker.state, repr(breaker), breaker.retry_in))[0] == "closed"
        assert breaker.state == "open"


def test_a_command_holds_on_every_clock() -> None:
    forced, disabled = CircuitBreaker(1), CircuitBreaker(1)
    with FakeTime():
        forced.force_open()
        disabled.disable()
    assert (forced.state, disabled.state) == ("forced_open", "disabled")
    end(disabled)
    with FakeTime():
        assert (forced.state, disabled.state) == ("forced_open", "disabled")
        forced.reset()
    assert forced.state == "closed"


def test_a_call_that_began_on_another_clock_changes_nothing() -> None:
    breaker = CircuitBreaker(1)
    with FakeTime():
        old = breaker.enter()
        old.detach()
    end(breaker, "success")
    old.leave("failure")
    assert breaker.state == "closed"


def test_a_clock_of_its_own_goes_before_the_world_s() -> None:
    now = [5.0]
    breaker = CircuitBreaker(1, 10, clock=lambda: now[0])
    with FakeTime():
        end(breaker)
    assert breaker.retry_in == 10.0
    now[0] = 12.0
    with FakeTime():
        assert breaker.retry_in == 3.0


def test_a_method_is_one_clock_however_often_it_is_looked_up() -> None:
    class Watch:
        def read(self) -> float:
            return 0.0

    breaker, watch = CircuitBreaker(2), Watch()
    for _ in range(2):
        scope = Scope(World(clock=watch.read, sleep=REAL.sleep, random=REAL.random), float("inf"), None)
        scope.enter()
        end(breaker)
        state = breaker.state
        scope.end()
    assert state == "open"


def test_eight_threads_and_all_places_are_free_in_the_end() -> None:
    breaker = CircuitBreaker(3, 0.0005, trials=3)
    verdicts: list[Verdict] = ["failure", "failure", "failure", "success", "permanent", "neutral"]
    trials: list[int] = []

    def work(seed: int) -> None:
        for n in range(400):
            try:
                lease = breaker.enter()
            except CircuitOpenError:
                continue
            if lease.permit is not None and lease.permit.trial is not None:
                trials.append(lease.permit.generation)
            lease.leave(verdicts[(seed + n) % 6])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert breaker.snapshot().trials == 0
    assert len(set(trials)) > 1


def test_one_object_serves_loops_one_after_the_other(run: Run) -> None:
    breaker = CircuitBreaker(2)

    @breaker
    async def fetch() -> None:
        raise OSError

    async def once() -> None:
        with pytest.raises(OSError):
            await fetch()

    run(once())
    run(once())
    assert breaker.state == "open"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_goes_on_with_the_state_and_a_lock_of_its_own() -> None:
    breaker = opened()
    with breaker._lock:  # as another thread might hold it at that moment
        child = os.fork()
        if child == 0:
            os._exit(0 if breaker.state == "open" else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


# ---- copies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_the_settings_and_begins_closed(copied: Callable[[CircuitBreaker], CircuitBreaker]) -> None:
    breaker = opened(name="a", recovery_time=5, trials=2, window=9, verdict=module_level_verdict)
    twin = copied(breaker)
    assert (twin.settings, twin.name) == (breaker.settings, "a")
    assert (twin.state, breaker.state) == ("closed", "open")
    with pytest.raises(KeyError), twin:
        raise KeyError
    assert twin.state == "closed"
    end(twin)
    assert twin.state == "open"


def test_a_copy_in_this_process_keeps_clock_and_listener() -> None:
    told: list[Transition] = []
    time = FakeTime()
    breaker = CircuitBreaker(1, clock=time, on_change=lambda _, change: told.append(change))
    twin = copy.deepcopy({"breaker": breaker})["breaker"]
    assert twin is not breaker
    end(twin)
    assert twin.retry_in == 30.0
    time.advance(10.0)
    assert (twin.retry_in, breaker.retry_in) == (20.0, 0.0)
    assert len(told) == 1
