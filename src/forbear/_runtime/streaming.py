"""A stream on its way to its consumer: its source, what of it was handed over, and what is given back at its end.

Decided here: what may be iterated, when the guards learn how it went, and which error the consumer sees. A lease, a
deadline and a connection belong to the body of a stream, not to the call that opened it: they end at its exhaustion,
its close, a failure, or when nobody can ask for the rest any more. How a step is waited for is the business of the
drivers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forbear._runtime.call import Call, Plan, drop, open_call
from forbear._runtime.scope import Ambient, current
from forbear._runtime.steps import accept, late
from forbear._runtime.telling import tell_attempt, tell_end
from forbear.core.stream import Delivery, StreamSettings
from forbear.errors import StreamInterrupted, StreamTruncated, UsageError

END: Any = object()  # in the place of a chunk: the source has ended
SENDS = "nothing can be sent into a stream, which may have to be made anew: pass it as an argument"
CLOSES_WITHIN = 5.0  # seconds that a source has for its close; a hung one must not hold up the rest


class Answer:
    """What the guards learn of a stream that went well: the response it came with, and the usage that it named."""

    __slots__ = ("response", "usage")

    def __init__(self) -> None:
        self.response: Any = None
        self.usage: Any = None


class Body:
    """One stream. `opened` is what closes it, the first one first; `chunks` gives the next chunk; `value` is what a
    generator has returned. `flows`: the copy of the attempt that brings the chunks; itself without a hedge.
    """

    __slots__ = (
        "_made", "answer", "args", "call", "chunks", "delivery", "flows", "fn", "kwargs", "opened", "over", "settings",
        "value",
    )  # fmt: skip

    def __init__(
        self, call: Call, delivery: Delivery, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.call = call
        self.call.run.stream = self.delivery = delivery
        self.settings: StreamSettings = delivery.settings
        self.call.task = self.call.timer = None
        self.flows: Body = self
        self.opened: list[Callable[[BaseException | None], Any]] = []
        self.chunks: Any = None
        self._made: Any = None
        self.over = False
        self.value: Any = None
        self.answer = Answer()

    def enter(self) -> Ambient:
        """What runs from here on is part of the stream: gives what held before."""
        before = current.get()
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

    # ---- copies ------------------------------------------------------------------------------------------------------

    def copy(self, call: Call) -> Body:
        """The stream of one copy of the attempt, under a call of its own but for the first."""
        delivery = self.delivery if call is self.call else self.delivery.fork()
        return Body(call, delivery, self.fn, self.args, self.kwargs)

    def goes_on_with(self, copy: Body) -> None:
        """This copy has brought the first content: it is the stream from now on."""
        self.flows, self.over = copy, copy.over
        self.call.run.stream = self.delivery = copy.delivery

    # ---- an attempt --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The attempt begins now."""
        self.delivery.begin(self.call.run.attempt_at)

    def make(self) -> Any:
        """The source, as the function gives it: may have to be awaited or entered before it can be iterated."""
        if self.delivery.resuming and self.settings.resume is not None:
            return self.settings.resume(list(self.delivery.delivered), *self.args, **self.kwargs)
        made = self.fn(*self.args, **self.kwargs)
        if made is self._made and (hasattr(type(made), "__next__") or hasattr(type(made), "__anext__")):
            raise UsageError(
                f"the function gave the same {type(made).__name__} again, which can be read only once: "
                "make a new one in each call"
            ) from self.call.run.previous_error
        self._made = made
        return made

    def holds(self, thing: Any, *closers: str) -> None:
        """Something that is to be closed before all that was there before, by the first of these methods it has."""
        method = next((getattr(thing, name) for name in closers if callable(getattr(thing, name, None))), None)
        if method is not None:
            self.opened.insert(0, lambda _error: method())
        response = None if self.call.plan.gate is None else getattr(thing, "response", thing)
        if hasattr(response, "headers"):
            self.answer.response = response

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
        signal = read(chunk)
        if signal.error is not None:
            raise signal.error
        now = self.call.world.clock()
        if blocking and not signal.content and now >= self.delivery.due_at:
            raise late(self.call)
        if self.call.plan.gate is not None:
            usage = getattr(chunk, "usage", None)
            self.answer.usage = self.answer.usage if usage is None else usage
        return self.delivery.received(chunk, signal, self.call.run.number, now)

    def _finished(self) -> list[Any]:
        """The source has ended: what is left to hand over. Raises StreamTruncated where it has ended too early."""
        left = self.delivery.finished(self.call.run.number)
        if left is None:
            raise StreamTruncated(self.delivery.contents)
        self.over = True
        accept(self.call, self.answer)
        return left

    def ended_with(self, error: BaseException) -> BaseException:
        """What the consumer sees where the stream ends with `error`."""
        self.over = True
        if not self.delivery.shown or not isinstance(error, Exception):
            return error
        return StreamInterrupted(self.delivery.contents, tuple(self.delivery.delivered), error)

    # ---- its end -----------------------------------------------------------------------------------------------------

    def closed(self) -> None:
        """The consumer wants no more. What it got was good."""
        if self.over:
            return
        self.over = True
        call, shown = self.flows.call, self.delivery.shown > 0
        if call.passage is not None and shown:
            call.passage.succeeded(self.flows.answer)
        if call.plan.listeners:
            now = call.world.clock()
            if self.flows.chunks is not None:
                tell_attempt(call.plan, call.run, "success" if shown else "cancelled", now)
            tell_end(call.plan, self.call.run, "closed", now)

    def abandoned(self) -> None:
        """Nobody runs what would have to be awaited to close the source: it ends with its last reference."""
        self.opened.clear()
        self.chunks = None

    def end(self) -> None:
        """All that the stream has taken goes back. May be called more than once."""
        self.call.ended = True
        drop(self.call)
        drop(self.flows.call)

    def __del__(self) -> None:
        """Where the event loop is gone, nobody closes a stream that was left; its leases go back all the same."""
        call = getattr(self, "call", None)
        if call is not None and not call.ended:
            self.end()


def _as_seen_by_a_block(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def open_stream(plan: Plan, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Body:
    """A stream that begins now. Raises DeadlineExceeded where no time is left for a first attempt."""
    if plan.stream is None:
        raise RuntimeError("this plan is not for streams")
    return Body(open_call(plan, current.get()), Delivery(plan.stream), fn, args, kwargs)


def to_iterate(made: Any, method: str, other: str, way: str) -> None:
    """Raises UsageError, with the correction, where what the function gave has no such method."""
    single = isinstance(made, (str, bytes, dict))
    if hasattr(type(made), method) and not single:
        return
    if hasattr(type(made), other) and not single:
        raise UsageError(f"the function gave {type(made).__name__}, which is iterated with {way}")
    raise UsageError(
        f"the function gave {type(made).__name__}, which is no stream; for a call with one result use retry"
    )
