"""Laws of streams: whatever breaks, and whenever, the consumer holds a prefix of one answer, or the whole of it.

Each attempt of a script has an answer of its own, as a model gives them, so that pieces of two answers can be told
apart; only an attempt that goes on continues the answer before it. Every script runs through the blocking and the
async driver, with sources of several kinds that count their openings and closes. The reference below keeps no record
while chunks come: it works out from the whole script what must have been handed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from forbear import (
    DeadlineExceeded,
    ErrorEvent,
    Restarted,
    RetriesExhausted,
    StreamEvents,
    StreamInterrupted,
    StreamTruncated,
    current_attempt,
    stream,
)
from forbear.core.stream import MODES
from forbear.testing import FakeTime

law = settings(max_examples=300, deadline=None)

FIRST, GAP = 20.0, 15.0  # seconds; the pauses between chunks are shorter
LONG = 10_000.0  # a silence longer than any clock, where there is one

# How an attempt ends, and the error that this is.
ENDINGS: dict[str, type[Exception] | None] = {
    "clean": None,
    "transient": ConnectionResetError,
    "permanent": LookupError,
    "truncated": StreamTruncated,
    "error event": ErrorEvent,
    "permanent error event": ErrorEvent,
    "silence": TimeoutError,
    "refused": ConnectionRefusedError,  # when it is opened
}
PERMANENT = {"permanent", "permanent error event"}
KINDS = ("generator", "closable", "manager")


@dataclass(frozen=True)
class Chunk:
    """`kind` is "content", "note" or "end"; `attempt` the one that it is of; `place` its place in the answer, or in the
    attempt."""

    kind: str
    attempt: int
    place: int
    error: Exception | None = None


@dataclass(frozen=True)
class Part:
    """What one attempt does: `notes` before each of its contents and behind the last, as many contents as `share` of
    what is left says, the end where it gets that far, and its `ending`. `kind` is that of its source."""

    notes: tuple[int, ...]
    share: float
    ending: str
    kind: str
    pause: float  # seconds before each chunk

    def chunks(self, attempt: int, begins_at: int, length: int) -> list[Chunk]:
        """All that comes before the ending, of an answer of that length."""
        if self.ending == "refused":
            return []
        last = length if self.ending == "clean" else begins_at + int(self.share * (length - begins_at))
        out: list[Chunk] = []
        notes = iter(self.notes)
        for place in range(begins_at, last):
            out += [Chunk("note", attempt, len(out) + n) for n in range(next(notes, 0))]
            out.append(Chunk("content", attempt, place))
        out += [Chunk("note", attempt, len(out) + n) for n in range(next(notes, 0))]
        # The end has come, and what is behind it fails all the same; a truncated stream is one without it.
        if self.ending == "clean" or (self.share == 1 and self.ending != "truncated"):
            out.append(Chunk("end", attempt, len(out)))
        return out


@dataclass(frozen=True)
class Script:
    """`length` contents are an answer. The last part is that of all further attempts. `leaves_after`: the consumer
    wants no more than so many chunks; `rests`: seconds that it takes for itself after each content."""

    parts: tuple[Part, ...]
    length: int
    mode: str
    hold_at_most: int
    max_attempts: int
    deadline: float | None = None
    leaves_after: int | None = None
    rests: float = 0.0

    def part(self, attempt: int) -> Part:
        return self.parts[min(attempt, len(self.parts)) - 1]


parts = st.builds(
    Part,
    notes=st.lists(st.integers(0, 2), max_size=4).map(tuple),
    share=st.sampled_from([0.5, 0.0, 0.3, 0.8, 1.0]),
    ending=st.sampled_from([*ENDINGS, *ENDINGS, "transient", "truncated", "silence", "error event", "clean", "clean"]),
    kind=st.sampled_from(KINDS),
    pause=st.sampled_from([0.0, 0.0, 0.5, 3.0]),
)
scripts = st.builds(
    Script,
    parts=st.lists(parts, min_size=1, max_size=4).map(tuple),
    length=st.sampled_from([3, 2, 4, 5, 1, 0]),
    mode=st.sampled_from(MODES),
    hold_at_most=st.sampled_from([1, 2, 4, 10_000, 10_000]),
    max_attempts=st.sampled_from([4, 3, 2, 1]),
    rests=st.sampled_from([0.0, 0.0, 1.0, 100.0]),
)
with_deadlines = st.builds(
    replace, scripts, deadline=st.sampled_from([0.25, 5.0, 12.0, 31.0, 60.0, 300.0]), rests=st.sampled_from([0.0, 4.0])
)
left_early = st.builds(replace, scripts, leaves_after=st.integers(0, 6))


class Stop(Exception):
    """Of a script: the source is at its end."""


@dataclass
class World:
    """The service that a script describes, and what was seen of it."""

    script: Script
    time: FakeTime
    asked: int = 0  # how often a stream was asked for
    opened: int = 0
    closed: int = 0
    most_open: int = 0
    handed: list[list[Chunk]] = field(default_factory=list)  # what each resumption was told had been delivered
    broken: list[str] = field(default_factory=list)

    def opens(self) -> None:
        self.opened += 1
        self.most_open = max(self.most_open, self.opened - self.closed)

    def closes(self) -> None:
        self.closed += 1

    def script_of(self, begins_at: int) -> tuple[Part, int, Iterator[Chunk]]:
        self.asked += 1
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number != self.asked:
            self.broken.append(f"opening {self.asked} in attempt {attempt.number}")
        part = self.script.part(self.asked)
        if part.ending == "refused":
            raise ConnectionRefusedError
        return part, self.asked, iter(part.chunks(self.asked, begins_at, self.script.length))

    def ending(self, source: Source | AsyncSource) -> Chunk:
        """What comes when all chunks have come: once a chunk that stands for an error, or what is raised."""
        match source.part.ending:
            case "transient":
                raise ConnectionResetError
            case "permanent":
                raise LookupError
            case "error event" | "permanent error event" if not source.over:
                source.over = True
                says = "invalid_request_error" if source.part.ending in PERMANENT else "overloaded_error"
                return Chunk("note", source.attempt, -1, ErrorEvent({"error": {"type": says}}))
        raise Stop

    def begins_at(self, delivered: list[Chunk]) -> int:
        self.handed.append(list(delivered))
        delivered.clear()  # it is the caller's own
        return len(self.handed[-1])

    # ---- blocking ----

    def open(self, begins_at: int = 0) -> Any:
        part, attempt, chunks = self.script_of(begins_at)
        source = Source(self, part, attempt, chunks)
        if part.kind == "manager":
            return Manager(source)
        return source if part.kind == "closable" else source.generated()

    def resume(self, delivered: list[Chunk]) -> Any:
        return self.open(self.begins_at(delivered))

    # ---- async ----

    async def open_async(self, begins_at: int = 0) -> Any:
        part, attempt, chunks = self.script_of(begins_at)
        source = AsyncSource(self, part, attempt, chunks)
        if part.kind == "manager":
            return AsyncManager(source)
        return source if part.kind == "closable" else source.generated()

    async def resume_async(self, delivered: list[Chunk]) -> Any:
        return await self.open_async(self.begins_at(delivered))


class Source:
    """A blocking stream. Its reads time out, as those of a client that was given the time left."""

    def __init__(self, world: World, part: Part, attempt: int, chunks: Iterator[Chunk]) -> None:
        self.world, self.part, self.attempt, self.chunks, self.over = world, part, attempt, chunks, False
        self.open = part.kind == "closable"
        if self.open:
            world.opens()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = next(self.chunks, None)
        if chunk is None and self.part.ending == "silence":
            self.waits(LONG)
        elif self.part.pause:
            self.waits(self.part.pause)
        if chunk is not None:
            return chunk
        try:
            return self.world.ending(self)
        except Stop:
            raise StopIteration from None

    def waits(self, seconds: float) -> None:
        attempt = current_attempt()
        left = None if attempt is None else attempt.timeout
        if left is None or seconds < left:
            self.world.time.advance(seconds)
            return
        self.world.time.advance(left)
        raise TimeoutError

    def close(self) -> None:
        if self.open:
            self.open = False
            self.world.closes()

    def generated(self) -> Iterator[Chunk]:
        self.world.opens()
        try:
            yield from self
        finally:
            self.world.closes()


class Manager:
    """A stream that has to be entered."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __enter__(self) -> Source:
        self.source.world.opens()
        return self.source

    def __exit__(self, *_: object) -> None:
        self.source.world.closes()


class AsyncSource:
    """An async stream, which waits for ever where it is silent."""

    def __init__(self, world: World, part: Part, attempt: int, chunks: Iterator[Chunk]) -> None:
        self.world, self.part, self.attempt, self.chunks, self.over = world, part, attempt, chunks, False
        self.open = part.kind == "closable"
        if self.open:
            world.opens()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        chunk = next(self.chunks, None)
        if chunk is None and self.part.ending == "silence":
            await asyncio.sleep(LONG)
        elif self.part.pause:
            await asyncio.sleep(self.part.pause)
        if chunk is not None:
            return chunk
        try:
            return self.world.ending(self)
        except Stop:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        if self.open:
            self.open = False
            self.world.closes()

    async def generated(self) -> AsyncIterator[Chunk]:
        self.world.opens()
        try:
            async for chunk in self:
                yield chunk
        finally:
            self.world.closes()


class AsyncManager:
    """An async stream that has to be entered."""

    def __init__(self, source: AsyncSource) -> None:
        self.source = source

    async def __aenter__(self) -> AsyncSource:
        self.source.world.opens()
        return self.source

    async def __aexit__(self, *_: object) -> None:
        self.source.world.closes()


EVENTS = StreamEvents(
    content=lambda chunk: chunk.kind == "content",
    ends=lambda chunk: chunk.kind == "end",
    error=lambda chunk: chunk.error,
)


@dataclass
class Seen:
    """What the consumer got, markers included, and how it ended."""

    world: World
    out: list[Any] = field(default_factory=list)
    error: Exception | None = None
    left: bool = False

    def enough(self, chunk: Any) -> bool:
        """Takes a chunk, and some time. Whether it was the last that is wanted."""
        self.out.append(chunk)
        script = self.world.script
        if isinstance(chunk, Chunk) and chunk.kind == "content":
            self.world.time.advance(script.rests)
        self.left = script.leaves_after is not None and len(self.out) >= script.leaves_after
        return self.left

    @property
    def held(self) -> list[Chunk]:
        """What the consumer holds once it has obeyed the markers."""
        markers = [at for at, one in enumerate(self.out) if isinstance(one, Restarted)]
        return self.out[markers[-1] + 1 if markers else 0 :]

    @property
    def contents(self) -> list[Chunk]:
        return [chunk for chunk in self.held if chunk.kind == "content"]

    @property
    def errors(self) -> list[type[BaseException]]:
        """The type of the error, and those of its causes."""
        found: list[type[BaseException]] = []
        error: BaseException | None = self.error
        while error is not None:
            found.append(type(error))
            error = error.__cause__
        return found


def options_of(script: Script, resume: Callable[[list[Chunk]], Any]) -> dict[str, Any]:
    return {
        "events": EVENTS,
        "hold_at_most": script.hold_at_most,
        "max_attempts": script.max_attempts,
        "deadline": script.deadline,
        "first_timeout": FIRST,
        "gap_timeout": GAP,
        "attempt_timeout": None,
        **({"resume": resume} if script.mode == "resume" else {"after_content": script.mode}),
    }


def blocking(script: Script) -> Seen:
    with FakeTime() as time:
        seen = Seen(World(script, time))
        try:
            with stream(seen.world.open, **options_of(script, seen.world.resume)) as chunks:
                if script.leaves_after != 0:
                    for chunk in chunks:
                        if seen.enough(chunk):
                            break
        except Exception as error:
            seen.error = error
    return seen


def asynchronous(script: Script) -> Seen:
    async def run() -> Seen:
        with FakeTime() as time:
            seen = Seen(World(script, time))
            try:
                async with stream(seen.world.open_async, **options_of(script, seen.world.resume_async)) as chunks:
                    if script.leaves_after != 0:
                        async for chunk in chunks:
                            if seen.enough(chunk):
                                break
            except Exception as error:
                seen.error = error
            return seen

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(run())


Driver = Callable[[Script], Seen]
both_drivers = pytest.mark.parametrize("driver", [blocking, asynchronous])


# ---- the reference -----------------------------------------------------------------------------------------------


@dataclass
class Expected:
    """What the consumer must see of a script without a deadline, and how often a stream is asked for, and how often
    one that goes on."""

    out: list[Any] = field(default_factory=list)
    errors: list[type[BaseException]] = field(default_factory=list)
    asked: int = 0
    resumed: int = 0


def released_at(chunks: list[Chunk], script: Script, whole: bool) -> int | None:
    """How many of an attempt's chunks wait for the one that lets them go, this one included; None: nothing goes."""
    places = [script.hold_at_most + 1] if len(chunks) > script.hold_at_most else []
    if script.mode != "buffer":
        places += [at + 1 for at, chunk in enumerate(chunks) if chunk.kind == "content"][:1]
    return min(places) if places else len(chunks) if whole else None


def expected(script: Script) -> Expected:
    found, shown, contents = Expected(), 0, 0
    for attempt in range(1, script.max_attempts + 1):
        part = script.part(attempt)
        goes_on = script.mode == "resume" and shown > 0
        chunks = part.chunks(attempt, contents if goes_on else 0, script.length)
        whole = part.ending == "clean" or any(
            one.kind == "end" for one in chunks
        )  # what breaks behind the end is whole
        waiting = released_at(chunks, script, whole)
        found.asked = attempt
        found.resumed += goes_on
        if waiting is not None:
            if script.mode == "restart" and shown:
                found.out.append(Restarted(attempt, contents))
                shown = contents = 0
            # What goes on does not begin again: of what was held, that from the first content or the end on.
            telling = (at for at, one in enumerate(chunks) if one.kind in ("content", "end"))
            since = min(next(telling, waiting), waiting) if goes_on else 0
            given = chunks[since:]
            found.out += given
            shown += len(given)
            contents += sum(chunk.kind == "content" for chunk in given)
        if whole:
            return found
        error = ENDINGS[part.ending]
        assert error is not None
        final = shown > 0 and script.mode in ("raise", "buffer")
        if part.ending in PERMANENT or final or attempt == script.max_attempts:
            given_up = part.ending not in PERMANENT and not final
            found.errors = [StreamInterrupted] * (shown > 0) + [RetriesExhausted] * given_up + [error]
            return found
    raise AssertionError("a script has an end")


# ---- the laws ----------------------------------------------------------------------------------------------------


def check(seen: Seen) -> None:
    """What holds for every script, whatever the mode and however it ends."""
    script, world = seen.world.script, seen.world
    # Nothing twice, and nothing left out, but what a marker voids.
    assert [chunk.place for chunk in seen.contents] == list(range(len(seen.contents)))
    attempts = [chunk.attempt for chunk in seen.held]
    assert attempts == sorted(attempts)
    if script.mode != "resume" and attempts:
        (number,) = set(attempts)  # of one answer
        assert seen.held == script.part(number).chunks(number, 0, script.length)[: len(seen.held)]
    assert all(isinstance(one, (Chunk, Restarted)) for one in seen.out)
    if script.mode != "restart":
        assert seen.held == seen.out
    # A marker comes right before the answer that it announces, and tells how much is void.
    void = 0
    for at, one in enumerate(seen.out):
        if not isinstance(one, Restarted):
            void += one.kind == "content"
            continue
        assert one.discarded == void
        assert at > 0
        assert all(chunk.attempt == one.attempt for chunk in seen.out[at + 1 : at + 2])
        void = 0
    # A clean end is that of the whole answer; anything else is told.
    if seen.error is None and not seen.left and script.leaves_after != 0:
        assert len(seen.contents) == script.length
        assert not seen.held or seen.held[-1].kind == "end" or script.mode == "resume"
    if isinstance(seen.error, StreamInterrupted):
        assert seen.error.contents == len(seen.contents)
        assert list(seen.error.delivered) == seen.contents
        assert seen.out
    elif seen.error is not None:
        assert seen.out == []  # nothing had been handed over
    # What goes on, goes on from exactly what was handed over.
    for delivered in world.handed:
        assert delivered == seen.contents[: len(delivered)] or seen.left
    assert (script.mode == "resume") or not world.handed
    # Nothing is opened more often than allowed, two at a time, or left open.
    assert world.broken == []
    assert world.asked <= script.max_attempts
    assert world.most_open <= 1
    assert world.opened == world.closed <= world.asked


@both_drivers
@law
@given(scripts)
def test_the_consumer_holds_a_prefix_of_one_answer_and_a_clean_end_is_the_whole_of_it(
    driver: Driver, script: Script
) -> None:
    check(driver(script))


@both_drivers
@law
@given(scripts)
def test_what_comes_and_how_it_ends_is_what_the_script_makes_of_it(driver: Driver, script: Script) -> None:
    wanted = expected(script)
    event(f"{script.mode}, {' < '.join(one.__name__ for one in wanted.errors) or 'clean'}")
    seen = driver(script)
    assert seen.out == wanted.out
    assert seen.errors[: len(wanted.errors)] == wanted.errors
    assert bool(seen.errors) == bool(wanted.errors)
    assert (seen.world.asked, len(seen.world.handed)) == (wanted.asked, wanted.resumed)


@both_drivers
@law
@given(with_deadlines)
def test_the_same_holds_where_a_deadline_cuts_in(driver: Driver, script: Script) -> None:
    assert script.deadline is not None
    seen = driver(script)
    check(seen)
    event("cut" if DeadlineExceeded in seen.errors else "in time")
    # Nobody waits beyond it; the consumer's own rests are its own.
    assert seen.world.time.now <= script.deadline + script.rests * (len(seen.out) + 1) + 1e-6


@both_drivers
@law
@given(left_early)
def test_what_a_consumer_that_leaves_early_has_opened_is_closed(driver: Driver, script: Script) -> None:
    seen = driver(script)
    check(seen)
    assert seen.out == expected(script).out[: script.leaves_after]
    if script.leaves_after == 0:
        assert (seen.world.asked, seen.error) == (0, None)


@law
@given(st.one_of(scripts, with_deadlines, left_early))
def test_blocking_and_async_code_see_the_same(script: Script) -> None:
    one, other = blocking(script), asynchronous(script)
    assert one.out == other.out
    assert one.errors[:2] == other.errors[:2]
    assert str(one.error) == str(other.error)
    assert (one.world.asked, one.world.opened) == (other.world.asked, other.world.opened)
    assert one.world.handed == other.world.handed
    assert one.world.time.sleeps == pytest.approx(other.world.time.sleeps)
    assert one.world.time.now == pytest.approx(other.world.time.now, abs=1e-6)
