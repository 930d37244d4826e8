"""How many requests and tokens may be sent in which time, and how long the next ones must wait.

Decided here: that requests and tokens are taken together or not at all, what can never be sent, and what a server's own
word about its limits counts. Must never know who asks. Prevents large requests that never get their turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from forbear.core.meters import NEGLIGIBLE, Bucket, Meter, Window
from forbear.core.validation import number, seconds

PER_MINUTE = 60.0
LEAST, MOST = 1e-9, 1e15  # a minute; what lies beyond is a slip, and its waits no number could hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of a service, as it reports it. `resource` is what it counts ("requests", "tokens", ...), empty where
    that is not said.

    `limit` and `remaining` count that; `reset` is the seconds until it is full again. None where not reported.
    """

    resource: str
    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None

    @property
    def counts(self) -> str:
        """What it limits, whatever its exact name: "requests", "tokens", or nothing that we count."""
        if "token" in self.resource:
            return "tokens"
        return "requests" if self.resource in ("", "requests") else ""


@dataclass(slots=True, unsafe_hash=True)
class Cost:
    """What one attempt takes: requests and tokens. Never changed; that it is not frozen makes it cheap."""

    requests: float = 1.0
    tokens: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.requests + other.requests, self.tokens + other.tokens)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.requests - other.requests, self.tokens - other.tokens)


ONE = Cost()
NOTHING = Cost(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSettings:
    """Limits of a service per minute; None: not limited.

    burst: how many requests may leave at once after a pause, and tokens in proportion; tokens where only those are
        limited. None: a whole minute's, so that the first minute may see twice the limit.
    strict_window: seconds; then no window of this length ever holds more than its share, wherever it begins.
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    burst: float | None = None
    strict_window: float | None = None

    def __post_init__(self) -> None:
        if self.requests_per_minute is None and self.tokens_per_minute is None:
            raise ValueError("a rate limiter needs a limit: set requests_per_minute=, tokens_per_minute= or both")
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _limit(name, value))
        if self.burst is not None:
            object.__setattr__(self, "burst", _limit("burst", self.burst))
        if self.strict_window is not None:
            if self.burst is not None:
                raise ValueError("burst= and strict_window= exclude each other: a strict window allows no burst")
            window = seconds("strict_window", self.strict_window, zero=False, endless=False)
            object.__setattr__(self, "strict_window", window)
            requests = self.requests_per_minute
            if requests is not None and requests * window < PER_MINUTE * (1 - NEGLIGIBLE / 2):
                least = math.ceil(PER_MINUTE / requests * 1000) / 1000  # rounded down it would be refused again
                raise ValueError(
                    f"strict_window is {window:g} s, but {requests:g} requests per minute are less than one in that "
                    f"time: make it at least {least} s"
                )

    def cost(self, tokens: float) -> Cost:
        """What a request of `tokens` costs. Raises ValueError for one that could never be sent."""
        if not tokens and type(tokens) is int:
            return ONE
        amount = number("tokens", tokens)
        if amount < 0:
            raise ValueError(f"tokens is {amount:g}: a request can't cost less than nothing")
        if self.tokens_per_minute is not None:
            largest = self.tokens_per_minute * (self.strict_window or PER_MINUTE) / PER_MINUTE
            if amount > largest * (1 + NEGLIGIBLE / 2):
                raise ValueError(
                    f"one request of {amount:g} tokens can never fit: at most {largest:g} may be sent at once; "
                    "send less at a time, or raise tokens_per_minute="
                )
        return Cost(1.0, amount)

    @property
    def share(self) -> float:
        """The part of a minute's quota that may leave at once."""
        whole = self.requests_per_minute or self.tokens_per_minute or 1.0
        return 1.0 if self.burst is None else min(1.0, self.burst / whole)


class Rates:
    """The meters of one service: requests and tokens, each of them or None."""

    __slots__ = ("requests", "settings", "tokens")

    def __init__(self, settings: RateSettings, now: float) -> None:
        self.settings = settings
        self.requests = _meter(settings.requests_per_minute, settings, 1.0, now)
        self.tokens = _meter(settings.tokens_per_minute, settings, 0.0, now)

    def wait(self, cost: Cost, now: float) -> float:
        """Seconds until `cost` may be taken, as a whole."""
        return max(
            0.0 if self.requests is None else self.requests.wait(cost.requests, now),
            0.0 if self.tokens is None or cost.tokens <= 0 else self.tokens.wait(cost.tokens, now),
        )

    def predicted(self, total: Cost, last: Cost, now: float) -> float:
        """The least seconds after which `last` can be taken, after all else of `total`."""
        requests, tokens = self.requests, self.tokens
        return max(
            0.0 if requests is None else requests.predicted(total.requests, last.requests, now),
            0.0 if tokens is None or last.tokens <= 0 else tokens.predicted(total.tokens, last.tokens, now),
        )

    def take(self, cost: Cost, now: float) -> None:
        """Takes `cost`, into debt if need be."""
        if self.requests is not None:
            self.requests.take(cost.requests, now)
        if self.tokens is not None and cost.tokens:
            self.tokens.take(cost.tokens, now)

    def settle(self, cost: Cost, used: float, now: float, taken_at: float) -> None:
        """What was estimated at `cost` has used so many tokens; of nonsense no more than a minute's is believed."""
        most = max(cost.tokens, self.settings.tokens_per_minute or 0.0)
        self.give(Cost(0.0, cost.tokens - min(used, most)), now, taken_at)

    def correct(self, limit: Limit, now: float) -> None:
        """What the server says is left counts where it is less than we think: others may use the same quota.

        Never more: what is on its way to the server it has not counted yet.
        """
        meter = {"requests": self.requests, "tokens": self.tokens}.get(limit.counts)
        if meter is not None and limit.remaining is not None:
            meter.lower(limit.remaining, now)

    def give(self, cost: Cost, now: float, taken_at: float) -> None:
        """Gives back what was taken at `taken_at` and not used; negative figures take more."""
        if self.requests is not None and cost.requests:
            self.requests.give(cost.requests, now, taken_at)
        if self.tokens is not None and cost.tokens:
            self.tokens.give(cost.tokens, now, taken_at)


def _meter(per_minute: float | None, settings: RateSettings, least: float, now: float) -> Meter | None:
    if per_minute is None:
        return None
    rate = per_minute / PER_MINUTE
    if settings.strict_window is not None:
        return Window(rate * settings.strict_window, settings.strict_window)
    return Bucket(rate, max(per_minute * settings.share, least), now)


def _limit(name: str, value: object) -> float:
    result = number(name, value)
    if result <= 0 or math.isinf(result):
        raise ValueError(f"{name} is {result:g}: it must be above 0 and finite; None means that there is no limit")
    if not LEAST <= result <= MOST:
        raise ValueError(f"{name} is {result:g}: it must lie between {LEAST:g} and {MOST:g}; None means no limit")
    return result
