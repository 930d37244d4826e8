"""Two meters of what may leave in which time: a bucket that refills, and a strict window.

Must never know who asks, or in which order; that is the line's business. Prevents a minute's quota that leaves twice in
one minute, where the strict one is asked for.
"""

from __future__ import annotations

import math
from collections import deque

NEGLIGIBLE = 1e-9  # seconds and shares below this are rounding, and no timer could keep them


class Bucket:
    """Refills evenly and holds at most `capacity`.

    What is larger than the bucket goes when it is full and leaves a debt that must refill first. In any time t it lets
    out at most `capacity + rate * t`, plus what the last request was larger than the bucket.
    """

    __slots__ = ("at", "capacity", "level", "rate")

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self.level = capacity
        self.at = now

    def left(self, now: float) -> float:
        """What it holds at `now`; negative where it is in debt."""
        if now > self.at:
            self.level = min(self.capacity, self.level + (now - self.at) * self.rate)
            self.at = now
        return self.level

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken."""
        missing = min(amount, self.capacity) - self.left(now)
        return 0.0 if missing <= self.capacity * NEGLIGIBLE else missing / self.rate

    def predicted(self, amount: float, last: float, now: float) -> float:
        """Seconds until the last of many may be taken, who together take `amount`, and the last one `last`.

        What is larger than the bucket waits only until it is full.
        """
        needed = amount - last + min(last, self.capacity)
        return max(0.0, needed - self.left(now)) / self.rate

    def take(self, amount: float, now: float) -> None:
        """Takes `amount`, into debt if need be."""
        self.level = self.left(now) - amount

    def give(self, amount: float, now: float, taken_at: float) -> None:  # noqa: ARG002  # a window needs it
        """Gives back what was taken and not used; a negative amount takes more."""
        self.level = min(self.capacity, self.left(now) + amount)

    def lower(self, left: float, now: float) -> None:
        """The server says that no more than `left` is left: others use its quota too."""
        self.level = min(self.left(now), left)


class Window:
    """Strict: no window of `length` seconds, wherever it begins, ever holds more than `limit`."""

    __slots__ = ("length", "limit", "spent", "taken")

    def __init__(self, limit: float, length: float) -> None:
        self.limit = limit
        self.length = length
        self.taken: deque[list[float]] = deque()  # [instant, amount], oldest first
        self.spent = 0.0

    def left(self, now: float) -> float:
        """What may still be taken in the window that ends at `now`."""
        while self.taken and now - self.taken[0][0] >= self.length:
            self.spent -= self.taken.popleft()[1]
        if not self.taken:
            self.spent = 0.0  # sums of fractions leave a rest
        return self.limit - self.spent

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken."""
        missing = amount - self.left(now)
        if missing <= self.limit * NEGLIGIBLE:
            return 0.0
        for instant, freed in self.taken:
            missing -= freed
            if missing <= self.limit * NEGLIGIBLE:
                return max(0.0, instant + self.length - now)
        return self.length

    def predicted(self, amount: float, last: float, now: float) -> float:  # noqa: ARG002  # a bucket needs it
        """The least seconds after which all of `amount` can have been taken, however many take it."""
        whole = max(0, math.ceil(amount / self.limit * (1 - NEGLIGIBLE)) - 1)  # windows that it fills besides the last
        return whole * self.length + self.wait(amount - whole * self.limit, now)

    def take(self, amount: float, now: float) -> None:
        """Takes `amount`; what does not fit yet counts from the instant when it does, for those who book ahead."""
        self._note(amount, now + self.wait(amount, now))

    def give(self, amount: float, now: float, taken_at: float) -> None:
        """Gives back what was taken at `taken_at` and not used; a negative amount takes more, from now on."""
        if amount < 0:
            self._note(-amount, now)
            return
        for entry in reversed(self.taken):
            if amount <= 0:
                return
            if entry[0] <= taken_at:
                back = min(amount, entry[1])
                entry[1] -= back
                self.spent -= back
                amount -= back  # several may have taken at the same instant

    def lower(self, left: float, now: float) -> None:
        """The server says that no more than `left` is left: others use its quota too."""
        excess = self.left(now) - left
        if excess > 0:
            self._note(excess, now)

    def _note(self, amount: float, instant: float) -> None:
        place = len(self.taken)
        while place and self.taken[place - 1][0] > instant:  # others have booked ahead
            place -= 1
        self.taken.insert(place, [instant, amount])
        self.spent += amount


Meter = Bucket | Window
