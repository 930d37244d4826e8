"""What takes the place of a result when a call has been given up.

Decided here: which errors a fallback answers: those that mean "given up", not those that were raised at once because no
retry could help. Must never know how the call was made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forbear._runtime.call import Plan
from forbear._runtime.steps import is_awaitable
from forbear._sync.driver import close
from forbear.calls.decorate import Fallback
from forbear.errors import UsageError, given_up_by


def with_fallback(guarded: Callable[..., Any], plan: Plan, fallback: Fallback) -> Callable[..., Any]:
    """`guarded`, whose place `fallback(error)` takes when it gives up. Blocking."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return guarded(*args, **kwargs)
        except Exception as error:
            if not given_up_by(error, plan):
                raise
            result = fallback(error)
        if is_awaitable(result):
            close(result)
            raise UsageError("fallback is async, but this call is blocking: give it a plain function")
        return result

    return call


def with_fallback_async(guarded: Callable[..., Any], plan: Plan, fallback: Fallback) -> Callable[..., Any]:
    """`guarded`, whose place `fallback(error)` takes when it gives up; what it returns may be awaitable."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await guarded(*args, **kwargs)
        except Exception as error:
            if not given_up_by(error, plan):
                raise
            result = fallback(error)
            return await result if is_awaitable(result) else result

    return call
