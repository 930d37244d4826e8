"""Which attempt timeout the measured latencies of a service speak for.

Decided here: above the 99th percentile with a margin, at least two and a half medians, and at most half of what the
caller will wait in all, so that a second attempt fits. An attempt that was cut counts with the time it had taken: were
those left out, the slow ones would be missing, and each suggestion would be lower than the one before. Must never know
what is called. Prevents timeouts that cut good answers and send them again, in the moment when the service is slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from forbear.core.latencies import WIDTH, Lately, Latencies
from forbear.core.validation import Seconds, number, optional_seconds

NEEDED = 20  # latencies; of fewer, the slowest one is chance
MEDIANS = 2.5  # room for an answer that is slower than usual
SLOW = 0.01  # the share of the answers that may take longer than the 99th percentile
MARGIN = 1.25  # of the timeout over that percentile, which is the slowest of a few that happened to be measured
SHORTEST = 0.001  # seconds; no timer is more exact
_LONGEST = 1e9  # seconds, a lifetime; a latency above that is none
GENERATION, STALE, ENOUGH = 300.0, 3600.0, 1_000  # seconds, seconds and attempts: ten behind the 99th percentile


def suggest_attempt_timeout(latencies: Iterable[Seconds], *, patience: Seconds | None = None) -> float:
    """An attempt timeout in seconds that suits a service whose attempts took so long.

    It is 1.25 times the 99th percentile or 2.5 times the median, whichever is larger, rounded up to two digits.

    latencies: of single attempts, without waits, in seconds or timedeltas; in any order, at least 20. Give those that
        were cut by a timeout with the time they had taken; leave out quick failures.
    patience: seconds that the caller waits in all. The suggestion is then at most half of it, so that a second attempt
        fits.

    Raises ValueError where there are too few latencies or one is none, and where half of the patience is less than the
    99th percentile: any timeout would then cut good answers, or leave no time for a second attempt.

    An `Upstream` keeps its own latencies: `upstream.suggest_attempt_timeout()`.
    """
    most = optional_seconds("patience", patience, zero=False)
    if not hasattr(latencies, "__iter__"):
        raise TypeError(
            f"latencies must be an iterable of seconds, not {type(latencies).__name__}; an Upstream keeps its own: "
            "upstream.suggest_attempt_timeout()"
        )
    known = sorted(_latency(place, latency) for place, latency in enumerate(latencies, 1))
    if len(known) < NEEDED:
        raise ValueError(_too_few(len(known), "there are {} latencies"))
    last = len(known) - 1
    return _between(known[last - math.floor(last / 2)], known[last - math.floor(last * SLOW + 1e-9)], most)


def suggestion(name: str, known: Latencies, patience: float | None) -> float:
    """The same of what the service of that name has recorded. `patience` is seconds; None: endless."""
    if known.total < NEEDED:
        raise ValueError(
            _too_few(known.total, f"{name} has lately seen {{}} attempts that were answered or cut by a timeout")
        )
    others = (known.total - 1) / known.total
    return _between(known.exceeded_by(others / 2), known.exceeded_by(others * SLOW), patience)


class AnswerTimes(Lately):
    """How long the attempts of one service took lately, up to their answer. Durations are seconds.

    The last five to ten minutes count; where that is less than a thousand attempts, the last hour or two.
    """

    __slots__ = ()

    def __init__(self, now: float) -> None:
        super().__init__(now, share=0.5, enough=ENOUGH, generation=GENERATION, stale=STALE)

    def cut(self, latency: float, now: float) -> None:
        """An attempt was ended before its answer came. It counts where half of the answers had come by then: one that
        had no time says nothing.
        """
        if latency * WIDTH >= self.usual(now) * (1 - 1e-6):  # of equal ones, each counts
            self.add(latency, now)


def _latency(place: int, value: object) -> float:
    """One latency in seconds; `place` tells which."""
    total = getattr(value, "total_seconds", None)
    latency = number(f"latency {place}", total() if callable(total) else value)
    if not 0 <= latency <= _LONGEST:
        raise ValueError(
            f"latency {place} is {latency:g} s, which no attempt takes: leave out what was not measured, and give what "
            "was cut with the time it had taken"
        )
    return latency


def _too_few(number_of: int, text: str) -> str:
    return f"{text.format(number_of)}, and {NEEDED} are needed: of fewer, chance decides which one is the slowest"


def _between(median: float, percentile: float, patience: float | None) -> float:
    """Above the 99th percentile, and at most half of the patience."""
    timeout = _rounded_up(max(MEDIANS * median, MARGIN * percentile, SHORTEST))
    if patience is None or timeout <= patience / 2:
        return timeout
    if patience / 2 < percentile:
        slow = _rounded_up(percentile)
        raise ValueError(
            f"patience is {patience:g} s, which leaves {patience / 2:g} s to each of two attempts, and the 99th "
            f"percentile is about {slow:g} s: such a timeout would cut good answers and ask for them again. Wait at "
            f"least {2 * slow:g} s in all, or make one attempt (max_attempts=1) that has all of the time"
        )
    return patience / 2


def _rounded_up(value: float) -> float:
    """To two digits, so that it reads well; what is no more than rounding counts for nothing."""
    exponent = math.floor(math.log10(value)) - 1
    return float(f"{math.ceil(value / 10.0**exponent - 1e-9)}e{exponent}")
