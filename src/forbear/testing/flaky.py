"""Functions that fail by script."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from forbear._runtime.scope import around, world_of

_NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class Hang:
    """An outcome that takes `seconds` before `result` is returned, or raised if it is an exception."""

    seconds: float
    result: Any = None


class Flaky:
    """A function whose calls end as scripted: exceptions (instances or classes) are raised, other values returned.

    `Flaky(ConnectionError(), ApiError(503), "done")` fails twice, then succeeds; a fourth call is an AssertionError,
    unless `then` says how all further calls end. `Hang(5.0, "late")` takes its time. Call it in blocking code, or use
    `flaky.asynchronous` in async code; both accept and ignore any arguments. `flaky.calls` counts, `flaky.started_at`
    has the instant of each call on the clock of the context (virtual under `FakeTime`).
    """

    def __init__(self, *outcomes: Any, then: Any = _NOTHING) -> None:
        self._outcomes = outcomes
        self._then = then
        self.started_at: list[float] = []

    @property
    def calls(self) -> int:
        """How often it was called."""
        return len(self.started_at)

    def __call__(self, *_: Any, **__: Any) -> Any:
        """One call, blocking."""
        outcome = self._next()
        if isinstance(outcome, Hang):
            world_of(around()).sleep(outcome.seconds)
            outcome = outcome.result
        return _end(outcome)

    async def asynchronous(self, *_: Any, **__: Any) -> Any:
        """One call, as a coroutine."""
        outcome = self._next()
        if isinstance(outcome, Hang):
            await asyncio.sleep(outcome.seconds)
            outcome = outcome.result
        return _end(outcome)

    def _next(self) -> Any:
        number = self.calls
        self.started_at.append(world_of(around()).clock())
        if number < len(self._outcomes):
            return self._outcomes[number]
        if self._then is _NOTHING:
            raise AssertionError(f"call {number + 1} of a Flaky with {len(self._outcomes)} outcomes: give it then=...")
        return self._then


def _end(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        raise outcome.with_traceback(None)
    if isinstance(outcome, type) and issubclass(outcome, BaseException):
        raise outcome
    return outcome
