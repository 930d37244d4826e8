"""Socket reads of a blocking client that end in time, however slowly the bytes come.

A read timeout counts anew with each byte, so a server that sends one now and then holds a blocking client for ever.
Decided here: how httpcore, which reads for httpx, is told the time that is left at each read. It reports new
connections to a `trace` function among the extensions of a request, and that hands over what it reads from.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_MADE = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")
_SHORTEST = 0.001  # seconds; at 0 a socket would not wait at all, which is another mistake

_left: ContextVar[Callable[[], float] | None] = ContextVar("forbear_http_left", default=None)


@contextmanager
def clipped(left: Callable[[], float]) -> Iterator[None]:
    """Reads in this block wait no longer than `left()` seconds."""
    token = _left.set(left)
    try:
        yield
    finally:
        _left.reset(token)


def in_time(timeout: float | None) -> float | None:
    """Seconds that a read may take here which would take `timeout` elsewhere."""
    left = _left.get()
    if left is None:
        return timeout
    most = max(left(), _SHORTEST)
    return most if timeout is None else min(timeout, most)


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
    """From now on what is read from `stream` is read in time. What can't be clipped stays as it is."""
    kind: Any = type(stream)
    if not hasattr(kind, "read"):
        return
    known = weakref.ref(stream)  # a stream that held itself would stay open until the collector comes

    def read(max_bytes: int, timeout: float | None = None) -> Any:
        return kind.read(known(), max_bytes, in_time(timeout))

    try:
        stream.read = read
    except AttributeError:
        return
