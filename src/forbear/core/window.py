"""How many calls succeeded and failed lately: counts over a sliding window of time.

Decided here: what is still remembered. Time is cut into a fixed number of buckets, so memory and the cost of a record
stay the same however many calls there are. A call is remembered for at most the length of the window, and at least for
that length less the width of one bucket.

Must never know what a success is, nor who asks. Prevents verdicts on an hour ago, and memory that grows with traffic.
"""

from __future__ import annotations

BUCKETS = 10  # a tenth of the window: fine enough that nothing is forgotten in one large lump


class Window:
    """Counts over the last `length` seconds (above 0).

    Instants are numbers on the caller's clock. One earlier than the latest seen counts as the latest: of two threads
    that read the clock, the first to read may be the last to come.
    """

    __slots__ = ("_at", "_calls", "_failed", "_failures", "_opened_at", "_total", "_width")

    def __init__(self, length: float, buckets: int = BUCKETS) -> None:
        self._width = length / buckets
        self._calls = [0] * buckets
        self._failures = [0] * buckets
        self._at = 0  # the bucket that is filled now; the one after it is the oldest
        self._opened_at: float | None = None  # when that bucket began; None: nothing has been recorded
        self._total = self._failed = 0

    def record(self, ok: bool, now: float) -> None:
        """Adds a call that ended now."""
        self._slide(now)
        self._calls[self._at] += 1
        self._total += 1
        if not ok:
            self._failures[self._at] += 1
            self._failed += 1

    def calls(self, now: float) -> int:
        """How many calls are remembered."""
        self._slide(now)
        return self._total

    def failure_rate(self, now: float) -> float:
        """The share of them that failed, 0 to 1; 0 where nothing is remembered."""
        self._slide(now)
        return self._failed / self._total if self._total else 0.0

    def clear(self) -> None:
        """Forgets everything."""
        self._calls = [0] * len(self._calls)
        self._failures = [0] * len(self._failures)
        self._opened_at = None
        self._total = self._failed = 0

    def _slide(self, now: float) -> None:
        """Empties the buckets that have grown too old, at most all of them."""
        opened_at = now if self._opened_at is None else self._opened_at
        passed = (now - opened_at) / self._width
        if passed >= len(self._calls):  # however far time has jumped
            self.clear()
            opened_at = now
        else:
            for _ in range(int(passed)):
                self._at = (self._at + 1) % len(self._calls)
                self._total -= self._calls[self._at]
                self._failed -= self._failures[self._at]
                self._calls[self._at] = self._failures[self._at] = 0
                opened_at += self._width
        self._opened_at = opened_at
