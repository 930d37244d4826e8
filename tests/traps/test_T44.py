"""T44: a hook that raises must neither replace the failure it was told of nor stop the retry."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from forbear import Event, RetriesExhausted, RetryState, listening, retry_sync
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]


class Mute(Exception):
    """Has no text to be logged."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


MISTAKES: list[Exception] = [
    KeyError("k"), TypeError(), ValueError(), AssertionError(), StopIteration(), StopAsyncIteration(), Mute(),
    ConnectionError("as if retryable"), TimeoutError(), ExceptionGroup("several", [ValueError()]),
]  # fmt: skip


def raising(mistake: Exception, told: list[int]) -> Callable[[RetryState], None]:
    def hook(state: RetryState) -> None:
        told.append(state.attempt)
        raise mistake

    return hook


def raising_async(mistake: Exception, told: list[int]) -> Callable[[RetryState], Any]:
    async def hook(state: RetryState) -> None:
        told.append(state.attempt)
        raise mistake

    return hook


def test_the_call_still_succeeds(form: Form, caplog: pytest.LogCaptureFixture) -> None:
    for mistake in MISTAKES:
        told: list[int] = []
        caplog.clear()
        fn = Flaky(ConnectionError(), ConnectionError(), "done")
        with FakeTime() as clock:
            assert form(fn, on_retry=raising(mistake, told)) == "done"
            assert len(clock.sleeps) == 2
        assert told == [1, 2]
        assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2, type(mistake)
        assert all("on_retry raised" in record.message for record in caplog.records)


@pytest.mark.parametrize("reraise", [True, False])
def test_the_call_still_fails_with_its_own_error(form: Form, reraise: bool) -> None:
    for mistake in MISTAKES:
        told: list[int] = []
        error = ConnectionError("the real one")
        with FakeTime(), pytest.raises((RetriesExhausted, ConnectionError)) as caught:
            form(Flaky(then=error), on_retry=raising(mistake, told), max_attempts=3, reraise=reraise)
        assert told == [1, 2], type(mistake)
        assert (caught.value if reraise else caught.value.__cause__) is error
        assert error.__context__ is None
        assert caught.value.__context__ in (None, error)


@pytest.mark.parametrize("mistake", MISTAKES[:4], ids=repr)
@pytest.mark.parametrize("make", [raising, raising_async])
async def test_neither_kind_of_hook_changes_an_async_call(async_form: Form, mistake: Exception, make: Any) -> None:
    told: list[int] = []
    fn = Flaky(ConnectionError(), ConnectionError(), "done")
    with FakeTime():
        assert await async_form(fn.asynchronous, on_retry=make(mistake, told)) == "done"
    assert told == [1, 2]


def test_an_async_hook_of_a_blocking_call_is_reported_and_not_run(
    blocking_form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []
    with FakeTime():
        assert blocking_form(Flaky(ConnectionError(), then="done"), on_retry=raising_async(KeyError(), told)) == "done"
    assert told == []
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_listener_that_raises_changes_nothing_and_hides_nothing_from_others(form: Form) -> None:
    for mistake in MISTAKES:
        heard: list[Event] = []

        def broken(_: Event, mistake: Exception = mistake) -> None:
            raise mistake

        error = ConnectionError()
        with FakeTime(), listening(broken), listening(heard.append):
            assert form(Flaky(error, then="done")) == "done"
            assert len(heard) == 4  # a failure, a wait, a success, the end
            with pytest.raises(RetriesExhausted) as caught:
                form(Flaky(then=error), max_attempts=2)
        assert caught.value.__cause__ is error


def test_a_hook_that_runs_into_the_systems_end_is_obeyed(form: Form) -> None:
    def hook(_: object) -> None:
        raise KeyboardInterrupt

    fn = Flaky(then=ConnectionError())
    with FakeTime(), pytest.raises(KeyboardInterrupt):
        form(fn, on_retry=hook)
    assert fn.calls == 1


def test_a_hook_that_makes_calls_of_its_own_does_not_mix_them_with_the_outer_one(form: Form) -> None:
    inner = Flaky(ConnectionError(), "told", ConnectionError(), "told")
    fn = Flaky(ConnectionError(), ConnectionError(), "done")
    with FakeTime():
        assert form(fn, on_retry=lambda _: retry_sync(inner, max_attempts=2)) == "done"
    assert (fn.calls, inner.calls) == (3, 4)
