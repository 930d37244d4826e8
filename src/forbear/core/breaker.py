"""When to stop calling a service that fails, and when to try it again: the circuit breaker.

Decided here, in two tables: what the result of a call means in each state (`MEANS`), and where each state leads
(`MOVES`). Every change of state begins a new generation. A permit carries the one in which it was given, and a result
that comes back later than that changes nothing: neither the state nor the place of a newer trial. A trial's place is a
lease: taken for a limited time, free again after it, whatever became of the trial.

Must never know a clock, dice, a lock or what was called. Prevents the calls that keep a failing service down, the
stampede when it comes back, and a breaker that stays shut for ever as one trial was never heard of again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from forbear.core.breaker_settings import VERDICTS, BreakerSettings, Verdict
from forbear.core.window import Window

State = Literal["closed", "open", "half_open", "forced_open", "disabled"]
Cause = Literal["tripped", "cooled", "proven", "forced", "disabled", "reset"]
_Meaning = Literal["nothing", "answered", "failed", "proves", "trips"]

STATES: tuple[State, ...] = ("closed", "open", "half_open", "forced_open", "disabled")

MEANS: dict[State, dict[Verdict, _Meaning]] = {
    **dict.fromkeys(STATES, dict.fromkeys(VERDICTS, "nothing")),
    "closed": {"success": "answered", "failure": "failed", "permanent": "answered", "neutral": "nothing"},
    "half_open": {"success": "proves", "failure": "trips", "permanent": "nothing", "neutral": "nothing"},
}
MOVES: dict[Cause, dict[State, State]] = {
    "tripped": {"closed": "open", "half_open": "open"},
    "cooled": {"open": "half_open"},
    "proven": {"half_open": "closed"},
    "forced": dict.fromkeys(STATES, "forced_open"),
    "disabled": dict.fromkeys(STATES, "disabled"),
    "reset": dict.fromkeys(STATES, "closed"),
}


class Permit(NamedTuple):
    """Call, then record the verdict with this permit.

    `trial` numbers the trials of a generation; None for an ordinary call.
    """

    generation: int
    trial: int | None = None


class Refused(NamedTuple):
    """Do not call. After `retry_in` seconds it makes sense to ask again; see `Breaker.retry_in`."""

    retry_in: float


class Transition(NamedTuple):
    """A change of state. `generation` is the one that begins; `open_for` the seconds that it stays open, or None."""

    before: State
    after: State
    cause: Cause
    generation: int
    open_for: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSnapshot:
    """How a breaker stands at an instant.

    `consecutive_failures` counts up to `failure_threshold`; `calls` and `failure_rate` are of the window, 0 where none
    is kept; `openings` counts those since it was closed last; `trials` those that hold a place now; `retry_in` is 0
    where a call would be let through.
    """

    state: State
    generation: int
    retry_in: float
    consecutive_failures: int
    calls: int
    failure_rate: float
    openings: int
    trials: int


class Breaker:
    """The state. Ask before each call, record what came of it; one owner, no lock. Instants are of one clock.

    `last` is the latest change of state, None before the first.
    """

    __slots__ = (
        "_failures", "_generation", "_given", "_leases", "_open_until", "_openings", "_passed", "_state", "_window",
        "last", "settings",
    )  # fmt: skip

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.last: Transition | None = None
        self._state: State = "closed"
        self._generation = self._failures = self._openings = self._passed = self._given = 0
        self._open_until = -math.inf
        self._leases: dict[
            int, float
        ] = {}  # of each trial that has not ended: the instant when its place is free again
        self._window = None if settings.failure_rate is None else Window(settings.window)

    def state(self, now: float) -> State:
        """The state that a call would find."""
        return "half_open" if self._state == "open" and now >= self._open_until else self._state

    def ask(self, now: float) -> Permit | Refused:
        """Whether a call may be made now. Each permit must come back through `record`, once."""
        wait = self._wait(now)
        if wait is not None:
            return Refused(wait)
        if self._state == "open":
            self._move("cooled", now)
        if self._state != "half_open":
            return Permit(self._generation)
        self._given += 1
        self._leases[self._given] = now + self.settings.trial_timeout
        return Permit(self._generation, self._given)

    def record(self, permit: Permit, verdict: Verdict, now: float, random: float = 0.0) -> Transition | None:
        """Takes a permit back with what came of its call. `random` in [0, 1] spreads the time that it stays open."""
        meaning = MEANS[self._state][verdict]
        if permit.generation != self._generation:
            return None
        # Late or not, it is news of this generation: answers may take longer than a lease. It counts once.
        if permit.trial is not None and self._leases.pop(permit.trial, None) is None:
            return None
        match meaning:
            case "answered":
                self._count(ok=True, now=now)
            case "failed":
                self._count(ok=False, now=now)
                if self._too_many(now):
                    return self._move("tripped", now, random)
            case "proves":
                self._passed += 1
                if self._passed >= self.settings.trials:
                    return self._move("proven", now)
            case "trips":
                return self._move("tripped", now, random)
            case _:  # nothing
                pass
        return None

    def retry_in(self, now: float) -> float:
        """After how many seconds it makes sense to ask again; 0 where a call would be let through.

        While open: until the first trial. While all trials run: until the first one loses its place, or a recovery
        time if that is less, as most trials end sooner. Forced open: a recovery time, as nobody knows.
        """
        return self._wait(now) or 0.0

    def force_open(self, now: float) -> Transition | None:
        """Lets no call through until told otherwise."""
        return self._move("forced", now)

    def disable(self, now: float) -> Transition | None:
        """Lets all calls through and counts nothing until told otherwise."""
        return self._move("disabled", now)

    def reset(self, now: float) -> Transition | None:
        """Closed, as on the first day. The calls that are on their way count for nothing."""
        return self._move("reset", now)

    def snapshot(self, now: float) -> BreakerSnapshot:
        """How it stands."""
        return BreakerSnapshot(
            state=self.state(now),
            generation=self._generation,
            retry_in=self.retry_in(now),
            consecutive_failures=self._failures,
            calls=0 if self._window is None else self._window.calls(now),
            failure_rate=0.0 if self._window is None else self._window.failure_rate(now),
            openings=self._openings,
            trials=len(self._running(now)),
        )

    def _running(self, now: float) -> list[float]:
        return [ends_at for ends_at in self._leases.values() if now < ends_at]

    def _wait(self, now: float) -> float | None:
        """How long to wait before asking again; None where a call may be made."""
        match self._state:
            case "open":
                return None if now >= self._open_until else self._open_until - now
            case "half_open":
                running = self._running(now)
                if len(running) < self.settings.trials:
                    return None
                return min(min(running) - now, self.settings.recovery_time or math.inf)
            case "forced_open":
                return self.settings.recovery_time
            case _:  # closed, disabled
                return None

    def _count(self, *, ok: bool, now: float) -> None:
        self._failures = 0 if ok else self._failures + 1
        if self._window is not None:
            self._window.record(ok, now)

    def _too_many(self, now: float) -> bool:
        threshold, rate, window = self.settings.failure_threshold, self.settings.failure_rate, self._window
        if threshold is not None and self._failures >= threshold:
            return True
        if rate is None or window is None or window.calls(now) < self.settings.minimum_calls:
            return False
        return window.failure_rate(now) >= rate

    def _move(self, cause: Cause, now: float, random: float = 0.0) -> Transition | None:
        """Goes where the table says, with all counts at zero. None where it is there already."""
        before, after = self._state, MOVES[cause][self._state]
        self._state = after
        self._generation += 1
        self._failures = self._passed = self._given = 0
        self._leases = {}
        if self._window is not None:
            self._window.clear()
        open_for = None
        if after == "open":
            self._openings += 1
            open_for = self.settings.open_for(self._openings, random)
            self._open_until = now + open_for
        elif after != "half_open":
            self._openings = 0
        if before == after:
            return None
        self.last = Transition(before, after, cause, self._generation, open_for)
        return self.last
