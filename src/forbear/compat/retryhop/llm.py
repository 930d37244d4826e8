"""`llm_retry` and what errors mean, with retryhop's names, on forbear's classifier.

Decided here: the defaults, and what is added to forbear's verdict: a class that is named like a network error of a
well-known library counts as one, wherever it comes from.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from forbear.calls import verdicts
from forbear.classify import failures
from forbear.classify.attributes import attribute, tried
from forbear.classify.facts import Facts
from forbear.classify.status import TOOLKIT
from forbear.compat.retryhop.backoff import Backoff, exponential
from forbear.compat.retryhop.circuit import Circuit
from forbear.compat.retryhop.core import RetryState, retry
from forbear.core.failure import Kind

RETRYABLE_STATUS = TOOLKIT
HINT_JITTER = 0.25  # seconds on top of a server's wait, so that clients do not all come back at once

_NETWORK_NAMES = frozenset({
    "APIConnectionError", "APITimeoutError", "ChunkedEncodingError", "ClientConnectionError", "ConnectError",
    "ConnectTimeout", "ConnectionError", "NetworkError", "PoolTimeout", "ProtocolError", "ReadError", "ReadTimeout",
    "RemoteProtocolError", "ServerDisconnectedError", "ServerTimeoutError", "Timeout", "TimeoutException", "WriteError",
    "WriteTimeout",
})  # fmt: skip


def status_code_of(exc: BaseException) -> int | None:
    """The HTTP status (100 to 599) that an error or its response carries, or None."""
    found = failures.status_code_of(exc)
    if found is not None:
        return found
    for owner in (exc, attribute(exc, "response")):
        for name in ("status_code", "status"):
            value = attribute(owner, name)
            if isinstance(value, int) and 100 <= value <= 599:
                return value
    return None


def headers_of(exc: BaseException) -> Any:
    """The headers of an error's response, or of the error itself, as they are; None without any."""
    found = attribute(attribute(exc, "response"), "headers")
    return attribute(exc, "headers") if found is None else found


def retry_after_of(exc: BaseException) -> float | None:
    """The server's own wait in seconds, in any of the forms in use; None without one."""
    return verdicts.retry_after_of(exc)


def is_transient(exc: BaseException) -> bool:
    """Whether the error may pass next time: by `x-should-retry`, else by status, else as an error of the network.

    An error code that says "never" (spent quota) comes before all of them.
    """
    if failures.is_transient(exc):
        return True
    if failures.classify(exc).kind is not Kind.UNKNOWN or status_code_of(exc) is not None:
        return False
    facts = tried(Facts, exc)
    if facts is None or failures.directive(facts) is not None:
        return False
    return any(kind.__name__ in _NETWORK_NAMES for kind in type(exc).__mro__)


def describe(state: RetryState) -> str:
    """One line for a log: what failed, how long the wait is, and who asked for it."""
    if state.exception is None:
        failed = f"rejected result {state.result!r}"
    else:
        status = status_code_of(state.exception)
        failed = type(state.exception).__name__ + ("" if status is None else f" (HTTP {status})")
    source = "server Retry-After" if state.from_server else "backoff"
    wait = f"waiting {state.delay:.2f}s ({source}), elapsed {state.elapsed:.1f}s"
    return f"attempt {state.attempt} failed: {failed}; {wait}"


def llm_retry(
    _func: Callable[..., Any] | None = None,
    *,
    attempts: int = 6,
    deadline: float | None = 300.0,
    backoff: Backoff | None = None,
    max_retry_after: float = 120.0,
    circuit: Circuit | None = None,
    on_retry: Callable[[RetryState], Any] | None = None,
    reraise: bool = True,
    sleep: Callable[[float], Any] | None = None,
) -> Any:
    """`retry` for calls of LLM and HTTP APIs, sync and async; bare or with options.

    Retries what `is_transient` says. A hint of the server, cut to `max_retry_after` seconds, is waited for with up to
    0.25 s on top; without one the wait is drawn from [0, 1 s], [0, 2 s], [0, 4 s] ... up to 60 s. In the end the last
    exception is raised, or with `reraise=False` a RetryError.
    """

    def hint(exc: BaseException | None, _result: object) -> float | None:
        seconds = None if exc is None else retry_after_of(exc)
        return None if seconds is None else min(seconds, max_retry_after) + HINT_JITTER * random.random()

    return retry(
        _func,
        attempts=attempts,
        retry_on=is_transient,
        backoff=backoff or exponential(base=1.0, max_delay=60.0),
        wait_hint=hint,
        on_retry=on_retry,
        deadline=deadline,
        reraise=reraise,
        circuit=circuit,
        sleep=sleep,
    )
