"""Where a call gets its time and its dice from: the real world, or a test's.

Decided here: which clock, sleep and dice a call uses. A world is a frozen value that travels with the context, so that
a test can replace time for the code it runs and for nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

Clock = Callable[[], float]
Sleep = Callable[[float], Any]

LOOK_AFTER = 1.0  # seconds between looks of those in a line who don't keep its timer
LOOK_AGAIN = 0.02  # real seconds between looks at a clock that only others move
_LONGEST_NAP = 86_400.0  # time.sleep overflows near 292 years, and a server may ask for more


def blocking_sleep(delay: float) -> None:
    """Sleeps `delay` seconds in this thread. Ctrl-C leaves at once."""
    while delay > _LONGEST_NAP:
        time.sleep(_LONGEST_NAP)
        delay -= _LONGEST_NAP
    time.sleep(delay)


def in_event_loop() -> bool:
    """Whether an asyncio loop runs in this thread; asyncio is not loaded for the question."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None  # noqa: SLF001  # public, despite its name


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Time and dice of a call. Durations are seconds.

    clock: a monotonic instant. sleep: blocks. async_sleep: gives an awaitable; None is the event loop's own.
    random: a number in [0, 1). wall: epoch seconds, for dates that servers name. timer_clock: the clock that the event
    loop's timers obey. coarse: whether attempt timers may share the slots of the wheel. attach: called with the running
    event loop before its timers are used.
    max_attempts: a cap for all calls, for tests.
    """

    clock: Clock
    sleep: Sleep
    random: Clock
    wall: Clock = time.time
    async_sleep: Sleep | None = None
    timer_clock: Clock = time.monotonic
    coarse: bool = False
    attach: Callable[[Any], None] | None = None
    max_attempts: int | None = None


REAL = World(
    clock=time.monotonic,
    sleep=blocking_sleep,
    # From the operating system: nothing to copy into a forked child, and the user's seeded generator stays untouched.
    random=SystemRandom().random,
    wall=lambda: time.time(),  # noqa: PLW0108  # looked up each time: tests replace it
    coarse=True,
)
