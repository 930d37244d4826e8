"""How the requests of one transport are sent: under which options, and through whose guards.

Decided here: one `Upstream` per origin, so that a server in trouble holds back what goes to it and nothing else. Must
never know a client library.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import RLock
from typing import Any, Literal

from forbear.calls.blocking import guard_stream
from forbear.calls.callables import is_coroutine_function
from forbear.calls.options import PolicyOptions, Retryable, plan_of, policy_of
from forbear.calls.stream import guard_async
from forbear.calls.upstream import Upstream
from forbear.classify.stream_events import StreamEvents
from forbear.core.events import RetryState
from forbear.core.stream import Signal
from forbear.core.validation import Seconds, optional_seconds
from forbear.errors import UsageError
from forbear.integrations.http.exchange import KEY, Exchange
from forbear.upstream.breaker import CircuitBreaker
from forbear.upstream.budget import RetryBudget
from forbear.upstream.limiter import RateLimiter

MOST_ORIGINS = 1_000  # a crawler meets many; the one that was asked for longest ago is forgotten
_MOST_METHODS = 50
BACKSTOP = 0.1  # seconds; a handshake that is cancelled leaves its socket to the collector, one that is late does not
_SINGLE = ("budget", "breaker", "limiter")
UpstreamOf = Upstream | Callable[[str], Upstream | None] | Literal["per origin"] | None


class HttpOptions(PolicyOptions, total=False):
    """What a transport takes of the options of `retry`, and the clocks of a stream."""

    retryable: Retryable
    on_retry: Callable[[RetryState], Any] | None
    reraise: bool
    sleep: Callable[[float], Any] | None
    rng: Callable[[], float] | None
    clock: Callable[[], float] | None
    tokens: float | Callable[[Any], float] | None
    budget: RetryBudget | None
    breaker: CircuitBreaker | None
    limiter: RateLimiter | None
    first_timeout: Seconds | None
    gap_timeout: Seconds | None
    total_timeout: Seconds | None


class TransportOptions(HttpOptions, total=False):
    """All that a transport takes."""

    upstream: UpstreamOf
    idempotency_key: bool | str
    idempotent: bool | None
    deadline_header: str | None
    attempt_header: str | None
    hold_body: int
    hold_json: bool


# What other forms of call take, and why a transport does not.
_NOT_HERE = {
    "hedge": "it would send the request twice at this level: hedge the function that makes the request",
    "fallback": "put it on the function that makes the request",
    "fallback_on": "put it on the function that makes the request",
    "retry_if_result": "say with retryable= which responses of 400 and above are failures that may pass",
    "after_content": "what broke after the head of an answer came is raised as the client's own error",
    "resume": "what broke after the head of an answer came is raised as the client's own error",
    "events": "a transport knows bytes; put forbear.stream around the stream of events",
    "hold_at_most": "use hold_body (bytes)",
    "status_forcelist": "statuses that may pass next time are known; for others retryable=, a function of the error",
    **dict.fromkeys(
        (
            "proxy",
            "proxies",
            "verify",
            "cert",
            "http1",
            "http2",
            "limits",
            "trust_env",
            "pool_connections",
            "pool_maxsize",
        ),
        "give it to the inner one, as in Transport(httpx.HTTPTransport(http2=True)) or Adapter(HTTPAdapter(...))",
    ),
}


class _Bytes(StreamEvents):
    """What comes of an answer: the head, then bytes. None of it is remembered."""

    def read(self, chunk: Any) -> Signal:  # noqa: ARG002
        return _SEEN


_SEEN = Signal(text=b"")
_EVENTS = _Bytes()


class Senders:
    """The senders of one transport: `sender(exchange)` gives what makes the generator that sends the request.

    `source` makes the chunks of one attempt: the response first, then its body. `has_timers`: whether what sends it
    ends an attempt in time by itself, to the head of its answer; `limit` then says within how many seconds, and our own
    timer, which can only cancel it, comes a little later. None: there is no such limit.
    """

    def __init__(
        self,
        source: Callable[[Any], Any],
        upstream: UpstreamOf,
        options: Mapping[str, Any],
        *,
        blocking: bool,
        has_timers: bool = False,
    ) -> None:
        for option in options:
            if option in _NOT_HERE:
                raise TypeError(f"a transport takes no {option}=: {_NOT_HERE[option]}")
        for option in ("sleep", "on_retry"):
            if blocking and is_coroutine_function(options.get(option)):
                raise ValueError(f"{option} is async, and this transport is blocking: give it a plain function")
        self._source = source
        self._guard: Callable[..., Any] = guard_stream if blocking else guard_async
        self._options: dict[str, Any] = {"events": _EVENTS, **options}
        self.gap = optional_seconds("gap_timeout", options.get("gap_timeout"))
        self.limit: float | None = None
        if has_timers:
            first = optional_seconds("first_timeout", options.get("first_timeout", policy_of(options).attempt_timeout))
            self.limit = first
            self._options["first_timeout"] = None if first is None else first + BACKSTOP
        tokens: Any = options.get("tokens")
        if callable(tokens):
            self._options["tokens"] = _tokens_of(tokens)
        single = any(options.get(name) is not None for name in _SINGLE)
        self._choose = _chooser(None if single and upstream == "per origin" else upstream)
        self._lock = RLock()  # the function that chooses may ask for the Upstream of another origin
        self._origins: OrderedDict[str, _Origin] = OrderedDict()
        checked = (
            upstream if isinstance(upstream, Upstream) else None if upstream is None or single else Upstream("one")
        )
        self._plan("checked", False, checked)

    def sender(self, exchange: Exchange) -> Callable[[Exchange], Any]:
        """What sends this request."""
        origin = self._origin(exchange.origin)
        key = exchange.method, exchange.repeatable
        found = origin.senders.get(key)
        if found is None:
            plan = self._plan(exchange.name, exchange.repeatable, origin.upstream, exchange.method)
            found = origin.senders.setdefault(key, self._guard(plan, self._source, None))
            if len(origin.senders) > _MOST_METHODS:  # methods are few, unless somebody makes them up
                origin.senders.clear()
        return found

    def upstream_of(self, origin: str) -> Upstream | None:
        """What all requests to this origin share."""
        return self._origin(origin).upstream

    def _origin(self, name: str) -> _Origin:
        """What is kept for an origin. Of too many, the one that was used longest ago and is at rest is forgotten."""
        with self._lock:
            found = self._origins.get(name)
            if found is None:
                found = self._origins[name] = _Origin(self._choose(name))
                if len(self._origins) > MOST_ORIGINS:
                    self._forget_one(name)
            else:
                self._origins.move_to_end(name)
            return found

    def _forget_one(self, but: str) -> None:
        for name, origin in self._origins.items():
            if name != but and (origin.upstream is None or not origin.upstream.entrance.busy()):
                del self._origins[name]
                return

    def _plan(self, name: str, repeatable: bool, upstream: Upstream | None, method: str = "") -> Any:
        """Raises TypeError and ValueError for options that make no sense; one is made with the transport, at once."""
        options = {**self._options, "idempotent": repeatable, "upstream": upstream}
        unsafe = (
            f"it may have been done, and {method} is not repeatable; send an {KEY} header (idempotency_key=True adds "
            "one), or say idempotent=True"
        )
        return replace(plan_of(name, options, stream=True, innermost=True), unsafe=unsafe)


def _tokens_of(tokens: Any) -> Callable[[Any], float]:
    """What a request costs, asked of the request."""

    def of(exchange: Any) -> float:
        return tokens(exchange.request)  # type: ignore[no-any-return]

    return of


class _Origin:
    """One scheme, host and port: whose guards its requests pass, and their senders by method and repeatability."""

    __slots__ = ("senders", "upstream")

    def __init__(self, upstream: Upstream | None) -> None:
        self.upstream = upstream
        self.senders: dict[tuple[str, bool], Callable[[Exchange], Any]] = {}


def _chooser(upstream: Any) -> Callable[[str], Upstream | None]:
    """Whose guards the requests to an origin pass."""
    if upstream == "per origin":
        return Upstream
    if upstream is None or isinstance(upstream, Upstream):
        return lambda _: upstream
    if not callable(upstream) or isinstance(upstream, type):
        raise ValueError(
            "upstream must be an Upstream for all requests, a function of the origin that gives one, None for none, "
            f'or "per origin", not {upstream!r}'
        )

    def chosen(origin: str) -> Upstream | None:
        found: Any = upstream(origin)
        if found is not None and not isinstance(found, Upstream):
            raise UsageError(
                f"the function given as upstream= must give an Upstream or None, not {type(found).__name__}"
            )
        return found

    return chosen
