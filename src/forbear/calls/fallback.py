"""What takes the place of a result when a call has been given up.

Decided here: which errors a fallback answers: those that mean "given up", not those that were raised at once because no
retry could help. Must never know how the call was made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forbear._runtime.steps import is_awaitable
from forbear.calls.decorate import Fallback
from forbear.errors import CircuitOpenError, already_retried, marks


def with_fallback(guarded: Callable[..., Any], fallback: Fallback) -> Callable[..., Any]:
    """`guarded`, whose place `fallback(error)` takes when it gives up. Blocking."""

    def call(*args: Any, **kwargs: Any) -> Any:
        since = marks.latest
        try:
            return guarded(*args, **kwargs)
        except Exception as error:
            if not _given_up(error, since):
                raise
            return fallback(error)

    return call


def with_fallback_async(guarded: Callable[..., Any], fallback: Fallback) -> Callable[..., Any]:
    """`guarded`, whose place `fallback(error)` takes when it gives up; what it returns may be awaitable."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        since = marks.latest
        try:
            return await guarded(*args, **kwargs)
        except Exception as error:
            if not _given_up(error, since):
                raise
            result = fallback(error)
            return await result if is_awaitable(result) else result

    return call


def _given_up(error: Exception, since: int) -> bool:
    return already_retried(error, since) or isinstance(error, CircuitOpenError)
