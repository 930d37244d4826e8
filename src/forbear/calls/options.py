"""The options of a call: the same names and defaults in every form, gathered here once.

Decided here: how options become a `Plan`, and what the mistakes are told. Must never know in which form the call was
written.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict

from forbear._runtime.call import Call, Plan
from forbear._runtime.telling import log_mistake
from forbear._runtime.world import REAL, Clock, Sleep, World
from forbear.calls.callables import is_coroutine_function, name_of
from forbear.calls.fallback import Fallback, choice_in, plan_in
from forbear.calls.guarding import guards_of, hedge_of
from forbear.calls.nesting import warn_if_nested
from forbear.calls.stream_options import STREAM_OPTIONS, StreamOptions, stream_settings
from forbear.classify.failures import Classifier, classify, is_retryable
from forbear.classify.groups import with_origins
from forbear.core.backoff import Backoff, Jitter
from forbear.core.events import RetryState
from forbear.core.failure import Failure, Kind
from forbear.core.policy import LateBackoff, Policy, RetryAfterMode
from forbear.core.stream import AfterContent
from forbear.core.validation import Seconds, flag
from forbear.errors import ApiError, CircuitOpenError, ResultRejected, UsageError, already_retried
from forbear.observe.hooks import listeners

if TYPE_CHECKING:  # a blocking call must not load what only async code needs
    from forbear.upstream.breaker import CircuitBreaker
    from forbear.upstream.budget import RetryBudget
    from forbear.upstream.cost import Tokens
    from forbear.upstream.hedge import Hedge
    from forbear.upstream.limiter import RateLimiter
    from forbear.upstream.service import Service

Retryable = Callable[[Exception], bool] | type[Exception] | tuple[type[Exception], ...] | Classifier


class PolicyOptions(TypedDict, total=False):
    """The fields of `Policy`, and `policy` itself. All durations are seconds or a `timedelta`."""

    policy: Policy
    max_attempts: int | None
    attempt_timeout: Seconds | None
    deadline: Seconds | None
    base: Seconds
    cap: Seconds
    backoff: Backoff | list[float] | tuple[float, ...] | Callable[[int], float]
    jitter: Jitter | str
    minimum_attempt: Seconds
    retry_after: RetryAfterMode
    retry_after_jitter: Seconds
    max_retry_after: Seconds | None
    late_backoff: LateBackoff


class BlockOptions(PolicyOptions, total=False):
    """What a block form takes: a block has no value that a fallback could replace."""

    retryable: Retryable
    idempotent: bool
    retry_if_result: Callable[[Any], bool] | None
    on_retry: Callable[[RetryState], Any] | None
    reraise: bool
    sleep: Sleep | None
    rng: Clock | None
    clock: Clock | None
    upstream: Service | None
    tokens: Tokens
    budget: RetryBudget | None
    breaker: CircuitBreaker | None
    limiter: RateLimiter | None


class Options(BlockOptions, total=False):
    """What every other form takes."""

    hedge: bool | Seconds | Hedge | None
    fallback: Any
    fallback_on: Callable[[Exception], bool] | type[Exception] | tuple[type[Exception], ...] | None


class StreamCallOptions(Options, StreamOptions, total=False):
    """What `stream` takes besides `after_content`."""


class DecoratorOptions(StreamCallOptions, total=False):
    """What a decorator takes: it may find a function or a generator."""

    after_content: AfterContent


_POLICY_FIELDS = frozenset(PolicyOptions.__annotations__) - {"policy"}
# Functions among the options would be kept alive with the plan.
_REMEMBERED = _POLICY_FIELDS - {"backoff"}
_NAMES = frozenset(DecoratorOptions.__annotations__)
# Names that users of other libraries try first.
_MEANT = {
    "attempts": "max_attempts (it counts the first attempt too)",
    "tries": "max_attempts",
    "retries": "max_attempts (retries + 1)",
    "max_retries": "max_attempts (max_retries + 1)",
    "max_tries": "max_attempts",
    "stop": "max_attempts and deadline",
    "wait": "backoff",
    "timeout": "attempt_timeout for one attempt, deadline for the whole call",
    "max_time": "deadline",
    "total": "max_attempts (total + 1), or deadline (seconds)",
    "backoff_factor": "base",
    "initial": "base",
    "multiplier": "backoff=exponential(base, factor=...)",
    "concurrency": "upstream=Upstream(..., max_concurrency=...)",
    "max_concurrency": "upstream=Upstream(..., max_concurrency=...)",
    "rate_limit": "limiter=RateLimiter(...) or upstream=Upstream(...)",
    "on": "retryable",
    "exceptions": "retryable",
    "retry_on": "retryable",
    "max_delay": "cap",
    "delay": "base, or backoff=constant(seconds)",
    "before_sleep": "on_retry",
    "on_backoff": "on_retry",
    "circuit": "breaker",
    "rate_limiter": "limiter",
    "retry_budget": "budget",
    "hedge_delay": "hedge (seconds)",
    "hedge_after": "hedge (seconds)",
    "max_extra_load": "hedge=Hedge(max_extra_load=...)",
    "max_copies": "hedge=Hedge(max_copies=...)",
    "copies": "hedge=Hedge(max_copies=...)",
    "default": "fallback",
    "on_failure": "fallback",
    "mode": "after_content",
    "buffer": "after_content='buffer'",
    "restart": "after_content='restart'",
    "max_hold": "hold_at_most",
    "idle": "gap_timeout",
    "stall_timeout": "gap_timeout",
    "ttft": "first_timeout",
    "hedging": "hedge",
    "on_fallback": "fallback_on",
    "idle_timeout": "gap_timeout",
    "chunk_timeout": "gap_timeout",
    "ttft_timeout": "first_timeout",
}


def plan_of(
    name: str,
    options: Mapping[str, Any],
    *,
    stream: bool | None = False,
    place: Hashable = None,
    innermost: bool = False,
) -> Plan:
    """The plan that the options describe. Raises TypeError for an unknown name, ValueError for a bad value.

    `stream`: whether it is a stream's; None where that is not known yet. `place`: where a single call is written.
    `innermost`: whether each attempt makes one request for certain.

    Plans are frozen: the call form, which names its options anew each time, need not build one each time.
    """
    if not stream and options.keys() <= _REMEMBERED:
        try:
            return _remembered(name, **options)
        except TypeError:  # what can't be hashed is no good value, and is told so below
            pass
    return _plan_of(name, options, stream, place, innermost)


@lru_cache(maxsize=256, typed=True)
def _remembered(name: str, /, **options: Any) -> Plan:
    return _plan_of(name, options)


def _plan_of(
    name: str,
    options: Mapping[str, Any],
    stream: bool | None = False,
    place: Hashable = None,
    innermost: bool = False,
) -> Plan:
    for option in options:
        if option not in _NAMES:
            raise TypeError(_unknown(option))
        if stream is False and option in STREAM_OPTIONS:
            instead = "; for the whole call use deadline=" if option == "total_timeout" else ""
            raise TypeError(f"{option}= is for streams: use stream(fn, ...), or decorate a generator function{instead}")
    hook, rejects = options.get("on_retry"), options.get("retry_if_result")
    for option, function in (("on_retry", hook), ("retry_if_result", rejects)):
        if function is not None and not callable(function):
            raise ValueError(f"{option} must be a function, not {type(function).__name__}")
    if rejects is not None:
        _refuse_async("retry_if_result", rejects)
    policy = policy_of(options)
    return Plan(
        name=name,
        policy=policy,
        judge=_judge(
            options.get("retryable", is_retryable),
            flag("idempotent", options.get("idempotent", True)),
            watch=not innermost,
        ),
        rejects=rejects,
        on_retry=hook,
        reraise=flag("reraise", options.get("reraise", False)),
        world=_world(options.get("clock"), options.get("rng")),
        sleep=options.get("sleep"),
        listeners=listeners,
        gate=guards_of(options),
        hedge=hedge_of(options, place),
        stream=stream_settings(options, policy) if stream or not STREAM_OPTIONS.isdisjoint(options) else None,
    )


def fallback_of(options: Mapping[str, Any], *, call: bool = False) -> Fallback | None:
    """The fallback among the options; None where there is none. `call`: of a single call, which has no arguments."""
    answer, on = options.get("fallback"), options.get("fallback_on")
    if on is not None and answer is None:
        raise ValueError("fallback_on= says which errors fallback= answers, and there is none")
    _check_signature(answer, call)
    if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
        raise ValueError("fallback is an error: it takes the place of a result, as a value or a function of the error")
    return None if answer is None else Fallback(answer=answer, on=None if on is None else _predicate(on, "fallback_on"))


def _check_signature(answer: Any, call: bool) -> None:
    """Raises ValueError for a fallback that could not be called when it is needed, in the middle of an outage."""
    if plan_in(answer) is None and inspect.isfunction(answer):
        given: tuple[Any, ...] = (None,)
        said = "a fallback is called with the error: write lambda error: ..."
    elif call and plan_in(answer) is not None and choice_in(answer) is None:
        given, said = (
            (),
            f"it gets the arguments of the call, which has none: write lambda error: {name_of(answer)}(...)",
        )
    else:
        return
    try:
        inspect.signature(answer).bind(*given)
    except TypeError as mistake:
        raise ValueError(f"fallback={name_of(answer)} can't be called ({mistake}): {said}") from None


def policy_of(options: Mapping[str, Any]) -> Policy:
    """The policy among the options, with the fields that stand beside it in the place of its own."""
    changes = {name: value for name, value in options.items() if name in _POLICY_FIELDS}
    policy = options.get("policy")
    if policy is None:
        return Policy(**changes)
    if not isinstance(policy, Policy):
        raise ValueError(f"policy must be a Policy, not {type(policy).__name__}: write policy=Policy(max_attempts=3)")
    return policy.replace(**changes) if changes else policy


def _unknown(option: str) -> str:
    if option in _MEANT:
        return f"there is no option {option}=; use {_MEANT[option]}"
    close = difflib.get_close_matches(option, _NAMES, n=1)
    return f"there is no option {option}=" + (f"; did you mean {close[0]}=?" if close else "")


# Kinds of failure behind which a client may have made several requests by itself.
_OF_THE_NETWORK = frozenset({Kind.TIMEOUT, Kind.CONNECTION_REFUSED, Kind.CONNECTION_LOST})
_REFUSED = Failure(transient=False, kind=Kind.GAVE_UP)
# Errors that are one of these too must leave, whatever else they are.
_LEAVING = (KeyboardInterrupt, SystemExit, GeneratorExit)
_NEVER = (*_LEAVING, CircuitOpenError, UsageError)


def _judge(retryable: Retryable, idempotent: bool, *, watch: bool) -> Callable[[Exception, Call, float], Failure]:
    """What an error means for a call with these options, at an instant of the wall clock.

    `watch`: whether retries that were made below are told of.
    """
    rule = _predicate(retryable)
    verdict = retryable.classify if isinstance(retryable, Classifier) else classify

    def judge(error: Exception, call: Call, now: float) -> Failure:
        # Another thread's clock is comparable only with a real one.
        since = call.run.attempt_at if call.world.clock is REAL.clock else float("-inf")
        if any(already_retried(one, call, since) or isinstance(one, _NEVER) for one in with_origins(error)):
            return _REFUSED  # whatever the rule says: to retry it again would multiply
        failure = verdict(error, idempotent=idempotent, now=now)
        if watch and (failure.status is not None or failure.kind in _OF_THE_NETWORK):
            warn_if_nested(call.plan.name, error, call.run.policy.max_attempts)
        if rule is None or isinstance(error, ResultRejected):
            return failure
        transient = _answer(rule, error, failure)
        return failure if transient == failure.transient else replace(failure, transient=transient)

    return judge


def _answer(rule: Callable[[Exception], bool], error: Exception, failure: Failure) -> bool:
    """What the rule says. The default one says what the verdict says, but of `ApiError`; a broken one says no."""
    if rule is is_retryable:
        return is_retryable(error) if isinstance(error, (ApiError, BaseExceptionGroup)) else failure.transient
    try:
        return bool(rule(error))
    except Exception as mistake:
        log_mistake("retryable", mistake)
        return False


def _predicate(retryable: Any, option: str = "retryable") -> Callable[[Exception], bool] | None:
    """The user's own rule; None where the verdict is the rule."""
    if isinstance(retryable, Classifier):
        return None
    if isinstance(retryable, (type, tuple)):
        kinds = retryable if isinstance(retryable, tuple) else (retryable,)
        for kind in kinds:
            if not _is_exception_class(kind):
                raise ValueError(f"{option} names {kind!r}, which is no Exception class; cancellation is never retried")
        return lambda error: isinstance(error, kinds)
    if not callable(retryable):
        raise ValueError(f"{option} must be a function of the error, an exception class or a tuple of classes")
    _refuse_async(option, retryable)
    return retryable  # type: ignore[no-any-return]


def _refuse_async(option: str, function: Callable[..., Any]) -> None:
    if is_coroutine_function(function):
        raise ValueError(f"{option} is async, and a coroutine is always true: give it a plain function")


def _is_exception_class(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


def _world(clock: Clock | None, rng: Clock | None) -> Callable[[World], World] | None:
    """How the options change the world of a call, or None. A clock that brings a world along drives everything."""
    if clock is None and rng is None:
        return None

    def change(around: World) -> World:
        brought = getattr(clock, "world", None)
        world = brought if isinstance(brought, World) else around
        if clock is not None and world is around:
            # The event loop's timers go on in real time: they don't know this clock.
            world = replace(world, clock=clock, coarse=False)
        return world if rng is None else replace(world, random=rng)

    return change
