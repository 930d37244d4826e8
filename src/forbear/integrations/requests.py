"""Retries under a requests session: `session.mount("https://", Adapter())`.

The session's redirects, auth, cookies, hooks and proxies stay what they are; each request that it sends is one call of
forbear: its response is the first thing of a stream, and its body the rest.

Decided here: when an answer is read, and from what its caller reads the rest. Prevents the retries of urllib3 that
multiply with ours, connections that stay busy with answers nobody reads, and a server that sends one byte now and then
and so holds a thread for ever: a timeout of requests counts anew with each byte.
"""

from __future__ import annotations

import io
import math
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, TypeVar, Unpack
from urllib.parse import urlsplit

try:
    import requests
except ModuleNotFoundError as missing:
    needs = "requests is needed here: pip install 'forbear[requests]'"
    raise ModuleNotFoundError(needs, name=missing.name) from missing
from requests.adapters import BaseAdapter, HTTPAdapter

from forbear import errors
from forbear.calls.upstream import Upstream
from forbear.errors import RetryError, StreamInterrupted
from forbear.integrations.http import deadline_header as wire
from forbear.integrations.http import urllib3_sending as sending
from forbear.integrations.http.exchange import HOLD_BODY, TOO_SHORT, AttemptLog, Exchange, Rules, as_seen
from forbear.integrations.http.replay import Body, replay_of
from forbear.integrations.http.responding import respond
from forbear.integrations.http.senders import HttpOptions, Senders, UpstreamOf
from forbear.integrations.http.watching import Watch

S = TypeVar("S", bound=requests.Session)

__all__ = [
    "Adapter", "AttemptLog", "Body", "BudgetExhausted", "CircuitOpenError", "DeadlineExceeded", "RetriesExhausted",
    "sole_owner",
]  # fmt: skip

_PORTS = {"http": ":80", "https": ":443"}


class _GivenUp(RetryError):
    """What requests has on all of its errors: the last response and its request, where there were any."""

    def __init__(self, *args: Any, **facts: Any) -> None:
        super().__init__(*args, **facts)
        self.response: requests.Response | None = getattr(self.last_error, "response", None)
        self.request: Any = getattr(self.last_error, "request", None)


class RetriesExhausted(_GivenUp, errors.RetriesExhausted, requests.exceptions.RetryError):
    """As `forbear.RetriesExhausted`, and an error of requests: `response` and `request` are the last."""


class DeadlineExceeded(_GivenUp, errors.DeadlineExceeded, requests.exceptions.Timeout):
    """As `forbear.DeadlineExceeded`, and a timeout of requests."""


class BudgetExhausted(_GivenUp, errors.BudgetExhausted, requests.exceptions.RetryError):
    """As `forbear.BudgetExhausted`, and an error of requests."""


class CircuitOpenError(errors.CircuitOpenError, requests.exceptions.ConnectionError):
    """As `forbear.CircuitOpenError`, and a connection error of requests."""


_OURS: dict[str, Any] = {
    kind.__name__: kind for kind in (RetriesExhausted, DeadlineExceeded, BudgetExhausted, CircuitOpenError)
}


class Adapter(BaseAdapter):
    """An adapter that sends each request as one call: with retries, under one deadline.

    inner: what sends the single attempts (default: `HTTPAdapter()`). Its own retries (`max_retries`) are switched off.
    upstream: whose guards the requests pass. "per origin" (default): an `Upstream` for each scheme, host and port; an
        `Upstream` for all; a function of the origin ("https://api.example.com") that gives one; None.
    idempotency_key: True adds an `Idempotency-Key` to requests without one, the same on all attempts; a text: a header
        of this name. Only requests that are repeatable by their method (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) or that
        have such a key are sent again after a failure behind which they may have been done.
    idempotent: True or False says it for all requests instead.
    deadline_header: tells the server until when somebody waits: "X-Request-Deadline" (an instant), "grpc-timeout" (the
        time left), None. attempt_header: tells it how many attempts there were before: a name, such as "x-retry-count".
    hold_body: answers up to so many bytes, whose length is announced, are read inside their attempt, so one that breaks
        is retried; of a longer one the head is, and its body is read afterwards, under the same deadline: by the caller
        with `stream=True`, else by requests, at once. It may take longer than `attempt_timeout`, and one that breaks is
        not retried. hold_json (False): answers of JSON without a length are read inside their attempt too. Failures are
        always, up to 16 MB; of a longer one the rest is not read.

    The other options are those of `retry`; a response of 400 or more is offered to `retryable` as `requests.HTTPError`.
    One that is not retried is returned, as without forbear; one that was retried in vain is too with `reraise=True`,
    and else raises RetriesExhausted, DeadlineExceeded or BudgetExhausted, which are errors of requests as well.
    `response.forbear` is an `AttemptLog`.

    Under an `HTTPAdapter` (of requests 2.32.2 or later) no attempt takes longer than it has, head or body, however
    slowly an answer comes, but for what nobody can cut: the look-up of a name, one address after the other to connect
    to, and a TLS handshake that comes slowly. Other inner adapters get the time that is left as their timeout, which
    counts anew with each byte.
    """

    def __init__(
        self,
        inner: BaseAdapter | None = None,
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
        super().__init__()
        # As it was given, for a copy in another process.
        self._settings: dict[str, Any] = {
            "upstream": upstream,
            "idempotency_key": idempotency_key,
            "idempotent": idempotent,
            "deadline_header": deadline_header,
            "attempt_header": attempt_header,
            "hold_body": hold_body,
            "hold_json": hold_json,
            **options,
        }
        given: Any = HTTPAdapter() if inner is None else inner
        if isinstance(given, (type, requests.Session)) or not hasattr(given, "send"):
            raise TypeError(
                "Adapter goes around an adapter, as in Adapter(HTTPAdapter()); around a session: sole_owner(session)"
            )
        self._rules = Rules.of(idempotent, idempotency_key, deadline_header, attempt_header, hold_body, hold_json)
        self._watch: Watch | None = None
        self._senders = Senders(lambda exchange: exchange, upstream, options, blocking=True)
        self.inner: BaseAdapter = given
        if isinstance(given, HTTPAdapter):
            given.max_retries = sending.NO_RETRIES

    def send(
        self,
        request: requests.PreparedRequest | None = None,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Sends a request, again where that makes sense."""
        if request is None:  # which is then in the place of the adapter
            raise TypeError("Adapter is a class: mount an adapter, as in session.mount('https://', Adapter())")
        options = {"stream": stream, "timeout": timeout, "verify": verify, "cert": cert, "proxies": proxies}
        exchange = _RequestsExchange(self._rules, self.inner, request, options, self._watch)
        exchange.gap = self._senders.gap
        response = respond(exchange, self._senders.sender(exchange)(exchange))
        response.connection = self  # auth may send a request of its own by the way that an answer came
        return response  # type: ignore[no-any-return]

    def upstream_of(self, url: str) -> Upstream | None:
        """What all requests to the origin of this URL share."""
        return self._senders.upstream_of(_origin_of(url))

    def close(self) -> None:
        """Closes the inner adapter."""
        self.inner.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or one in another process, has the same settings, and what is learned of a service begins anew."""
        watched = None if self._watch is None else self._watch._client  # noqa: SLF001  # ours
        return {**vars(self), "_senders": None, "_watch": watched}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)  # of a subclass too
        Adapter.__init__(self, state["inner"], **state["_settings"])
        self._watch = None if state["_watch"] is None else Watch(state["_watch"])


def sole_owner(session: S, **options: Any) -> S:
    """A session like this one, whose requests go through an `Adapter` with these options; `reraise` is True here.

    The new one shares all with the session that it is made from: cookies, headers, auth, hooks, proxies and the
    connections, so closing one closes those of both. Only its adapters are its own, so what is mounted later counts for
    one of them. The session that you gave keeps its own retries. Raises TypeError for what is not a session.
    """
    kind: Any = type(session)
    if not issubclass(kind, requests.Session):
        raise TypeError(f"this is for a requests.Session, not {kind.__name__}: use integrations.sole_owner")
    return own(session, {"reraise": True, **options})


def own(session: S, options: dict[str, Any], *, in_place: bool = False, watched: str | None = None) -> S:
    """What `sole_owner` makes of a session: a copy that shares all but the adapters, or itself `in_place`.

    `watched`: the name of the library around the session, of which it is not known whether it retries by itself.
    """
    made: dict[int, Adapter] = {}  # one mounted in two places stays one
    adapters = type(session.adapters)()
    for prefix, adapter in session.adapters.items():
        inner = adapter.inner if isinstance(adapter, Adapter) else adapter
        if id(inner) not in made:
            made[id(inner)] = new = Adapter(inner if in_place else _twin(inner), **options)
            new._watch = None if watched is None else Watch(watched)  # noqa: SLF001  # ours
        adapters[prefix] = made[id(inner)]
    owned = session if in_place else _copied(session)
    owned.adapters = adapters
    return owned


def _twin(inner: BaseAdapter) -> BaseAdapter:
    """The same adapter with the same connections, so that its retries can be switched off for one session alone."""
    return _copied(inner) if isinstance(inner, HTTPAdapter) else inner


def _copied(thing: Any) -> Any:
    """`copy.copy` would leave out what a subclass added."""
    copy = object.__new__(type(thing))
    copy.__dict__.update(thing.__dict__)
    return copy


def _origin_of(url: Any) -> str:
    """Scheme, host and port of a URL, as few as name it; a name and password in it stay out."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{host.removesuffix(_PORTS.get(parts.scheme, ':'))}"


# ---- one request -----------------------------------------------------------------------------------------------------


class _RequestsExchange(Exchange):
    """One request of requests, and all attempts at it. `response` is that of the attempt that runs, or its head.

    size: bytes of it that were read inside the attempt; late: whether its time was over then. untouched: whether what
    it is read from is not ours to read.
    """

    __slots__ = ("inner", "late", "options", "request", "response", "size", "untouched")

    def __init__(self, rules: Rules, inner: Any, request: Any, options: dict[str, Any], watch: Watch | None) -> None:
        replay = replay_of(request.body)
        super().__init__(rules, str(request.method), _origin_of(request.url), request.headers, replay, watch)
        self.inner = inner
        self.request = request
        self.options = options
        self.response: Any = None
        self.late = self.untouched = False
        self.size = 0

    def __iter__(self) -> Generator[Any]:
        """One attempt."""
        return sending.send(self)

    def open(self) -> Any:
        """Sends the request, in an attempt that begins now. Gives what the body of its answer is read from."""
        attempt, request, options = self.begin(), self.request.copy(), self.options  # the caller's own stays as it is
        self.response, self.whole, self.late, self.size = None, False, False, 0
        request.headers.update(self.headers_of(attempt, request.headers))
        if self.replay.once:
            request.body = sending.Once(self.body_begun, request.body)
        find = getattr(self.inner, "get_connection_with_tls_context", None)
        if find is not None:
            with suppress(Exception):  # what is wrong with an address, the inner adapter says itself
                sending.clip_pool(find(request, options["verify"], proxies=options["proxies"], cert=options["cert"]))
        timeout = sending.within(options["timeout"], attempt.timeout)
        self.response = response = self.inner.send(request, **{**options, "timeout": timeout})
        # It may be a connection of another protocol by now, or an adapter without urllib3 has read it already.
        self.untouched = response.status_code == 101 or response.raw is None or bool(response._content_consumed)  # noqa: SLF001
        return response.raw

    def left(self) -> float:
        """Seconds that the next read or write may take; may be infinite."""
        left = self._left()
        return left if self.gap is None or self.response is None else min(left, self.gap)

    def _left(self) -> float:
        """Seconds until the attempt, or the wait that is under way, has taken too long."""
        timeout = None if self.attempt is None else self.attempt.timeout
        return math.inf if timeout is None else timeout

    def holds(self) -> bool:
        """The head of an answer has come: whether its body is to be read inside the attempt."""
        response = self.response
        return self.untouched or self.rules.holds(self.method, response.status_code, response.headers)

    def take(self, held: list[bytes], piece: bytes) -> bool:
        """More of an answer that is read inside the attempt has come. Whether there is room for the next piece.

        Raises ReadTimeout where it came after the time was over; what ends in time may be taken in late.
        """
        if self.late:
            raise requests.exceptions.ReadTimeout("the attempt's time was over before its answer was complete")
        self.late = self._left() <= 0
        held.append(piece)
        self.size += len(piece)
        return self._fits

    @property
    def _fits(self) -> bool:
        return self.size <= self._room

    @property
    def _room(self) -> int:
        return self.rules.room(self.response.status_code)

    def judge(self, raw: Any, held: list[bytes]) -> None:
        """The body was read, as far as there is room for it. Raises the error that the answer stands for, if any."""
        response, content = self.response, b"".join(held)
        self.whole = whole = self._fits
        if whole and not self.untouched:
            response.raw = sending.raw_like(raw, io.BytesIO(content), self.method)
        if response.status_code < 400:
            return
        if not whole:  # it may be handed out all the same
            rest = sending.Rest(self._then_too_long(held, self._room), self.broken, None)
            response.raw = sending.raw_like(raw, rest, self.method)
        self.refused = (self._error_of(raw, content), response)
        raise self.refused[0]  # no name for it here: a frame must not keep alive what it raises

    def _then_too_long(self, held: list[bytes], room: int) -> Generator[bytes]:
        yield from held
        raise requests.exceptions.ConnectionError(
            f"the answer is a failure, and longer than {room:,} bytes: the rest was not read"
        )

    def _error_of(self, raw: Any, content: bytes) -> requests.HTTPError:
        """The error of requests for an answer, with a copy of it: the caller may still read the answer itself."""
        response, copy = self.response, requests.Response()
        vars(copy).update(vars(response))
        copy.request = self.request
        if not self.untouched:
            copy.raw = sending.raw_like(raw, io.BytesIO(content), self.method, copy=True)
            with suppress(Exception):  # a body that can't be decoded says nothing; its status does
                _ = copy.content
        return requests.HTTPError(f"{response.status_code} {response.reason} for {self.name}", response=copy)

    def usual(self, error: Exception) -> Exception:
        """What requests makes of an error of urllib3 that it meets in a body, or of an attempt that was cut in it."""
        name = next((name for kind, name in sending.NAMES if isinstance(error, kind)), None)
        if name is None:
            return error
        if name == "ConnectionError" and (self.gap is not None or self._left() <= TOO_SHORT):
            name = "ReadTimeout"
        return getattr(requests.exceptions, name)(error, request=self.request)  # type: ignore[no-any-return]

    def own(self, error: BaseException) -> BaseException:
        """`error` as one of requests."""
        own: Any = as_seen(error, _OURS, requests.exceptions.ReadTimeout)
        if own is not error:
            own.request = self.request
        return own  # type: ignore[no-any-return]

    def asked(self) -> tuple[str, object]:
        """The address, and the body where it is no stream."""
        body = self.request.body
        return str(self.request.url), body if isinstance(body, (bytes, str)) else None

    def show(self, response: Any, log: AttemptLog) -> None:
        """As an attribute."""
        response.request = self.request
        response.forbear = log

    def received(self, chunks: Any) -> Any:
        """The response as its caller gets it, with the rest of its body."""
        response = self.response
        if self.whole:
            with suppress(StreamInterrupted):  # there is nothing more to come too late
                next(chunks, None)
        else:
            rest = sending.Rest(chunks, self.broken, response.raw)
            response.raw = sending.raw_like(response.raw, rest, self.method)
            self.response = sending.Head(response.status_code, response.headers)
        return self.handed_out(response)

    def broken(self, interrupted: StreamInterrupted) -> BaseException:
        """What a caller sees of an answer whose body broke. What urllib3 raised goes to requests as ever."""
        cause = interrupted.__cause__
        if not isinstance(cause, Exception):
            return interrupted
        usual = self.usual(cause)
        seen = self.own(usual if isinstance(usual, requests.exceptions.Timeout) else cause)
        return self.at_the_deadline(seen) if isinstance(seen, requests.exceptions.Timeout) else seen
