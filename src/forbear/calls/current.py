"""What an attempt can ask about itself from inside: its number, its time, and the key that all attempts share."""

from __future__ import annotations

import math
import threading
import uuid

from forbear._runtime.call import Call
from forbear._runtime.scope import around
from forbear.calls.deadline import Deadline
from forbear.errors import AttemptSummary

_making_a_key = threading.Lock()


class Attempt:
    """The attempt that runs here."""

    __slots__ = ("_call", "number")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.number = call.run.number

    @property
    def timeout(self) -> float | None:
        """Seconds left for this attempt, never negative; None where there is no limit. Hand it to the client.

        Attempts around this one and deadline blocks inside it count too: none can give more time than it has itself.
        """
        left, scope = math.inf, around()
        if scope is not None:
            left = scope.deadline_at - scope.world.clock()
        call: Call | None = self._call
        while call is not None:
            run = call.run
            left = min(left, run.attempt_at + run.limit - call.world.clock())
            call = None if call.outer is None else call.outer.call
        return None if left == math.inf else max(0.0, left)

    @property
    def deadline(self) -> Deadline | None:
        """The deadline of the whole call; None where there is none."""
        call = self._call
        return None if call.deadline_at == math.inf else Deadline.at(call.deadline_at, call.world.clock)

    @property
    def idempotency_key(self) -> str:
        """One key for the whole call, made when first asked for, the same in every attempt and copy."""
        run = self._call.run
        run = run.of or run
        with _making_a_key:
            if run.key is None:
                run.key = str(uuid.uuid4())
            return run.key

    @property
    def previous_error(self) -> BaseException | None:
        """What the attempt before this one ended with; None in the first."""
        return self._call.run.previous_error

    def forbid_retry(self, why: str) -> None:
        """Nothing follows this attempt if it fails, as it has done what can't be done twice. `why` is logged."""
        self._call.run.forbidden = why

    @property
    def history(self) -> tuple[AttemptSummary, ...]:
        """The attempts of this call that have failed, the oldest first; of many the last ten."""
        return tuple(sorted(self._call.run.history, key=lambda summary: summary.number))

    @property
    def waited(self) -> float:
        """Seconds that the call has waited so far."""
        return self._call.run.waited

    @property
    def elapsed(self) -> float:
        """Seconds since the call began."""
        call = self._call
        return max(0.0, call.world.clock() - call.run.started_at)

    def __repr__(self) -> str:
        return f"<attempt {self.number} of {self._call.plan.name}>"


def current_attempt() -> Attempt | None:
    """The attempt that this code runs in, the innermost if calls are nested; None outside of any."""
    scope = around()
    call = None if scope is None else scope.call
    return None if call is None else Attempt(call)
