"""T14: cancellation, Ctrl-C and the interpreter's end are no failures; no rule of the user's makes them so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forbear import RetriesExhausted, deadline, retry, retry_sync
from forbear.testing import FakeTime, Flaky, Hang, record_events

Form = Callable[..., Any]
AsyncForm = Callable[..., Coroutine[Any, Any, Any]]
BROAD: dict[str, Any] = {
    "lambda": lambda _: True,
    "Exception": Exception,
    "classes": (Exception, OSError),
    "all but ValueError": lambda error: not isinstance(error, ValueError),
}
STEPS = range(11)


class Abort(BaseException):
    """The user's own way to end everything."""


LEAVING: list[Callable[[], BaseException]] = [
    KeyboardInterrupt,
    lambda: SystemExit(3),
    GeneratorExit,
    asyncio.CancelledError,
    Abort,
    lambda: BaseExceptionGroup("several", [ConnectionError(), KeyboardInterrupt()]),
    lambda: BaseExceptionGroup("several", [BaseExceptionGroup("inner", [asyncio.CancelledError()])]),
]


def task_now() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


@pytest.fixture(params=BROAD)
def retryable(request: pytest.FixtureRequest) -> Any:
    return BROAD[request.param]


# ---- what is no Exception is offered to no rule --------------------------------------------------------------------


def test_what_ends_the_program_leaves_at_once(form: Form, retryable: Any) -> None:
    for make in LEAVING:
        leaving = make()
        fn = Flaky(then=leaving)
        with FakeTime() as clock:
            with pytest.raises(type(leaving)) as caught:
                form(fn, retryable=retryable)
            assert (fn.calls, clock.now) == (1, 0.0), leaving
        if not isinstance(leaving, asyncio.CancelledError):  # coroutines may exchange it for a copy
            assert caught.value is leaving
        assert not hasattr(leaving, "__notes__")


def test_it_leaves_a_later_attempt_as_well(form: Form, retryable: Any) -> None:
    for make in LEAVING:
        fn = Flaky(ConnectionError(), ConnectionError(), make(), then="never")
        with FakeTime(), pytest.raises(type(make())):
            form(fn, retryable=retryable)
        assert fn.calls == 3


def test_the_rule_is_not_even_asked(form: Form) -> None:
    asked: list[BaseException] = []

    def rule(error: BaseException) -> bool:
        asked.append(error)
        return True

    for make in LEAVING:
        with FakeTime(), pytest.raises(type(make())):
            form(Flaky(then=make()), retryable=rule, on_retry=asked.append)
    assert asked == []


def test_no_fallback_takes_its_place() -> None:
    for make in LEAVING:
        fn = Flaky(then=make())
        with FakeTime(), pytest.raises(type(make())):
            retry_sync(fn, fallback=lambda _: "instead")


@pytest.mark.parametrize("kind", [BaseException, KeyboardInterrupt, asyncio.CancelledError, (OSError, SystemExit)])
def test_a_rule_that_names_such_a_class_is_refused(form: Form, kind: Any) -> None:
    with pytest.raises(ValueError, match="cancellation is never retried"):
        form(Flaky("done"), retryable=kind)


# ---- the caller cancels ------------------------------------------------------------------------------------------


async def cancelled_after(
    delay: float, call: Coroutine[Any, Any, Any], cancellations: int = 1
) -> tuple[asyncio.Task[Any], list[int]]:
    """The task of the call, cancelled after so many virtual seconds, and its count of cancellations as it ended."""
    counts: list[int] = []

    async def body() -> Any:
        try:
            return await call
        finally:
            counts.append(task_now().cancelling())

    task = asyncio.create_task(body())
    await asyncio.sleep(delay)
    for _ in range(cancellations):
        assert task.cancel()
    await asyncio.wait([task])
    return task, counts


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_a_cancellation_in_the_middle_of_an_attempt(
    async_form: AsyncForm, retryable: Any, cancellations: int
) -> None:
    fn = Flaky(then=Hang(60.0))
    with FakeTime() as clock:
        options: dict[str, Any] = {"retryable": retryable, "attempt_timeout": 30.0, "deadline": 50.0}
        task, counts = await cancelled_after(1.0, async_form(fn.asynchronous, **options), cancellations)
        assert clock.now == pytest.approx(1.0)
    assert task.cancelled()
    assert (fn.calls, counts) == (1, [cancellations])


async def test_a_cancellation_during_the_wait(async_form: AsyncForm, retryable: Any) -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime() as clock:
        task, counts = await cancelled_after(
            1.0, async_form(fn.asynchronous, retryable=retryable, backoff=[10.0])
        )  # fmt: skip
        assert clock.now == pytest.approx(1.0)
    assert task.cancelled()
    assert (fn.calls, counts) == (1, [1])


async def test_a_cancellation_during_an_async_hook(async_form: AsyncForm, retryable: Any) -> None:
    async def hook(_: object) -> None:
        await asyncio.sleep(5.0)

    fn = Flaky(then=ConnectionError())
    with FakeTime():
        task, counts = await cancelled_after(
            1.0, async_form(fn.asynchronous, retryable=retryable, on_retry=hook, backoff=[0.1])
        )
    assert task.cancelled()
    assert (fn.calls, counts) == (1, [1])


async def test_a_cancellation_before_the_first_step(async_form: AsyncForm, retryable: Any) -> None:
    fn = Flaky(then="done")
    task = asyncio.create_task(async_form(fn.asynchronous, retryable=retryable))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert fn.calls == 0


@pytest.mark.parametrize("answer", [ConnectionError(), ValueError()])
async def test_an_attempt_that_turns_the_cancellation_into_an_error_saves_nothing(
    async_form: AsyncForm, retryable: Any, answer: Exception
) -> None:
    calls = []

    async def stubborn() -> None:
        calls.append(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise answer from None

    with FakeTime():
        task, counts = await cancelled_after(1.0, async_form(stubborn, retryable=retryable))
    assert task.cancelled()
    assert (len(calls), counts) == (1, [1])


async def test_a_cancellation_is_told_as_one(async_form: AsyncForm) -> None:
    with FakeTime(), record_events() as events:
        await cancelled_after(1.0, async_form(Flaky(then=Hang(60.0)).asynchronous))
        await cancelled_after(1.0, async_form(Flaky(then=ConnectionError()).asynchronous, backoff=[10.0]))
    assert [end.reason for end in events.ends] == ["cancelled", "cancelled"]
    assert [attempt.outcome for attempt in events.attempts] == ["cancelled", "failure"]


# ---- orderings -----------------------------------------------------------------------------------------------------


class Race:
    """A call whose attempt ends and whose task is cancelled a few loop steps apart."""

    def __init__(self, form: AsyncForm, outcome: Any) -> None:
        self.outcome = outcome
        self.calls = 0
        self.accepted = False
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(form(self.fn, backoff=[30.0], retryable=ConnectionError))

    async def fn(self) -> Any:
        self.calls += 1
        return await self.future

    def finish(self) -> None:
        if self.future.done():
            return
        if isinstance(self.outcome, Exception):
            self.future.set_exception(self.outcome)
        else:
            self.future.set_result(self.outcome)

    def cancel(self) -> None:
        self.accepted = self.task.cancel()


@pytest.mark.parametrize("outcome", ["done", ConnectionError(), ValueError()], ids=repr)
@pytest.mark.parametrize("cancel_first", [True, False])
def test_a_cancellation_that_races_with_the_end_of_the_attempt_wins_if_it_was_accepted(
    run: Callable[..., Any], async_form: AsyncForm, outcome: Any, cancel_first: bool
) -> None:
    async def one(before: int, apart: int) -> None:
        loop, race = asyncio.get_running_loop(), Race(async_form, outcome)
        steps = [race.cancel, race.finish] if cancel_first else [race.finish, race.cancel]
        for _ in range(before):
            await asyncio.sleep(0)
        loop.call_soon(steps[0])
        for _ in range(apart):
            await asyncio.sleep(0)
        loop.call_soon(steps[1])
        done, _ = await asyncio.wait([race.task], timeout=20)
        assert done, f"{apart} steps apart: the cancellation was lost"
        assert race.calls <= 1
        assert race.task.cancelled() == race.accepted, f"{apart} steps apart"
        if not race.accepted and outcome == "done":
            assert race.task.result() == "done"

    async def main() -> None:
        for before in range(3):
            for apart in STEPS:
                await one(before, apart)

    run(main())


@pytest.mark.parametrize("limit", ["attempt_timeout", "deadline"])
@pytest.mark.parametrize("cancel_first", [True, False])
async def test_a_cancellation_that_races_with_the_timeout_wins(
    async_form: AsyncForm, limit: str, cancel_first: bool
) -> None:
    for before, unwinding in [(b, u) for b in STEPS for u in (0, 1, 3)]:
        calls: list[int] = []

        async def fn(calls: list[int] = calls, before: int = before, unwinding: int = unwinding) -> None:
            calls.append(1)
            task = task_now()
            if not cancel_first:
                asyncio.get_running_loop().call_later(1.0, task.cancel)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                for _ in range(unwinding):
                    await asyncio.sleep(0)
                raise

        async def caller(fn: Any = fn, before: int = before) -> list[int]:
            for _ in range(before):
                await asyncio.sleep(0)
            if cancel_first:
                asyncio.get_running_loop().call_later(1.0, task_now().cancel)
            try:
                await async_form(fn, **{limit: 1.0}, retryable=lambda _: True)
            finally:
                assert task_now().cancelling() == 1

        with FakeTime():
            task = asyncio.create_task(caller())
            await asyncio.wait([task])
        assert task.cancelled(), (before, unwinding)
        assert calls == [1]


# ---- the caller's own timeouts and groups ------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0.1, 1.0, 1.5, 3.0, 3.5])
async def test_a_timeout_of_the_callers_own_has_effect_at_once(async_form: AsyncForm, after: float) -> None:
    for outcome in (Hang(60.0), ConnectionError(), Hang(1.0, ConnectionError())):
        fn = Flaky(then=outcome)
        with FakeTime() as clock:
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(after) as timeout:
                    options: dict[str, Any] = {"retryable": lambda _: True, "attempt_timeout": 1.0, "backoff": [2.0]}
                    await async_form(fn.asynchronous, max_attempts=100, deadline=None, **options)
            assert clock.now == pytest.approx(after)
        assert timeout.expired()
        assert type(caught.value) is TimeoutError
        assert task_now().cancelling() == 0


async def test_nested_timeouts_end_what_is_theirs(async_form: AsyncForm) -> None:
    fn = Flaky(then=Hang(60.0))
    with FakeTime() as clock:
        async with asyncio.timeout(50.0) as outer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.5) as inner:
                    async with deadline(40.0):
                        await async_form(fn.asynchronous, attempt_timeout=1.0, backoff=[0.0], max_attempts=None)
        assert clock.now == pytest.approx(2.5)
    assert (inner.expired(), outer.expired(), fn.calls) == (True, False, 3)
    assert task_now().cancelling() == 0


async def test_wait_for_has_effect_at_once(async_form: AsyncForm, retryable: Any) -> None:
    for outcome in (Hang(60.0), ConnectionError()):
        fn = Flaky(then=outcome)
        with FakeTime() as clock:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(async_form(fn.asynchronous, retryable=retryable, backoff=[20.0]), 0.1)
            assert clock.now == pytest.approx(0.1)
        assert fn.calls == 1


async def test_a_failing_sibling_ends_the_call_and_only_its_error_is_reported(
    async_form: AsyncForm, retryable: Any
) -> None:
    async def sibling() -> None:
        await asyncio.sleep(0.5)
        raise LookupError

    for outcome in (Hang(60.0), ConnectionError()):
        fn = Flaky(then=outcome)
        with FakeTime() as clock:
            with pytest.raises(ExceptionGroup) as caught:
                async with asyncio.TaskGroup() as group:
                    child = group.create_task(async_form(fn.asynchronous, retryable=retryable, backoff=[20.0]))
                    group.create_task(sibling())
            assert clock.now == pytest.approx(0.5)
        # Before 3.13 a group does not take its own cancellation back; that is nothing of ours.
        while task_now().cancelling():
            task_now().uncancel()
        assert [type(error) for error in caught.value.exceptions] == [LookupError]
        assert child.cancelled()
        assert fn.calls == 1


async def test_a_call_in_the_body_of_a_group_is_ended_by_it(async_form: AsyncForm, retryable: Any) -> None:
    async def sibling() -> None:
        await asyncio.sleep(0.5)
        raise LookupError

    fn = Flaky(then=Hang(60.0))
    with FakeTime(), pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(sibling())
            await async_form(fn.asynchronous, retryable=retryable)
    assert [type(error) for error in caught.value.exceptions] == [LookupError]
    assert fn.calls == 1
    assert task_now().cancelling() == 0


async def test_a_group_inside_an_attempt_is_cut_and_retried_as_a_whole(async_form: AsyncForm) -> None:
    cancelled: list[int] = []

    async def child() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def fn() -> str:
        if len(cancelled) >= 4:
            return "done"
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(child())
        return "never"

    with FakeTime() as clock:
        assert await async_form(fn, attempt_timeout=1.0, backoff=[0.5]) == "done"
        assert clock.now == pytest.approx(3.0)
    assert len(cancelled) == 4
    assert task_now().cancelling() == 0


async def test_a_task_that_was_cancelled_before_can_still_make_calls_while_it_cleans_up(
    async_form: AsyncForm,
) -> None:
    fn = Flaky(Hang(60.0), ConnectionError(), then="cleaned up")
    cleaned: list[Any] = []

    async def body() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(await async_form(fn.asynchronous, attempt_timeout=1.0, backoff=[0.5]))
            assert task_now().cancelling() == 1

    with FakeTime():
        task = asyncio.create_task(body())
        await asyncio.sleep(1.0)
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    assert cleaned == ["cleaned up"]


async def test_a_cancelled_future_inside_an_attempt_is_not_retried(async_form: AsyncForm, retryable: Any) -> None:
    calls = []

    async def fn() -> Any:
        calls.append(1)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    with pytest.raises(asyncio.CancelledError):
        await async_form(fn, retryable=retryable)
    assert (len(calls), task_now().cancelling()) == (1, 0)


async def test_closing_a_call_by_hand_runs_no_further_attempt(retryable: Any) -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime():
        coroutine = retry(fn.asynchronous, retryable=retryable, backoff=[10.0])
        coroutine.send(None)
        coroutine.close()
    assert fn.calls == 1


# ---- cancellations that are nobody's, and those that somebody swallows -------------------------------------------


async def failing_child() -> None:
    await asyncio.sleep(0.01)
    raise ConnectionError


async def fan_out() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(failing_child())
        group.create_task(asyncio.sleep(1))


async def test_the_failure_of_a_group_inside_an_attempt_is_the_attempts_own(async_form: AsyncForm) -> None:
    # Before Python 3.13 such a group leaves its task counted as cancelled.
    with FakeTime(), pytest.raises(ExceptionGroup):
        await async_form(fan_out, retryable=ConnectionError)
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        await async_form(fan_out, retryable=Exception, max_attempts=3)
    assert caught.value.attempts == 3


async def test_the_failure_of_a_group_passes_through_a_deadline_block() -> None:
    with FakeTime(), pytest.raises(ExceptionGroup):
        async with deadline(5.0):
            await fan_out()


async def test_a_client_that_never_takes_its_own_cancellation_back_has_timed_out(async_form: AsyncForm) -> None:
    calls: list[int] = []

    async def fn() -> str:
        calls.append(1)
        if len(calls) == 3:
            return "done"
        asyncio.get_running_loop().call_later(0.01, task_now().cancel)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise TimeoutError from None
        return "never"

    with FakeTime():
        assert await async_form(fn, max_attempts=3) == "done"


async def swallow(_: object) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(1.0)


@pytest.mark.parametrize("where", ["on_retry", "sleep"])
async def test_a_hook_or_sleep_that_swallows_the_cancellation_does_not_save_the_call(
    async_form: AsyncForm, where: str
) -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime():
        task, _ = await cancelled_after(0.5, async_form(fn.asynchronous, **{where: swallow}))
    assert task.cancelled()
    assert fn.calls == 1


async def test_an_attempt_that_cancels_its_own_task_and_fails_is_cancelled_once(async_form: AsyncForm) -> None:
    async def fn() -> None:
        task_now().cancel()
        raise ConnectionError

    async def body() -> str:
        try:
            await async_form(fn)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # the caller cleans up, undisturbed
            return "cleaned up"
        return "not cancelled"

    with FakeTime():
        assert await asyncio.create_task(body()) == "cleaned up"


async def test_code_in_a_deadline_block_may_deal_with_its_cancellation() -> None:
    async def serve() -> str:
        async with deadline(50.0):
            await swallow(None)
        return "drained"

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "drained"


def test_an_error_that_is_an_interrupt_too_is_one(form: Form) -> None:
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        stop = type("Stop", (kind, RuntimeError), {})
        fn = Flaky(then=stop())
        with FakeTime(), pytest.raises(stop):
            form(fn, retryable=Exception)
        assert fn.calls == 1
