"""Clients of httpx and httpx2 that exist already: their transports are put into ours.

Decided here: what a copy of a client shares with the one that it was made from. Must never import either library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def own(client: Any, library: Any, kind: type[Any], wrap: Callable[[Any], Any], *, in_place: bool) -> Any:
    """The client, or a copy of it that shares its connections, with each of its transports in one of this `kind`."""
    owned = client if in_place else _copied(client, library)

    def wrapped(transport: Any) -> Any:
        return None if transport is None else wrap(transport.inner if isinstance(transport, kind) else transport)

    # Where the clients of both libraries keep them; there is no other way to what an existing client was made with.
    owned._transport = wrapped(client._transport)  # noqa: SLF001
    owned._mounts = {pattern: wrapped(transport) for pattern, transport in client._mounts.items()}  # noqa: SLF001
    return owned


def _copied(client: Any, library: Any) -> Any:
    """A client with the same settings, which keeps the other one alive: some close their connections with their end."""
    kind: Any = type(client)
    if any("__del__" in vars(one) for one in kind.__mro__):  # else the end of the copy would close them for both
        kind = library.Client if isinstance(client, library.Client) else library.AsyncClient
    copy = object.__new__(kind)
    copy.__dict__.update(client.__dict__)
    copy.forbear_made_from = client
    return copy
