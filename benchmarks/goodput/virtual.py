"""Virtual time for every library alike: one clock, and an event loop that jumps to the next timer instead of waiting.

Call `install()` before any library is imported: some take `time.monotonic` for themselves when they are. Two minutes
of a server's life then take as long as the computing in them, and the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, Self, TypeVar

T = TypeVar("T")

real_clock = time.perf_counter  # for the progress shown to whoever waits
START = 1_000.0  # not 0, which some libraries take for "never"
EPOCH = 1_800_000_000.0


class _Clock:
    now = START


def monotonic() -> float:
    return _Clock.now


def elapsed() -> float:
    """Seconds since the run began."""
    return _Clock.now - START


def _wall() -> float:
    return EPOCH + _Clock.now


class Datetime(dt.datetime):
    """For a library that measures by the time of day."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(_wall(), tz)


def _in_nanoseconds(clock: Callable[[], float]) -> Callable[[], int]:
    return lambda: round(clock() * 1e9)


def _refuse(seconds: float) -> NoReturn:
    raise RuntimeError(f"time.sleep({seconds!r}) in async code: it would stop everyone else")


def install() -> None:
    """Replaces the clocks of this process. Nothing can wait for real afterwards."""
    time.monotonic = time.perf_counter = monotonic
    time.monotonic_ns = time.perf_counter_ns = _in_nanoseconds(monotonic)
    time.time = _wall
    time.time_ns = _in_nanoseconds(_wall)
    time.sleep = _refuse
    gc.set_threshold(100_000, 20, 100)  # tens of thousands of calls in flight, and most of them are no garbage


class _Jumper:
    """Stands where a loop has its selector, which it asks to wait when no callback is ready: when everyone waits."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop  # and not its list of timers, which it replaces now and then

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everyone waits for ever: no timer is set")
        if timeout > 0:
            # To the very instant: adding the timeout would end a rounding error before it.
            _Clock.now = max(_Clock.now, self._loop._scheduled[0].when())
        return []

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without files, sockets and signals, whose time is virtual."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Jumper(self)  # type: ignore[attr-defined]

    def time(self) -> float:
        return _Clock.now

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def run(main: Callable[[], Coroutine[Any, Any, T]], seed: int) -> T:
    """Runs `main()` to its end, from the beginning of time and with known dice."""
    _Clock.now = START
    random.seed(seed)  # the libraries' own jitter
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
