"""T42: the error that really happened must reach the caller: unchanged, or as the cause of a final one."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, RetriesExhausted, RetryError, retry_sync
from forbear.testing import FakeTime, Flaky, Hang

Form = Callable[..., Any]


class Strange(ConnectionError):
    """Takes keyword-only arguments, has no text, and refuses to be compared."""

    def __init__(self, *, host: str) -> None:
        self.host = host

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")


ERRORS: list[Callable[[], Exception]] = [
    lambda: ConnectionError("mine"),
    lambda: ApiError(503, "mine"),
    lambda: Strange(host="h"),
]


def origin(error: BaseException) -> list[str]:
    """The functions in the traceback."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("make", ERRORS)
def test_what_is_given_up_carries_the_last_error_itself(form: Form, make: Callable[[], Exception]) -> None:
    made: list[Exception] = []

    def failing_here() -> None:
        made.append(make())
        raise made[-1]

    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(failing_here, max_attempts=3)
    error = caught.value
    assert len(made) == 3
    assert error.last_error is made[-1]
    assert error.__cause__ is made[-1]
    assert origin(made[-1])[-1] == "failing_here"


@pytest.mark.parametrize("make", ERRORS)
def test_by_choice_the_last_error_itself_is_raised(form: Form, make: Callable[[], Exception]) -> None:
    made: list[Exception] = []

    def failing_here() -> None:
        made.append(make())
        raise made[-1]

    with FakeTime(), pytest.raises(ConnectionError if type(make()) is not ApiError else ApiError) as caught:
        form(failing_here, max_attempts=3, reraise=True)
    assert len(made) == 3
    assert caught.value is made[-1]
    assert origin(caught.value)[-1] == "failing_here"
    assert any("gave up after attempt 3" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("reraise", [True, False])
def test_a_permanent_error_comes_out_as_it_went_in(form: Form, reraise: bool) -> None:
    cause = LookupError()
    error = ApiError(401, "mine")

    def failing_here() -> None:
        raise error from cause

    with FakeTime(), pytest.raises(ApiError) as caught:
        form(failing_here, reraise=reraise)
    assert caught.value is error
    assert (error.__cause__, error.__context__) == (cause, None)
    assert not hasattr(error, "__notes__")
    assert origin(error)[-1] == "failing_here"


def test_the_deadline_hides_no_cause(form: Form) -> None:
    error = ConnectionError("mine")
    with FakeTime(), pytest.raises(DeadlineExceeded) as caught:
        form(Flaky(then=error), backoff=[5.0], deadline=3.0)
    assert caught.value.__cause__ is error


async def test_a_cut_attempt_says_so_and_knows_where_it_hung(async_form: Form) -> None:
    fn = Flaky(then=Hang(60.0))
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        await async_form(fn.asynchronous, attempt_timeout=1.0, max_attempts=2)
    cause = caught.value.__cause__
    assert type(cause) is TimeoutError
    assert "attempt 2" in str(cause)
    assert cause.__cause__ is not None
    assert "asynchronous" in origin(cause.__cause__)


def test_an_error_raised_from_another_keeps_its_chain(form: Form) -> None:
    def failing_here() -> None:
        try:
            raise LookupError("first")
        except LookupError:
            raise ConnectionError("second")

    with FakeTime(), pytest.raises(RetryError) as caught:
        form(failing_here, max_attempts=2)
    second = caught.value.last_error
    assert second is not None
    assert isinstance(second.__context__, LookupError)
    assert origin(second.__context__) == ["failing_here"]


def test_layers_add_one_wrapper_and_not_one_each(form: Form) -> None:
    error = ConnectionError()
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(lambda: retry_sync(lambda: retry_sync(Flaky(then=error))))
    assert caught.value.last_error is error


def test_the_same_error_object_raised_by_each_attempt_is_no_problem(form: Form) -> None:
    error = ConnectionError()
    for _ in range(2):
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(ConnectionError) as caught:
            form(fn, max_attempts=3, reraise=True)
        assert caught.value is error
        assert fn.calls == 3
    assert len(error.__notes__) == 1


def origin_of_all() -> None:
    raise LookupError("the caller's own")


def test_an_error_that_the_caller_handles_keeps_its_traceback_through_a_call(blocking_form: Form) -> None:
    def caller() -> None:
        try:
            origin_of_all()
        except LookupError:
            assert blocking_form(Flaky(ConnectionError(), then="rolled back")) == "rolled back"
            raise

    with FakeTime(), pytest.raises(LookupError) as caught:
        caller()
    assert origin(caught.value)[-1] == "origin_of_all"


async def test_it_does_through_an_async_call_too(async_form: Form) -> None:
    async def caller() -> None:
        try:
            origin_of_all()
        except LookupError:
            assert await async_form(Flaky(ConnectionError(), then="rolled back").asynchronous) == "rolled back"
            raise

    with FakeTime(), pytest.raises(LookupError) as caught:
        await caller()
    assert origin(caught.value)[-1] == "origin_of_all"


@dataclass(frozen=True)
class Frozen(ConnectionError):
    """Refuses every change of itself."""

    host: str = "h"


@pytest.mark.parametrize("reraise", [True, False])
def test_an_error_that_refuses_changes_is_retried_like_any_other(form: Form, reraise: bool) -> None:
    with FakeTime():
        assert form(Flaky(Frozen(), Frozen(), then="done"), reraise=reraise) == "done"
        with pytest.raises(Frozen if reraise else RetriesExhausted):
            form(Flaky(then=Frozen()), reraise=reraise)


def test_such_an_error_in_the_chain_of_another_does_no_harm(form: Form) -> None:
    def fn() -> None:
        try:
            raise Frozen
        except Frozen as cause:
            raise ConnectionError from cause

    with FakeTime(), pytest.raises(RetriesExhausted):
        form(fn)
