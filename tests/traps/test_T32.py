"""T32: what an error was made from, and what is in a group, is looked at: neither missed nor believed too much."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, DeadlineExceeded, Kind, RetriesExhausted, classify, retry
from forbear.testing import FakeTime, Flaky
from foreign import WebError, answer, caught, chained, foreign

Form = Callable[..., Any]


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("several", errors)


def untrusted() -> Exception:
    """As a client of a client reports a bad certificate: at the very root."""
    return chained(
        foreign("APIConnectionError", "openai")(),
        foreign("ConnectError", "httpx")(),
        foreign("ConnectError", "httpcore")(),
        ssl.SSLCertVerificationError(),
    )  # type: ignore[no-any-return]


PASSING: dict[str, Exception] = {
    "two lost connections": group(ConnectionResetError(), ConnectionResetError()),
    "groups in a group": group(group(TimeoutError()), group(group(ApiError(503)))),
    "made from a 503": chained(WebError(), answer(503)),
    "made from something made from a 503": chained(WebError(), RuntimeError(), answer(503)),
    "made from a group": chained(WebError(), group(TimeoutError(), answer(429))),
    "a group of what was made from it": group(chained(WebError(), TimeoutError())),
    "kept in an attribute": WebError(original_exception=ConnectionResetError()),
}
PERMANENT: dict[str, Exception] = {
    "one lost connection and one mistake": group(ConnectionResetError(), ValueError()),
    "deep down a 401": group(ConnectionResetError(), group(group(answer(401)))),
    "made from a 400": chained(WebError(), answer(400)),
    "made from a group with a mistake": chained(WebError(), group(TimeoutError(), KeyError())),
    "a mistake made from a lost connection": chained(ValueError(), ConnectionResetError()),
    "made from a certificate that can not be trusted": untrusted(),
    "a 404 made from a lost connection": chained(answer(404), ConnectionResetError()),
}


@pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)
def test_what_may_pass_is_retried(form: Form, error: Exception) -> None:
    fn = Flaky(then=error)
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(fn, max_attempts=3)
    assert (fn.calls, caught.value.last_error) == (3, error)


@pytest.mark.parametrize("error", PERMANENT.values(), ids=PERMANENT)
def test_what_can_not_pass_leaves_at_once(form: Form, error: Exception) -> None:
    fn = Flaky(then=error)
    with FakeTime(), pytest.raises(type(error)) as caught:
        form(fn)
    assert (fn.calls, caught.value) == (1, error)


def test_what_was_only_being_handled_is_not_what_an_error_means() -> None:
    assert classify(caught(WebError, answer(503))).kind is Kind.UNKNOWN


def test_the_longest_wait_of_a_group_is_waited_for(form: Form) -> None:
    first, second = answer(429, {"Retry-After": "3"}), answer(503, {"Retry-After": "9"})
    with FakeTime() as clock:
        assert form(Flaky(group(first, group(second)), chained(WebError(), first), "done")) == "done"
        assert clock.sleeps == [9.0, 3.0]
    fn = Flaky(then=group(first, answer(429, {"Retry-After": "3600"})))
    with FakeTime(), pytest.raises(DeadlineExceeded) as caught:
        form(fn)
    assert (fn.calls, caught.value.hint) == (1, 3600.0)


async def test_the_failures_of_a_task_group_are_looked_at() -> None:
    calls = 0

    async def fail() -> None:
        raise ConnectionResetError

    async def attempt() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())
                tasks.create_task(fail())
        return "done"

    with FakeTime():
        assert await retry(attempt) == "done"
    assert calls == 3


@pytest.mark.parametrize("leaving", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_group_with_something_that_must_leave_is_never_retried(leaving: type[BaseException]) -> None:
    mixed = BaseExceptionGroup("several", [ConnectionResetError(), leaving()])
    for error in (mixed, BaseExceptionGroup("outer", [mixed])):
        failure = classify(error)
        assert (failure.transient, failure.safe_to_retry, failure.kind) == (False, False, Kind.CANCELLED)


def test_a_cancellation_in_a_chain_is_none() -> None:
    """A timeout of asyncio was made from the cancellation by which it ended its task."""
    error = TimeoutError()
    error.__cause__ = error.__context__ = asyncio.CancelledError()
    assert classify(error).transient


def test_that_nothing_was_done_must_hold_for_all_of_a_group(form: Form) -> None:
    for errors, calls in ((group(answer(429), ConnectionRefusedError()), 2), (group(answer(429), TimeoutError()), 1)):
        fn = Flaky(then=errors)
        with FakeTime(), pytest.raises(Exception):
            form(fn, max_attempts=2, idempotent=False)
        assert fn.calls == calls
