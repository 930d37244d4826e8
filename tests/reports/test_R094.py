"""R094: a user who asks for another try with a signal of their own must find, at the end, the error that led to it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from forbear import RetriesExhausted
from forbear.testing import FakeTime

Form = Callable[..., Any]


class TryAgain(Exception):
    """The user's own signal."""


def signalling(cause: Callable[[], Exception], seen: list[Exception], *, explicit: bool) -> Callable[[], None]:
    def fn() -> None:
        try:
            seen.append(cause())
            raise seen[-1]
        except Exception as error:
            if explicit:
                raise TryAgain from error
            raise TryAgain  # the implicit chain is the point

    return fn


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("reraise", [True, False])
def test_the_underlying_error_is_at_the_end_of_the_chain_whole(form: Form, explicit: bool, reraise: bool) -> None:
    for cause in (ConnectionError, lambda: ValueError("mine"), lambda: KeyError("k")):
        seen: list[Exception] = []
        with FakeTime(), pytest.raises((TryAgain, RetriesExhausted)) as caught:
            form(signalling(cause, seen, explicit=explicit), retryable=TryAgain, max_attempts=3, reraise=reraise)
        assert len(seen) == 3
        signal: Any = caught.value if reraise else caught.value.__cause__
        assert isinstance(signal, TryAgain)
        underlying = signal.__cause__ if explicit else signal.__context__
        assert underlying is seen[-1]
        assert [frame.name for frame in traceback.extract_tb(underlying.__traceback__)] == ["fn"]
        assert type(underlying).__name__ in "".join(traceback.format_exception(caught.value))


def test_a_signal_with_nothing_behind_it_is_the_last_error_itself(form: Form) -> None:
    def fn() -> None:
        raise TryAgain

    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(fn, retryable=TryAgain, max_attempts=3)
    assert isinstance(caught.value.last_error, TryAgain)
    assert caught.value.last_error.__context__ is None


def test_earlier_errors_do_not_get_into_the_chain_of_the_last(form: Form) -> None:
    seen: list[Exception] = []
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(signalling(ConnectionError, seen, explicit=True), retryable=TryAgain, max_attempts=3)
    chain: list[BaseException] = []
    one: BaseException | None = caught.value
    while one is not None:
        chain.append(one)
        one = one.__cause__ or one.__context__
    assert [type(error) for error in chain] == [RetriesExhausted, TryAgain, ConnectionError]
    assert chain[-1] is seen[-1]


def test_a_result_can_ask_for_another_try_as_well(form: Form) -> None:
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(lambda: "not yet", retry_if_result=lambda result: result == "not yet", max_attempts=3)
    assert caught.value.last_result == "not yet"
