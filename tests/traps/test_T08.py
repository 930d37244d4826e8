"""T08: an attempt that hangs, or a long wait, must not keep the process alive: there are no hidden threads to join."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from forbear.testing import FakeTime, Flaky, Hang

HUNG = "lambda: time.sleep(600)"
FAILING = "failing"
HEAD = """
import asyncio, signal, threading, time
from forbear import attempts, retry, retry_sync

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with Ctrl-C ignored

def failing():
    raise ConnectionError

async def failing_async():
    raise ConnectionError

def in_block(fn, **options):
    for attempt in attempts(**options):
        with attempt:
            fn()

"""
OPTIONS = "attempt_timeout=0.2, deadline=None, backoff=[600]"


def start(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + body], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def exit_code(process: subprocess.Popen[str]) -> int:
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode


@pytest.mark.parametrize("call", ["retry_sync", "in_block"])
@pytest.mark.parametrize("fn", [HUNG, FAILING])
def test_a_call_in_a_daemon_thread_does_not_delay_the_exit(call: str, fn: str) -> None:
    process = start(
        f"threading.Thread(target=lambda: {call}({fn}, {OPTIONS}), daemon=True).start()\n"
        "time.sleep(0.3)\n"
        "assert threading.active_count() == 2, threading.enumerate()\n"
    )
    assert exit_code(process) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
@pytest.mark.parametrize(
    "call",
    [
        f"retry_sync({HUNG}, {OPTIONS})",
        f"retry_sync({FAILING}, {OPTIONS}, retryable=Exception)",
        f"in_block({FAILING}, {OPTIONS})",
        "asyncio.run(retry(lambda: asyncio.sleep(600), deadline=None, attempt_timeout=None))",
        f"asyncio.run(retry(failing_async, {OPTIONS}))",
    ],
)  # fmt: skip
def test_ctrl_c_ends_the_process_in_an_attempt_and_in_a_wait(call: str) -> None:
    process = start(f"print('ready', flush=True)\n{call}\n")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert exit_code(process) in (-signal.SIGINT, 130)


def test_no_call_starts_a_thread(form: Callable[..., Any]) -> None:
    seen: list[int] = []
    before = threading.active_count()

    def count() -> None:
        seen.append(threading.active_count() - before)
        raise ConnectionError

    fn = Flaky(Hang(5.0, ConnectionError()), then="done")
    with FakeTime():
        assert form(fn, attempt_timeout=1.0, deadline=30.0) == "done"
        with pytest.raises(ConnectionError):
            form(count, attempt_timeout=1.0, max_attempts=3, reraise=True)
    assert seen == [0, 0, 0]
    assert threading.active_count() == before
