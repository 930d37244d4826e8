"""A retry budget as users hold it: one object, shared by all retries, hedges and fallbacks that go to one service."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Never

from forbear._runtime.line import Line
from forbear._runtime.scope import around, world_of
from forbear._runtime.world import Clock
from forbear.core.budget import CAPACITY, COSTS, EARNED, FRESH, INITIAL, Budget, BudgetSettings
from forbear.core.failure import Kind
from forbear.core.validation import Seconds, number, refuse_unknown
from forbear.upstream.entrance import Entrance

# Names that users of other libraries try first.
_MEANT = {
    "ratio": "earned (retries per success)",
    "token_ratio": "earned (retries per success)",
    "percent": "earned (retries per success)",
    "max_tokens": "capacity",
    "ttl": "fresh_for",
}


class RetryBudget:
    """How many retries a service's successes have earned; without it, retries multiply the load of an outage.

    Each success earns `earned` (0.1) of a retry, and a retry that succeeds earns back what it cost. It begins with
    `initial` (10) and never holds more than `capacity` (100). A retry costs 1, after a timeout 2, after a refusal for
    the rate ½; `costs` changes that by kind of failure. `fresh_for` (60 s): after a longer time without a success no
    more than `initial` is left.

    when_empty: "stop" raises `BudgetExhausted`, caused by the real error; "wait" lets the retry wait for its turn
    inside its deadline.
    """

    def __init__(
        self,
        *,
        initial: float = INITIAL,
        capacity: float = CAPACITY,
        earned: float = EARNED,
        fresh_for: Seconds = FRESH,
        costs: Mapping[Kind, float] | None = None,
        when_empty: Literal["stop", "wait"] = "stop",
        **unknown: Never,
    ) -> None:
        refuse_unknown("RetryBudget", unknown, _MEANT)
        self.settings = BudgetSettings(
            initial=initial,
            capacity=capacity,
            earned=earned,
            fresh_for=fresh_for,  # type: ignore[arg-type]  # it is made seconds there
            costs={**COSTS, **_costs(costs or {})},
            when_empty=when_empty,
        )
        self.entrance: Entrance[float, float] = Entrance(lambda now: Budget(self.settings, now))

    def line(self, clock: Clock) -> Line[float, float]:
        """Where retries wait for their turn, on this clock."""
        return self.entrance.on(clock)

    @property
    def balance(self) -> float:
        """How many retries are left, a fraction."""
        line = self.line(world_of(around()).clock)
        return line.act(lambda now: budget_in(line).left(now))  # type: ignore[no-any-return]

    def try_take(self, cost: float = 1.0) -> bool:
        """Takes a retry's place where there is one. For retries that are not forbear's."""
        return self._take(self.line(world_of(around()).clock), _cost("cost", cost)) is not None

    def succeeded(self, cost: float = 0.0) -> None:
        """A request has succeeded; `cost`: what it had taken, as a retry."""
        self.earn(self.line(world_of(around()).clock), _cost("cost", cost))

    def earn(self, line: Line[float, float], cost: float) -> None:
        """As `succeeded`, on a line that is known."""
        line.act(lambda now: budget_in(line).succeeded(cost, now))

    def give_back(self, line: Line[float, float], paid: float) -> None:
        """A retry that was paid for has not been sent."""
        if paid:
            line.act(lambda _now: budget_in(line).give_back(paid))

    def pay(self, line: Line[float, float], cost: float) -> float | None:
        """What was paid for a retry that goes now; None where it must wait or stop."""
        return self._take(line, cost)

    def _take(self, line: Line[float, float], cost: float) -> float | None:
        def step(now: float) -> float | None:
            budget = budget_in(line)
            return budget.take(cost, now) if budget.covers(cost, now) and not len(line) else None

        return line.act(step)  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> RetryBudget:
        return _made_anew(self.settings)

    def __copy__(self) -> RetryBudget:
        return _made_anew(self.settings)

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {name: getattr(self.settings, name) for name in ("initial", "capacity", "earned", "fresh_for")}
        return (_made_from, ({**facts, "when_empty": self.settings.when_empty}, dict(self.settings.costs)))

    def __repr__(self) -> str:
        return f"<RetryBudget, {self.balance:.1f} of {self.settings.capacity:g}>"


def budget_in(line: Line[float, float]) -> Budget:
    """The budget behind a line of a `RetryBudget`."""
    room = line.room
    if not isinstance(room, Budget):
        raise TypeError("this line is not a budget's")
    return room


def _costs(costs: Mapping[Kind, float]) -> dict[Kind, float]:
    checked: dict[Kind, float] = {}
    for kind, cost in costs.items():
        checked[Kind(kind)] = _cost(f"the cost of {kind}", cost)
    return checked


def _cost(name: str, value: object) -> float:
    cost = number(name, value)
    if cost < 0 or math.isinf(cost):
        raise ValueError(f"{name} is {cost:g}: it must be finite and not negative")
    return cost


def _made_anew(settings: BudgetSettings) -> RetryBudget:
    facts = {name: getattr(settings, name) for name in ("initial", "capacity", "earned", "fresh_for", "when_empty")}
    return _made_from(facts, settings.costs)


def _made_from(facts: dict[str, Any], costs: Mapping[Kind, float]) -> RetryBudget:
    return RetryBudget(**facts, costs=costs)
