"""`hedge`: a second copy of a slow attempt, and the answer that comes first.

Decided here: the form. It is `retry` with a hedge, so all that holds of a retry holds of it: one deadline, the same
options, the same errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, Unpack, overload

from forbear.calls.callables import check_call
from forbear.calls.decorate import Decorator
from forbear.calls.options import DecoratorOptions, Options
from forbear.calls.retry import retry
from forbear.core.hedge import MAX_COPIES, MAX_EXTRA_LOAD, MIN_SAMPLES, HedgeSettings
from forbear.core.validation import Seconds
from forbear.upstream.hedge import MEANT

T = TypeVar("T")


@overload
def hedge(
    fn: Callable[[], Awaitable[T]],
    /,
    *,
    delay: Seconds | None = ...,
    max_extra_load: float = ...,
    max_copies: int = ...,
    min_samples: int = ...,
    **options: Unpack[Options],
) -> Coroutine[Any, Any, T]: ...
@overload
def hedge(
    *,
    delay: Seconds | None = ...,
    max_extra_load: float = ...,
    max_copies: int = ...,
    min_samples: int = ...,
    **options: Unpack[DecoratorOptions],
) -> Decorator: ...
def hedge(
    fn: Any = None,
    /,
    *,
    delay: Any = None,
    max_extra_load: float = MAX_EXTRA_LOAD,
    max_copies: int = MAX_COPIES,
    min_samples: int = MIN_SAMPLES,
    **options: Any,
) -> Any:
    """Calls `fn`, sends a second copy if the answer is slow to come, and takes the one that comes first.

        answer = await hedge(lambda: client.get(url), delay=0.2)

    Only for what may be done twice: reads, and writes with `current_attempt().idempotency_key`, which all copies share.
    Without a function it is a decorator, as `retry`. Async functions only, under asyncio: a blocking call can't be
    cancelled when it has lost. Each copy is a task of its own.

    delay: seconds after which the copy is sent. By default it is learned: the time that only `max_extra_load` of the
        attempts lately took longer than, once `min_samples` (100) are known. All calls of an `upstream` with the same
        settings learn together; without one those of a decorated function, or of one place in the program.
    max_extra_load (0.05): copies per success, a share, which also bounds how many are sent, but for 30 at the start.
    max_copies (2): of one attempt, the first included. They count as attempts.

    A failure that may pass sends the next copy at once; one that can't pass ends the call. The first answer returns at
    once, the other copies are cancelled. If all fail, the failure of the first is retried as the other options, which
    are those of `retry`, say. No copy is sent while the breaker is not closed, the service has asked for a pause, its
    limits leave no place, or its retry budget is empty; what is under way is never ended by that.

    Raises what `retry` raises.
    """
    if "hedge" in options:
        raise TypeError("hedge() has a hedge already: give its settings to it, or hedge=Hedge(...) to retry()")
    settings = HedgeSettings(delay=delay, max_extra_load=max_extra_load, max_copies=max_copies, min_samples=min_samples)
    for option in options:
        if option in MEANT and option not in DecoratorOptions.__annotations__:
            raise TypeError(f"there is no option {option}=; use {MEANT[option]}")
    if fn is not None:
        check_call(fn, "hedge")
    call: Any = retry
    return call(*(() if fn is None else (fn,)), **options, hedge=settings)
