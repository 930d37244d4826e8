"""What kind of callable a thing is, and which can't be retried.

Decided here: what is refused at once, and with which correction. What could only seem to be retried (the call of a
generator, whose failures come after it has returned) is a silent no-op in most libraries.
"""

from __future__ import annotations

import functools
import inspect
from types import CodeType
from typing import Any, Literal

from forbear.core.policy import Policy

_MAKES_A_MANAGER = ("contextmanager.<locals>.helper", "asynccontextmanager.<locals>.helper")


def refuse(fn: Any, form: str = "retry") -> None:
    """Raises TypeError, with the correction, for what can't be retried."""
    if inspect.iscoroutine(fn):
        fn.close()
        raise TypeError(
            "this coroutine has already been made and can run only once: pass the function, "
            f"as in {form}(fetch) or {form}(lambda: fetch(url))"
        )
    if inspect.isasyncgen(fn) or inspect.isgenerator(fn):
        raise TypeError(
            "this generator has already been made and can be read only once: pass the function, as in "
            "stream(answer) or stream(lambda: answer(prompt))"
        )
    if isinstance(fn, Policy):
        raise TypeError("a policy is given by name: retry(policy=...)")
    if isinstance(fn, property):
        raise TypeError("put the decorator under @property, on the function itself")
    if not callable(fn):
        raise TypeError(
            f"{form} needs a function, not {type(fn).__name__}; options are given by name, as in "
            f"{form}(fetch, max_attempts=3)"
        )


def refuse_manager(fn: Any) -> None:
    """Raises TypeError, with the correction, for a function that makes a context manager."""
    if getattr(_code(fn), "co_qualname", "") in _MAKES_A_MANAGER:
        raise TypeError(
            f"{name_of(fn)} is a context manager: calling it only makes the manager; use attempts() around the block"
        )


def makes_a_stream(fn: Any) -> Literal["sync", "async"] | None:
    """Whether `fn` is a generator function, and of which kind."""
    called = fn if _code(fn) is not None or isinstance(fn, (functools.partial, type)) else type(fn).__call__
    if inspect.isgeneratorfunction(called) and not _is_old_coroutine(called):
        return "sync"
    return "async" if inspect.isasyncgenfunction(called) else None


def is_coroutine_function(fn: Any) -> bool:
    """Whether calling `fn` gives an awaitable for certain."""
    if inspect.iscoroutinefunction(fn) or _is_old_coroutine(fn):
        return True
    return not isinstance(fn, type) and _code(fn) is None and inspect.iscoroutinefunction(type(fn).__call__)


def name_of(fn: Any) -> str:
    """What the function is called in events."""
    named = fn.func if isinstance(fn, functools.partial) else fn
    return str(getattr(named, "__qualname__", type(named).__qualname__))


def place_of(fn: Any) -> object:
    """Where a function is written: the same for a lambda that is made anew for each call."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return _code(fn) or _code(getattr(fn, "__func__", None)) or (fn if isinstance(fn, type) else type(fn))


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


def check_call(fn: Any, form: str, *, takes_async: bool = True) -> None:
    """Raises TypeError, with the correction, where `fn` can't be called without arguments."""
    refuse(fn, form)
    refuse_manager(fn)
    kind = makes_a_stream(fn)
    if kind is not None:
        raise TypeError(
            f"{name_of(fn)} is a generator: its failures come while it is iterated, so iterate "
            f"{'async ' if kind == 'async' else ''}for chunk in stream({name_of(fn)}, ...), or decorate it"
        )
    if required_arguments(fn) and (takes_async or not is_coroutine_function(fn)):
        raise TypeError(
            f"{form}(fn) calls fn without arguments, but {name_of(fn)} needs some: write "
            f"{form}(lambda: {name_of(fn)}(...)), or decorate it with @{form}(), parentheses included"
        )
