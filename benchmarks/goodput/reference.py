"""The clients and the breaker of the published figures, as plain as they can be.

They run without an event loop, on the same queue as everyone else: where they give the published figures, the queue is
the published model, and the figures of the libraries on it can be compared with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from servers import Fifo

TIMEOUT = 1.0


class NoRetry:
    """The budget of a client that never retries."""

    def requested(self, now: float) -> None: ...
    def succeeded(self, now: float) -> None: ...
    def spend(self, now: float) -> bool:
        return False


class AlwaysRetry(NoRetry):
    def spend(self, now: float) -> bool:
        return True


class RequestDeposit(NoRetry):
    """Retries may be a share of the requests of the last ten seconds."""

    def __init__(self, share: float, window: float = 10.0) -> None:
        self.share = share
        self.window = window
        self._requests: deque[float] = deque()
        self._retries: deque[float] = deque()

    def requested(self, now: float) -> None:
        self._requests.append(now)

    def spend(self, now: float) -> bool:
        for kept in (self._requests, self._retries):
            while kept and kept[0] < now - self.window:
                kept.popleft()
        if len(self._retries) + 1 > self.share * len(self._requests):
            return False
        self._retries.append(now)
        return True


class SuccessDeposit(NoRetry):
    """A success earns a part of a retry; no more than `cap` are kept, and that many are there at first."""

    def __init__(self, earned: float, cap: float) -> None:
        self.earned = earned
        self.cap = cap
        self._kept = cap

    def succeeded(self, now: float) -> None:
        self._kept = min(self.cap, self._kept + self.earned)

    def spend(self, now: float) -> bool:
        if self._kept < 1:
            return False
        self._kept -= 1
        return True


BUDGETS: dict[str, Callable[[], NoRetry]] = {
    "reference: no retry": NoRetry,
    "reference: 1 retry, no budget": AlwaysRetry,
    "reference: request-deposit 20 %": lambda: RequestDeposit(0.2),
    "reference: success-deposit 0.1, cap 100": lambda: SuccessDeposit(0.1, 100),
}


@dataclass(slots=True)
class Traffic:
    """What one run of reference clients came to: when requests were sent, and when calls succeeded."""

    sent: list[float] = field(default_factory=list)
    succeeded: list[float] = field(default_factory=list)


def arrivals(load: float, until: float, rng: Random) -> list[float]:
    """Poisson arrivals."""
    found, now = [], rng.expovariate(load)
    while now < until:
        found.append(now)
        now += rng.expovariate(load)
    return found


def metastable(queue: Fifo, comes: list[float], budget: NoRetry) -> Traffic:
    """Clients that wait a second, and then ask once more at once if their budget lets them.

    Retries come a second after their first attempts, successes in the order of the queue: three sorted streams.
    """
    traffic = Traffic()
    first, retries, answers = deque(comes), deque[float](), deque[float]()

    def send(now: float, again: bool) -> None:
        traffic.sent.append(now)
        done = queue.admit(now)
        if done <= now + TIMEOUT:
            answers.append(done)
        elif again:
            retries.append(now + TIMEOUT)

    while first or retries or answers:
        now = min(stream[0] for stream in (first, retries, answers) if stream)
        if answers and answers[0] == now:
            traffic.succeeded.append(answers.popleft())
            budget.succeeded(now)
        elif retries and retries[0] == now:
            retries.popleft()
            if budget.spend(now):
                send(now, again=False)
        else:
            budget.requested(first.popleft())
            send(now, again=True)
    return traffic


class RatioBreaker:
    """Opens for `open_for` seconds where, of at least `least` calls in `window` seconds, `ratio` failed; one probe."""

    def __init__(self, ratio: float = 0.1, least: int = 100, window: float = 30.0, open_for: float = 5.0) -> None:
        self.ratio, self.least, self.window, self.open_for = ratio, least, window, open_for
        self._calls: deque[tuple[float, bool]] = deque()
        self._failed = 0
        self._open_until: float | None = None

    def admits(self, now: float) -> bool:
        return self._open_until is None or now >= self._open_until

    def record(self, now: float, failed: bool) -> None:
        if self._open_until is not None:  # the probe
            self._open_until = now + self.open_for if failed else None
            return
        self._calls.append((now, failed))
        self._failed += failed
        while self._calls[0][0] < now - self.window:
            self._failed -= self._calls.popleft()[1]
        if len(self._calls) >= self.least and self._failed >= self.ratio * len(self._calls):
            self._open_until = now + self.open_for
            self._calls.clear()
            self._failed = 0
