"""May the next attempt go to the service now, and if not, when?

Decided here: how the guards of a service work together: its rate limits as configured, a rate learned from refusals,
the number of attempts under way, and the pause that the server has asked for. A step takes a place in all of them or
in none. Must never know who is next. Prevents guards that undo each other's work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from forbear.core.concurrency import Concurrency, Verdict
from forbear.core.failure import Failure, Kind
from forbear.core.learned_rate import LearnedRate
from forbear.core.meters import NEGLIGIBLE
from forbear.core.rate import PER_MINUTE, Cost, Limit, Rates

LONGEST_PAUSE = 120.0  # seconds that one hint may hold everyone back: it may be about one endpoint, or nonsense

# What an attempt's end says about the service's load, where it says anything.
_SAYS: dict[Kind, Verdict] = {
    Kind.OVERLOADED: "rejected",
    Kind.SERVER_ERROR: "failed",
    Kind.TIMEOUT: "failed",
    Kind.CONNECTION_REFUSED: "failed",
    Kind.CONNECTION_LOST: "failed",
    Kind.BAD_ANSWER: "failed",
    # The service has answered, and well: the question was wrong.
    Kind.INVALID_REQUEST: "success",
    Kind.TOO_LONG: "success",
    Kind.CONTENT_REFUSED: "success",
    Kind.AUTH: "success",
    Kind.NOT_FOUND: "success",
    Kind.CONFLICT: "success",
    Kind.REJECTED_RESULT: "success",
}
# What never reached the service, or was refused before it counted, costs no tokens.
_UNCOUNTED = frozenset({Kind.CONNECTION_REFUSED, Kind.POOL_FULL})
_REFUSED = frozenset({Kind.RATE_LIMITED, Kind.OVERLOADED, Kind.QUOTA_SPENT})


@dataclass(slots=True)
class Place:
    """What one attempt has taken, and when."""

    cost: Cost
    taken_at: float
    attempt: int
    rate_wave: int


class Room:
    """The guards of one service that an attempt must pass, as one. Any of them may be missing."""

    __slots__ = ("concurrency", "cool_until", "learned", "rates")

    def __init__(self, rates: Rates | None, concurrency: Concurrency | None, learned: LearnedRate | None) -> None:
        self.rates = rates
        self.concurrency = concurrency
        self.learned = learned
        self.cool_until = -math.inf

    def wait(self, cost: Cost, now: float) -> float:
        """Seconds until an attempt of this cost may go; infinite where another one must end first."""
        wait = max(
            self.cool_until - now,
            0.0 if self.rates is None else self.rates.wait(cost, now),
            0.0 if self.concurrency is None else self.concurrency.wait(now),
        )
        if self.learned is not None and self.learned.wait(now) > wait:
            self.learned.hold(now)
            wait = self.learned.wait(now)
        return wait if wait > NEGLIGIBLE and now + wait > now else 0.0  # shorter than the clock can tell is nothing

    def why(self, cost: Cost, now: float) -> str:
        """What holds an attempt of this cost back, in words."""
        if self.cool_until > now:
            return "it has asked for a pause"
        if self.rates is not None and self.rates.wait(cost, now) > 0:
            return "its limit of requests or tokens"
        if self.learned is not None and self.learned.wait(now) > 0:
            return "it refuses more requests a second"
        return "it is full, or overloaded"

    def predicted(self, total: Cost, last: Cost, now: float) -> float:
        """The least seconds until `last` may go, behind others with which it costs `total`.

        Only what is known counts: limits and pauses, not how long attempts may take.
        """
        return max(
            0.0,
            self.cool_until - now,
            0.0 if self.rates is None else self.rates.predicted(total, last, now),
            0.0 if self.learned is None else self.learned.predicted(total.requests, now),
        )

    def take(self, cost: Cost, now: float) -> Place:
        """An attempt goes."""
        if self.rates is not None:
            self.rates.take(cost, now)
        return Place(
            cost,
            now,
            0 if self.concurrency is None else self.concurrency.take(now),
            0 if self.learned is None else self.learned.take(now),
        )

    def untake(self, place: Place, now: float) -> None:
        """It has not gone: all that it took is there again."""
        if self.rates is not None:
            self.rates.give(place.cost, now, place.taken_at)
        if self.learned is not None:
            self.learned.untake(place.rate_wave)
        if self.concurrency is not None:
            self.concurrency.leave(place.attempt, "neutral", now, 0.0)

    def succeeded(self, place: Place, used: float | None, now: float) -> None:
        """The service has answered; `used` tokens where that is known."""
        if used is not None and self.rates is not None:
            self.rates.settle(place.cost, used, now, place.taken_at)
        if self.learned is not None:
            self.learned.accept(now)
        if self.concurrency is not None:
            self.concurrency.leave(place.attempt, "success", now, 0.0)

    def failed(self, place: Place, failure: Failure, now: float, random: float) -> None:
        """The attempt has failed. A pause that the server asks for holds everyone back, for a while."""
        if self.rates is not None and failure.kind in _UNCOUNTED:
            self.rates.give(place.cost, now, place.taken_at)
        elif self.rates is not None and failure.kind in _REFUSED:
            self.rates.give(Cost(0.0, place.cost.tokens), now, place.taken_at)
        says = _SAYS.get(failure.kind, "neutral")
        if self.concurrency is not None:
            self.concurrency.leave(place.attempt, says, now, random)
        if self.learned is not None and says == "success":
            self.learned.accept(now)
        self._cool(place, failure, now)

    def correct(self, limits: Iterable[Limit], now: float) -> None:
        """What the server says is left. Where that is nothing, the next one waits for its part of the reset.

        Its reset says when the limit is *full* again, which may be a day away: of a limit that is known, one request
        fits in its share of that time.
        """
        for limit in limits:
            if self.rates is not None:
                self.rates.correct(limit, now)
            if limit.counts in ("requests", "tokens") and limit.remaining is not None and limit.remaining <= 0:
                until_one = (limit.reset or 0.0) / max(1.0, limit.limit or 1.0)
                self.cool_until = max(self.cool_until, now + min(until_one, PER_MINUTE))

    def cancelled(self, place: Place, now: float) -> None:
        """Nobody wants the answer any more. The service may have done the work: it stays paid for."""
        if self.concurrency is not None:
            self.concurrency.leave(place.attempt, "neutral", now, 0.0)

    def reset(self) -> None:
        """Forgets what refusals have taught."""
        self.cool_until = -math.inf
        if self.learned is not None:
            self.learned.forget()
        if self.concurrency is not None:
            self.concurrency.forget()

    def _cool(self, place: Place, failure: Failure, now: float) -> None:
        if not failure.transient or self.learned is None:
            return
        until = now + min(failure.retry_after or 0.0, LONGEST_PAUSE)
        if failure.kind is Kind.RATE_LIMITED:
            self.learned.refuse(place.rate_wave, until, now)
        if failure.retry_after is not None and failure.kind in _REFUSED:
            self.cool_until = max(self.cool_until, until)
