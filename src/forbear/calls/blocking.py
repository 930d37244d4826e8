"""`retry_sync`: the blocking form. Loads no event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack, overload

from forbear._runtime.call import Plan
from forbear._sync import driver, stream
from forbear.calls.callables import check_call, is_coroutine_function, makes_a_stream, name_of
from forbear.calls.decorate import Decorator, decorator
from forbear.calls.fallback import Fallback, with_fallback, with_fallback_stream
from forbear.calls.guarding import refuse_hedge
from forbear.calls.options import DecoratorOptions, Options, fallback_of, plan_of
from forbear.errors import UsageError

T = TypeVar("T")


@overload
def retry_sync(fn: Callable[[], T], /, **options: Unpack[Options]) -> T: ...
@overload
def retry_sync(**options: Unpack[DecoratorOptions]) -> Decorator: ...
def retry_sync(fn: Any = None, /, **options: Any) -> Any:
    """As `retry`, for blocking functions: calls `fn` in this thread, waits in this thread, returns the result.

    Without a function it is a decorator. Takes the options of `retry`; `sleep` and `on_retry` must not be async.
    """
    refuse_hedge(options, "retry_sync")
    if fn is None:
        return decorator(guard, options)
    check_call(fn, "retry_sync", takes_async=False)
    return guard(plan_of(name_of(fn), options), fn, fallback_of(options, call=True))()


def guard(plan: Plan, fn: Callable[..., Any], fallback: Fallback | None) -> Callable[..., Any]:
    """A plain function under the blocking driver, which must not return an awaitable."""
    for option, function in (("sleep", plan.sleep), ("fallback", None if fallback is None else fallback.answer)):
        if function is not None and is_coroutine_function(function):
            raise ValueError(f"{option} is async, and retry_sync is for blocking functions: give it a plain function")
    if is_coroutine_function(fn) or makes_a_stream(fn) == "async":
        raise TypeError(f"{name_of(fn)} is async, and retry_sync is for blocking functions: use retry")
    if plan.stream is not None:
        return guard_stream(plan, fn, fallback)

    def refuse_awaitable(first: Any, *_: Any) -> Any:
        driver.close(first)
        raise UsageError(f"{plan.name} returned an awaitable, which retry_sync can't await: use retry")

    guarded = driver.guard(plan, fn, refuse_awaitable, may_be_async=False)
    return guarded if fallback is None else with_fallback(guarded, plan, fallback)


def guard_stream(plan: Plan, fn: Callable[..., Any], fallback: Fallback | None) -> Callable[..., Any]:
    """What opens a blocking stream, as a generator function."""
    if plan.hedge is not None:
        raise TypeError("hedge= needs an async stream: a blocking one can't be stopped when it has lost")
    guarded = stream.guard(plan, fn)
    return guarded if fallback is None else with_fallback_stream(guarded, plan, fallback)
