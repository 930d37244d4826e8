"""What is read off a run: shares, quantiles, rates per bin, the moment of recovery."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from peers import Call, Request
from virtual import elapsed

MISTAKES = (TypeError, AttributeError, NameError, LookupError, AssertionError)


@dataclass(slots=True)
class Calls:
    """How the calls of one run went: when they began and ended, in seconds since its beginning."""

    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    good: list[bool] = field(default_factory=list)

    async def make(self, call: Call, request: Request) -> None:
        began = elapsed()
        try:
            await call(request)
            good = True
        except MISTAKES:
            raise  # of ours or of the library's: no answer of a server
        except Exception:
            good = False
        self.begun.append(began)
        self.ended.append(elapsed())
        self.good.append(good)

    @property
    def durations(self) -> list[float]:
        return [end - begin for begin, end in zip(self.begun, self.ended, strict=True)]

    @property
    def succeeded_at(self) -> list[float]:
        return sorted(end for end, good in zip(self.ended, self.good, strict=True) if good)

    @property
    def share_good(self) -> float:
        return sum(self.good) / len(self.good)

    def overrun(self, deadline: float) -> float:
        """Seconds by which the latest call passed its deadline."""
        return max(0.0, max(self.durations) - deadline)


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def rates(instants: Iterable[float], until: float, width: float) -> tuple[float, ...]:
    """Events per second, in bins of so many seconds."""
    bins = [0] * math.ceil(until / width)
    for instant in instants:
        if instant < until:
            bins[int(instant / width)] += 1
    return tuple(count / width for count in bins)


def count_between(ordered: Sequence[float], begin: float, end: float) -> int:
    return bisect_left(ordered, end) - bisect_left(ordered, begin)


def recovery(ordered: Sequence[float], *, load: float, after: float, until: float, window: float = 5.0) -> float:
    """The first full second after which, for `window` seconds, 95 % of the load succeeds. Infinity if there is none."""
    for second in range(math.ceil(after), int(until - window) + 1):
        if count_between(ordered, second, second + window) >= 0.95 * load * window:
            return float(second)
    return math.inf
