"""The options that only streams have.

Decided here: their defaults. An `attempt_timeout` becomes the longest time without content, as an answer may be long:
to the first content, and between two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from forbear.calls.callables import is_coroutine_function
from forbear.classify.stream_events import StreamEvents
from forbear.core.policy import Policy
from forbear.core.stream import StreamSettings
from forbear.core.validation import Seconds

Events = StreamEvents | Literal["openai", "anthropic"]


class StreamOptions(TypedDict, total=False):
    """What a stream takes besides the options of `retry` and `after_content`."""

    events: Events | None
    resume: Callable[..., Any] | None
    hold_at_most: int
    first_timeout: Seconds | None
    gap_timeout: Seconds | None
    total_timeout: Seconds | None


STREAM_OPTIONS = frozenset(StreamOptions.__annotations__) | {"after_content"}
_READY_MADE = {"openai": StreamEvents.openai(), "anthropic": StreamEvents.anthropic()}
_BY_SHAPE = StreamEvents()


def stream_settings(options: Mapping[str, Any], policy: Policy) -> StreamSettings:
    """How a stream with these options is handed over. Raises ValueError for what makes no sense."""
    if options.get("retry_if_result") is not None:
        raise ValueError("retry_if_result judges one result, and a stream has many: say with events= what is a failure")
    given = {name: options[name] for name in STREAM_OPTIONS - {"events"} if name in options}
    for name in ("first_timeout", "gap_timeout"):
        given.setdefault(name, policy.attempt_timeout)
    resume, mode = given.get("resume"), given.get("after_content")
    if resume is not None and mode not in (None, "resume"):
        raise ValueError(f"resume= goes on after a failure, after_content={mode!r} does something else: choose one")
    if resume is None and mode == "resume":
        raise ValueError(
            "after_content='resume' needs resume=, a function of what was delivered that goes on from there"
        )
    if resume is not None:
        if not callable(resume):
            raise ValueError(f"resume must be a function of what was delivered, not {type(resume).__name__}")
        given["after_content"] = "resume"
    events = _events(options.get("events"))
    return StreamSettings(read=events.read, needs_end=events.needs_end, **given)


def _events(events: object) -> StreamEvents:
    if events is None:
        return _BY_SHAPE
    if isinstance(events, str) and events in _READY_MADE:
        return _READY_MADE[events]
    if not isinstance(events, StreamEvents):
        raise ValueError(f"events must be 'openai', 'anthropic' or StreamEvents(content=...), not {events!r}")
    for name in ("content", "ends", "error", "text"):
        function = getattr(events, name)
        if function is not None and (not callable(function) or is_coroutine_function(function)):
            kind = "an async one" if callable(function) else type(function).__name__
            raise ValueError(f"{name} must be a plain function of a chunk, not {kind}")
    return events
