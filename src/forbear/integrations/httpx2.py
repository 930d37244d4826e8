"""Retries under an httpx2 client: `Client(transport=Transport())`, `AsyncClient(transport=AsyncTransport())`.

The client's redirects, auth, cookies and pool stay what they are; each request that it sends is one call of forbear.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

try:
    import httpx2
except ModuleNotFoundError as missing:
    needs = "httpx2 is needed here: pip install 'forbear[httpx2]'"
    raise ModuleNotFoundError(needs, name=missing.name) from missing

from forbear import errors
from forbear.calls.upstream import Upstream
from forbear.integrations.http import deadline_header as wire
from forbear.integrations.http import httpx_like as shared
from forbear.integrations.http import owning, sending
from forbear.integrations.http.exchange import HOLD_BODY, AttemptLog, Rules
from forbear.integrations.http.replay import AsyncBody, Body
from forbear.integrations.http.senders import HttpOptions, Senders, UpstreamOf
from forbear.integrations.http.watching import Watch
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


class _Once(shared.Once, httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A request's body that can be read only once."""


PARTNER = shared.Partner(
    library=httpx2,
    body=_Body,
    async_body=_AsyncBody,
    once=_Once,
    errors={kind.__name__: kind for kind in (RetriesExhausted, DeadlineExceeded, BudgetExhausted, CircuitOpenError)},
)


class Transport(owning.WrongEnd, httpx2.BaseTransport):
    """A transport that sends each request as one call: with retries, under one deadline.

    inner: what sends the single attempts; it takes proxies, certificates, HTTP/2. Its own retries are turned off.
        Default: `httpx2.HTTPTransport()`.
    upstream: whose guards the requests pass. "per origin" (default): an `Upstream` for each scheme, host and port; an
        `Upstream` for all; a function of the origin ("https://api.example.com") that gives one; None.
    idempotency_key: True adds an `Idempotency-Key` to requests without one, the same on all attempts; a text: a header
        of this name. Only requests that are repeatable by their method (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) or that
        have such a key are sent again after a failure behind which they may have been done.
    idempotent: True or False says it for all requests instead.
    deadline_header: tells the server until when somebody waits: "X-Request-Deadline" (an instant), "grpc-timeout" (the
        time left), None. attempt_header: tells it how many attempts there were before: a name, such as "x-retry-count".
    hold_body: answers up to so many bytes, whose length is announced, are read inside their attempt, so one that breaks
        is retried; of a longer one the head is, and its body is read by the caller, under the same deadline. hold_json
        (False): answers of JSON without a length too; not for a server whose JSON never ends.

    The other options are those of `retry`; a response of 400 or more is offered to `retryable` as
    `httpx2.HTTPStatusError`. One that is not retried is returned, as without forbear; one that was retried in vain is
    too with `reraise=True`, and else raises RetriesExhausted, DeadlineExceeded or BudgetExhausted, which are errors of
    httpx as well. `response.extensions["forbear"]` is an `AttemptLog`.
    """

    def __init__(
        self,
        inner: httpx2.BaseTransport | None = None,
        *,
        upstream: UpstreamOf = "per origin",
        idempotency_key: bool | str = False,
        idempotent: bool | None = None,
        deadline_header: str | None = wire.INSTANT,
        attempt_header: str | None = None,
        hold_body: int = HOLD_BODY,
        hold_json: bool = False,
        **options: Unpack[HttpOptions],
    ) -> None:
        self.inner: httpx2.BaseTransport = owning.checked(
            httpx2.HTTPTransport() if inner is None else inner, "Transport", "AsyncTransport"
        )
        self._rules = Rules.of(idempotent, idempotency_key, deadline_header, attempt_header, hold_body, hold_json)
        self._watch: Watch | None = None
        self._senders = Senders(sending.sending, upstream, options, blocking=True)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request, again where that makes sense."""
        exchange = shared.HttpxExchange(PARTNER, self._rules, self.inner, request, self._watch, blocking=True)
        exchange.gap = self._senders.gap
        return sending.respond(exchange, self._senders.sender(exchange)(exchange))  # type: ignore[no-any-return]

    def upstream_of(self, url: httpx2.URL | str) -> Upstream | None:
        """What all requests to the origin of this URL share."""
        return self._senders.upstream_of(shared.origin_of(httpx2.URL(url)))

    def close(self) -> None:
        """Closes the inner transport."""
        self.inner.close()

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.inner.__exit__(exc_type, exc_value, traceback)


class AsyncTransport(owning.WrongAsyncEnd, httpx2.AsyncBaseTransport):
    """As `Transport`, for async clients, under asyncio and trio."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport | None = None,
        *,
        upstream: UpstreamOf = "per origin",
        idempotency_key: bool | str = False,
        idempotent: bool | None = None,
        deadline_header: str | None = wire.INSTANT,
        attempt_header: str | None = None,
        hold_body: int = HOLD_BODY,
        hold_json: bool = False,
        **options: Unpack[HttpOptions],
    ) -> None:
        self.inner: httpx2.AsyncBaseTransport = owning.checked(
            httpx2.AsyncHTTPTransport() if inner is None else inner, "AsyncTransport", "Transport"
        )
        self._rules = Rules.of(idempotent, idempotency_key, deadline_header, attempt_header, hold_body, hold_json)
        self._watch: Watch | None = None
        timed = isinstance(self.inner, httpx2.AsyncHTTPTransport)
        self._senders = Senders(sending.sending_async, upstream, options, blocking=False, has_timers=timed)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request, again where that makes sense."""
        exchange = shared.HttpxExchange(
            PARTNER, self._rules, self.inner, request, self._watch, blocking=False, limit=self._senders.limit
        )
        exchange.gap = self._senders.gap
        return await sending.respond_async(exchange, self._senders.sender(exchange)(exchange))  # type: ignore[no-any-return]

    def upstream_of(self, url: httpx2.URL | str) -> Upstream | None:
        """What all requests to the origin of this URL share."""
        return self._senders.upstream_of(shared.origin_of(httpx2.URL(url)))

    async def aclose(self) -> None:
        """Closes the inner transport."""
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.inner.__aexit__(exc_type, exc_value, traceback)


def own(client: C, options: dict[str, Any], *, in_place: bool = False, watched: str | None = None) -> C:
    """What `sole_owner` makes of a client: a copy that shares its connections, or itself `in_place`.

    `watched`: the name of the library around the client, of which it is not known whether it retries by itself.
    """
    kind: type[Transport | AsyncTransport] = Transport if isinstance(client, httpx2.Client) else AsyncTransport

    def wrap(inner: Any) -> Transport | AsyncTransport:
        transport = kind(inner, **options)
        transport._watch = None if watched is None else Watch(watched)  # noqa: SLF001  # ours
        return transport

    return owning.own(client, kind, wrap, in_place=in_place)  # type: ignore[no-any-return]
