"""A rate limit that nobody has told us, learned from being refused.

Decided here: how fast to send after the first refusal, and how the rate goes on from there. Must never know a header or
a client. Prevents sixty workers that are refused a thousand times at the gate of ten requests a second.
"""

from __future__ import annotations

import math

DOUBLING = 1.5  # seconds in which the rate doubles while no refusal has bounded it yet
BELOW_REFUSED = 0.85  # of the rate that was refused
GROWTH = 0.02  # a second, once a rate has been refused: what the service allows may change
SLOWEST = 0.5  # requests a second; also where the search begins if nothing was let through
SPAN = 10.0  # seconds over which what the service has accepted is counted
BINDING = 1.0  # seconds after it held somebody back for which the rate counts as the one that is in use, and grows
ENDLESS = 1e6  # requests a second; a rate that has grown so far limits nobody
CALM = 60.0  # seconds without refusal after which a rate that held nobody back is forgotten


class LearnedRate:
    """The rate at which attempts may begin. Infinite until the first refusal.

    Refusals come in waves: what began before the last decrease tells nothing new, but that the first rate was guessed
    too high. `accepted` counts what was sent and has not been refused: good answers may take minutes.
    """

    __slots__ = (
        "accepted", "accepted_before", "first", "grows_at", "held_at", "next_at", "rate", "refused_at", "searching",
        "since", "wave",
    )  # fmt: skip

    def __init__(self) -> None:
        self.wave = 0
        self.forget()

    def forget(self) -> None:
        """Back to no limit at all."""
        self.wave += 1
        self.rate = math.inf
        self.searching = True
        self.first = -1  # the wave of the first refusal
        self.next_at = self.held_at = self.refused_at = self.since = -math.inf
        self.grows_at = 0.0  # since when `rate` holds; it grows from there
        self.accepted = self.accepted_before = 0.0  # in the span that began at `since`, and in the one before

    def wait(self, now: float) -> float:
        """Seconds until an attempt may begin."""
        return 0.0 if self.rate == math.inf else max(0.0, self.next_at - now)

    def hold(self, now: float) -> None:
        """It is this rate, and no other limit, that holds somebody back now."""
        self.held_at = now

    def take(self, now: float) -> int:
        """An attempt begins. Gives the number of its wave, for `accept` and `refuse`."""
        self._turn_over(now)
        self.accepted += 1
        if self.rate != math.inf:
            self._grow(now)
            self.next_at = max(self.next_at, now) + 1.0 / self.rate
        return self.wave

    def predicted(self, requests: float, now: float) -> float:
        """The least seconds until the last of so many attempts may begin; 0 while the rate is still searched for."""
        if self.searching:
            return 0.0
        growth = math.log1p(GROWTH)
        return max(0.0, math.log1p((requests - 1.0) * growth / self._rate_at(now)) / growth)

    def untake(self, wave: int) -> None:
        """An attempt that was let through has not begun. What it took is forgotten where the rate has changed since."""
        self._uncount()
        if wave == self.wave and self.rate != math.inf:
            self.next_at -= 1.0 / self.rate

    def accept(self, now: float) -> None:
        """The service has answered a request."""
        if self.rate != math.inf and now - max(self.held_at, self.refused_at) > CALM:
            self.forget()

    def refuse(self, wave: int, cool_until: float, now: float) -> None:
        """The service refused a request, and none may begin before `cool_until`."""
        self._turn_over(now)
        self._uncount()
        if wave == self.wave:
            self._decrease(cool_until, now)
        elif wave == self.first and self.searching:  # there were more of the first ones: it was guessed too high
            self.rate = min(self._rate_at(now), self._accepted_rate(max(now, cool_until)))
            self.grows_at = max(self.grows_at, now)
        self.next_at = max(self.next_at, cool_until)
        self.grows_at = max(self.grows_at, cool_until)

    def _decrease(self, cool_until: float, now: float) -> None:
        self._grow(now)
        if self.rate == math.inf:
            self.first = self.wave
            self.rate = self._accepted_rate(max(now, cool_until))
            self.searching = True
        else:
            # A rate that has held nobody back is not the one that was refused.
            refused = self.rate if now <= self._used_until() else min(self.rate, self._accepted_rate(now))
            self.rate = max(SLOWEST, refused * BELOW_REFUSED)
            self.searching = False
        self.wave += 1
        self.refused_at = self.grows_at = now
        self.next_at = max(now, cool_until)

    def _accepted_rate(self, until: float) -> float:
        """What was accepted of late, a second, where nothing more is sent before `until`."""
        passed = until - self.since + (SPAN if self.accepted_before else 0.0)
        return max(SLOWEST, (self.accepted + self.accepted_before) / max(1.0, passed))

    def _uncount(self) -> None:
        """One that was counted was not accepted; it may have begun in the span before."""
        if self.accepted >= 1.0:
            self.accepted -= 1.0
        else:
            self.accepted_before = max(0.0, self.accepted_before - 1.0)

    def _turn_over(self, now: float) -> None:
        """Begins a new span where the old one is over."""
        age = now - self.since
        if age >= SPAN:
            self.accepted_before = self.accepted if age < 2 * SPAN else 0.0
            self.accepted = 0.0
            self.since = self.since + SPAN if age < 2 * SPAN else now

    def _grow(self, now: float) -> None:
        """Lets the rate grow with the time for which it has been in use."""
        self.rate = self._rate_at(now)
        self.grows_at = max(self.grows_at, now)

    def _used_until(self) -> float:
        """Until when this rate counts as in use: at least for as long as the next one waits for it."""
        return self.held_at + max(BINDING, 1.0 / self.rate)

    def _rate_at(self, now: float) -> float:
        passed = max(0.0, min(now, self._used_until()) - self.grows_at)
        doublings = passed / DOUBLING if self.searching else passed * math.log2(1.0 + GROWTH)
        rate = self.rate * 2.0 ** min(doublings, 64.0)  # beyond that every rate is endless
        return rate if rate < ENDLESS else math.inf
