"""The transports for httpx and httpx2, all but the name of the library: that comes with a `Partner`.

Decided here: what a transport takes, and that it closes what it was put around. Must never import either library.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar, Self, Unpack

from forbear.calls.upstream import Upstream
from forbear.integrations.http import deadline_header as wire
from forbear.integrations.http import owning, sending
from forbear.integrations.http.exchange import HOLD_BODY, Rules
from forbear.integrations.http.httpx_like import HttpxExchange, Partner, origin_of
from forbear.integrations.http.responding import respond, respond_async
from forbear.integrations.http.senders import HttpOptions, Senders, UpstreamOf
from forbear.integrations.http.watching import Watch


class _Transport:
    """What both have. `inner` sends the single attempts."""

    partner: ClassVar[Partner]
    inner: Any
    watch: Watch | None = None
    _rules: Rules
    _senders: Senders

    def upstream_of(self, url: object) -> Upstream | None:
        """What all requests to the origin of this URL share."""
        return self._senders.upstream_of(origin_of(self.partner.library.URL(url)))

    def _exchange(self, request: Any, *, blocking: bool) -> tuple[HttpxExchange, Any]:
        """A request, and what sends it."""
        exchange = HttpxExchange(
            self.partner, self._rules, self.inner, request, self.watch, blocking=blocking, limit=self._senders.limit
        )
        exchange.gap = self._senders.gap
        return exchange, self._senders.sender(exchange)(exchange)


class BlockingTransport(_Transport, owning.WrongEnd):
    """A transport that sends each request as one call: with retries, under one deadline."""

    def __init__(
        self,
        inner: Any = None,
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
        """Puts a transport around `inner`, under these options.

        inner: what sends the single attempts; it takes proxies, certificates, HTTP/2. Its own retries are turned off.
            Default: `HTTPTransport()`, or `AsyncHTTPTransport()`.
        upstream: whose guards the requests pass. "per origin" (default): an `Upstream` for each scheme, host and port;
            an `Upstream` for all; a function of the origin ("https://api.example.com") that gives one; None.
        idempotency_key: True adds an `Idempotency-Key` to requests without one, the same on all attempts; a text: a
            header of this name. Only requests that are repeatable by their method (GET, HEAD, OPTIONS, TRACE, PUT,
            DELETE) or that have such a key are sent again after a failure behind which they may have been done.
        idempotent: True or False says it for all requests instead.
        deadline_header: tells the server until when somebody waits: "X-Request-Deadline" (an instant), "grpc-timeout"
            (the time left), None. attempt_header: tells it how many attempts there were before: a name, such as
            "x-retry-count".
        hold_body: answers up to so many bytes, whose length is announced, are read inside their attempt, so one that
            breaks is retried; of a longer one the head is, and its body is read by the caller, under the same deadline.
            hold_json (False): answers of JSON without a length too; not for a server whose JSON never ends.

        The other options are those of `retry`; a response of 400 or more is offered to `retryable` as
        `HTTPStatusError`. One that is not retried is returned, as without forbear; one that was retried in vain is too
        with `reraise=True`, and else raises RetriesExhausted, DeadlineExceeded or BudgetExhausted, which are errors of
        the library as well. `response.extensions["forbear"]` is an `AttemptLog`.
        """
        own = self.partner.library.HTTPTransport
        self.inner = owning.checked(own() if inner is None else inner, "Transport", "AsyncTransport")
        self._rules = Rules.of(idempotent, idempotency_key, deadline_header, attempt_header, hold_body, hold_json)
        self._senders = Senders(sending.sending, upstream, options, blocking=True)

    def handle_request(self, request: Any) -> Any:
        """Sends a request, again where that makes sense."""
        return respond(*self._exchange(request, blocking=True))

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


class NonblockingTransport(_Transport, owning.WrongAsyncEnd):
    """As `BlockingTransport`, for async clients, under asyncio and trio."""

    def __init__(
        self,
        inner: Any = None,
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
        """Puts a transport around `inner`: see `Transport`."""
        own = self.partner.library.AsyncHTTPTransport
        self.inner = owning.checked(own() if inner is None else inner, "AsyncTransport", "Transport")
        self._rules = Rules.of(idempotent, idempotency_key, deadline_header, attempt_header, hold_body, hold_json)
        timed = isinstance(self.inner, own)
        self._senders = Senders(sending.sending_async, upstream, options, blocking=False, has_timers=timed)

    async def handle_async_request(self, request: Any) -> Any:
        """Sends a request, again where that makes sense."""
        return await respond_async(*self._exchange(request, blocking=False))

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


def own(client: Any, kind: type[Any], options: dict[str, Any], *, in_place: bool, watched: str | None) -> Any:
    """What `sole_owner` makes of a client: a copy that shares its connections, or itself `in_place`.

    `watched`: the name of the library around the client, of which it is not known whether it retries by itself.
    """

    def wrap(inner: Any) -> Any:
        transport = kind(inner, **options)
        transport.watch = None if watched is None else Watch(watched)
        return transport

    return owning.own(client, kind, wrap, in_place=in_place)
