"""The body of a request, sent again: rewound, made anew, or not at all.

Decided here: which bodies can be sent twice. Must never know a client library. Prevents uploads that continue where
the attempt before has stopped: an empty or cut file, at times with a 200.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from forbear.errors import UsageError

ADVICE = "give bytes, a file that can seek, or Body(function), whose function makes it anew"


class Body:
    """A request's body that is made anew for each attempt, by a function without arguments.

        client.post(url, content=Body(lambda: open("big.bin", "rb")))
        client.post(url, content=Body(lambda: read_rows()))  # a generator

    What the function gives is iterated, in chunks where it can `read`, and closed at its end. For async clients:
    `AsyncBody`.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = _maker("Body", make)

    def __iter__(self) -> Iterator[bytes]:
        made = self._make()
        if not hasattr(type(made), "__iter__") or isinstance(made, str):
            raise UsageError(_wrong("Body", made, "AsyncBody is for async code"))
        try:
            yield from chunks_of(made)
        finally:
            close = getattr(made, "close", None)
            if close is not None:
                close()

    def __repr__(self) -> str:
        return "<a body that is made anew for each attempt>"


class AsyncBody:
    """As `Body`, for async clients: the function gives an async generator, or anything else to iterate with
    `async for`.
    """

    def __init__(self, make: Callable[[], AsyncIterable[bytes]]) -> None:
        self._make = _maker("AsyncBody", make)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        made = self._make()
        if isinstance(made, (bytes, bytearray)):
            yield bytes(made)
            return
        if not hasattr(type(made), "__aiter__"):
            raise UsageError(_wrong("AsyncBody", made, "give bytes or an async iterable of them"))
        try:
            async for chunk in made:
                yield chunk
        finally:
            close = getattr(made, "aclose", None)
            if close is not None:
                await close()

    def __repr__(self) -> str:
        return "<a body that is made anew for each attempt>"


def _wrong(name: str, made: object, instead: str) -> str:
    if isinstance(made, str):
        instead = "text is sent as bytes: encode it"
    return f"the function of {name} gave {type(made).__name__}, and a body is made of bytes; {instead}"


def _maker(name: str, make: Callable[[], Any]) -> Callable[[], Any]:
    if not callable(make):
        raise TypeError(f"{name} needs a function that makes the body, not {type(make).__name__}: {name}(lambda: ...)")
    return make


CHUNK = 65_536  # bytes


def chunks_of(made: Any) -> Iterable[bytes]:
    """The chunks of a body: of bytes themselves, of a file's reads, or of what is iterated."""
    if isinstance(made, (bytes, bytearray, memoryview)):
        return (bytes(made),)
    if hasattr(made, "read"):
        return iter(lambda: made.read(CHUNK), b"")
    return made  # type: ignore[no-any-return]


class Replay:
    """How one request's body is sent in each attempt. `files`: each with where it stood when the call began.

    `once`: it is gone when it was read.
    """

    __slots__ = ("_begun", "files", "once")

    def __init__(self, *, once: bool = False, files: Iterable[tuple[Any, int]] = ()) -> None:
        self.once = once
        self.files = tuple(files)
        self._begun = False

    def rewind(self) -> None:
        """An attempt begins: files are set back to where they stood, but not before the first, which finds them so."""
        if self._begun:
            for file, position in self.files:
                file.seek(position)
        self._begun = True


def replay_of(content: Any) -> Replay:
    """How to send again what the caller gave as a body."""
    if content is None or isinstance(content, (bytes, bytearray, str, Body, AsyncBody)):
        return Replay()
    if hasattr(content, "read") or hasattr(content, "aread"):
        position = position_of(content)
        return Replay(once=True) if position is None else Replay(files=((content, position),))
    return Replay(once=is_one_shot(content))


def position_of(file: Any) -> int | None:
    """Where a file stands that can be set back there; None for one that can't."""
    if hasattr(file, "aread"):
        return None
    try:
        position = file.tell()
        file.seek(position)
    except Exception:  # whatever a foreign file raises, it can't be set back
        return None
    return position if type(position) is int else None


def is_one_shot(content: Any) -> bool:
    """Whether what is iterated is gone once it was: a generator, an iterator, or a thing of which nobody knows."""
    kind: Any = type(content)
    if hasattr(kind, "__next__") or hasattr(kind, "__anext__"):
        return True
    return not isinstance(content, (Iterable, AsyncIterable))
