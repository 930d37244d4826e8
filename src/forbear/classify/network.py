"""Failures below HTTP: timeouts, refused and broken connections, of Python itself and of HTTP clients.

Decided here: the kind of a class, by its name *and* the package it comes from, the most specific class first. A bare
name decides nothing: other libraries use the same names for other things. Must never import a client.
"""

from __future__ import annotations

import errno
from functools import lru_cache
from typing import Any, NamedTuple

from forbear.classify.providers import transports
from forbear.core.failure import PERMITS, Executed, Kind


class Transport(NamedTuple):
    """What a class of network failure means. `generic`: it says too little alone; the error it came from knows more."""

    kind: Kind
    executed: Executed
    generic: bool
    name: str

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
                found[package, name] = Transport(row.kind, executed, row.generic, f"{package}.{name}")
    return found


_KNOWN = _read()


def transport_of(error: BaseException) -> Transport | None:
    """What the error's class says about the network; None where it says nothing."""
    kind: Any = type(error)
    return _look_up(kind)


@lru_cache(maxsize=1_024)  # bounded: botocore makes classes at run time
def _look_up(kind: Any) -> Transport | None:
    for one in kind.__mro__:
        found = _KNOWN.get((one.__module__.partition(".")[0], one.__name__))
        if found is not None:
            return found
    return None


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
