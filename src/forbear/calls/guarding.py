"""How options name the guards that a call must pass: a whole `Upstream`, or single ones.

Decided here: what may stand beside what. The guards' own modules are not loaded for the question: whoever has one has
loaded it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from forbear.calls.callables import is_coroutine_function
from forbear.calls.reading import READER
from forbear.core.hedge import HedgeSettings
from forbear.core.validation import number, seconds
from forbear.upstream.guards import Guards
from forbear.upstream.hedge import Hedge

# Where an object shows what it is, and what to write instead of something else.
_KINDS = {
    "upstream": ("for_", "an Upstream, such as Upstream('openai/gpt')"),
    "budget": ("try_take", "a RetryBudget, such as RetryBudget()"),
    "breaker": ("force_open", "a CircuitBreaker, such as CircuitBreaker(failure_threshold=5)"),
    "limiter": ("reserve", "a RateLimiter, such as RateLimiter(requests_per_minute=500)"),
}
GUARDS = frozenset({*_KINDS, "tokens"})


def guards_of(options: Mapping[str, Any]) -> Guards | None:
    """The guards among the options; None where there are none. Raises ValueError for what makes no sense."""
    given = {name: options[name] for name in _KINDS if options.get(name) is not None}
    for name, guard in given.items():
        shows, wanted = _KINDS[name]
        if isinstance(guard, type) or not hasattr(guard, shows):
            raise ValueError(f"{name} must be {wanted}, not {type(guard).__name__}")
    tokens = _tokens(options.get("tokens"), given)
    upstream = given.pop("upstream", None)
    if upstream is None:
        limiter = given.get("limiter")
        return _single(given, limiter, tokens) if given else None
    if given:
        names = " and ".join(f"{name}=" for name in given)
        raise ValueError(f"{names} beside upstream=, which brings its own: give it to the Upstream when you make it")
    return Guards(
        entrance=upstream.entrance,
        rates=upstream.rates,
        budget=upstream.budget,
        breaker=upstream.breaker,
        tokens=tokens,
        reader=READER,
        counts=upstream.counts,
        name=f"Upstream {upstream.name!r}",
        observe_only=upstream.observe_only,
    )


def hedge_of(options: Mapping[str, Any], place: Hashable = None) -> Hedge | None:
    """The hedge among the options. One that is given by its settings belongs to the service, if there is one; else to
    the `place` of the program where a single call is written; else to this plan alone.
    """
    given, upstream = options.get("hedge"), options.get("upstream")
    if given is None or given is False:
        return None
    if options.get("idempotent") is False:
        raise ValueError("hedge= sends the same request twice, and idempotent=False says that this does harm")
    if isinstance(given, type):
        raise ValueError("hedge must be an object that keeps what it learns: write hedge=Hedge()")
    if hasattr(given, "snapshot"):
        return given  # type: ignore[no-any-return]
    if isinstance(given, HedgeSettings):
        settings = given
    else:
        if given is not True and not isinstance(given, (int, float)) and not hasattr(given, "total_seconds"):
            raise ValueError(f"hedge must be seconds, True or a Hedge(...), not {type(given).__name__}")
        settings = HedgeSettings(delay=None if given is True else seconds("hedge", given))
    if upstream is not None:
        return upstream.hedge_with(settings)  # type: ignore[no-any-return]
    return Hedge.of(settings) if place is None else Hedge.at(place, settings)


def refuse_hedge(options: Mapping[str, Any], form: str) -> None:
    """Raises TypeError for a form that can't hedge: what blocks can't be cancelled, and a block can't run twice."""
    if options.get("hedge") is not None and options.get("hedge") is not False:
        why = "a block can't run twice" if form == "attempts" else "a blocking call can't be cancelled when it has lost"
        raise TypeError(f"{form} takes no hedge=: {why}; use retry or hedge with an async function")


def _single(given: Mapping[str, Any], limiter: Any, tokens: Any) -> Guards:
    return Guards(
        entrance=None if limiter is None else limiter.entrance,
        rates=None if limiter is None else limiter.settings,
        budget=given.get("budget"),
        breaker=given.get("breaker"),
        tokens=tokens,
        reader=None if limiter is None else READER,
        name="the limiter" if limiter is not None else "the budget",
        clock=None if limiter is None else limiter.clock,
    )


def _tokens(tokens: Any, given: Mapping[str, Any]) -> Any:
    if tokens is None:
        return None
    if "upstream" not in given and "limiter" not in given:
        raise ValueError("tokens= is what a call costs in upstream= or limiter=, and neither is given")
    if callable(tokens):
        if is_coroutine_function(tokens):
            raise ValueError("tokens is async: give it a plain function of the call's arguments")
        return tokens
    amount = number("tokens", tokens)
    if amount < 0:
        raise ValueError(f"tokens is {amount:g}: a request can't cost less than nothing")
    return amount
