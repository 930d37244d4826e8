"""What reaches the consumer of a stream, and when; and what a broken one may still become.

Decided here: the commit point. Until the first content of an attempt nothing is handed over, so a stream that breaks
earlier can be made anew and nobody notices. After it nothing is repeated unless the consumer is told or has asked for
it. And the clocks: how long a stream may be without content, which is not the time in which nothing at all comes.

Must never know what a chunk is: what it means comes in as a `Signal`. Prevents text that is shown twice, answers that
end early and look whole, and streams that only send signs of life.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from forbear.core.validation import number, optional_seconds

AfterContent = Literal["raise", "restart", "buffer", "resume"]
MODES: tuple[AfterContent, ...] = ("raise", "restart", "buffer", "resume")
MOST_HELD = 10_000  # chunks that wait to be handed over; an answer of an LLM has fewer
MOST_KEPT = 1_000_000  # of what was delivered, that an error remembers: characters or bytes, and 20 for each of them
_SIZE_OF_TEXT, _SIZE_OF_OBJECT = 20, 1_000  # a thing that is no text counts as 1,000

Clock = Literal["first", "gap", "total", "deadline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """How a stream is handed over. Durations are seconds; None: no limit.

    after_content: what a failure after the first content becomes. "raise": StreamInterrupted. "restart": the stream
        comes anew, behind a `Restarted` that tells the consumer to discard what it has. "buffer": there is no such
        failure, as nothing is handed over before the stream is complete. "resume": another attempt goes on from what
        was delivered.
    hold_at_most: chunks that are held back, by "buffer" and before the first content. With more, what is held is
        handed over, and from then on the stream is as with "raise".
    first_timeout: from the beginning of an attempt to its first content. gap_timeout: without content after that. Both
        count while the consumer waits. total_timeout: for an attempt, to its end.
    read: what a chunk means. needs_end: whether a stream that ends without the last event of its parts has failed.
    resume: what goes on, called with what was delivered and the arguments of the call.
    """

    after_content: AfterContent = "raise"
    hold_at_most: int = MOST_HELD
    first_timeout: float | None = None
    gap_timeout: float | None = None
    total_timeout: float | None = None
    read: Callable[[Any], Signal] | None = None
    needs_end: bool = False
    resume: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.after_content not in MODES:
            raise ValueError(f"after_content must be {' or '.join(map(repr, MODES))}, not {self.after_content!r}")
        most = number("hold_at_most", self.hold_at_most)
        if most < 1 or most % 1:
            raise ValueError(f"hold_at_most is {most:g}: it must be a whole number of chunks, at least 1")
        for name in ("first_timeout", "gap_timeout", "total_timeout"):
            object.__setattr__(self, name, optional_seconds(name, getattr(self, name), zero=False))


class Signal(NamedTuple):
    """What a chunk means.

    content: whether it is part of the answer; else it is a sign of life, a start or a note.
    begins, ends: the parts of the answer that it begins and ends, by any names; most answers have one.
    late: it is a note that comes at the end of an answer, as its usage does; what ends a part is one too.
    error: the failure that it stands for; it is no chunk then.
    text: what an error should remember of it; None: the chunk itself.
    usage: what it says was used of the service's limits, by the service's names.
    """

    content: bool = True
    begins: Iterable[object] = ()
    ends: Iterable[object] = ()
    error: Exception | None = None
    text: object = None
    late: bool = False
    usage: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Restarted:
    """Among the chunks of a stream with `after_content="restart"`: what came before is void; the answer comes anew.

    `attempt` is the number of the attempt that follows, `discarded` how many contents are void.
    """

    attempt: int
    discarded: int


class Delivery:
    """The stream of one call, over all its attempts. Instants are numbers on the driver's clock.

    shown: how many chunks the consumer has and may keep, contents: how many of them are content. delivered: the first
    contents, or all with "resume". cut_by: the clock that ends the wait that is under way, due_at: when it does.
    first_after: seconds that the consumer has waited for the first content of this attempt; None before it has come.
    """

    __slots__ = (
        "_contents_here", "_ended", "_held", "_kept", "_open", "_restarting",
        "_resuming", "_started_at", "_waited", "_waiting_since", "contents", "cut_by", "delivered", "due_at",
        "first_after", "released", "settings", "shown",
    )  # fmt: skip

    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self.shown = self.contents = 0
        self.delivered: list[Any] = []
        self.cut_by: Clock = "deadline"
        self._kept = 0
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """An attempt begins. What the one before it has not handed over is forgotten."""
        mode = self.settings.after_content
        self._restarting = mode == "restart" and self.shown > 0
        self._resuming = mode == "resume" and self.shown > 0
        self.released = False  # whether chunks of this attempt are handed over as they come
        self._held: list[Any] = []
        self._contents_here = 0
        self._open: set[object] = set()
        self._ended: set[object] = set()
        self._started_at = self._waiting_since = now
        self._waited = 0.0  # seconds in which the consumer has waited since the last content
        self.due_at = math.inf
        self.first_after: float | None = None

    def fork(self) -> Delivery:
        """One for a copy of the attempt that begins now: the first of them that brings content goes on for all."""
        copy = Delivery(self.settings)
        copy.shown, copy.contents, copy._kept = self.shown, self.contents, self._kept
        copy.delivered = list(self.delivered)
        return copy

    # ---- chunks ------------------------------------------------------------------------------------------------------

    def received(self, chunk: Any, signal: Signal, attempt: int, now: float) -> list[Any]:
        """A chunk has come: what goes to the consumer now."""
        self._waited += max(0.0, now - self._waiting_since)
        self._waiting_since = now
        self._ended.update(signal.ends)
        self._open.update(signal.begins)
        self._open -= self._ended  # a part that has ended stays so: some send the usage of it afterwards
        if signal.content:
            self.first_after = self._waited if self.first_after is None else self.first_after
            self._waited = 0.0
            self._contents_here += 1
        if self.released:
            self._keep(chunk, signal)
            return [chunk]
        self._held.append((chunk, signal))
        if len(self._held) > self.settings.hold_at_most:
            return self._release(attempt)
        if signal.content and self.settings.after_content != "buffer":
            return self._release(attempt)
        return []

    def finished(self, attempt: int) -> list[Any] | None:
        """The source has ended: what is left to hand over. None where it has ended too early: that is a failure."""
        if self.settings.needs_end and not self.complete:
            return None
        return [] if self.released else self._release(attempt)

    @property
    def complete(self) -> bool:
        """Whether all that has begun has come to its end, where that is known: what breaks now costs nothing."""
        return self.settings.needs_end and bool(self._ended) and not self._open

    def _release(self, attempt: int) -> list[Any]:
        """Hands over what is held. A stream that goes on does not begin again: its first notes are left out."""
        held, self._held = self._held, []
        out: list[Any] = []
        if self._restarting:
            out.append(Restarted(attempt, self.contents))
            self.shown, self.contents, self._kept, self.delivered = 0, 0, 0, []
        skips = self._resuming
        for chunk, signal in held:
            skips = skips and not (signal.content or signal.late or signal.ends)
            if not skips:
                self._keep(chunk, signal)
                out.append(chunk)
        self.released, self._restarting = True, False
        return out

    def _keep(self, chunk: Any, signal: Signal) -> None:
        """Counts a chunk that is handed over; a content is remembered within bounds."""
        self.shown += 1
        if not signal.content:
            return
        self.contents += 1
        kept = chunk if signal.text is None else signal.text
        self._kept += _SIZE_OF_TEXT + len(kept) if isinstance(kept, (str, bytes, bytearray)) else _SIZE_OF_OBJECT
        if self._kept <= MOST_KEPT or self.settings.after_content == "resume":
            self.delivered.append(kept)

    @property
    def repeatable(self) -> bool:
        """Whether a failure now may be followed by another attempt, as far as the consumer is concerned."""
        return not self.shown or self.settings.after_content in ("restart", "resume")

    @property
    def flowing(self) -> bool:
        """Whether this attempt has brought content."""
        return self._contents_here > 0

    @property
    def resuming(self) -> bool:
        """Whether this attempt goes on from what was delivered."""
        return self._resuming

    # ---- clocks ------------------------------------------------------------------------------------------------------

    def limit(self, now: float, left: float) -> float:
        """The consumer waits from now on: seconds that it may take, with `left` seconds to the deadline. `cut_by` tells
        what ends it.
        """
        self._waiting_since = now
        limit, self.cut_by = left, "deadline"
        settings = self.settings
        for clock, most, used in (
            ("total", settings.total_timeout, now - self._started_at),
            ("gap", settings.gap_timeout, self._waited) if self.flowing else
            ("first", settings.first_timeout, self._waited),
        ):  # fmt: skip
            if most is not None and most - used <= limit:
                limit, self.cut_by = most - used, clock  # type: ignore[assignment]
        self.due_at = now + max(0.0, limit)
        return max(0.0, limit)

    def late(self, attempt: int) -> str:
        """Which clock has ended the attempt, in words."""
        settings = self.settings
        had = {0: "no content had come", 1: "1 content had come"}.get(
            self._contents_here, f"{self._contents_here} contents had come"
        )
        if self.cut_by == "first":
            return f"attempt {attempt} brought no content within first_timeout={settings.first_timeout:g} s"
        if self.cut_by == "gap":
            return f"attempt {attempt} brought no content for gap_timeout={settings.gap_timeout:g} s; {had}"
        if self.cut_by == "total":
            return f"attempt {attempt} took longer than total_timeout={settings.total_timeout:g} s; {had}"
        return f"attempt {attempt} was cut at the deadline; {had}"
