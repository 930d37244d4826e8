"""One service that is called: everything that its callers share.

Decided here: the guards that a service has by default, and their scope: one object per service, per model or per
region, for whatever fails or fills up alone. Must never know how a call is written.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Self, TypeVar
from weakref import WeakSet

from forbear._runtime.scope import around, world_of
from forbear.core.breaker import BreakerSnapshot
from forbear.core.concurrency import Concurrency
from forbear.core.failure import Kind
from forbear.core.hedge import HedgeSettings
from forbear.core.learned_rate import LearnedRate
from forbear.core.rate import ONE, PER_MINUTE, Cost, Limit, Rates, RateSettings
from forbear.core.room import Place, Room
from forbear.core.suggestion import suggestion
from forbear.core.validation import Seconds, count, flag, number, optional_seconds
from forbear.upstream.breaker import CircuitBreaker
from forbear.upstream.budget import RetryBudget
from forbear.upstream.counts import Counts
from forbear.upstream.entrance import Entrance
from forbear.upstream.guards import ready_in
from forbear.upstream.hedge import Hedge, Totals

MOST_HEDGES = 100  # settings of hedges that are kept
MOST_SCOPES = 1_000  # of `for_`: models, regions and tenants are few; a key that is a user's input must not fill memory


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSnapshot:
    """How a service stands, at one instant.

    in_flight: attempts under way. waiting: attempts in line for their place. waiting_retries: retries in line for the
    budget. concurrency_limit: attempts that may be under way; None while there is no limit. cooling: seconds until the
    pause that the server has asked for is over. learned_rate: attempts a second, once refusals have taught one.
    requests_left, tokens_left: of the configured limits, negative where a debt must refill first.
    budget: retries left. breaker: see `CircuitBreaker`.
    successes, failures (by kind), held (attempts that had to wait), too_late (refused, as no place could be had before
    their deadline), unpaid (retries that the budget had no place for), shut_out (refused by the circuit): totals; with
    `observe_only`, what would have been.
    hedges: copies that were sent besides, hedges_won: those that answered first, hedges_suppressed: those that were due
    and not sent, hedges_wasted: seconds that losers had worked when they were cancelled; a `Hedge` that you hold
    yourself counts by itself.
    """

    name: str
    in_flight: int
    waiting: int
    waiting_retries: int
    concurrency_limit: float | None
    cooling: float
    learned_rate: float | None
    requests_left: float | None
    tokens_left: float | None
    budget: float | None
    breaker: BreakerSnapshot | None
    successes: int
    failures: Mapping[Kind, int]
    held: int
    too_late: int
    unpaid: int
    shut_out: int
    hedges: int
    hedges_won: int
    hedges_suppressed: int
    hedges_wasted: float


class Service:
    """What all calls to one service share. Users hold an `Upstream`, which adds the forms of call."""

    def __init__(
        self,
        name: str,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        burst: float | None = None,
        strict_window: Seconds | None = None,
        max_concurrency: int | None = None,
        budget: RetryBudget | None = None,
        breaker: CircuitBreaker | None = None,
        adaptive: bool = True,
        observe_only: bool = False,
    ) -> None:
        if not name or str(name) != name:
            raise ValueError("an Upstream needs a name, which its errors and snapshots show: Upstream('openai/gpt')")
        self.name = name
        self.rates = _rates(requests_per_minute, tokens_per_minute, burst, strict_window)
        self.max_concurrency = None if max_concurrency is None else count("max_concurrency", max_concurrency)
        self.adaptive = flag("adaptive", adaptive)
        self.observe_only = flag("observe_only", observe_only)
        self.budget = _checked("budget", budget, RetryBudget)
        self.breaker = _checked("breaker", breaker, CircuitBreaker)
        if breaker is not None and breaker.name is None:
            breaker.name = name
        self.counts = Counts()
        self.entrance: Entrance[Cost, Place] = Entrance(
            self._room, strict=self.rates is not None and self.rates.strict_window is not None
        )
        self._hedges: dict[HedgeSettings, Hedge] = {}
        self._forgotten = Totals()
        self._scopes: OrderedDict[Hashable, Self] = OrderedDict()
        self._lock = Lock()
        _all.add(self)

    def for_(self, key: Hashable) -> Self:
        """The same settings with a state of its own, for one model, region or shard: what fails there fails there only.

        The same key gives the same object. At most 1,000 are kept; beyond that, the one that was asked for longest ago
        is forgotten, of those that nobody uses at the moment.
        """
        with self._lock:
            scope = self._scopes.pop(key, None)
            if scope is None:
                scope = self._scope(key)
            self._scopes[key] = scope
            if len(self._scopes) > MOST_SCOPES:
                self._forget_one()
            return scope

    def hedge_with(self, settings: HedgeSettings) -> Hedge:
        """The hedge of this service with these settings: all calls that ask for it learn together."""
        with self._lock:
            hedge = self._hedges.get(settings)
            if hedge is None:
                hedge = Hedge.of(settings)
                if len(self._hedges) >= MOST_HEDGES:  # settings that are made up anew for each call
                    self._forgotten.add(self._hedges.pop(next(iter(self._hedges))))
            else:
                del self._hedges[settings]
            self._hedges[settings] = hedge  # the one that was asked for last is the last
            return hedge

    def _forget_one(self) -> None:
        """The scope that was asked for longest ago and that nobody uses now."""
        for key, scope in self._scopes.items():
            if not scope.entrance.busy():
                del self._scopes[key]
                return

    def ready_in(self, tokens: float = 0.0) -> float:
        """Seconds until an attempt that costs so many tokens may begin: behind those who wait, after the pause that the
        service has asked for, and when its circuit lets a trial through. 0: now. Infinite: when another one has ended.
        """
        if self.observe_only:
            return 0.0
        return ready_in(self.entrance, self.breaker, ONE if self.rates is None else self.rates.cost(tokens))

    def suggest_attempt_timeout(self, patience: Seconds | None = None) -> float:
        """An attempt timeout in seconds, from how long the attempts of this service took lately: of streams, up to
        their first content, which is what `first_timeout` bounds. See `forbear.suggest_attempt_timeout`.

        Attempts that were cut or cancelled count with the time they had taken, where that was longer than the median.
        Where it is more than one in a hundred, the real 99th percentile is longer than anybody has waited: ask again
        when the new timeout is in use.

        patience: seconds that the caller waits in all; None: endless.

        Raises ValueError where fewer than 20 are known, or half of the patience is less than the 99th percentile.
        """
        most = optional_seconds("patience", patience, zero=False)
        line = self.entrance.on(world_of(around()).clock)
        known = line.act(lambda now: self.counts.times(line.clock, now).all(now))
        return suggestion(f"Upstream {self.name!r}", known, most)

    def reset(self) -> None:
        """Forgets what refusals have taught: the pause, the rate, the limit on concurrency; closes the breaker.

        For the moment when you know that the service is well again.
        """
        line = self.entrance.on(world_of(around()).clock)
        line.act(lambda _now: line.room.reset())  # type: ignore[attr-defined]
        if self.breaker is not None:
            self.breaker.reset()

    def correct(self, limits: Iterable[Limit]) -> None:
        """Takes over what the service itself reports: `upstream.correct(read_limits(response.headers))`.

        Responses and errors that pass through a call are read by themselves.
        """
        known = tuple(limits)
        if not all(hasattr(limit, "counts") for limit in known):  # names of headers, most likely
            raise TypeError("correct() takes limits: write upstream.correct(read_limits(response.headers))")
        line = self.entrance.on(world_of(around()).clock)
        line.act(lambda now: line.room.correct(known, now))  # type: ignore[attr-defined]

    def snapshot(self) -> UpstreamSnapshot:
        """How the service stands now, as a frozen value."""
        clock = world_of(around()).clock
        line = self.entrance.on(clock)
        facts: dict[str, Any] = line.act(lambda now: _facts_of(line.room, now))
        counts, budget = self.counts, self.budget
        hedges = (self._forgotten, *self._hedges.values())
        return UpstreamSnapshot(
            name=self.name,
            waiting=len(line),
            waiting_retries=0 if budget is None else len(budget.line(clock)),
            budget=None if budget is None else budget.balance,
            breaker=None if self.breaker is None else self.breaker.snapshot(),
            successes=counts.successes,
            failures=dict(counts.failures),
            held=counts.held,
            too_late=counts.too_late,
            unpaid=counts.unpaid,
            shut_out=counts.shut_out,
            hedges=sum(hedge.sent for hedge in hedges),
            hedges_won=sum(hedge.won for hedge in hedges),
            hedges_suppressed=sum(hedge.suppressed for hedge in hedges),
            hedges_wasted=sum(hedge.wasted for hedge in hedges),
            **facts,
        )

    def _room(self, now: float) -> Room:
        return Room(
            None if self.rates is None else Rates(self.rates, now),
            Concurrency(math.inf if self.max_concurrency is None else self.max_concurrency, adaptive=self.adaptive),
            LearnedRate() if self.adaptive else None,
        )

    def _scope(self, key: Hashable) -> Self:
        """A new one with these settings."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<Upstream {self.name!r}>"


_all: WeakSet[Service] = WeakSet()


def _after_fork() -> None:
    """In a forked child a lock that another thread held at that moment would stay held for ever."""
    for service in tuple(_all):
        service._lock = Lock()  # noqa: SLF001  # ours


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


T = TypeVar("T")


def _checked(option: str, guard: T | None, kind: type[T]) -> T | None:
    if guard is not None and not isinstance(guard, kind):
        raise ValueError(f"{option} must be a {kind.__name__}, such as {kind.__name__}(), not {guard!r}")
    return guard


def _facts_of(room: Any, now: float) -> dict[str, Any]:
    limit = room.concurrency.limit
    rates: Rates | None = room.rates
    return {
        "in_flight": room.concurrency.under_way,
        "concurrency_limit": None if limit == math.inf else limit,
        "cooling": max(0.0, room.cool_until - now),
        "learned_rate": None if room.learned is None or room.learned.rate == math.inf else room.learned.rate,
        "requests_left": None if rates is None or rates.requests is None else rates.requests.left(now),
        "tokens_left": None if rates is None or rates.tokens is None else rates.tokens.left(now),
    }


def _rates(
    requests: float | None, tokens: float | None, burst: float | None, strict_window: Seconds | None
) -> RateSettings | None:
    """By default one second's worth may leave at once: the first minute sees hardly more than a minute's quota."""
    if requests is None and tokens is None:
        if burst is not None or strict_window is not None:
            raise ValueError("burst= and strict_window= need requests_per_minute= or tokens_per_minute=")
        return None
    if burst is None and strict_window is None:
        limit = requests if requests is not None else tokens
        burst = max(
            1.0, number("requests_per_minute" if requests is not None else "tokens_per_minute", limit) / PER_MINUTE
        )
    return RateSettings(
        requests_per_minute=requests,
        tokens_per_minute=tokens,
        burst=burst,
        strict_window=strict_window,  # type: ignore[arg-type]  # it is made seconds there
    )
