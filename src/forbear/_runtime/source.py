"""The source of a stream, for one attempt: what was opened, what it brings, and how long that may take.

Decided here: what may be iterated, what closes it, and what the guards learn of a stream that went well. How a step is
waited for is the business of the drivers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forbear._runtime.call import Call
from forbear._runtime.steps import accept, late
from forbear.core.stream import Delivery, StreamSettings
from forbear.errors import StreamTruncated, UsageError

END: Any = object()  # in the place of a chunk: the source has ended
CLOSES_WITHIN = 5.0  # seconds that a source has for its close; a hung one must not hold up the rest


class Answer:
    """What the guards learn of a stream that went well: the response it came with, and the usage that it named.

    Some name a part of it at the beginning and the rest at the end: the last word on each counts.
    """

    __slots__ = ("_things", "usage")

    def __init__(self) -> None:
        self._things: list[Any] = []
        self.usage: dict[str, float] = {}

    def came_with(self, thing: Any) -> None:
        """Remembers what was opened; it may get its response later."""
        self._things.append(thing)

    @property
    def response(self) -> Any:
        """The response of what was opened, which may compute its attributes and fail at it."""
        found = map(_response_of, reversed(self._things))
        return next((response for response in found if response is not None), None)  # some are false where they failed


def _response_of(thing: Any) -> Any:
    try:
        response = getattr(thing, "response", thing)
        return response if hasattr(response, "headers") else None
    except Exception:
        return None


class Source:
    """One attempt of a stream, or a copy of one. `opened` is what closes it, the first one first; `chunks` gives the
    next chunk; `value` is what a generator has returned; `over`: it has come to its end.
    """

    __slots__ = (
        "_made", "answer", "args", "call", "chunks", "delivery", "fn", "kwargs", "opened", "over", "settings", "value",
    )  # fmt: skip

    def __init__(
        self, call: Call, delivery: Delivery, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.call = call
        call.run.stream = self.delivery = delivery
        call.task = call.timer = None
        self.settings: StreamSettings = delivery.settings
        self.opened: list[Callable[[BaseException | None], Any]] = []
        self.chunks: Any = None
        self._made: list[Any] = [None]  # what the function gave last, in any attempt and copy
        self.over = False
        self.value: Any = None
        self.answer = Answer()

    def copy(self, call: Call) -> Source:
        """The same for a copy of the attempt that begins now; `call` is its own but for the first one."""
        delivery = self.delivery if call is self.call else self.delivery.fork()
        copy = Source(call, delivery, self.fn, self.args, self.kwargs)
        copy._made = self._made
        return copy

    def begin(self) -> None:
        """The attempt begins now."""
        self.delivery.begin(self.call.run.attempt_at)

    def make(self) -> Any:
        """The source, as the function gives it: may have to be awaited or entered before it can be iterated."""
        if self.delivery.resuming and self.settings.resume is not None:
            return self.settings.resume(list(self.delivery.delivered), *self.args, **self.kwargs)
        made = self.fn(*self.args, **self.kwargs)
        if made is self._made[0] and (hasattr(type(made), "__next__") or hasattr(type(made), "__anext__")):
            raise UsageError(
                f"the function gave the same {type(made).__name__} again, which can be read only once: "
                "make a new one in each call"
            ) from self.call.run.previous_error
        self._made[0] = made
        return made

    def holds(self, thing: Any, *closers: str) -> None:
        """Something that is to be closed before all that was there before, by the first of these methods it has."""
        method = next((getattr(thing, name) for name in closers if callable(getattr(thing, name, None))), None)
        if method is not None:
            self.opened.insert(0, lambda _error: method())
        if self.call.plan.gate is not None:
            self.answer.came_with(thing)

    def entered(self, leave: Callable[..., Any]) -> None:
        """The block of a context manager was entered: it is closed by leaving it, with the error if there was one."""
        self.opened = [lambda error: leave(*_as_seen_by_a_block(error))]

    def limit(self) -> float:
        """The consumer waits from now on: seconds until it has waited too long. Raises TimeoutError for none."""
        call = self.call
        now = call.world.clock()
        limit = self.delivery.limit(now, call.run.left(now))
        if limit <= 0:
            raise late(call)
        return limit

    def taken_in(self, chunk: Any, *, blocking: bool = False) -> list[Any]:
        """What goes to the consumer after a chunk, or after END."""
        return self._finished() if chunk is END else self._received(chunk, blocking=blocking)

    def _received(self, chunk: Any, *, blocking: bool) -> list[Any]:
        """What goes to the consumer now. Raises where the chunk stands for a failure, or is a late sign of life."""
        read = self.settings.read
        if read is None:
            raise RuntimeError("nobody can say what a chunk means")
        try:
            signal = read(chunk)
        except Exception as mistake:
            self.call.run.mistake = mistake  # of the caller's own: the service has done nothing wrong
            raise
        if signal.error is not None:
            raise signal.error
        now = self.call.world.clock()
        if blocking and not signal.content and now >= self.delivery.due_at:
            raise late(self.call)
        if signal.usage:
            self.answer.usage = {**self.answer.usage, **signal.usage}
        return self.delivery.received(chunk, signal, self.call.run.number, now)

    def _finished(self) -> list[Any]:
        """The source has ended: what is left to hand over. Raises StreamTruncated where it has ended too early."""
        left = self.delivery.finished(self.call.run.number)
        if left is None:
            raise StreamTruncated(self.delivery.contents)
        self.over = True
        accept(self.call, self.answer)
        return left

    def abandoned(self) -> None:
        """Nobody runs what would have to be awaited to close it: it ends with its last reference."""
        self.opened.clear()
        self.chunks = None


def _as_seen_by_a_block(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def to_iterate(made: Any, method: str, other: str, way: str) -> None:
    """Raises UsageError, with the correction, where what the function gave has no such method."""
    if hasattr(type(made), "model_dump"):
        raise UsageError(
            f"the function gave {type(made).__name__}, which is one whole answer: pass stream=True to the client, "
            "or use retry"
        )
    single = isinstance(made, (str, bytes, dict))
    if hasattr(type(made), method) and not single:
        return
    if hasattr(type(made), other) and not single:
        raise UsageError(f"the function gave {type(made).__name__}, which is iterated with {way}")
    raise UsageError(
        f"the function gave {type(made).__name__}, which is no stream; for a call with one result use retry"
    )
