"""`retry` with retryhop's names, on forbear's drivers.

Decided here: how the options become forbear's, and what a function of each kind is made of. What a failed attempt
means is the business of the run.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from forbear.calls.callables import is_coroutine_function, name_of
from forbear.calls.retry import retry as forbear_retry
from forbear.compat.retryhop.backoff import Backoff, exponential
from forbear.compat.retryhop.circuit import Circuit
from forbear.compat.retryhop.outcome import Kept, Listed, bare
from forbear.compat.retryhop.outcome import RetryError as RetryError
from forbear.compat.retryhop.outcome import RetryState as RetryState
from forbear.compat.retryhop.run import Judge, Rules, Run, running
from forbear.compat.retryhop.run import WaitHint as WaitHint
from forbear.core.events import RetryState as State
from forbear.core.policy import Policy
from forbear.errors import RetryError as GivenUp

T = TypeVar("T")
ExcTypes = type[BaseException] | tuple[type[BaseException], ...]

_JUDGE = Judge()


def retry(
    _func: Callable[..., Any] | None = None,
    *,
    attempts: int = 3,
    exceptions: ExcTypes = Exception,
    retry_on: Callable[[BaseException], bool] | None = None,
    backoff: Backoff | None = None,
    retry_if_result: Callable[[Any], bool] | None = None,
    wait_hint: WaitHint | None = None,
    on_retry: Callable[[RetryState], Any] | None = None,
    deadline: float | None = None,
    reraise: bool = False,
    circuit: Circuit | None = None,
    sleep: Callable[[float], Any] | None = None,
) -> Any:
    """A decorator for functions, sync and async; bare (`@retry`) or with options.

    attempts: calls of the function, the first included. exceptions: what may be retried; the rest leaves at once, and
    so do cancellation and Ctrl-C, listed or not. retry_on: a function of the exception; false lets it leave.
    retry_if_result: a function of the result; true makes it a failure. backoff: a function of the attempt number that
    gives seconds. wait_hint: a function of exception and result; the seconds that it gives are waited for instead.
    deadline: seconds for everything, looked at between attempts: a running one is never cut, a late backoff is, and a
    hint that does not fit ends the call. on_retry: told a RetryState before each wait; its errors are only logged.
    reraise: raise the last exception instead of RetryError. circuit: asked before each attempt, told after it.
    sleep: waits instead; async for async functions.

    Raises ValueError for less than one attempt, and for a deadline that is not above 0.
    """
    if attempts < 1:
        raise ValueError(f"attempts is {attempts}: the first call counts, so 1 is the least")
    if deadline is not None and deadline <= 0:
        raise ValueError(f"deadline is {deadline}: give seconds above 0, or None for no limit")
    rules = Rules(
        attempts=sys.maxsize if attempts == math.inf else math.ceil(attempts),
        exceptions=exceptions if isinstance(exceptions, tuple) else (exceptions,),
        retry_on=retry_on,
        backoff=exponential() if backoff is None else backoff,
        retry_if_result=retry_if_result,
        wait_hint=wait_hint,
        deadline=deadline,
        circuit=circuit,
    )
    options = _options(rules, on_retry, reraise=bool(reraise), sleep=sleep)

    def decorate(func: Any) -> Any:
        if isinstance(func, (classmethod, staticmethod)):
            return type(func)(decorate(func.__func__))
        return functools.wraps(func)(_guarded(func, rules, options))

    return decorate if _func is None else decorate(_func)


def retry_call(func: Callable[..., T], *args: Any, retry_options: dict[str, Any] | None = None, **kwargs: Any) -> T:
    """Calls `func(*args, **kwargs)` with retries; `retry_options` holds the options of `retry`."""
    result: T = retry(**(retry_options or {}))(func)(*args, **kwargs)
    return result


def _options(
    rules: Rules, on_retry: Callable[[RetryState], Any] | None, *, reraise: bool, sleep: Callable[[float], Any] | None
) -> dict[str, Any]:
    """The rules as options of forbear's own `retry`."""

    def told(state: State) -> Any:
        from_server = state.source != "backoff"
        error, result = bare(state.error), bare(state.result)
        hook: Any = on_retry
        return hook(RetryState(state.attempt, state.delay, error, result, state.elapsed, from_server))

    def refuses(result: object) -> bool:
        return running().refuses(result)

    policy = Policy(
        max_attempts=rules.attempts,
        attempt_timeout=None,
        deadline=None,
        backoff=lambda _: running().delay,
        retry_after="instead",
    )
    judges_results = rules.retry_if_result is not None or rules.circuit is not None
    return {
        "policy": policy,
        "retryable": _JUDGE,
        "retry_if_result": refuses if judges_results else None,
        "on_retry": None if on_retry is None else told,
        "reraise": reraise,
        "sleep": sleep,
    }


def _guarded(func: Callable[..., Any], rules: Rules, options: dict[str, Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        warnings.warn(
            f"{name_of(func)} is a generator: its failures come while it is iterated, so nothing of it is retried; "
            "retry the function that opens the stream",
            RuntimeWarning,
            stacklevel=3,
        )
    is_async = is_coroutine_function(func)
    attempt = (_attempt_async if is_async else _attempt)(func, lists_given_up=rules.lists_given_up)
    attempt.__qualname__ = name_of(func)
    guarded: Callable[..., Any] = forbear_retry(**options)(attempt)
    if not is_async:
        return _blocking(guarded, rules)

    async def call(*args: Any, **kwargs: Any) -> Any:
        with Run(rules):
            return bare(await guarded(*args, **kwargs))

    return call


def _blocking(guarded: Callable[..., Any], rules: Rules) -> Callable[..., Any]:
    async def finish(run: Run, rest: Coroutine[Any, Any, Any]) -> Any:
        with run:
            return bare(await rest)

    def call(*args: Any, **kwargs: Any) -> Any:
        run = Run(rules)
        with run:
            result = guarded(*args, **kwargs)
        return finish(run, result) if inspect.iscoroutine(result) else bare(result)

    return call


def _attempt(func: Callable[..., Any], *, lists_given_up: bool) -> Callable[..., Any]:
    """One attempt of a function that blocks, or returns a coroutine."""

    async def finish(run: Run, rest: Coroutine[Any, Any, Any]) -> Any:
        if run.passed is not None:
            run.passed.attach()
        try:
            return await rest
        except GivenUp as error:
            if not lists_given_up:
                raise
            raise Listed(error) from None

    def attempt(*args: Any, **kwargs: Any) -> Any:
        run = running()
        run.pass_circuit()
        try:
            result = func(*args, **kwargs)
        except GivenUp as error:
            if not lists_given_up:
                raise
            raise Listed(error) from None
        if inspect.iscoroutine(result):
            if run.passed is not None:
                run.passed.detach()
            return finish(run, result)
        return Kept(result) if hasattr(type(result), "__await__") else result

    return attempt


def _attempt_async(func: Callable[..., Any], *, lists_given_up: bool) -> Callable[..., Any]:
    """One attempt of an async function."""

    async def attempt(*args: Any, **kwargs: Any) -> Any:
        running().pass_circuit()
        try:
            return await func(*args, **kwargs)
        except GivenUp as error:
            if not lists_given_up:
                raise
            raise Listed(error) from None

    return attempt
