"""How many attempts may be under way at once: nobody counts while all goes well, and few dare while nothing does.

Decided here: when a service counts as overloaded, how far the number of attempts falls, and how it grows again. Only
answers count, never how long they took: the length of an LLM's answer says nothing about its load. Must never know who
waits. Prevents the outage that feeds on its own retries, long after its cause is gone.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import takewhile
from typing import Literal

Verdict = Literal["success", "rejected", "failed", "neutral"]

TOLERATED = {"rejected": 0.1, "failed": 0.35}  # shares of failures among answers that are still taken for chance
LEAST_FAILURES = 3.0  # before which nothing is concluded; as the older ones fade, that takes four
MEMORY = 20.0  # answers; of more, twice the number under way, older ones fade
COLLAPSE = 8.0  # how far the limit falls where nothing succeeds any more; else by half
SHORTEST_PAUSE, LONGEST_PAUSE, LONGER = 0.1, 5.0, 1.5  # seconds between probes at the limit of one, and their growth
GROWTH = 0.01  # share by which the limit grows in the time of one attempt, once that is more than one
REST = 2.5  # seconds after a refusal before those that are not refused count
PATIENCE = 1.0  # seconds, and twice what refusals have taken, after which an attempt under way counts as taken
CALM = 60.0  # seconds without overload after which a limit that binds nobody is forgotten


class Concurrency:
    """The limit on attempts under way. Infinite until the first sign of overload, but for `most`, the user's own.

    Failures come in waves: what began before the last decrease tells nothing new. Attempts are numbered as they begin;
    the present wave, number `wave`, begins with attempt number `wave_from`.
    """

    __slots__ = (
        "accepted", "adaptive", "begun", "calm_since", "failed", "limit", "most", "patience", "pause", "probe_at",
        "rejected", "running", "slowest", "succeeded", "threshold", "wave", "wave_from", "young",
    )  # fmt: skip

    def __init__(self, most: float = math.inf, *, adaptive: bool = True) -> None:
        self.most = most
        self.adaptive = adaptive
        self.running: dict[int, float] = {}  # number of an attempt: the instant when it began; the oldest first
        self.begun = self.wave = 0
        self.forget()

    def forget(self) -> None:
        """Back to no limit but the user's own. What is under way tells nothing any more."""
        self.limit = self.most
        self.wave_from = self.begun + 1
        self.succeeded = self.rejected = self.failed = 0.0
        self.slowest = 0.0  # seconds that the slowest failure of this wave took
        self.threshold = self.patience = math.inf
        self.young: deque[tuple[int, float]] = deque()  # those under way, and since when each waits to count as taken
        self.accepted: set[int] = set()  # those of them that have counted at least once
        self.pause = 0.0
        self.probe_at = self.calm_since = -math.inf

    @property
    def under_way(self) -> int:
        """How many attempts are."""
        return len(self.running)

    def keep(self, attempts: set[int]) -> None:
        """Only these are still under way; the others are in another process."""
        self.running = {number: began for number, began in self.running.items() if number in attempts}
        self.young = deque(entry for entry in self.young if entry[0] in attempts)
        self.accepted &= attempts

    def wait(self, now: float) -> float:
        """Seconds until an attempt may begin; infinite where one must end first."""
        self._accept(now)
        if self.under_way + 1 > self.limit:
            return self.young[0][1] + self.patience - now if self.young else math.inf
        return max(0.0, self.probe_at - now)

    def take(self, now: float) -> int:
        """An attempt begins. Gives its number, for `leave`."""
        self.begun += 1
        self.running[self.begun] = now
        if self.limit < self.most:
            self.young.append((self.begun, now))
        return self.begun

    def leave(self, attempt: int, verdict: Verdict, now: float, random: float) -> None:
        """An attempt has ended. "rejected": the service itself says that it is overloaded; "failed": perhaps it is."""
        if self.adaptive and attempt >= self.wave_from and verdict != "neutral":
            if verdict == "success":
                self._succeeded(now)
            else:
                self._failed(attempt, verdict, now, random)
        del self.running[attempt]
        self.accepted.discard(attempt)
        self._forget_the_ended()

    def _accept(self, now: float) -> None:
        """What has been under way for much longer than a refusal takes has been taken, and counts as a success does.

        Once for each such time that it goes on, the more the longer nothing was refused. Without this, a service whose
        good answers take minutes would be judged by its refusals alone.
        """
        while self.young and now - self.young[0][1] >= self.patience * (1 - 1e-9):
            attempt, _ = self.young.popleft()
            self.accepted.add(attempt)
            self.limit = min(self.most, max(self.limit, float(len(self.accepted))))
            calm = now - self.calm_since
            if calm >= REST and self.under_way * 2 >= self.limit:
                self._grow(calm / REST)
            if self.limit < self.most:
                self.young.append((attempt, now))
            self._forget_the_ended()

    def _forget_the_ended(self) -> None:
        while self.young and self.young[0][0] not in self.running:
            self.young.popleft()

    def _grow(self, least: float = 1.0) -> None:
        """By one for each success up to the threshold, beyond it by `least` or a share in the time of one attempt."""
        step = 1.0 if self.limit < self.threshold else max(least, GROWTH * self.limit) / self.limit
        self.limit = min(self.most, self.limit + step)

    def _succeeded(self, now: float) -> None:
        self._remember(success=1.0)
        self.pause = 0.0
        self.probe_at = -math.inf
        if self.limit == self.most:
            return
        if self.under_way * 2 >= self.limit:  # else it says nothing about a higher limit
            self._grow()
        elif now - self.calm_since > CALM:
            self.limit, self.threshold = self.most, math.inf
            self.young.clear()

    def _failed(self, attempt: int, verdict: Verdict, now: float, random: float) -> None:
        self._remember(rejected=float(verdict == "rejected"), failed=float(verdict == "failed"))
        self.calm_since = now
        self.slowest = max(self.slowest, now - self.running[attempt])
        if self.limit < 2:  # a probe has failed
            self.pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, self.pause * LONGER))
            self.probe_at = now + self.pause * (1.0 - random / 4)  # many clients must not probe together
            self._next_wave(1.0)
        elif self.under_way > 1:  # one who fails alone has its own backoff
            self._judge(now)

    def _judge(self, now: float) -> None:
        """Begins a new wave with a lower limit, if failures are too many to be chance.

        What has been under way for twice as long as the failures took has not been refused: it counts as well.
        """
        failures = self.rejected + self.failed
        if failures < min(LEAST_FAILURES, self.under_way):
            return
        old = now - 2.0 * self.slowest
        well = self.succeeded + sum(1 for _ in takewhile(lambda began: began < old, self.running.values()))
        total = well + failures
        if self.rejected > TOLERATED["rejected"] * total or failures > TOLERATED["failed"] * total:
            self._next_wave(min(self.limit, self.under_way) / (2.0 if self.succeeded >= 1.0 else COLLAPSE))

    def _next_wave(self, limit: float) -> None:
        if self.limit >= 2:
            self.threshold = max(1.0, min(self.limit, self.under_way) / 2)
        if self.limit == self.most:  # those under way are numbered only from now on
            self.young = deque(self.running.items())
        self.limit = max(1.0, limit)
        self.patience = max(PATIENCE, 2.0 * self.slowest)
        self.wave += 1
        self.wave_from = self.begun + 1
        self.succeeded = self.rejected = self.failed = self.slowest = 0.0

    def _remember(self, *, success: float = 0.0, rejected: float = 0.0, failed: float = 0.0) -> None:
        """Counts an answer; the older ones fade."""
        kept = 1.0 - 1.0 / max(MEMORY, 2.0 * self.under_way)
        self.succeeded = self.succeeded * kept + success
        self.rejected = self.rejected * kept + rejected
        self.failed = self.failed * kept + failed
