"""What the guards of a service have done, or would have done where they only observe; and how long its answers took."""

from __future__ import annotations

from forbear._runtime.world import Clock
from forbear.core.failure import Kind
from forbear.core.run import Run
from forbear.core.suggestion import AnswerTimes

MOST_CLOCKS = 8  # whose times are kept: the real one and a few of tests


class Counts:
    """Totals since the service's object was made, and the times of its answers on each clock.

    `held`: attempts that had to wait for their place. `too_late`: refused, as no place could be had before their
    deadline. `unpaid`: retries for which the budget had no place. `shut_out`: refused by the open circuit.

    All that is told of an attempt is told under the lock of its line, with the instant on its clock.
    """

    __slots__ = ("_times", "failures", "held", "shut_out", "successes", "too_late", "unpaid")

    def __init__(self) -> None:
        self.successes = self.held = self.too_late = self.unpaid = self.shut_out = 0
        self.failures: dict[Kind, int] = {}
        self._times: dict[Clock, AnswerTimes] = {}

    def succeeded(self, attempt: Run, clock: Clock, now: float) -> None:
        """One more success."""
        self.successes += 1
        if attempt.stream is None:
            times = self._times.get(clock) or self.times(clock, now)
            times.add(now - attempt.attempt_at, now)
        else:
            self._brought(attempt, clock, now)

    def failed(self, kind: Kind, attempt: Run, clock: Clock, now: float) -> None:
        """One more failure of this kind."""
        self.failures[kind] = self.failures.get(kind, 0) + 1
        if kind is Kind.TIMEOUT:
            self.cut(attempt, clock, now)
        else:
            self._brought(attempt, clock, now)

    def cut(self, attempt: Run, clock: Clock, now: float) -> None:
        """An attempt was ended without an answer: by a timeout, by whoever called, or as its copy was faster."""
        if not self._brought(attempt, clock, now):
            self.times(clock, now).cut(now - attempt.attempt_at, now)

    def times(self, clock: Clock, now: float) -> AnswerTimes:
        """How long the answers on this clock took."""
        times = self._times.get(clock)
        if times is None:
            kept = tuple(self._times.items())[-MOST_CLOCKS + 1 :]
            times = AnswerTimes(now)
            self._times = {**dict(kept), clock: times}
        return times

    def _brought(self, attempt: Run, clock: Clock, now: float) -> bool:
        """Whether it is a stream that has brought content. How long that took is what a timeout bounds, whatever came
        of the stream, and not how long the answer is.
        """
        first_after = None if attempt.stream is None else attempt.stream.first_after
        if first_after is not None:
            self.times(clock, now).add(first_after, now)
        return first_after is not None
