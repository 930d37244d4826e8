"""Clients of httpx and httpx2 that exist already: their transports are put into ours.

Decided here: what a copy of a client shares with the one that it was made from, and what a transport may be put around.
Must never import either library.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from forbear.errors import UsageError
from forbear.integrations.http.clipping import clip_pool

logger = logging.getLogger("forbear")


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
        kind = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__del__": _nothing})
    copy = object.__new__(kind)
    copy.__dict__.update(client.__dict__)
    copy.forbear_made_from = client
    return copy


def checked(inner: Any, kind: str, other: str) -> Any:
    """The inner transport of a `kind`, with its own retries off. Raises TypeError, with the correction, for others."""
    method = "handle_async_request" if kind.startswith("Async") else "handle_request"
    if isinstance(inner, type) or not hasattr(inner, method):
        raise TypeError(f"{kind} {_why_not(inner, kind, other)}")
    pool: Any = getattr(inner, "_pool", None)
    if kind == "Transport":
        clip_pool(pool)
    if getattr(pool, "_retries", 0):
        logger.info("%s(retries=%s): its own retries are off, forbear makes them", type(inner).__name__, pool._retries)  # noqa: SLF001
        pool._retries = 0  # noqa: SLF001  # HTTPTransport(retries=...) has no other way to take it back
    return inner


def _why_not(inner: Any, kind: str, other: str) -> str:
    if isinstance(inner, type):
        return f"goes around a transport, and {inner.__name__} is a class: {kind}({inner.__name__}())"
    if hasattr(inner, "handle_request") or hasattr(inner, "handle_async_request"):
        return f"can't send with {type(inner).__name__}: use {other}"
    usual = "AsyncHTTPTransport" if kind.startswith("Async") else "HTTPTransport"
    named = type(inner).__name__
    return f"goes around a transport, as in {kind}({usual}()), not {named}; around a client: sole_owner(client)"


class WrongEnd:
    """What a client of the other kind asks a transport for: it is told which one to take."""

    async def handle_async_request(self, request: Any) -> Any:
        """Raises UsageError."""
        raise UsageError(
            f"an async client needs AsyncTransport, not {type(self).__name__}; {request.method} was not sent"
        )

    async def __aenter__(self) -> Any:
        raise UsageError("an async client needs AsyncTransport")

    async def aclose(self) -> None:
        """Nothing was opened."""


class WrongAsyncEnd:
    """As `WrongEnd`, of an async transport."""

    def handle_request(self, request: Any) -> Any:
        """Raises UsageError."""
        raise UsageError(f"{request.method} was not sent: a blocking client needs Transport")

    def __enter__(self) -> Any:
        raise UsageError("a blocking client needs Transport")

    def close(self) -> None:
        """Nothing was opened."""


def _nothing(_: object) -> None:
    """What the end of a copy does: its connections belong to the client that it was made from, too."""
