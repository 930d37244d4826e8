"""Clients of httpx and httpx2 that exist already: their transports are put into ours.

Decided here: what a copy of a client shares with the one that it was made from, and what a transport may be put around.
Must never import either library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def own(client: Any, kind: type[Any], wrap: Callable[[Any], Any], *, in_place: bool) -> Any:
    """The client, or a copy of it that shares its connections, with each of its transports in one of this `kind`."""
    owned = client if in_place else _copied(client)

    def wrapped(transport: Any) -> Any:
        return None if transport is None else wrap(transport.inner if isinstance(transport, kind) else transport)

    # Where the clients of both libraries keep them; there is no other way to what an existing client was made with.
    owned._transport = wrapped(client._transport)  # noqa: SLF001
    owned._mounts = {pattern: wrapped(transport) for pattern, transport in client._mounts.items()}  # noqa: SLF001
    return owned


def _copied(client: Any) -> Any:
    """A client with the same settings, which keeps the other one alive: some close their connections with their end."""
    kind: Any = type(client)
    if any("__del__" in vars(one) for one in kind.__mro__):  # else the end of the copy would close them for both
        kind = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__del__": lambda _: None})
    copy = object.__new__(kind)
    copy.__dict__.update(client.__dict__)
    copy.forbear_made_from = client
    return copy


def checked(inner: Any, kind: str, other: str) -> Any:
    """The inner transport of a `kind`, with its own retries off. Raises TypeError, with the correction, for others."""
    method = "handle_async_request" if kind.startswith("Async") else "handle_request"
    if isinstance(inner, type) or not hasattr(inner, method):
        instead = (
            f"use {other}"
            if hasattr(inner, "handle_request") or hasattr(inner, "handle_async_request")
            else (
                f"it goes around a transport, as in {kind}(httpx.HTTPTransport()); around a client: sole_owner(client)"
            )
        )
        named = inner.__name__ if isinstance(inner, type) else type(inner).__name__
        raise TypeError(f"{kind} can't send with {named}: {instead}")
    pool: Any = getattr(inner, "_pool", None)
    if getattr(pool, "_retries", 0):
        pool._retries = 0  # noqa: SLF001  # HTTPTransport(retries=...) has no other way to take it back
    return inner
