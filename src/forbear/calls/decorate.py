"""How a thing that is to be called becomes a thing that is retried, and what can't be.

Decided here: for every kind of callable whether the blocking or the asyncio driver runs it. A plain function may turn
out to return an awaitable; then it goes on under the asyncio driver. What could only seem to be retried (a generator,
whose failures come after the call has returned) is refused at once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from types import CodeType
from typing import Any

from forbear._aio import driver as asyncio_driver
from forbear._runtime.call import Plan
from forbear._runtime.steps import is_awaitable
from forbear._sync import driver as blocking_driver
from forbear.calls.fallback import Fallback, with_fallback, with_fallback_async
from forbear.core.policy import Policy

Guard = Callable[[Plan, Callable[..., Any], Fallback | None], Callable[..., Any]]


def decorate(fn: Any, plan_for: Callable[[str], Plan], fallback: Fallback | None, *, blocking: bool = False) -> Any:
    """`fn` retried, as the same kind of thing: what is decorated keeps its name, its signature and its binding."""
    if isinstance(fn, (classmethod, staticmethod)):
        return type(fn)(decorate(fn.__func__, plan_for, fallback, blocking=blocking))
    refuse(fn)
    if isinstance(fn, type):
        raise TypeError(f"{fn.__name__} is a class: decorate the function or method that makes the call")
    guarded = guard_for(fn, blocking)(plan_for(name_of(fn)), fn, fallback)
    return functools.update_wrapper(guarded, fn)


def guard_for(fn: Any, blocking: bool) -> Guard:
    """Which guard runs `fn`; refuses a coroutine function where only blocking ones are wanted."""
    if blocking:
        if is_coroutine_function(fn):
            raise TypeError(f"{name_of(fn)} is async, and retry_sync is for blocking functions: use retry")
        return guard_blocking
    return guard_async if is_coroutine_function(fn) else guard_plain


def guard_async(plan: Plan, fn: Callable[..., Any], fallback: Fallback | None) -> Callable[..., Any]:
    """A function that returns awaitables, under the asyncio driver."""
    guarded = asyncio_driver.guard(plan, fn if is_coroutine_function(fn) else _awaitable_only(fn))
    return guarded if fallback is None else with_fallback_async(guarded, fallback)


def guard_plain(plan: Plan, fn: Callable[..., Any], fallback: Fallback | None) -> Callable[..., Any]:
    """A plain function under the blocking driver, until it returns an awaitable."""

    def go_on(first: Awaitable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return guard_async(plan, _first_then(first, fn), fallback)(*args, **kwargs)

    guarded = blocking_driver.guard(plan, fn, go_on)
    return guarded if fallback is None else with_fallback(guarded, fallback)


def guard_blocking(plan: Plan, fn: Callable[..., Any], fallback: Fallback | None) -> Callable[..., Any]:
    """A plain function under the blocking driver, which must not return an awaitable."""

    def refuse_awaitable(first: Any, *_: Any) -> Any:
        blocking_driver.close(first)
        raise TypeError(f"{plan.name} returned an awaitable, which retry_sync can't await: use retry")

    guarded = blocking_driver.guard(plan, fn, refuse_awaitable)
    return guarded if fallback is None else with_fallback(guarded, fallback)


def refuse(fn: Any) -> None:
    """Raises TypeError, with the correction, for what can't be retried."""
    if inspect.iscoroutine(fn):
        fn.close()
        raise TypeError(
            "this coroutine has already been made and can run only once: pass the function, "
            "as in retry(fetch) or retry(lambda: fetch(url))"
        )
    if isinstance(fn, Policy):
        raise TypeError("a policy is given by name: retry(policy=...)")
    if isinstance(fn, property):
        raise TypeError("put the decorator under @property, on the function itself")
    if not callable(fn):
        raise TypeError(
            f"retry needs a function, not {type(fn).__name__}; options are given by name, as in "
            "retry(fetch, max_attempts=3)"
        )
    called = fn if _code(fn) is not None or isinstance(fn, (functools.partial, type)) else type(fn).__call__
    if (inspect.isgeneratorfunction(called) and not _is_old_coroutine(called)) or inspect.isasyncgenfunction(called):
        raise TypeError(
            f"{name_of(fn)} is a generator: its failures come while it is iterated, after the call has "
            "returned, so no retry around the call can see them; retry the function that opens the stream"
        )


def is_coroutine_function(fn: Any) -> bool:
    """Whether calling `fn` gives an awaitable for certain."""
    if inspect.iscoroutinefunction(fn) or _is_old_coroutine(fn):
        return True
    return not isinstance(fn, type) and _code(fn) is None and inspect.iscoroutinefunction(type(fn).__call__)


def name_of(fn: Any) -> str:
    """What the function is called in events."""
    named = fn.func if isinstance(fn, functools.partial) else fn
    return str(getattr(named, "__qualname__", type(named).__qualname__))


def required_arguments(fn: Any) -> int:
    """How many positional arguments a plain function asks for; 0 for everything else."""
    if not inspect.isfunction(fn):
        return 0
    return fn.__code__.co_argcount - len(fn.__defaults__ or ())


def _code(fn: Any) -> CodeType | None:
    code = getattr(fn, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _is_old_coroutine(fn: Any) -> bool:
    """Made by `types.coroutine`: a generator function whose generators are awaitable."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    code = _code(fn)
    return code is not None and bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def _awaitable_only(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        if not is_awaitable(result) and not inspect.isawaitable(result):
            raise TypeError(
                f"{name_of(fn)} returned {type(result).__name__}, which can't be awaited: "
                "use retry_sync for a blocking function"
            )
        return result

    return call


def _first_then(first: Awaitable[Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, whose first call has already been made."""
    made = [first]

    def call(*args: Any, **kwargs: Any) -> Any:
        return made.pop() if made else fn(*args, **kwargs)

    return call
