"""The rate limiter with retryhop's parameters, on forbear's line and meters.

Decided here: only the parameters: the clock is the third, and 0 means that there is no limit, as infinity does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from forbear.upstream.limiter import RateLimiter as Limiter

_UNLIMITED = 1e15  # per minute


class RateLimiter(Limiter):
    """At most so many requests and tokens per minute; who would go over waits, first come, first served.

    The whole minute's quota may leave at once after a pause. It is a `forbear.RateLimiter` too, good for `limiter=`.
    `clock` gives its instants. Raises ValueError without any limit, and for one call of more tokens than the limit.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        requests = min(requests_per_minute, _UNLIMITED) if requests_per_minute else None
        tokens = min(tokens_per_minute, _UNLIMITED) if tokens_per_minute else None
        if requests is None and tokens is None and (requests_per_minute, tokens_per_minute) != (None, None):
            requests = _UNLIMITED
        super().__init__(requests, tokens, clock=None if clock is time.monotonic else clock)

    def __reduce__(self) -> tuple[Any, ...]:
        facts = self.settings
        return (type(self), (facts.requests_per_minute, facts.tokens_per_minute, self.clock or time.monotonic))
