"""R089: what a failed attempt held in its locals is freed before the wait; tracebacks kept it alive."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Generator
from typing import Any

import pytest

from forbear import listening, retry
from forbear.testing import FakeTime

Form = Callable[..., Any]
ATTEMPTS = 6


class Big:
    """Stands for a hundred megabytes."""


class Watch:
    """Functions that allocate something big and fail, and what of it is alive."""

    def __init__(self) -> None:
        self.refs: list[weakref.ref[Big]] = []
        self.at_waits: list[int] = []

    @property
    def alive(self) -> int:
        return sum(ref() is not None for ref in self.refs)

    def allocate(self) -> Big:
        big = Big()
        self.refs.append(weakref.ref(big))
        return big

    def slept(self, _: float) -> None:
        self.at_waits.append(self.alive)

    def plainly(self) -> None:
        big = self.allocate()
        raise ConnectionError(id(big))

    def deeply(self) -> None:
        big = self.allocate()
        for _ in range(3):
            self.plainly()
        del big

    def from_another(self) -> None:
        big = self.allocate()
        try:
            self.plainly()
        except ConnectionError as error:
            raise TimeoutError from error
        del big

    def while_another(self) -> None:
        big = self.allocate()
        try:
            self.plainly()
        except ConnectionError:
            raise TimeoutError from None
        del big

    def in_a_group(self) -> None:
        big = self.allocate()
        errors: list[Exception] = []
        for fail in (self.plainly, self.from_another):
            try:
                fail()
            except Exception as error:
                errors.append(error)
        try:
            raise ExceptionGroup("several", errors)
        finally:
            del errors, big

    def in_many_layers(self) -> None:
        def down(depth: int) -> None:
            big = self.allocate()
            try:
                self.plainly() if depth == 0 else down(depth - 1)
            except ConnectionError as error:
                raise ConnectionError(depth) from error
            del big

        down(10)


FAILURES = ["plainly", "deeply", "from_another", "while_another", "in_a_group", "in_many_layers"]


@pytest.fixture
def no_collector() -> Generator[None]:
    gc.disable()
    yield
    gc.enable()


class FinalError:
    """Swallows the final error. Not made with contextlib, whose managers keep it in a cycle since Python 3.12."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        assert kind is not None, "the call has not failed"
        return issubclass(kind, Exception)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("reraise", [False, True])
@pytest.mark.usefixtures("no_collector")
def test_blocking_code_frees_each_attempt_before_its_wait_and_all_at_the_end(
    blocking_form: Form, failure: str, reraise: bool
) -> None:
    watch = Watch()
    options: dict[str, Any] = {"retryable": Exception, "max_attempts": ATTEMPTS, "reraise": reraise}
    with FinalError():
        blocking_form(getattr(watch, failure), sleep=watch.slept, **options)
    assert watch.at_waits == [0] * (ATTEMPTS - 1)
    assert len(watch.refs) >= ATTEMPTS
    assert watch.alive == 0


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("reraise", [False, True])
@pytest.mark.usefixtures("no_collector")
async def test_async_code_does_the_same(async_form: Form, failure: str, reraise: bool) -> None:
    watch = Watch()
    options: dict[str, Any] = {"retryable": Exception, "max_attempts": ATTEMPTS, "reraise": reraise}

    async def fail() -> None:
        await asyncio.sleep(0)
        getattr(watch, failure)()

    with FinalError():
        await async_form(fail, sleep=watch.slept, **options)
    assert watch.at_waits == [0] * (ATTEMPTS - 1)
    assert watch.alive == 0


@pytest.mark.usefixtures("no_collector")
def test_after_a_success_nothing_is_left(form: Form) -> None:
    watch = Watch()

    def fn() -> str:
        if len(watch.refs) < 9:
            watch.plainly()
        return "done"

    assert form(fn, sleep=watch.slept, max_attempts=10) == "done"
    assert watch.at_waits == [0] * 9
    assert (watch.alive, len(watch.refs)) == (0, 9)


@pytest.mark.usefixtures("no_collector")
async def test_attempts_that_were_cut_are_freed_as_well(async_form: Form) -> None:
    watch = Watch()

    async def hang() -> None:
        big = watch.allocate()
        await asyncio.sleep(60)
        del big

    with FakeTime():
        call = async_form(hang, attempt_timeout=1.0, sleep=watch.slept, max_attempts=ATTEMPTS, deadline=None)
        with FinalError():
            await call
        await asyncio.sleep(0)  # the loop lets go of the future that was cancelled
    assert watch.alive == 0
    assert watch.at_waits == [0] * (ATTEMPTS - 1)


@pytest.mark.usefixtures("no_collector")
def test_a_hook_sees_the_failure_whole_and_it_is_freed_afterwards(form: Form) -> None:
    watch = Watch()
    seen: list[tuple[int, bool]] = []

    def hook(state: Any) -> None:
        seen.append((watch.alive, state.error.__traceback__ is not None))

    with FinalError():
        form(watch.plainly, on_retry=hook, sleep=watch.slept, max_attempts=3)
    assert seen == [(1, True), (1, True)]
    assert watch.at_waits == [0, 0]


@pytest.mark.usefixtures("no_collector")
def test_events_that_are_kept_keep_no_frames(form: Form) -> None:
    watch, kept = Watch(), []
    with listening(kept.append), FinalError():
        form(watch.plainly, sleep=watch.slept, max_attempts=4)
    kept[-2:] = []  # the last attempt and the end: their error has reached the caller, with its traceback
    assert len(kept) == 6
    assert watch.at_waits == [0, 0, 0]
    assert watch.alive == 0


@pytest.mark.usefixtures("no_collector")
def test_the_permanent_error_of_a_call_dies_with_its_frames(form: Form) -> None:
    watch = Watch()

    def fn() -> None:
        big = watch.allocate()
        raise ValueError(id(big))

    for _ in range(3):
        with pytest.raises(ValueError) as caught:
            form(fn)
        del caught
    assert watch.alive == 0


@pytest.mark.usefixtures("no_collector")
def test_a_fallback_frees_the_FinalError() -> None:
    watch = Watch()
    call = retry(fallback=lambda error: type(error).__name__, sleep=watch.slept, max_attempts=3)(watch.plainly)
    assert call() == "RetriesExhausted"
    assert watch.alive == 0


@pytest.mark.usefixtures("no_collector")
async def test_an_async_fallback_frees_it_too() -> None:
    watch = Watch()

    async def fail() -> None:
        watch.plainly()

    async def instead(error: Exception) -> str:
        return type(error).__name__

    assert await retry(fail, fallback=instead, sleep=watch.slept, max_attempts=3) == "RetriesExhausted"
    assert watch.alive == 0


@pytest.mark.usefixtures("no_collector")
def test_of_refused_results_only_the_last_is_alive(form: Form) -> None:
    watch = Watch()
    with FinalError():
        form(watch.allocate, retry_if_result=lambda _: True, sleep=watch.slept, max_attempts=ATTEMPTS)
    assert watch.at_waits == [1] * (ATTEMPTS - 1)
    assert watch.alive == 0


@pytest.mark.usefixtures("no_collector")
def test_functions_among_the_options_die_with_the_call(form: Form) -> None:
    watch = Watch()
    big = watch.allocate()
    form(lambda: None, backoff=lambda _, big=big: 1.0, on_retry=lambda _, big=big: None)
    del big
    assert watch.alive == 0
