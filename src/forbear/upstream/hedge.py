"""A hedge as users hold it: what the attempts it has seen have taught, and the copies they have earned.

Decided here: on whose clock it lives, and what is counted. One object for each service, as latencies of two services
say nothing about each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Never, TypeVar
from weakref import WeakSet

from forbear._runtime.scope import around, world_of
from forbear._runtime.world import Clock
from forbear.core.hedge import MAX_COPIES, MAX_EXTRA_LOAD, MIN_SAMPLES, HedgeSettings, Hedging
from forbear.core.validation import Seconds, refuse_unknown

MOST_PLACES = 1_000  # of the program where single calls with a hedge are written
MOST_CLOCKS = 8  # whose states are kept: the real one and a few of tests
R = TypeVar("R")
# Names that users of other libraries try first.
MEANT = {
    "percentile": "max_extra_load (1 - percentile)",
    "quantile": "max_extra_load (1 - quantile)",
    "after": "delay",
    "hedging_delay": "delay",
    "max_hedges": "max_copies (max_hedges + 1)",
    "max_attempts": "max_copies for one attempt; max_attempts= belongs to the call",
    "max_hedged_attempts": "max_copies (the first one counts too)",
    "budget": "max_extra_load",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeSnapshot:
    """How a hedge stands. `delay`: seconds after which it sends a copy now; None while too little is known.

    `sent` counts copies, `won` those that answered first, `suppressed` those that were due and not sent. `wasted`:
    seconds that losers had worked when they were cancelled: what the service may ask money for, for nothing.
    """

    delay: float | None
    balance: float
    sent: int
    won: int
    suppressed: int
    wasted: float


class Totals:
    """What a hedge has counted so far: see `HedgeSnapshot`."""

    def __init__(self) -> None:
        self.sent = self.won = self.suppressed = 0
        self.wasted = 0.0

    def add(self, other: Totals) -> None:
        """Takes over what another one has counted."""
        self.sent += other.sent
        self.won += other.won
        self.suppressed += other.suppressed
        self.wasted += other.wasted


class Hedge(Totals):
    """Sends a second copy of an attempt that is slow, and takes the answer that comes first.

    delay: seconds after which the copy is sent. By default it is learned: the time that only `max_extra_load` (0.05) of
        the last attempts took longer than, once `min_samples` (100) are known.
    max_extra_load: also bounds the copies: so many are earned by each success, and thirty can be saved up.
    max_copies: of one attempt, the first one included.

    Only for what may be done twice. The copies share one idempotency key. No copy is sent while the breaker is not
    closed, the service has asked for a pause, its limits leave no place, or its retry budget is empty.
    """

    def __init__(
        self,
        delay: Seconds | None = None,
        *,
        max_extra_load: float = MAX_EXTRA_LOAD,
        max_copies: int = MAX_COPIES,
        min_samples: int = MIN_SAMPLES,
        **unknown: Never,
    ) -> None:
        super().__init__()
        refuse_unknown("Hedge", unknown, MEANT)
        self.settings = HedgeSettings(
            delay=delay,  # type: ignore[arg-type]  # it is made seconds there
            max_extra_load=max_extra_load,
            max_copies=max_copies,
            min_samples=min_samples,
        )
        self._states: dict[Clock, Hedging] = {}
        self._lock = threading.Lock()
        _all.add(self)

    @classmethod
    def at(cls, place: Hashable, settings: HedgeSettings) -> Hedge:
        """The one with these settings for all calls that are written at one place of the program."""
        with _here:
            hedge = _by_place.pop((place, settings), None) or _made_anew(settings)
            _by_place[place, settings] = hedge
            if len(_by_place) > MOST_PLACES:
                del _by_place[next(iter(_by_place))]
            return hedge

    @classmethod
    def of(cls, settings: HedgeSettings) -> Hedge:
        """A hedge with these settings, that has learned nothing yet."""
        return _made_anew(settings)

    def ask(self, clock: Clock, step: Callable[[Hedging, float], R]) -> R:
        """Does a step of the state on this clock, under the lock."""
        now = clock()
        with self._lock:
            state = self._states.get(clock)
            if state is None:
                kept = tuple(self._states.items())[-MOST_CLOCKS + 1 :]
                state = Hedging(self.settings, now)
                self._states = {**dict(kept), clock: state}
            return step(state, now)

    def snapshot(self) -> HedgeSnapshot:
        """How it stands now, as a frozen value."""
        delay, balance = self.ask(world_of(around()).clock, lambda state, now: (state.delay(now), state.balance))
        return HedgeSnapshot(
            delay=delay, balance=balance, sent=self.sent, won=self.won, suppressed=self.suppressed, wasted=self.wasted
        )

    def __copy__(self) -> Hedge:
        return _made_anew(self.settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> Hedge:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_made_anew, (self.settings,))

    def __repr__(self) -> str:
        settings = self.settings
        when = "a learned delay" if settings.delay is None else f"{settings.delay:g} s"
        return f"<Hedge after {when}, at most {settings.max_extra_load:.0%} more load>"


def _made_anew(settings: HedgeSettings) -> Hedge:
    """A hedge with these settings, that has learned nothing yet."""
    return Hedge(
        settings.delay,
        max_extra_load=settings.max_extra_load,
        max_copies=settings.max_copies,
        min_samples=settings.min_samples,
    )


_all: WeakSet[Hedge] = WeakSet()
_by_place: dict[tuple[Hashable, HedgeSettings], Hedge] = {}
_here = threading.Lock()


def _after_fork() -> None:
    """In a forked child a lock that another thread held at that moment would stay held for ever."""
    global _here  # noqa: PLW0603
    _here = threading.Lock()
    for hedge in tuple(_all):
        hedge._lock = threading.Lock()  # noqa: SLF001  # ours


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
