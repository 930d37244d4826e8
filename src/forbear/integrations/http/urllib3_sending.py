"""Sends a request of requests as the stream that a call of forbear is: its head first, then its body.

A read timeout counts anew with each byte, so a server that sends one now and then holds a blocking client for ever.
Decided here: how the connections of urllib3 are told the time that is left at each read and write, and what a response
reads from once its body goes through a call of forbear. Must never import requests. Every answer is closed, whatever
becomes of it: a connection that nobody reads from is lost for the pool.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from http.client import HTTPConnection, HTTPResponse
from socket import SHUT_RDWR, socket
from typing import Any, NamedTuple

import urllib3

from forbear.errors import StreamInterrupted
from forbear.integrations.http.clipping import clipped, in_time
from forbear.integrations.http.exchange import least
from forbear.integrations.http.replay import CHUNK, chunks_of

NO_RETRIES = urllib3.Retry(0, read=False)  # what requests has by default: none of any kind
_SHORTEST = 0.001  # seconds; urllib3 refuses a timeout of 0

if not hasattr(urllib3.HTTPResponse, "read1"):
    raise ImportError("forbear.integrations.requests needs urllib3 2.2 or newer: pip install 'urllib3>=2.2'")


# ---- from a request to its response ----------------------------------------------------------------------------------


def send(exchange: Any) -> Generator[Any]:
    """One attempt: something that stands for the head, which is then in `response`; then what is left of the body."""
    raw: Any = None
    held: list[bytes] = []
    held_until_now = True
    try:
        with clipped(exchange.left):
            raw = exchange.open()
            pieces = iter(()) if exchange.untouched else pieces_of(raw)
            if exchange.holds():
                while (piece := next(pieces, None)) is not None and exchange.take(held, piece):
                    pass
                exchange.judge(raw, held)
        held_until_now = False
        yield b""
        if exchange.whole:
            return
        yield from held
        while True:
            with clipped(exchange.left):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece
    except urllib3.exceptions.HTTPError as error:
        usual = exchange.usual(error) if held_until_now else error  # later requests reads, and makes its own of it
        if usual is error:
            raise
        raise usual from error
    finally:
        if raw is not None and not exchange.untouched:
            close(raw)


class Head(NamedTuple):
    """What the guards read of a response. The response itself is its caller's: where that drops it, all has to end."""

    status_code: int
    headers: Any


class Once:
    """A request's body that can be read only once; `begun` is called when somebody begins to."""

    def __init__(self, begun: Callable[[], None], body: Any) -> None:
        self._begun = begun
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        self._begun()  # with the first chunk: urllib3 asks for the iterator before it has a connection
        yield from chunks_of(self._body)


# ---- times and errors ------------------------------------------------------------------------------------------------


def within(given: Any, left: float | None) -> Any:
    """A timeout in any of the forms that requests takes, no longer than the seconds that are left."""
    if left is None:
        return given
    left = max(left, _SHORTEST)
    if given is None or _is_number(given):
        return least(given, left)
    if isinstance(given, tuple):
        return tuple(within(one, left) for one in given)
    if isinstance(given, urllib3.Timeout):
        given = given.clone()
        given.total = least(given.total if _is_number(given.total) else None, left)
    return given  # of any other, requests says what is wrong with it


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# What requests calls the errors of urllib3 that it meets in a body.
NAMES = (
    (urllib3.exceptions.ReadTimeoutError, "ConnectionError"),
    (urllib3.exceptions.ProtocolError, "ChunkedEncodingError"),
    (urllib3.exceptions.SSLError, "SSLError"),
)


# ---- connections -----------------------------------------------------------------------------------------------------


class _TimedReads(io.RawIOBase):
    """What the answers of a connection are read from. Each read waits no longer than it may."""

    def __init__(self, raw: io.RawIOBase, sock: Any) -> None:
        self._raw = raw
        self._sock = sock
        self._usual: float | None = sock.gettimeout()
        self._set = self._usual
        self._interrupted = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        timeout = in_time(self._usual)
        if timeout != self._set:
            self._sock.settimeout(timeout)
            self._set = timeout
        read = self._raw.readinto(buffer)
        return 0 if self._interrupted else read

    def fileno(self) -> int:
        return self._raw.fileno()

    def interrupt(self) -> None:
        """Ends the read that another thread is in: it meets the end of what comes."""
        self._interrupted = True
        sock: Any = self._sock  # that of TLS would forget first that it is one, and read what nobody can
        (socket if isinstance(sock, socket) else type(sock)).shutdown(sock, SHUT_RDWR)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedAnswer(HTTPResponse):
    """An answer as http.client reads it, its head as well as its body."""

    def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        fp: Any = self.fp
        if isinstance(fp, io.BufferedReader) and hasattr(sock, "gettimeout"):
            self.fp = io.BufferedReader(_TimedReads(fp.detach(), sock))


class _Timed:
    """A connection that writes and reads in time."""

    response_class = _TimedAnswer

    def send(self, data: Any) -> None:
        """Each part of a request in time, however slowly it is taken."""
        me: Any = self
        if me.sock is not None:
            me.sock.settimeout(in_time(me.timeout))
        super().send(data)  # type: ignore[misc]


@lru_cache
def _timed(kind: Any) -> Any:
    """The same kind of connection, but in time. Itself where it is none of http.client, or has its own way to read."""
    if not isinstance(kind, type) or not issubclass(kind, HTTPConnection) or kind.response_class is not HTTPResponse:
        return kind
    return type(kind.__name__, (_Timed, kind), {"__module__": kind.__module__})


def clip_pool(pool: Any) -> None:
    """From now on the connections of this pool read in time. What can't be clipped stays as it is."""
    own = vars(pool).get("ConnectionCls")
    if own is not None and not issubclass(own, _Timed):
        return
    kind = _timed(type(pool).ConnectionCls)  # the pool's class may have another kind by now, as under a recorder
    if kind is not own:
        pool.ConnectionCls = kind
        for connection in list(pool.pool.queue):  # made before, and not in use
            if type(connection) is type(pool).ConnectionCls and issubclass(kind, _Timed):
                connection.response_class = _TimedAnswer


# ---- bodies ----------------------------------------------------------------------------------------------------------


def pieces_of(raw: Any) -> Iterator[bytes]:
    """The bytes of an answer as they come, not decoded: of one that is sent in chunks, the chunks."""
    if not hasattr(raw, "stream"):  # of an adapter without urllib3
        yield from iter(lambda: raw.read(CHUNK), b"")
    elif getattr(raw, "chunked", False) or not hasattr(getattr(raw, "_fp", None), "read1"):
        yield from raw.stream(CHUNK, decode_content=False)
    else:
        while piece := raw.read1(CHUNK, decode_content=False):
            yield piece


def close(raw: Any) -> None:
    """Ends the reading of an answer, as requests does: its connection goes back to the pool."""
    for name in ("close", "release_conn"):
        end = getattr(raw, name, None)
        if end is not None:
            end()


def interrupt(raw: Any) -> None:
    """Ends an answer that another thread is reading. To close it would wait for the end of that read."""
    timed = getattr(getattr(getattr(raw, "_fp", None), "fp", None), "raw", None)
    if isinstance(timed, _TimedReads):
        with suppress(OSError):  # it is closed by now
            timed.interrupt()
    else:
        close(raw)


class Rest:
    """The rest of an answer, as its caller reads it. The lease is held until it is closed, or read to its end.

    `broken` says what is raised where the stream broke; `original` is where it comes from.
    """

    def __init__(self, chunks: Any, broken: Callable[[StreamInterrupted], BaseException], original: Any) -> None:
        self._chunks = chunks
        self._broken = broken
        self._original = original
        self._pending = bytearray()
        self.closed = False

    def read(self, amount: int | None = None) -> bytes:
        """So many bytes, fewer only at the end; all that come for None."""
        while amount is None or len(self._pending) < amount:
            if not self._more():
                break
        return self._taken(amount)

    def read1(self, amount: int | None = None) -> bytes:
        """What is there, waiting only where nothing is."""
        if not self._pending:
            self._more()
        return self._taken(amount)

    def close(self) -> None:
        """Gives everything back; where another thread is reading, when its read ends, which this brings about."""
        self.closed = True
        try:
            self._chunks.close()
        except ValueError as error:
            if "already executing" not in str(error):
                raise
            if self._chunks.gi_running:
                interrupt(self._original)
            else:  # not any more
                self._chunks.close()

    def _taken(self, amount: int | None) -> bytes:
        taken = bytes(self._pending[:amount])
        del self._pending[: len(taken)]
        return taken

    def _more(self) -> bool:
        """Waits for more. Where the length is known and all has come, the end is met at once."""
        piece = self._next()
        while piece:
            self._pending += piece
            if getattr(self._original, "length_remaining", None) != 0:
                return True
            try:
                piece = next(self._chunks, b"")
            except StreamInterrupted:  # there is nothing more to come too late
                break
        return False

    def _next(self) -> bytes:
        broken: BaseException
        try:
            return next(self._chunks, b"")
        except StreamInterrupted as error:
            broken = self._broken(error)
        except Exception as error:
            broken = error
        try:
            raise broken if isinstance(broken, urllib3.exceptions.HTTPError) else _Carried(broken)
        finally:
            del broken


class _Carried(urllib3.exceptions.HTTPError):
    """Takes an error through urllib3, which would make another one of it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


@contextmanager
def _uncarried() -> Generator[None]:
    error: BaseException
    try:
        yield
        return
    except _Carried as carried:
        error = carried.error
    try:
        raise error
    finally:
        del error


class Raw(urllib3.HTTPResponse):
    """A response of urllib3 whose body is read from something else than a connection."""

    def read(self, *args: Any, **options: Any) -> bytes:
        """As ever."""
        with _uncarried():
            return super().read(*args, **options)

    def read1(self, *args: Any, **options: Any) -> bytes:
        """As ever."""
        with _uncarried():
            return super().read1(*args, **options)

    def stream(self, amt: int | None = CHUNK, decode_content: bool | None = None) -> Generator[bytes]:
        """As ever: what is sent in chunks is given as it comes."""
        if not self.chunked:
            yield from super().stream(amt, decode_content)
            return
        while piece := self.read1(amt, decode_content):
            yield piece

    def read_chunked(self, amt: int | None = None, decode_content: bool | None = None) -> Generator[bytes]:
        """As ever."""
        return self.stream(amt, decode_content)


def raw_like(original: Any, body: Any, method: str, *, copy: bool = False) -> Raw:
    """What a response reads from `body`, with all else of the `original`: its head, version, and cookies.

    A `copy` may have only the beginning of the body, and has nothing that would end the original with it.
    """
    made = Raw(
        body=body,
        headers=getattr(original, "headers", None),
        status=getattr(original, "status", None) or 0,
        version=getattr(original, "version", None) or 0,
        reason=getattr(original, "reason", None),
        preload_content=False,
        decode_content=False,
        original_response=None if copy else getattr(original, "_original_response", None),
        msg=getattr(original, "msg", None),
        retries=getattr(original, "retries", None),
        enforce_content_length=not copy and getattr(original, "enforce_content_length", False),
        request_method=method,
        request_url=getattr(original, "url", None),
    )
    made.version_string = getattr(original, "version_string", "HTTP/?")  # no argument in the first ones of 2.2
    return made
