"""An attempt can say that no other may follow it, whatever the options say; and the log says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forbear import Classifier, current_attempt, retry, retry_sync
from forbear.testing import FakeTime, record_events

WHY = "its body is gone"


def forbidding(error: Exception, calls: list[int]) -> Callable[[], Any]:
    def fn() -> None:
        attempt = current_attempt()
        assert attempt is not None
        calls.append(attempt.number)
        attempt.forbid_retry(WHY)
        raise error

    return fn


@pytest.mark.parametrize("retryable", [None, lambda _: True, ConnectionError, Classifier()])
@pytest.mark.parametrize("kind", [ConnectionResetError, ConnectionRefusedError])
def test_no_rule_repeats_what_an_attempt_forbids(
    retryable: Any, kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    options = {} if retryable is None else {"retryable": retryable}
    error, calls = kind(), list[int]()
    with FakeTime(), record_events() as events, pytest.raises(kind) as caught:
        retry_sync(forbidding(error, calls), **options)
    assert (caught.value, calls) == (error, [1])
    assert [end.reason for end in events.ends] == ["unsafe"]
    assert caplog.messages[0].endswith(f"not retried after {kind.__name__}: {WHY}")


def test_an_error_that_no_retry_can_help_stays_permanent(caplog: pytest.LogCaptureFixture) -> None:
    with FakeTime(), record_events() as events, pytest.raises(ValueError, match="bad"):
        retry_sync(forbidding(ValueError("bad"), []))
    assert [end.reason for end in events.ends] == ["permanent"]
    assert not caplog.messages


def test_it_holds_for_one_attempt_only() -> None:
    calls: list[int] = []

    def fn() -> str:
        attempt = current_attempt()
        assert attempt is not None
        calls.append(attempt.number)
        if attempt.number == 2:
            attempt.forbid_retry(WHY)
        raise ConnectionError

    with FakeTime(), pytest.raises(ConnectionError):
        retry_sync(fn, max_attempts=5)
    assert calls == [1, 2]


async def test_an_attempt_that_is_cut_is_not_followed_either(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    async def fn() -> None:
        attempt = current_attempt()
        assert attempt is not None
        calls.append(attempt.number)
        attempt.forbid_retry(WHY)
        await asyncio.sleep(100)

    with FakeTime(), pytest.raises(TimeoutError):
        await retry(fn, attempt_timeout=1)
    assert calls == [1]
    assert caplog.messages[0].endswith(WHY)
