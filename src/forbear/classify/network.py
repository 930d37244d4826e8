"""Failures below HTTP: timeouts, refused and broken connections, of Python itself and of HTTP clients.

Decided here: the kind of a class, by its name *and* module, and whether anything was sent. A bare name decides
nothing: other libraries use the same names for other things. Must never import a client.
"""

from __future__ import annotations

from typing import NamedTuple

from forbear.core.failure import Executed, Kind


class Transport(NamedTuple):
    """What a class of network failure means. `kind` None: looks like the network's fault, but is permanent."""

    kind: Kind | None
    executed: Executed


_NOT_SENT = Transport(Kind.CONNECTION_REFUSED, "no")
_LOST = Transport(Kind.CONNECTION_LOST, "maybe")
_LATE = Transport(Kind.TIMEOUT, "maybe")
_LATE_UNSENT = Transport(Kind.TIMEOUT, "no")
_PERMANENT = Transport(None, "no")

# Source: the exception modules of httpx 0.28 and httpx2 2.16 (same names, no common parents), read from the most
# specific class upwards.
_HTTPX = {
    "UnsupportedProtocol": _PERMANENT,
    "LocalProtocolError": _PERMANENT,
    "ProxyError": _PERMANENT,
    "ConnectError": _NOT_SENT,
    "ConnectTimeout": _LATE_UNSENT,
    "PoolTimeout": _LATE_UNSENT,
    "TimeoutException": _LATE,
    "NetworkError": _LOST,
    "RemoteProtocolError": _LOST,
}
_BUILTIN = {
    "ConnectionRefusedError": _NOT_SENT,
    "ConnectionError": _LOST,
    "TimeoutError": _LATE,
}
_CLASSES: dict[str, dict[str, Transport]] = {
    "builtins": _BUILTIN,
    "socket": {"gaierror": _NOT_SENT},
    "httpx": _HTTPX,
    "httpx2": _HTTPX,
}


def transport_of(error: BaseException) -> Transport | None:
    """What the error's class says about the network, the most specific class first; None where it says nothing."""
    for kind in type(error).__mro__:
        known = _CLASSES.get(kind.__module__.partition(".")[0])
        if known is not None and kind.__name__ in known:
            return known[kind.__name__]
    return None
