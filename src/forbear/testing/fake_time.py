"""Time for tests: it stands still while code runs, and jumps when everyone waits.

Decided here: how the event loop's own clock is replaced, so that `asyncio.sleep`, `asyncio.timeout`, attempt timeouts
and deadlines all live in the same virtual time as forbear's waits. Prevents test suites that take minutes, and the
patching of `sleep` in every module.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Self

from forbear._runtime.scope import Scope, current
from forbear._runtime.world import World


class FakeTime:
    """A clock, a sleep and dice for tests, for blocking and async code.

    `with FakeTime() as time:` holds for all forbear calls in the block (and in tasks and copied contexts that start in
    it), without touching the code under test; `clock=time` does it for one call. `time()` is the current instant in
    seconds, `time.sleeps` lists every wait between attempts, `time.advance(s)` moves time by hand.

    A blocking wait moves time at once. Under asyncio time jumps to the next timer when all tasks wait; where they wait
    for real sockets or threads, give `patience`: so many real seconds are granted to them before each jump. Works with
    asyncio's own event loops; uvloop's clock can't be replaced.

    `rng` draws the jitter, by default from a generator seeded with `seed`.
    """

    def __init__(
        self, start: float = 0.0, *, patience: float = 0.0, seed: int = 0, rng: Callable[[], float] | None = None
    ) -> None:
        self._now = start
        self.patience = patience
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _Selector] = {}
        self._scope: Scope | None = None
        self.sleeps: list[float] = []
        self.world = World(
            clock=self,
            sleep=self.sleep,
            async_sleep=self._async_sleep,
            random=rng or Random(seed).random,
            timer_clock=self,
            attach=self.attach,
        )

    def __call__(self) -> float:
        """The current instant in seconds."""
        return self._now

    @property
    def now(self) -> float:
        """The current instant in seconds."""
        return self._now

    def sleep(self, delay: float) -> None:
        """A wait in blocking code: moves time by `delay` seconds at once."""
        with self._lock:
            self.sleeps.append(delay)
        self.advance(delay)

    def advance(self, seconds: float) -> None:
        """Moves time forward. Rounded to nanoseconds, so that sums stay readable."""
        if seconds < 0:
            raise ValueError(f"time can't go back by {-seconds:g} s")
        with self._lock:
            self._now = round(self._now + seconds, 9)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Makes an event loop live in this time. Called by forbear itself where a call needs it."""
        if loop in self._loops:
            return
        if not hasattr(loop, "_selector") or not hasattr(loop, "_scheduled"):
            raise RuntimeError("FakeTime drives asyncio's own event loops; run this test without uvloop")
        self._loops[loop] = _Selector(loop, self)

    def __enter__(self) -> Self:
        self._scope = Scope(self.world, float("inf"), current.get())
        self._scope.call = None
        self._scope.enter()
        running = asyncio._get_running_loop()  # noqa: SLF001  # public, despite its name
        if running is not None:
            self.attach(running)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._scope is not None:
            self._scope.end()
        while self._loops:
            _, selector = self._loops.popitem()
            selector.detach()

    async def _async_sleep(self, delay: float) -> None:
        loop = asyncio._get_running_loop()  # noqa: SLF001  # public, despite its name
        if loop is None:  # trio has a clock of its own for tests; here time just moves
            self.sleep(delay)
            return
        self.sleeps.append(delay)
        self.attach(loop)
        await asyncio.sleep(delay)

    def __repr__(self) -> str:
        return f"<FakeTime at {self._now:g} s>"


class _Selector:
    """Stands before a loop's selector: where the loop would wait for its next timer, virtual time jumps there.

    The loop asks its selector to wait only when no callback is ready, which is exactly when everyone waits.
    """

    def __init__(self, loop: Any, time: FakeTime) -> None:
        self._loop = loop
        self._time = time
        self._clock_before = vars(loop).get("time")  # another FakeTime's, where one is around
        self._real = loop._selector  # noqa: SLF001  # asyncio offers no other way in
        # Timers that are already set keep their distance.
        self._offset = loop.time() - time.now if loop._scheduled else 0.0  # noqa: SLF001
        loop.time = self._loop_time
        loop._selector = self  # noqa: SLF001

    def _loop_time(self) -> float:
        return self._offset + self._time.now

    def select(self, timeout: float | None = None) -> Any:
        """Waits for real events; where the loop would wait for a timer, jumps instead."""
        if timeout is None or timeout <= 0:
            return self._real.select(timeout)
        ready = self._real.select(min(timeout, self._time.patience))
        if not ready:
            self._time.advance(timeout)
        return ready

    def detach(self) -> None:
        """Gives the loop its own clock back."""
        if self._clock_before is None:
            del self._loop.time
        else:
            self._loop.time = self._clock_before
        self._loop._selector = self._real  # noqa: SLF001

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
