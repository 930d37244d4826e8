"""How a function becomes one that is retried, as the same kind of thing.

Decided here: what a decorator keeps (name, signature, binding, type) and when its options are checked. Which driver
runs a function is the business of the guard that each form brings along.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from forbear._runtime.call import Plan
from forbear.calls.callables import makes_a_stream, name_of, refuse, refuse_manager
from forbear.calls.fallback import Fallback
from forbear.calls.options import fallback_of, plan_of

F = TypeVar("F", bound=Callable[..., object])
# Chooses the driver: (plan, function, fallback) -> the guarded function.
Guard = Callable[[Plan, Callable[..., Any], Fallback | None], Callable[..., Any]]


class Decorator(Protocol):
    """Gives back what it gets, retried: same signature, same type."""

    def __call__(self, fn: F, /) -> F:
        """The same function, retried."""
        ...


def decorator(guard: Guard, options: Mapping[str, Any]) -> Decorator:
    """The decorator that these options make. They are checked now, not when the first function is decorated."""
    plan_of("", options, stream=None)
    fallback_of(options)

    def wrap(fn: F, /) -> F:
        return cast("F", _decorated(fn, guard, options))

    return wrap


def _decorated(fn: Any, guard: Guard, options: Mapping[str, Any]) -> Any:
    if isinstance(fn, (classmethod, staticmethod)):
        return type(fn)(_decorated(fn.__func__, guard, options))
    refuse(fn)
    refuse_manager(fn)
    if isinstance(fn, type):
        raise TypeError(f"{fn.__name__} is a class: decorate the function or method that makes the call")
    plan = plan_of(name_of(fn), options, stream=makes_a_stream(fn) is not None)
    guarded: Any = functools.update_wrapper(guard(plan, fn, fallback_of(options)), fn)
    guarded.__forbear_plan__ = plan
    return guarded
