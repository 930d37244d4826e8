"""T45: arguments are where keys and passwords are handed over, so no log of ours prints them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from forbear import RetryState, attempts, current_attempt, retry, retry_call, retry_sync
from forbear.testing import FakeTime, record_events

SECRET = "sk-live-0123456789"


class Client:
    """Holds the secret in an attribute and takes it as an argument."""

    def __init__(self) -> None:
        self.api_key = SECRET

    @retry(max_attempts=2)
    def method(self, _token: str, **_: str) -> None:
        raise ConnectionError

    @retry(max_attempts=2)
    async def async_method(self, _token: str, **_: str) -> None:
        raise ConnectionError

    def __call__(self, _token: str, **_: str) -> None:
        raise ConnectionError


def plain(_token: str, **_: str) -> None:
    raise ConnectionError


async def asynchronous(_token: str, **_: str) -> None:
    raise ConnectionError


def failing_hook(state: RetryState) -> None:
    raise ValueError(SECRET, state.error)


def in_block() -> None:
    for attempt in attempts(max_attempts=2, on_retry=failing_hook):
        with attempt:
            plain(SECRET)


HOOKED: Any = {"max_attempts": 2, "on_retry": failing_hook}
CALLS: dict[str, Callable[[], Any]] = {
    "method": lambda: Client().method(SECRET, key=SECRET),
    "decorated": lambda: retry(**HOOKED)(plain)(SECRET, key=SECRET),
    "decorated object": lambda: retry(**HOOKED)(Client())(SECRET, key=SECRET),
    "retry_call": lambda: retry_call(plain, SECRET, key=SECRET, retry_options=HOOKED),
    "retry_sync": lambda: retry_sync(lambda: plain(SECRET, key=SECRET), **HOOKED),
    "block": in_block,
}
ASYNC_CALLS: dict[str, Callable[[], Any]] = {
    "method": lambda: Client().async_method(SECRET, key=SECRET),
    "decorated": lambda: retry(**HOOKED)(asynchronous)(SECRET, key=SECRET),
    "retry_call": lambda: retry_call(asynchronous, SECRET, key=SECRET, retry_options=HOOKED),
    "retry": lambda: retry(lambda: asynchronous(SECRET, key=SECRET), **HOOKED),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_blocking_call_prints_no_argument(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeTime(), record_events() as events, pytest.raises(Exception) as caught:
        CALLS[name]()
    assert SECRET not in caplog.text
    assert SECRET not in repr(events)
    assert SECRET not in repr(caught.value) + str(caught.value)
    assert len(events.waits) == 1


@pytest.mark.parametrize("name", ASYNC_CALLS)
async def test_an_async_call_prints_no_argument(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="forbear")
    with FakeTime(), record_events() as events, pytest.raises(Exception) as caught:
        await ASYNC_CALLS[name]()
    assert SECRET not in caplog.text
    assert SECRET not in repr(events)
    assert SECRET not in repr(caught.value) + str(caught.value)
    assert len(events.waits) == 1


def test_an_attempt_shows_no_argument_either(form: Callable[..., Any]) -> None:
    seen: list[str] = []

    def fn(token: str = SECRET) -> str:
        seen.append(repr(current_attempt()))
        return token

    with FakeTime():
        form(fn)
    assert seen
    assert SECRET not in seen[0]
