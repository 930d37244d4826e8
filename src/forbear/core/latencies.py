"""How long attempts take, remembered in little memory.

Decided here: how exactly (to 2 %), and what is old: counts of two generations, of which the older one is forgotten when
the younger one is full. Must never know what is done with it. Prevents memory that grows with the number of attempts,
and decisions that yesterday's latencies make.
"""

from __future__ import annotations

import math

WIDTH = 1.02  # of a bucket: a share is exact, and the time that it stands for is up to 2 % too long
_GROWTH = math.log(WIDTH)
_SHORTEST = 1e-5  # seconds
_PER_E = 1 / _GROWTH  # buckets
_BELOW = 600  # buckets below one second, and a few more: `int` rounds down only what is above 0
_OFFSET = _BELOW - 1e-9  # the upper limit of a bucket belongs to it
_REFRESH = 16  # samples after which the usual time is computed anew
_log = math.log


class Latencies:
    """How long attempts took, as counts of buckets that grow by 2 %."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.total = 0

    def add(self, latency: float) -> None:
        """One more, in seconds."""
        bucket = int(_log(latency if latency > _SHORTEST else _SHORTEST) * _PER_E + _OFFSET)  # noqa: FURB136  # half the time
        try:
            self._counts[bucket] += 1
        except KeyError:
            self._counts[bucket] = 1
        self.total += 1

    def merged(self, other: Latencies) -> Latencies:
        """Both together."""
        both = Latencies()
        both.total = self.total + other.total
        both._counts = {
            bucket: self._counts.get(bucket, 0) + other._counts.get(bucket, 0)
            for bucket in self._counts.keys() | other._counts.keys()
        }
        return both

    def exceeded_by(self, share: float) -> float:
        """The shortest time in seconds that no more than this share of them took longer than."""
        left = share * self.total * (1 + 1e-9)
        for bucket in sorted(self._counts, reverse=True):
            left -= self._counts[bucket]
            if left < 0:
                return math.exp((bucket + 1 - _BELOW) * _GROWTH)
        return 0.0


class Lately:
    """The latencies of the last one to two generations. Durations are seconds. Each call that succeeds pays for `add`.

    share: of the attempts, that may take longer than the usual time. A generation lasts `generation` seconds, and until
    it holds `enough`, but no longer than `stale`.
    """

    __slots__ = (
        "_before", "_enough", "_generation", "_lately", "_may_end_at", "_opened_at", "_seen", "_share", "_stale",
        "_usual",
    )  # fmt: skip

    def __init__(self, now: float, *, share: float, enough: int, generation: float, stale: float) -> None:
        self._share, self._enough, self._generation, self._stale = share, enough, generation, stale
        self._before = Latencies()
        self._lately = Latencies()
        self._opened_at = now
        self._may_end_at = now + generation
        self._usual: float | None = None
        self._seen = 0  # samples when the usual time was computed

    def add(self, latency: float, now: float) -> None:
        """One more."""
        if now >= self._may_end_at:
            self._turn(now)
        self._lately.add(latency)

    def total(self, now: float) -> int:
        """How many are known."""
        self._turn(now)
        return self._lately.total + self._before.total

    def usual(self, now: float) -> float:
        """The time that no more than the share takes longer than, up to fifteen samples old; 0 while none is known."""
        total = self.total(now)
        if self._usual is None or total - self._seen >= _REFRESH:
            self._seen = total
            self._usual = self._lately.merged(self._before).exceeded_by(self._share)
        return self._usual

    def all(self, now: float) -> Latencies:
        """All that are known, as a copy."""
        self._turn(now)
        return self._lately.merged(self._before)

    def _turn(self, now: float) -> None:
        """Forgets what is old, but never all of it at once while enough is coming in."""
        age = now - self._opened_at
        if age >= self._stale or (age >= self._generation and self._lately.total >= self._enough):
            self._before = self._lately if age < 2 * self._stale else Latencies()
            self._lately = Latencies()
            self._opened_at, self._may_end_at = now, now + self._generation
            self._usual = None
