"""The guards that the calls of a plan must pass: budget, breaker, and the entrance with its limits.

Decided here: what belongs together. How a call passes them is the business of its way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from forbear._runtime.call import Call
from forbear._runtime.scope import around, world_of
from forbear._runtime.world import Clock
from forbear.core.rate import ONE, Cost, Limit, RateSettings
from forbear.core.room import Place
from forbear.upstream.cost import Tokens, tokens_of
from forbear.upstream.counts import Counts
from forbear.upstream.entrance import Entrance
from forbear.upstream.way import Way

if TYPE_CHECKING:  # a blocking call must not load what only async code needs
    from forbear.upstream.breaker import CircuitBreaker
    from forbear.upstream.budget import RetryBudget


class Reader(Protocol):
    """How facts are read from what a service has answered."""

    def limits(self, answer: object, /) -> Iterable[Limit]:
        """The limits that a response or an error reports."""
        ...

    def tokens(self, result: object, /) -> float | None:
        """The tokens that a result says were used; None where it does not say."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What guards the calls of one plan; any of them may be missing. `tokens` is what a call costs.

    name: whose they are, for messages. clock: the one that the entrance counts by; None: that of each call.
    observe_only: nothing is held back or refused; it is only counted what would have been.
    """

    entrance: Entrance[Cost, Place] | None = None
    rates: RateSettings | None = None
    budget: RetryBudget | None = None
    breaker: CircuitBreaker | None = None
    tokens: Tokens = None
    reader: Reader | None = None
    counts: Counts | None = None
    name: str = "the service"
    clock: Clock | None = None
    observe_only: bool = False

    def open(self, call: Call) -> Way:
        """A way through for one call."""
        return Way(self, call)

    def ready_in(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """Seconds until a call with these arguments may begin; infinite where somebody must leave first."""
        if self.observe_only:
            return 0.0
        tokens = tokens_of(self.tokens, args, kwargs)
        cost = ONE if self.rates is None else self.rates.cost(tokens)
        return ready_in(self.entrance, self.breaker, cost, self.clock)


def ready_in(
    entrance: Entrance[Cost, Place] | None, breaker: CircuitBreaker | None, cost: Cost = ONE, clock: Clock | None = None
) -> float:
    """Seconds until an attempt of this cost may begin behind these guards; infinite where somebody must leave first."""
    wait = 0.0 if entrance is None else entrance.on(clock or world_of(around()).clock).wait_of(cost)
    return max(wait, 0.0 if breaker is None else breaker.retry_in)
