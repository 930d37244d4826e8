"""When a second copy of a slow attempt is worth its cost.

Decided here: after how long one is sent, and how many in all. One number says both: with `max_extra_load` of 0.05 the
delay is the time within which 95 % of the attempts lately had answered, and the successes of a hundred calls pay for
five copies. Losers count with the time they had taken when they were cancelled: were they left out, the slow ones would
be missing and the delay would fall and fall. Quick failures say nothing about how long an answer takes.

Must never know what is called, nor whether a copy may be sent at all: budgets, breakers and pauses have their own say.
Prevents copies that double the load of a service in the very moment when all its answers become slow.
"""

from __future__ import annotations

from dataclasses import dataclass

from forbear.core.latencies import Lately
from forbear.core.validation import count, number, optional_seconds

MAX_EXTRA_LOAD = 0.05  # the 95th percentile: what "The Tail at Scale" (Dean and Barroso, 2013) found worth its cost
MAX_COPIES = 2
MIN_SAMPLES = 100  # below that five slow ones decide
SAVED = 30.0  # copies that a good time may save up, and that there are at the start: enough for a burst of slow answers
GENERATION = 30.0  # seconds; the percentile is of the last one to two of these
STALE = 600.0  # seconds after which a generation is forgotten, however few samples came since


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeSettings:
    """When copies are sent.

    delay: seconds after which a copy is sent; None: learned from how long attempts take.
    max_extra_load: copies per successful call, a share. It bounds how many are sent, and without a `delay` it says how
        slow is slow: 0.05 means slower than 95 % of the attempts.
    max_copies: of one attempt, the first included.
    min_samples: attempts after which a learned delay is trusted.
    """

    delay: float | None = None
    max_extra_load: float = MAX_EXTRA_LOAD
    max_copies: int = MAX_COPIES
    min_samples: int = MIN_SAMPLES

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", optional_seconds("delay", self.delay))
        load = number("max_extra_load", self.max_extra_load)
        copies = count("max_copies", self.max_copies)
        if copies < 2:
            raise ValueError("max_copies counts the first one too, so 2 is the least; without a hedge leave hedge= out")
        if not 0 < load <= copies - 1:
            raise ValueError(
                f"max_extra_load is {load:g}: it is a share, above 0 and at most max_copies - 1; 0.05 is 5 %"
            )
        object.__setattr__(self, "max_extra_load", load)
        object.__setattr__(self, "max_copies", copies)
        object.__setattr__(self, "min_samples", count("min_samples", self.min_samples))


class Hedging:
    """What attempts of one service have taught, and what is left to spend on copies. Durations are seconds.

    balance: copies that may be sent, a fraction.
    """

    __slots__ = ("_lately", "balance", "settings")

    def __init__(self, settings: HedgeSettings, now: float) -> None:
        self.settings = settings
        self.balance = SAVED
        self._lately = Lately(
            now, share=settings.max_extra_load, enough=settings.min_samples, generation=GENERATION, stale=STALE
        )

    def delay(self, now: float) -> float | None:
        """After how long a copy is worth sending; None while too little is known."""
        if self.settings.delay is not None:
            return self.settings.delay
        if self._lately.total(now) < self.settings.min_samples:
            return None
        return self._lately.usual(now)

    def take(self) -> bool:
        """A copy is to be sent: whether it has been earned."""
        if self.balance < 1 - 1e-9:
            return False
        self.balance = max(0.0, self.balance - 1)
        return True

    def give_back(self) -> None:
        """It was not sent after all."""
        self.balance = min(SAVED, self.balance + 1)

    def succeeded(self) -> None:
        """A call has succeeded."""
        self.balance = min(SAVED, self.balance + self.settings.max_extra_load)

    def record(self, latency: float, now: float) -> None:
        """How long an attempt took until its answer, or until it was cancelled as another one was faster."""
        self._lately.add(latency, now)

    def failed(self, latency: float, now: float) -> None:
        """An attempt has failed after so long: it counts where an answer would have come by then."""
        usual = self.delay(now)
        if usual is not None and latency >= usual:
            self.record(latency, now)
