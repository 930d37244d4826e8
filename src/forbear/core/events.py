"""What is told about a call while it runs: one event per attempt, per wait and per end, as frozen values.

Must never know who listens. No repr shows an error's text, an argument or a result: events end up in logs, and that
is where keys and passwords leak. The objects themselves are at hand as fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from forbear.core.decision import Source
from forbear.core.failure import Kind
from forbear.errors import picklable

Outcome = Literal["success", "failure", "cancelled"]
EndReason = Literal[
    "success", "permanent", "unsafe", "max_attempts", "deadline", "budget", "circuit", "cancelled", "interrupted",
    "closed",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryState:
    """A wait is about to begin. This is what `on_retry` gets.

    `attempt` is the number of the attempt that failed (from 1), `max_attempts` the limit or None, `delay` the wait in
    seconds and `source` who asked for it, `elapsed` the seconds since the call began, `remaining` the seconds left at
    the deadline before the wait (may be infinite). `error` is what the attempt raised, None where a result was
    refused; then `result` has it. `call` names the function.
    """

    call: str
    attempt: int
    max_attempts: int | None
    delay: float
    source: Source
    elapsed: float
    remaining: float
    kind: Kind
    status: int | None
    error_type: str
    error: BaseException | None = field(repr=False)
    result: Any = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _without_unpicklable(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """An attempt is over. `elapsed` is what it took, `remaining` what is left of the call, in seconds."""

    call: str
    attempt: int
    max_attempts: int | None
    outcome: Outcome
    elapsed: float
    remaining: float
    error_type: str | None = None
    error: BaseException | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _without_unpicklable(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """A call is over, after `attempts` attempts, `elapsed` seconds, `waited` of them between attempts.

    `reason` "interrupted": a stream broke after content had been delivered; "closed": its consumer wanted no more.
    """

    call: str
    reason: EndReason
    attempts: int
    elapsed: float
    waited: float
    error_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBack:
    """A call was given up, with an error of this type, and `fallback` has answered in its place."""

    call: str
    fallback: str
    error_type: str


def _without_unpicklable(event: RetryState | AttemptEnded) -> tuple[Any, ...]:
    """How an event is pickled: an error that can't be is replaced by a summary."""
    facts = {each.name: getattr(event, each.name) for each in fields(event)}
    return (_made_again, (type(event), {**facts, "error": picklable(event.error)}))


def _made_again(kind: type[RetryState | AttemptEnded], facts: dict[str, Any]) -> RetryState | AttemptEnded:
    return kind(**facts)


Event = RetryState | AttemptEnded | CallEnded | FellBack
