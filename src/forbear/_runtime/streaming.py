"""A stream on its way to its consumer, over all its attempts.

Decided here: what is given back at its end, and which error the consumer sees. A lease, a deadline and a connection
belong to the body of a stream, not to the call that opened it: they end at its exhaustion, its close, a failure, or
when nobody can ask for the rest any more.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from forbear._runtime.call import Call, Plan, drop, open_call
from forbear._runtime.scope import Ambient, current
from forbear._runtime.source import Source
from forbear._runtime.telling import tell_attempt, tell_end
from forbear.core.stream import Delivery
from forbear.errors import StreamInterrupted

# Before 3.12 the collector may come in the middle of ContextVar.set, and a set within that one crashes the interpreter.
# So a stream that the collector closes is closed in whatever scope that runs.
_collecting: set[int] = set()


def _note_collection(phase: str, _: object) -> None:
    (_collecting.add if phase == "start" else _collecting.discard)(get_ident())


if sys.version_info < (3, 12):
    gc.callbacks.append(_note_collection)

SENDS = "nothing can be sent into a stream, which may have to be made anew: pass it as an argument"


class Body:
    """One stream. `source` is the attempt, or the copy of one, that brings the chunks."""

    __slots__ = ("_left", "call", "source")

    def __init__(self, call: Call, source: Source) -> None:
        self.call = call
        self.source = source
        self._left = False

    @property
    def over(self) -> bool:
        """Whether nothing comes any more."""
        return self._left or self.source.over

    @property
    def delivery(self) -> Delivery:
        """What the consumer has."""
        return self.source.delivery

    def enter(self) -> Ambient:
        """What runs from here on is part of the stream: gives what held before."""
        before = current.get()
        if get_ident() not in _collecting:
            current.set(self.call)
        if self.call.passage is not None:
            self.call.passage.stepped_in()
        return before

    def leave(self, before: Ambient) -> None:
        """The consumer goes on; the stream is not around it."""
        if self.call.passage is not None:
            self.call.passage.stepped_out()
        if current.get() is self.call:  # else somebody ends the stream in a context that is not ours
            current.set(before)

    def goes_on_with(self, copy: Source) -> None:
        """This copy of the attempt has brought the first content: it is the stream from now on."""
        self.source = copy
        self.call.run.stream = copy.delivery

    def ended_with(self, error: BaseException) -> BaseException:
        """What the consumer sees where the stream ends with `error`."""
        self._left = True
        if not self.delivery.shown or not isinstance(error, Exception):
            return error
        return StreamInterrupted(self.delivery.contents, tuple(self.delivery.delivered), error)

    def closed(self) -> None:
        """The consumer wants no more. What it got was good."""
        if self.over:
            return
        self._left = True
        call, shown = self.source.call, self.delivery.shown > 0
        if call.passage is not None and shown:
            call.passage.succeeded(self.source.answer)
        if call.plan.listeners:
            now = call.world.clock()
            if self.source.chunks is not None:
                tell_attempt(call.plan, call.run, "success" if shown else "cancelled", now)
            tell_end(call.plan, self.call.run, "closed", now)

    def end(self) -> None:
        """All that the stream has taken goes back. May be called more than once."""
        for call in (self.call, self.source.call):
            call.ended = True
            drop(call)

    def __del__(self) -> None:
        """Where the event loop is gone, nobody closes a stream that was left; its leases go back all the same."""
        call = getattr(self, "call", None)
        if call is not None and not call.ended:
            self.end()


def open_stream(plan: Plan, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Body:
    """A stream that begins now. Raises DeadlineExceeded where no time is left for a first attempt."""
    if plan.stream is None:
        raise RuntimeError("this plan is not for streams")
    call = open_call(plan, current.get())
    return Body(call, Source(call, Delivery(plan.stream), fn, args, kwargs))
