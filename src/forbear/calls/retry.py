"""`retry`, `retry_sync` and `retry_call`: one function, called until it succeeds or no further attempt makes sense."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar, Unpack, cast, overload

from forbear.calls.decorate import decorate, guard_async, guard_blocking, guard_for, name_of, refuse, required_arguments
from forbear.calls.options import Options, plan_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


class Decorator(Protocol):
    """Gives back what it gets, retried: same signature, same type."""

    def __call__(self, fn: F, /) -> F:
        """The same function, retried."""
        ...


@overload
def retry(fn: Callable[[], Awaitable[T]], /, **options: Unpack[Options]) -> Coroutine[Any, Any, T]: ...
@overload
def retry(**options: Unpack[Options]) -> Decorator: ...
def retry(fn: Any = None, /, **options: Any) -> Any:
    """Calls `fn` until it succeeds, or until no further attempt makes sense.

    `retry(fn, ...)` is a coroutine of the result: `fn` takes no argument and returns an awaitable, one attempt.
    `retry(...)` without a function is a decorator for `def` and `async def`, methods, partials and callable objects.

    Durations are seconds or a `timedelta`; None means "no limit".

    max_attempts (5): how often `fn` may run, the first time included.
    attempt_timeout (10): how long one attempt may take; then it is cancelled and counts as a TimeoutError. A blocking
        function can't be stopped: it finds the time it has in `current_attempt().timeout`.
    deadline (60): how long everything may take, the waits included. A tighter ambient `deadline()` wins.
    base (0.5), cap (30): the first and the last bound of the exponential backoff.
    backoff, jitter, minimum_attempt, retry_after, retry_after_jitter, max_retry_after, late_backoff: see `Policy`.
    policy: a `Policy`; options beside it replace its fields.
    retryable: which errors may pass next time: a function of the error, or exception classes. `is_retryable`.
    idempotent (True): False: only failures that prove that nothing was done are retried; others leave as they are.
    retry_if_result: a function of the result; true makes it a transient failure.
    on_retry: called with a `RetryState` before each wait; sync or async; its own errors are only logged.
    reraise (False): raise the last error itself, with a note, instead of RetryError.
    fallback: called with the final error when the call is given up; its result is the call's.
    sleep, rng, clock: for tests; `clock=FakeTime()` drives everything.

    Raises RetriesExhausted, DeadlineExceeded (also a TimeoutError) or BudgetExhausted, all of them RetryError, caused
    by the last error; an error that is not retryable at once, unchanged. TypeError or ValueError, at once, for options
    that make no sense.
    """
    if fn is None:
        return decorator(options, blocking=False)
    check_call(fn, "retry")
    return guard_async(plan_of(name_of(fn), options), fn, options.get("fallback"))()


@overload
def retry_sync(fn: Callable[[], T], /, **options: Unpack[Options]) -> T: ...
@overload
def retry_sync(**options: Unpack[Options]) -> Decorator: ...
def retry_sync(fn: Any = None, /, **options: Any) -> Any:
    """As `retry`, for blocking functions: calls `fn` in this thread, waits in this thread, returns the result.

    Without a function it is a decorator. Takes the options of `retry`; `sleep` and `on_retry` must not be async.
    """
    if fn is None:
        return decorator(options, blocking=True)
    guard_for(fn, blocking=True)
    check_call(fn, "retry_sync")
    return guard_blocking(plan_of(name_of(fn), options), fn, options.get("fallback"))()


@overload
def retry_call(
    func: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, retry_options: Options | None = None, **kwargs: Any
) -> Coroutine[Any, Any, T]: ...
@overload
def retry_call(func: Callable[..., T], /, *args: Any, retry_options: Options | None = None, **kwargs: Any) -> T: ...
def retry_call(func: Any, /, *args: Any, retry_options: Options | None = None, **kwargs: Any) -> Any:
    """Calls `func(*args, **kwargs)` with retries: blocking, or as a coroutine if `func` is async.

    `retry_options` holds the options of `retry`.
    """
    options: dict[str, Any] = {**(retry_options or {})}
    refuse(func)
    guard = guard_for(func, blocking=False)
    return guard(plan_of(name_of(func), options), func, options.get("fallback"))(*args, **kwargs)


def decorator(options: Mapping[str, Any], *, blocking: bool) -> Decorator:
    """The decorator that these options make; checked now, not when the first function is decorated."""
    plan_of("", options)

    def wrap(fn: F, /) -> F:
        return cast("F", decorate(fn, lambda name: plan_of(name, options), options.get("fallback"), blocking=blocking))

    return wrap


def check_call(fn: Any, form: str) -> None:
    """Raises TypeError, with the correction, where `fn` can't be called without arguments."""
    refuse(fn)
    if required_arguments(fn):
        raise TypeError(
            f"{form}(fn) calls fn without arguments, but {name_of(fn)} needs some: write "
            f"{form}(lambda: {name_of(fn)}(...)), or decorate it with @{form}(), parentheses included"
        )
