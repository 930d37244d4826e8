"""Failures below HTTP: timeouts, refused and broken connections, of Python itself and of HTTP clients.

Decided here: the kind of a class, by its name *and* the package it comes from, the most specific class first. A bare
name decides nothing: other libraries use the same names for other things. And what proves that nothing was sent, or
that nothing was done with it: where the error was raised, and what it carries. Must never import a client.
"""

from __future__ import annotations

import errno
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from forbear.classify.attributes import PYTHONS, attribute, tried
from forbear.classify.groups import made_from
from forbear.classify.providers import transports
from forbear.classify.status import kind_of_status
from forbear.core.failure import PERMITS, Executed, Kind

# The functions of Python that make a connection: an error that was raised in one of them came before the request.
_CONNECTING = frozenset({("ssl", "do_handshake"), ("socket", "create_connection")})
_REFUSED_STREAM = 7  # RFC 9113, section 7: sent before any processing; section 8.7: the request may be repeated


class Transport(NamedTuple):
    """What a class of network failure means. `generic`: it says too little alone; the error it came from knows more.

    `carries`: see `transports.Row`.
    """

    kind: Kind
    executed: Executed
    generic: bool
    name: str
    carries: Literal["", "status", "event"] = ""

    @property
    def passes(self) -> bool:
        """Whether the next attempt may pass."""
        return PERMITS[self.kind].transient


def _read() -> dict[tuple[str, str], Transport]:
    found: dict[tuple[str, str], Transport] = {}
    for row in transports.ROWS:
        for package in row.packages:
            for name in row.classes:
                executed = PERMITS[row.kind].executed if row.executed is None else row.executed
                found[package, name] = Transport(row.kind, executed, row.generic, f"{package}.{name}", row.carries)
    return found


_KNOWN = _read()


def transport_of(error: BaseException) -> Transport | None:
    """What the error says about the network by its class, where it was raised and what it carries; None for nothing."""
    kind: Any = type(error)
    found = _look_up(kind)
    if found is None:
        return None
    if found.carries == "status":
        return _by_proxy(error, found)
    if found.executed == "maybe" and (_was_connecting(error) or (found.carries == "event" and _was_refused(error))):
        return found._replace(executed="no")
    return found


def nothing_was_sent(transport: Transport, error: BaseException) -> bool:
    """Whether the class, or what its library made the error from, proves it: an unmade connection sends nothing.

    Python's own errors are not made from others; what one of them came after may be another request's matter.
    """
    if transport.executed == "no" or transport.name.partition(".")[0] in PYTHONS:
        return transport.executed == "no"
    return any(
        found is not None and found.executed == "no" for found in map(transport_of, made_from(error, contexts=True))
    )


@lru_cache(maxsize=1_024)  # bounded: botocore makes classes at run time
def _look_up(kind: Any) -> Transport | None:
    for one in kind.__mro__:
        found = _KNOWN.get((str(one.__module__).partition(".")[0], one.__name__))
        if found is not None:
            return found
    return None


def _was_connecting(error: BaseException) -> bool:
    """Whether the error was raised while a connection was being made, the handshake of TLS included."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    return (frame.f_globals.get("__name__"), frame.f_code.co_name) in _CONNECTING


def _was_refused(error: BaseException) -> bool:
    """Whether the error carries an event of h2 which says that the server did nothing with the request.

    That is a stream refused by the peer, or a farewell (GOAWAY) that names 0 as the last stream it has looked at.
    """
    event = error.args[0] if error.args else None
    code, last = attribute(event, "error_code"), attribute(event, "last_stream_id")
    if last is not None:
        return type(last) is int and last == 0
    return isinstance(code, int) and code == _REFUSED_STREAM and attribute(event, "remote_reset") is True


def _by_proxy(error: BaseException, found: Transport) -> Transport:
    """Httpcore makes the text from the proxy's answer, as in "503 Service Unavailable"; nothing was passed on."""
    word = (tried(str, error) or "").partition(" ")[0]
    if len(word) != 3 or not (word.isascii() and word.isdigit()) or not 400 <= int(word) <= 599:
        return found
    kind = kind_of_status(int(word))
    return found._replace(kind=Kind.CONNECTION_REFUSED if PERMITS[kind].transient else kind, executed="no")


# No route, or no network: nothing was sent. By name, as the numbers differ between systems; Windows has its own.
UNREACHABLE = frozenset(
    number
    for name in ("EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "EHOSTDOWN", "EADDRNOTAVAIL", "WSAEHOSTUNREACH",
                 "WSAENETUNREACH")
    if (number := getattr(errno, name, None)) is not None
)  # fmt: skip


def errno_of(error: BaseException) -> int | None:
    """The number of an operating system's error, of `OSError` itself and no class of a library's."""
    return error.errno if type(error) is OSError else None
