"""Retries under an httpx2 client: `Client(transport=Transport())`, `AsyncClient(transport=AsyncTransport())`.

The client's redirects, auth, cookies and pool stay what they are; each request that it sends is one call of forbear.
"""

from __future__ import annotations

from typing import Any, TypeVar

try:
    import httpx2
except ModuleNotFoundError as missing:
    needs = "httpx2 is needed here: pip install 'forbear[httpx2]'"
    raise ModuleNotFoundError(needs, name=missing.name) from missing

from forbear import errors
from forbear.integrations.http import httpx_like as shared
from forbear.integrations.http import sending, transports
from forbear.integrations.http.exchange import AttemptLog
from forbear.integrations.http.replay import AsyncBody, Body
from forbear.integrations.owner import sole_owner as sole_owner

C = TypeVar("C", bound=httpx2.Client | httpx2.AsyncClient)

__all__ = [
    "AsyncBody", "AsyncTransport", "AttemptLog", "Body", "BudgetExhausted", "CircuitOpenError", "DeadlineExceeded",
    "RetriesExhausted", "Transport", "sole_owner",
]  # fmt: skip


class RetriesExhausted(errors.RetriesExhausted, httpx2.TransportError):
    """As `forbear.RetriesExhausted`, and an error of httpx2."""


class DeadlineExceeded(errors.DeadlineExceeded, httpx2.TimeoutException):
    """As `forbear.DeadlineExceeded`, and a timeout of httpx2."""


class BudgetExhausted(errors.BudgetExhausted, httpx2.TransportError):
    """As `forbear.BudgetExhausted`, and an error of httpx2."""


class CircuitOpenError(errors.CircuitOpenError, httpx2.TransportError):
    """As `forbear.CircuitOpenError`, and an error of httpx2."""


class _Body(sending.Rest, httpx2.SyncByteStream):
    """The rest of an answer."""


class _AsyncBody(sending.AsyncRest, httpx2.AsyncByteStream):
    """The rest of an answer."""


class _Sent(shared.Sent, httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A request's body."""


PARTNER = shared.Partner(
    library=httpx2,
    body=_Body,
    async_body=_AsyncBody,
    sent=_Sent,
    errors={kind.__name__: kind for kind in (RetriesExhausted, DeadlineExceeded, BudgetExhausted, CircuitOpenError)},
)


class Transport(transports.BlockingTransport, httpx2.BaseTransport):
    """A transport that sends each request as one call: with retries, under one deadline. Its options: see `__init__`.

    `response.extensions["forbear"]` is an `AttemptLog`.
    """

    partner = PARTNER


class AsyncTransport(transports.NonblockingTransport, httpx2.AsyncBaseTransport):
    """As `Transport`, for async clients, under asyncio and trio."""

    partner = PARTNER


def own(client: C, options: dict[str, Any], *, in_place: bool = False, watched: str | None = None) -> C:
    """For `sole_owner`: see `transports.own`."""
    kind: type[Transport | AsyncTransport] = Transport if isinstance(client, httpx2.Client) else AsyncTransport
    return transports.own(client, kind, options, in_place=in_place, watched=watched)  # type: ignore[no-any-return]
