"""How many retries and hedges the successes of a service have earned.

Decided here: what an extra attempt costs and what earns it back. Successes earn, requests and attempts under way never:
a budget that those fill keeps an overloaded server down for ever. Must never know who asks. Prevents retries from
becoming the greater part of the load in the very moment when the service can bear least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from forbear.core.failure import Kind
from forbear.core.validation import number, optional_seconds

INITIAL = 10.0  # retries at the start: enough for a small program, too few for many short-lived ones to do harm
CAPACITY = 100.0  # retries that a long good time may save up
EARNED = 0.1  # per success; retries are about a tenth of the traffic when all of them fail again
FRESH = 60.0  # seconds; what was earned before a longer pause says nothing about the service of today
FIRST_PACE, SLOWEST_PACE, SLOWER = 1.0, 30.0, 2.0  # seconds between retries that an empty budget lets through

# A timeout has cost the server its full work, a refusal next to nothing. Who polls an answer burdens no sick service.
COSTS: dict[Kind, float] = {Kind.TIMEOUT: 2.0, Kind.RATE_LIMITED: 0.5, Kind.REJECTED_RESULT: 0.0, Kind.POOL_FULL: 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """What retries cost and what earns them.

    initial, capacity: retries at the start, and at most. earned: per success, a fraction.
    fresh_for: seconds; after a longer time without a success no more than `initial` is left of what was earned. None
        or infinity: for ever.
    costs: of a retry, by the kind of the failure before it; 1 for all others.
    when_empty: "stop": the call is given up with BudgetExhausted; "wait": its retry waits for its turn inside the
        deadline, and a few are let through at growing distances to see whether the service is back.
    """

    initial: float = INITIAL
    capacity: float = CAPACITY
    earned: float = EARNED
    fresh_for: float = FRESH
    costs: Mapping[Kind, float] = field(default_factory=lambda: COSTS, repr=False)
    when_empty: Literal["stop", "wait"] = "stop"

    def __post_init__(self) -> None:
        for name in ("initial", "capacity", "earned"):
            value = number(name, getattr(self, name))
            if value < 0 or math.isinf(value):
                raise ValueError(f"{name} is {value:g}: it must be finite and not negative")
            object.__setattr__(self, name, value)
        if self.initial > self.capacity:
            raise ValueError(f"initial is {self.initial:g}, more than capacity={self.capacity:g} lets a budget hold")
        fresh_for = optional_seconds("fresh_for", self.fresh_for, zero=False)
        object.__setattr__(self, "fresh_for", math.inf if fresh_for is None else fresh_for)
        if self.when_empty not in ("stop", "wait"):
            raise ValueError(f"when_empty must be 'stop' or 'wait', not {self.when_empty!r}")

    def cost(self, kind: Kind) -> float:
        """What a retry after such a failure costs."""
        return self.costs.get(kind, 1.0)


class Budget:
    """What is left to spend. `balance` is in retries, a fraction."""

    __slots__ = ("balance", "earned_at", "pace", "paced_at", "settings")

    def __init__(self, settings: BudgetSettings, now: float) -> None:
        self.settings = settings
        self.balance = settings.initial
        self.earned_at = now
        self.pace = 0.0
        self.paced_at = now

    def left(self, now: float) -> float:
        """What may be spent at `now`."""
        if self.balance > self.settings.initial and now - self.earned_at > self.settings.fresh_for:
            self.balance = self.settings.initial
        return self.balance

    def covers(self, cost: float, now: float) -> bool:
        """Whether so much is there."""
        return self.left(now) >= cost * (1 - 1e-9)

    def wait(self, cost: float, now: float) -> float:
        """Seconds until a retry may go: at once if it is covered, else when the next one is let through to see."""
        return 0.0 if self.covers(cost, now) else max(0.0, self.paced_at - now)

    def predicted(self, total: float, last: float, now: float) -> float:  # noqa: ARG002  # what will be earned can't be known
        """No retry is refused for what those ahead of it cost."""
        return 0.0

    def take(self, cost: float, now: float) -> float:
        """A retry goes. Gives what it has paid, for `give_back` or `succeeded`."""
        if self.covers(cost, now):
            paid = min(cost, self.balance)  # sums of fractions may leave a hair less
            self.balance -= paid
            self.paced_at = max(self.paced_at, now + FIRST_PACE)
            return paid
        self.pace = min(SLOWEST_PACE, max(FIRST_PACE, self.pace * SLOWER))
        self.paced_at = now + self.pace
        return 0.0

    def give_back(self, paid: float) -> None:
        """The retry that was paid for has not been sent."""
        self.balance = min(self.settings.capacity, self.balance + paid)

    def succeeded(self, cost: float, now: float) -> None:
        """An attempt has succeeded. `cost` is what a retry cost or should have; 0 for a first attempt.

        A retry that succeeds earns its cost back: retrying works. Where retries wait for their turn and little is left,
        it earns one more, so that they are served in doubling numbers and not one after the other.
        """
        earned = self.settings.earned + cost
        if cost and self.settings.when_empty == "wait" and self.balance < self.settings.initial:
            earned += min(1.0, self.settings.initial - self.balance)
        self.left(now)
        self.balance = min(self.settings.capacity, self.balance + earned)
        self.earned_at = self.paced_at = now
        self.pace = 0.0
