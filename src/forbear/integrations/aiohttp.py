"""Retries under an aiohttp client: `ClientSession(middlewares=(Middleware(),))`, aiohttp 3.12.14 or newer.

The session's redirects, cookies, `raise_for_status` and pool stay what they are; each request that it sends is one call
of forbear. Decided here: which bodies are sent again, and how aiohttp's own resend is kept from repeating the call.
"""

from __future__ import annotations

import math
from contextlib import aclosing
from contextvars import ContextVar
from functools import partial
from typing import Any, Never, TypeVar, Unpack
from weakref import ref

try:
    import aiohttp
except ModuleNotFoundError as missing:
    needs = "aiohttp is needed here: pip install 'forbear[aiohttp]'"
    raise ModuleNotFoundError(needs, name=missing.name) from missing
from aiohttp.abc import AbstractStreamWriter

from forbear import errors
from forbear.calls.options import policy_of
from forbear.calls.stream_options import stream_settings
from forbear.calls.upstream import Upstream
from forbear.integrations import owner
from forbear.integrations.http import aiohttp_like as shared
from forbear.integrations.http import deadline_header as wire
from forbear.integrations.http.exchange import HOLD_BODY, REPEATABLE, AttemptLog, Rules
from forbear.integrations.http.replay import AsyncBody, Replay, position_of
from forbear.integrations.http.responding import respond_async
from forbear.integrations.http.senders import HttpOptions, Senders, UpstreamOf
from forbear.integrations.http.watching import Watch

__all__ = [
    "AsyncBody", "AttemptLog", "BudgetExhausted", "CircuitOpenError", "DeadlineExceeded", "Middleware",
    "RetriesExhausted", "attempt_log", "sole_owner",
]  # fmt: skip

S = TypeVar("S", bound=aiohttp.ClientSession)

_CLOCKS = ("first_timeout", "gap_timeout", "total_timeout")
_URL: Any = type(aiohttp.ClientRequest.url)  # yarl's


class RetriesExhausted(errors.RetriesExhausted, aiohttp.ClientError):
    """As `forbear.RetriesExhausted`, and an error of aiohttp."""


class DeadlineExceeded(errors.DeadlineExceeded, aiohttp.ServerTimeoutError):
    """As `forbear.DeadlineExceeded`, and a timeout of aiohttp."""


class BudgetExhausted(errors.BudgetExhausted, aiohttp.ClientError):
    """As `forbear.BudgetExhausted`, and an error of aiohttp."""


class CircuitOpenError(errors.CircuitOpenError, aiohttp.ClientError):
    """As `forbear.CircuitOpenError`, and an error of aiohttp."""


PARTNER = shared.Partner(
    library=aiohttp,
    errors={kind.__name__: kind for kind in (RetriesExhausted, DeadlineExceeded, BudgetExhausted, CircuitOpenError)},
)


class Middleware:
    """A client middleware that sends each request as one call: with retries, under one deadline.

    It belongs last among the middlewares, so that what the others send (a digest login, say) is repeated by itself. A
    request's own `middlewares=` replace those of the session, this one too; not where a `sole_owner` is.

    upstream: whose guards the requests pass. "per origin" (default): an `Upstream` for each scheme, host and port; an
        `Upstream` for all; a function of the origin ("https://api.example.com") that gives one; None.
    idempotency_key: True adds an `Idempotency-Key` to requests without one, the same on all attempts; a text: a header
        of this name. Only requests that are repeatable by their method (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) or that
        have such a key are sent again after a failure behind which they may have been done.
    idempotent: True or False says it for all requests instead.
    deadline_header: tells the server until when somebody waits: "X-Request-Deadline" (an instant), "grpc-timeout" (the
        time left), None. attempt_header: tells it how many attempts there were before: a name, such as "x-retry-count".
    hold_body: answers up to so many bytes, whose length is announced, are read inside their attempt, so one that breaks
        is retried; of a longer one the head is, and its body is read by the caller, under the same deadline: a read
        that it ends raises DeadlineExceeded. hold_json (False): answers of JSON without a length too; not for a server
        whose JSON never ends. Failures are always read there, up to 16 MB; a longer one can't be read at all.

    The other options are those of `retry`; a response of 400 or more is offered to `retryable` as
    `aiohttp.ClientResponseError`, with what was read of it as `body`. One that is not retried is returned, as without
    forbear; one that was retried in vain is too with `reraise=True`, and else raises RetriesExhausted, DeadlineExceeded
    or BudgetExhausted, which are errors of aiohttp as well. `attempt_log(response)` tells what was sent.

    A body is sent again if it is bytes, text, JSON, a form of such, a file that can seek (from where it stood), or an
    `AsyncBody`; one of another kind only if nothing of it was sent. Each redirect is a call of its own, with a deadline
    of its own. The session's total timeout is around all attempts and waits; its `connect`, `sock_connect` and
    `sock_read` are for each attempt. Requests for an upgrade, such as `ws_connect`, are passed on untouched.

    aiohttp itself sends a request of a repeatable method a second time where a connection broke. Inside an attempt it
    can't; where the error itself leaves (`reraise=True`, a body that can't be repeated) it would begin the whole call
    anew, which is refused with the same error. `sole_owner(session)` turns it off for all requests of a session.
    """

    def __init__(
        self,
        *mistake: Never,  # a class among the middlewares is called with a request
        upstream: UpstreamOf = "per origin",
        idempotency_key: bool | str = False,
        idempotent: bool | None = None,
        deadline_header: str | None = wire.INSTANT,
        attempt_header: str | None = None,
        hold_body: int = HOLD_BODY,
        hold_json: bool = False,
        **options: Unpack[HttpOptions],
    ) -> None:
        if mistake:
            raise TypeError("options have names here; and it is made first: middlewares=(Middleware(),)")
        self._rules = Rules.of(idempotent, idempotency_key, deadline_header, attempt_header, hold_body, hold_json)
        self._senders = Senders(shared.Sending, upstream, options, blocking=False)
        given = {name: value for name, value in options.items() if name in _CLOCKS}
        self._clocks = stream_settings(given, policy_of(options))
        self._watch: Watch | None = None

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Sends a request, again where that makes sense."""
        if "Upgrade" in request.headers:
            return await handler(request)
        _refuse_resend(request)
        replay = Replay(once=not _repeatable(request.body))
        exchange = shared.AiohttpExchange(PARTNER, self._rules, self._clocks, request, handler, replay, self._watch)
        exchange.gap = self._senders.gap
        given = request.headers
        try:
            return await respond_async(exchange, self._senders.sender(exchange)(exchange))  # type: ignore[no-any-return]
        except Exception as error:
            _note_for_resend(request, error)
            raise
        finally:
            request.headers = given

    def upstream_of(self, url: Any) -> Upstream | None:
        """What all requests to the origin of this URL share."""
        return self._senders.upstream_of(str(_URL(url).origin()))


def attempt_log(response: aiohttp.ClientResponse) -> AttemptLog | None:
    """What was sent for the request that this response answers; None where it did not go through forbear.

    The responses in `response.history`, of redirects, have theirs.
    """
    return getattr(response, "__forbear_log__", None)


def sole_owner(session: S, **options: Any) -> S:
    """The session, whose requests go through forbear from now on; aiohttp's own resend is off. A session can't be
    copied: it is the same one. `options` are those of `Middleware`; `reraise` is True here, so that errors are
    aiohttp's own. A `Middleware` that it has gives way to the new one.

    A request's own `middlewares=` stand for the other ones of the session: the request goes through forbear all the
    same, unless there is a `Middleware` among them.
    """
    kind: Any = aiohttp.ClientSession
    if not isinstance(session, kind):
        raise TypeError(f"this is for ClientSession, not {type(session).__name__}: use integrations.sole_owner")
    return owner.sole_owner(session, **options)


def own(session: S, options: dict[str, Any], *, in_place: bool = False, watched: str | None = None) -> S:  # noqa: ARG001
    """What `sole_owner` makes of a session: itself, changed in place.

    `watched`: the name of the library around the session, of which it is not known whether it retries by itself.
    """
    middleware = Middleware(**options)
    middleware._watch = None if watched is None else Watch(watched)  # noqa: SLF001  # ours
    # Where a session keeps them; there is no other way to what an existing one was made with.
    others = [one for one in session._middlewares or () if not isinstance(one, Middleware)]  # noqa: SLF001
    session._middlewares = (*others, middleware)  # noqa: SLF001
    session._retry_connection = False  # noqa: SLF001
    if not isinstance(vars(session).get("_request"), _Through):
        object.__setattr__(session, "_request", _Through(session))  # aiohttp warns of others in its debug mode
    return session


class _Through:
    """Makes the requests of a session, those with middlewares of their own too, go through its `Middleware`."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = ref(session)  # which holds this
        self._inner = vars(session).get("_request")  # where somebody has wrapped it before

    async def __call__(self, *args: Any, middlewares: Any = None, **options: Any) -> aiohttp.ClientResponse:
        session: Any = self._session()
        if middlewares is not None and not any(isinstance(one, Middleware) for one in middlewares):
            middlewares = (*middlewares, *(one for one in session._middlewares if isinstance(one, Middleware)))  # noqa: SLF001
        send = self._inner or partial(type(session)._request, session)  # noqa: SLF001
        return await send(*args, middlewares=middlewares, **options)  # type: ignore[no-any-return]


# ---- aiohttp's own resend ----------------------------------------------------------------------------------------

# The request that has failed last in this context, where aiohttp may make another of the same call, and its error.
_LEFT: ContextVar[tuple[Any, Exception] | None] = ContextVar("forbear_aiohttp_left", default=None)


def _note_for_resend(request: Any, error: Exception) -> None:
    """Remembers an error after which aiohttp makes the request anew, which begins at `Middleware` again."""
    if not isinstance(error, (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)):
        return
    resends = request.method in REPEATABLE and getattr(request.session, "_retry_connection", True)
    if resends and not isinstance(error, aiohttp.ClientConnectorError):
        _LEFT.set((request, error))


def _refuse_resend(request: Any) -> None:
    """Raises the error of the call that has ended just now, where this is aiohttp's resend of its request: another
    request, with the timer of the same call. A middleware around this one that tries again has the same request.
    """
    left = _LEFT.get()
    _LEFT.set(None)
    try:
        if left is not None and left[0] is not request and left[0]._timer is request._timer:  # noqa: SLF001
            raise left[1]
    finally:
        del left


# ---- the body of a request -------------------------------------------------------------------------------------------


def _repeatable(body: Any) -> bool:
    """Whether a body can be written again. Those of files go back to where the file stood, by themselves."""
    if isinstance(body, aiohttp.MultipartWriter):
        return all(_repeatable(part) for part, _, _ in body)
    if isinstance(body, aiohttp.IOBasePayload):
        return position_of(body._value) is not None  # noqa: SLF001
    return isinstance(body, (bytes, aiohttp.BytesPayload, _MadeAnew))


@aiohttp.payload_type(AsyncBody)
class _MadeAnew(aiohttp.Payload):
    """An `AsyncBody` in a request of aiohttp."""

    _autoclose = True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002
        """It is not read but where it is sent."""
        raise TypeError("this body is made anew for each attempt: it can't be decoded here")

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:  # noqa: ARG002
        """The body, made for this."""
        async with aclosing(self._value.__aiter__()) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Writes it, made anew."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Writes it, made anew, up to so many bytes."""
        left = math.inf if content_length is None else content_length
        async with aclosing(self._value.__aiter__()) as chunks:
            async for chunk in chunks:
                part = chunk if len(chunk) <= left else chunk[: int(left)]
                left -= len(part)
                if part:
                    await writer.write(part)
