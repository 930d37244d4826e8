"""`retry` and `retry_call`: one function, called until it succeeds or no further attempt makes sense.

Decided here: for every kind of callable whether the blocking or the asyncio driver runs it. A plain function may turn
out to return an awaitable; then it goes on under the asyncio driver.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, Unpack, overload

from forbear._aio import driver as asyncio_driver
from forbear._aio import hedge as hedge_driver
from forbear._runtime.call import Call, Plan
from forbear._runtime.steps import is_awaitable
from forbear._sync import driver as blocking_driver
from forbear.calls import blocking, stream
from forbear.calls.callables import (
    check_call,
    is_coroutine_function,
    makes_a_stream,
    name_of,
    place_of,
    refuse,
    refuse_manager,
)
from forbear.calls.decorate import Decorator, decorator
from forbear.calls.fallback import Fallback, with_fallback
from forbear.calls.fallback_async import with_fallback_async
from forbear.calls.options import DecoratorOptions, Options, fallback_of, plan_of
from forbear.errors import UsageError

T = TypeVar("T")


@overload
def retry(fn: Callable[[], Awaitable[T]], /, **options: Unpack[Options]) -> Coroutine[Any, Any, T]: ...
@overload
def retry(**options: Unpack[DecoratorOptions]) -> Decorator: ...
def retry(fn: Any = None, /, **options: Any) -> Any:
    """Calls `fn` until it succeeds, or until no further attempt makes sense.

    `retry(fn, ...)` is a coroutine of the result: `fn` takes no argument and returns an awaitable, one attempt.
    `retry(...)` without a function is a decorator for `def` and `async def`, methods, partials and callable objects;
    and for generators and async generators, which become streams: see `stream`, whose options it takes too.

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
    hedge: sends a second copy of an attempt that is slow and takes the first answer: after so many seconds, or True: a
        delay learned from the calls before, or a `Hedge`. Async functions only, under asyncio; see `hedge`, which says
        what the calls are that share it.
    fallback: what answers when the call is given up: a value; a function of the final error; or a function that forbear
        has made, of another `Upstream` perhaps, which gets the arguments of the call. It has the rest of the deadline.
    fallback_on: the errors that it answers, of the call or of its last attempt: a function, or exception classes. By
        default those that mean "given up", not those that were raised at once because no retry could help.
    sleep, rng, clock: for tests; `clock=FakeTime()` drives everything.

    Raises RetriesExhausted, DeadlineExceeded (also a TimeoutError) or BudgetExhausted, all of them RetryError, caused
    by the last error; an error that is not retryable at once, unchanged. TypeError or ValueError, at once, for options
    that make no sense.
    """
    if fn is None:
        return decorator(guard, options)
    check_call(fn, "retry")
    plan = plan_of(name_of(fn), options, place=place_of(fn))
    return guard_async(plan, fn, fallback_of(options, call=True))()


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
    refuse_manager(func)
    plan = plan_of(name_of(func), options, stream=makes_a_stream(func) is not None, place=place_of(func))
    return guard(plan, func, fallback_of(options))(*args, **kwargs)


def guard(plan: Plan, fn: Callable[..., Any], fallback: Fallback | None) -> Callable[..., Any]:
    """A function of any kind, under the driver that it needs."""
    if plan.stream is not None:
        return (stream.guard_async if makes_a_stream(fn) == "async" else blocking.guard_stream)(plan, fn, fallback)
    if is_coroutine_function(fn) or plan.hedge is not None:
        return guard_async(plan, fn, fallback)

    def go_on(first: Awaitable[Any], args: tuple[Any, ...], kwargs: dict[str, Any], begun: Call) -> Any:
        made = [first]
        going_on = guard_async(plan, _first_then(made, fn), fallback, begun)(*args, **kwargs)
        return going_on if plan.gate is None else _awaited(going_on, made)

    guarded = blocking_driver.guard(plan, fn, go_on, may_be_async=True)
    return guarded if fallback is None else with_fallback(guarded, plan, fallback)


def guard_async(
    plan: Plan, fn: Callable[..., Any], fallback: Fallback | None, begun: Call | None = None
) -> Callable[..., Any]:
    """A function that returns awaitables, under the asyncio driver. `begun` is a call that goes on there."""
    driver = asyncio_driver if plan.hedge is None else hedge_driver
    guarded = driver.guard(
        plan, fn if is_coroutine_function(fn) else _awaitable_only(fn, hedged=plan.hedge is not None), begun
    )
    return guarded if fallback is None else with_fallback_async(guarded, plan, fallback)


def _awaitable_only(fn: Callable[..., Any], *, hedged: bool) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        if not is_awaitable(result):
            if hasattr(type(result), "__aiter__") or hasattr(type(result), "__next__"):
                raise UsageError(
                    f"{name_of(fn)} returned a stream: use stream(fn, ...), or retry the function that collects it"
                )
            raise UsageError(
                f"{name_of(fn)} returned {type(result).__name__}, which can't be awaited: "
                + ("hedge= needs an async function" if hedged else "use retry_sync for a blocking function")
            )
        return result

    return call


async def _awaited(going_on: Awaitable[Any], made: list[Awaitable[Any]]) -> Any:
    """The call's result. An awaitable whose attempt is not let through is closed: nobody will await it."""
    try:
        return await going_on
    finally:
        for left in made:
            blocking_driver.close(left)


def _first_then(made: list[Awaitable[Any]], fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, whose first call has already been made."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return made.pop() if made else fn(*args, **kwargs)

    return call
