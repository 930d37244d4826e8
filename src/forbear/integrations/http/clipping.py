"""Phases of a blocking request that end in time, however slowly the bytes come and go.

A read timeout counts anew with each byte, so a server that sends one now and then holds a blocking client for ever; and
a wait for the pool, a connection, a handshake and a body have a timeout each. Decided here: how httpcore, which does
all this for httpx, is told the time that is left, at each of them. It asks a mapping for its timeouts, and reports new
connections to a `trace` function among the extensions of a request, which hands over what it reads from.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_MADE = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")
_SHORTEST = 0.001  # seconds; at 0 a socket would not wait at all, which is another mistake
_PIECE = 65_536  # bytes that are written without a look at the time

_left: ContextVar[Callable[[], float] | None] = ContextVar("forbear_http_left", default=None)


class Timeouts(dict[str, float | None]):
    """The timeouts of one attempt, as `extensions["timeout"]`: what is asked for later in the attempt is shorter."""

    def __init__(self, given: dict[str, float | None], left: Callable[[], float]) -> None:
        super().__init__(given)
        self._left = left

    def get(self, name: str, default: Any = None) -> Any:
        """The seconds that this phase may take; None where there is no limit."""
        given = super().get(name, default)
        return given if given is None else min(given, max(self._left(), _SHORTEST))


@contextmanager
def clipped(left: Callable[[], float]) -> Generator[None]:
    """What is read and written in this block waits no longer than `left()` seconds."""
    token = _left.set(left)
    try:
        yield
    finally:
        _left.reset(token)


def tracing(extensions: dict[str, Any]) -> dict[str, Any]:
    """The extensions of a request, so that each connection made for it can be clipped, now and when it is used again.
    A trace function of the caller's own is called as before.
    """
    own: Callable[[str, dict[str, Any]], Any] | None = extensions.get("trace")

    def trace(name: str, info: dict[str, Any]) -> None:
        if name.endswith(_MADE):
            clip(info.get("return_value"))
        if own is not None:
            own(name, info)

    return {**extensions, "trace": trace}


def clip(stream: Any) -> None:
    """From now on what `stream` reads and writes is done in time. What can't be clipped stays as it is."""
    kind: Any = type(stream)
    if not all(hasattr(kind, name) for name in ("read", "write", "start_tls")):
        return
    known = weakref.ref(stream)  # a stream that held itself would stay open until the collector comes

    def read(max_bytes: int, timeout: float | None = None) -> Any:
        return kind.read(known(), max_bytes, in_time(timeout))

    def write(buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            if start or _is_late():
                _refuse_if_late(kind)
            kind.write(known(), buffer[start : start + _PIECE], in_time(timeout))

    def start_tls(ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> Any:
        return kind.start_tls(known(), ssl_context, server_hostname, in_time(timeout))

    try:
        stream.read, stream.write, stream.start_tls = read, write, start_tls
    except AttributeError:
        return


def clip_pool(pool: Any) -> None:
    """As `clip`, for the connections that a pool of httpcore has already."""
    for connection in getattr(pool, "connections", ()):
        clip(getattr(getattr(connection, "_connection", None), "_network_stream", None))


def _time() -> float:
    left = _left.get()
    return math.inf if left is None else left()


def in_time(timeout: float | None) -> float | None:
    """The timeout, or what is left if that is less."""
    most = max(_time(), _SHORTEST)
    if timeout is None:
        return None if most == math.inf else most
    return min(timeout, most)


def _is_late() -> bool:
    return _time() <= 0


def _refuse_if_late(kind: Any) -> None:
    """A write succeeds at once as long as the peer takes some, so the time is looked at between two of them."""
    if _is_late():
        library = sys.modules[kind.__module__.partition(".")[0]]
        late: type[Exception] = getattr(library, "WriteTimeout", TimeoutError)
        raise late("the attempt's time was over before its request was sent")
