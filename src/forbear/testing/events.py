"""A record of what calls did."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from forbear.core.events import AttemptEnded, CallEnded, Event, RetryState
from forbear.observe.hooks import listening


class Events(list[Event]):
    """Events in the order in which they happened."""

    @property
    def attempts(self) -> list[AttemptEnded]:
        """One for each attempt."""
        return [event for event in self if isinstance(event, AttemptEnded)]

    @property
    def waits(self) -> list[RetryState]:
        """One for each wait between attempts."""
        return [event for event in self if isinstance(event, RetryState)]

    @property
    def ends(self) -> list[CallEnded]:
        """One for each call that is over."""
        return [event for event in self if isinstance(event, CallEnded)]


_recorder: ContextVar[Events | None] = ContextVar("forbear_recorder", default=None)


@contextmanager
def record_events() -> Generator[Events]:
    """Records the events of all calls in the block, and in tasks and copied contexts that start in it."""
    events = Events()
    token = _recorder.set(events)

    def listener(event: Event) -> None:
        if _recorder.get() is events:
            events.append(event)

    try:
        with listening(listener):
            yield events
    finally:
        _recorder.reset(token)
