"""The trouble that the API makes: which request gets which answer.

Decided here: the phases, how often each kind of trouble comes, and how the rate limit counts. A request's luck hangs on
the seed, on which call it belongs to and on how many requests that call has sent before, and on nothing else, so that
all contenders meet the same trouble, however many requests they send. Must never read a clock, sleep or touch a socket.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What happens to a request."""

    OK = "ok"
    SLOW = "slow answer"
    DRIP = "answer drop by drop"
    HANG = "no answer"
    RESET = "connection reset"
    UNAVAILABLE = "503"
    LIMITED_SECONDS = "429, Retry-After in seconds"
    LIMITED_DATE = "429, Retry-After as a date"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets. `seconds`: until a full answer, how long the drops take, or when a quota is full again."""

    kind: Kind
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of time, until `until` seconds after the first request.

    `shares` are the kinds of trouble, of 1 in all; a request that meets none of them gets `otherwise`. `limited`: no
    more than the quota is let in each second.
    """

    name: str
    says: str
    until: float
    shares: dict[Kind, float]
    otherwise: Kind = Kind.OK
    limited: bool = False


EVERYDAY = {Kind.HANG: 0.03, Kind.RESET: 0.03, Kind.DRIP: 0.03, Kind.SLOW: 0.06}
IN_AN_OUTAGE = {Kind.HANG: 0.10, Kind.RESET: 0.05}

PHASES = (
    Phase(name="everyday", says="everyday: some answers slow, some lost", until=2.0, shares=EVERYDAY),
    Phase(name="outage", says="outage: 503", until=4.0, shares=IN_AN_OUTAGE, otherwise=Kind.UNAVAILABLE),
    Phase(name="everyday", says="everyday again", until=5.5, shares=EVERYDAY),
    Phase(name="rate limit", says="rate limit: 429 above the quota", until=7.0, shares=EVERYDAY, limited=True),
    Phase(name="everyday", says="everyday again", until=math.inf, shares=EVERYDAY),
)

# The range in seconds that an answer of a kind may take. The drops come often enough that no gap between two of them
# looks like a hang: that is how answers pass a timeout that only watches the gaps.
TAKES = {Kind.OK: (0.01, 0.06), Kind.SLOW: (0.4, 1.2), Kind.DRIP: (4.0, 8.0)}


def phase_at(elapsed: float) -> Phase:
    """The phase `elapsed` seconds after the first request."""
    return next(phase for phase in PHASES if elapsed < phase.until)


@dataclass(slots=True)
class Script:
    """The trouble of one run. `quota`: how many requests a second are let in while the rate limit is in force."""

    seed: int
    quota: int
    sent: Counter[str] = field(default_factory=Counter[str])
    let_in: Counter[int] = field(default_factory=Counter[int])
    refused: int = 0

    def answer(self, call: str, elapsed: float) -> Answer:
        """What the next request of `call` gets, `elapsed` seconds after the first request of the run."""
        self.sent[call] += 1
        phase = phase_at(elapsed)
        if phase.limited and not self._admitted(elapsed):
            return self._over_quota(elapsed)
        dice = random.Random(f"{self.seed}/{call}/{self.sent[call]}")
        kind = _drawn(phase, dice.random())
        return Answer(kind, dice.uniform(*TAKES.get(kind, (0.0, 0.0))))

    def _admitted(self, elapsed: float) -> bool:
        second = math.floor(elapsed)
        self.let_in[second] += 1
        return self.let_in[second] <= self.quota

    def _over_quota(self, elapsed: float) -> Answer:
        """Refused until the next second begins; told in seconds and as a date by turns."""
        self.refused += 1
        kind = Kind.LIMITED_SECONDS if self.refused % 2 else Kind.LIMITED_DATE
        return Answer(kind, math.floor(elapsed) + 1 - elapsed)


def _drawn(phase: Phase, luck: float) -> Kind:
    for kind, share in phase.shares.items():
        if luck < share:
            return kind
        luck -= share
    return phase.otherwise
