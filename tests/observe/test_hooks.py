"""Listeners hear every event, and never change a call."""

from __future__ import annotations

import logging
import threading

import pytest

from forbear import AttemptEnded, CallEnded, RetryState, listening, retry, retry_sync
from forbear.testing import FakeTime, Flaky


def test_a_listener_hears_calls_of_all_threads_while_it_listens() -> None:
    heard: list[object] = []
    decorated = retry_sync()(lambda: "done")
    with listening(heard.append):
        decorated()
        thread = threading.Thread(target=decorated)
        thread.start()
        thread.join()
    decorated()
    assert [type(event) for event in heard] == [AttemptEnded, CallEnded] * 2


async def test_a_listener_that_raises_changes_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> None:
        raise KeyError("secret-in-the-listener")

    heard: list[object] = []
    with FakeTime(), listening(broken), listening(heard.append), caplog.at_level(logging.DEBUG):
        assert retry_sync(Flaky(ConnectionError("secret-in-the-failure"), "done")) == "done"
        assert await retry(Flaky(ConnectionError, "done").asynchronous) == "done"
    assert sum(isinstance(event, RetryState) for event in heard) == 2
    assert "a listener raised KeyError at " in caplog.text
    assert "secret" not in caplog.text
