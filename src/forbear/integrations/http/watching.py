"""Notices a client that repeats by itself what forbear has already retried to the end.

Decided here: what counts as the same request. It is only a guess, as a program may ask twice in a row on purpose, so it
is made only for clients of which nothing is known. Prevents retries that multiply unseen.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

from forbear.calls.nesting import warn

WITHIN = 10.0  # seconds; clients wait a few seconds between their own attempts
_MOST = 100  # requests that are remembered


class Watch:
    """The requests of one client that were given up lately. `client` is its name."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._lock = Lock()
        self._given_up: OrderedDict[Hashable, tuple[float, int, int]] = OrderedDict()

    def gave_up(self, request: Hashable, attempts: int) -> None:
        """This request was given up after so many attempts. Warns where it was so just before."""
        now, request = time.monotonic(), hash(request)  # a body may be large, and an address may hold secrets
        with self._lock:
            before, times, made = self._given_up.pop(request, (now, 0, 0))
            if now - before > WITHIN:
                times = made = 0
            times, made = times + 1, made + attempts
            self._given_up[request] = (now, times, made)
            if len(self._given_up) > _MOST:
                self._given_up.popitem(last=False)
        if times == 3 or (times > 1 and times & (times - 1) == 0):  # seldom later: it may go on for hours
            warn(
                f"{self._client} repeats by itself what forbear has retried to the end, {made} requests for one so far "
                f"({times} times {attempts}): turn its own retries off"
            )
