"""`llm_retry`: `retry` with the defaults that suit calls of LLM APIs.

Decided here: those defaults. An answer may take minutes, so only the deadline cuts an attempt; a rate limit is a normal
event, so there are more attempts, and the server's own wait counts instead of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack, overload

from forbear.calls.decorate import Decorator
from forbear.calls.options import DecoratorOptions
from forbear.calls.retry import retry
from forbear.classify.failures import is_transient
from forbear.core.policy import Policy

F = TypeVar("F", bound=Callable[..., object])

LLM_POLICY = Policy(
    max_attempts=6,
    attempt_timeout=None,  # the length of an answer is no failure
    deadline=300.0,
    base=1.0,
    cap=60.0,
    minimum_attempt=0.1,  # no answer comes faster
    retry_after="instead",
    retry_after_jitter=0.25,
    max_retry_after=120.0,
    late_backoff="shorten",
)


@overload
def llm_retry(fn: F, /) -> F: ...
@overload
def llm_retry(**options: Unpack[DecoratorOptions]) -> Decorator: ...
def llm_retry(fn: Any = None, /, **options: Any) -> Any:
    """A decorator, `@llm_retry` or `@llm_retry(...)`, for functions that call an LLM API; sync and async.

    Retries what `is_transient` says. 6 attempts, 300 s for everything, no limit for one attempt; full jitter in
    [0, 1 s), [0, 2 s), [0, 4 s) ... up to 60 s. A hint of the server is waited for instead, with up to 0.25 s on top,
    no longer than 120 s; one that does not fit the time left gives up without a wait. A late backoff is shortened. The
    last error itself is raised; `reraise=False`: `RetryError`.

    Takes the options of `retry`, which replace these one by one; a `policy` replaces all those that it has.
    """
    defaults: dict[str, Any] = {"policy": LLM_POLICY, "retryable": is_transient, "reraise": True}
    decorate = retry(**{**defaults, **options})
    return decorate if fn is None else decorate(fn)
