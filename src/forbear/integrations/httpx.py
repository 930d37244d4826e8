"""Retries under an httpx client: `Client(transport=Transport())`, `AsyncClient(transport=AsyncTransport())`.

The client's redirects, auth, cookies and pool stay what they are; each request that it sends is one call of forbear.
"""

from __future__ import annotations

from typing import Any, TypeVar

try:
    import httpx
except ModuleNotFoundError as missing:
    needs = "httpx is needed here: pip install 'forbear[httpx]'"
    raise ModuleNotFoundError(needs, name=missing.name) from missing

from forbear import errors
from forbear.integrations.http import httpx_like as shared
from forbear.integrations.http import sending, transports
from forbear.integrations.http.exchange import AttemptLog
from forbear.integrations.http.replay import AsyncBody, Body
from forbear.integrations.owner import sole_owner as sole_owner

C = TypeVar("C", bound=httpx.Client | httpx.AsyncClient)

__all__ = [
    "AsyncBody", "AsyncTransport", "AttemptLog", "Body", "BudgetExhausted", "CircuitOpenError", "DeadlineExceeded",
    "RetriesExhausted", "Transport", "sole_owner",
]  # fmt: skip


class RetriesExhausted(errors.RetriesExhausted, httpx.TransportError):
    """As `forbear.RetriesExhausted`, and an error of httpx."""


class DeadlineExceeded(errors.DeadlineExceeded, httpx.TimeoutException):
    """As `forbear.DeadlineExceeded`, and a timeout of httpx."""


class BudgetExhausted(errors.BudgetExhausted, httpx.TransportError):
    """As `forbear.BudgetExhausted`, and an error of httpx."""


class CircuitOpenError(errors.CircuitOpenError, httpx.TransportError):
    """As `forbear.CircuitOpenError`, and an error of httpx."""


class _Body(sending.Rest, httpx.SyncByteStream):
    """The rest of an answer."""


class _AsyncBody(sending.AsyncRest, httpx.AsyncByteStream):
    """The rest of an answer."""


class _Sent(shared.Sent, httpx.SyncByteStream, httpx.AsyncByteStream):
    """A request's body."""


PARTNER = shared.Partner(
    library=httpx,
    body=_Body,
    async_body=_AsyncBody,
    sent=_Sent,
    errors={kind.__name__: kind for kind in (RetriesExhausted, DeadlineExceeded, BudgetExhausted, CircuitOpenError)},
)


class Transport(transports.BlockingTransport, httpx.BaseTransport):
    """A transport that sends each request as one call: with retries, under one deadline. Its options: see `__init__`.

    `response.extensions["forbear"]` is an `AttemptLog`.
    """

    partner = PARTNER


class AsyncTransport(transports.NonblockingTransport, httpx.AsyncBaseTransport):
    """As `Transport`, for async clients, under asyncio and trio."""

    partner = PARTNER


def own(client: C, options: dict[str, Any], *, in_place: bool = False, watched: str | None = None) -> C:
    """For `sole_owner`: see `transports.own`."""
    kind: type[Transport | AsyncTransport] = Transport if isinstance(client, httpx.Client) else AsyncTransport
    return transports.own(client, kind, options, in_place=in_place, watched=watched)  # type: ignore[no-any-return]
