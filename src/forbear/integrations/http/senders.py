"""How the requests of one transport are sent: under which options, and through whose guards.

Decided here: one `Upstream` per origin, so that a server in trouble holds back what goes to it and nothing else. Must
never know a client library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from forbear.calls.blocking import guard_stream
from forbear.calls.options import PolicyOptions, Retryable, plan_of
from forbear.calls.stream import guard_async
from forbear.calls.upstream import Upstream
from forbear.classify.stream_events import StreamEvents
from forbear.core.events import RetryState
from forbear.core.stream import Signal
from forbear.core.validation import Seconds
from forbear.integrations.http.exchange import KEY, Exchange
from forbear.upstream.breaker import CircuitBreaker
from forbear.upstream.budget import RetryBudget
from forbear.upstream.limiter import RateLimiter

MOST_ORIGINS = 1_000  # a crawler meets many; the one that was asked for longest ago is forgotten
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
}


class _Bytes(StreamEvents):
    """What comes of an answer: the head, then bytes. None of it is remembered."""

    def read(self, chunk: Any) -> Signal:  # noqa: ARG002
        return _SEEN


_SEEN = Signal(text=b"")
_EVENTS = _Bytes()


class Senders:
    """The senders of one transport: `sender(exchange)` gives the generator that sends the request.

    `source` makes the chunks of one attempt: the response first, then its body.
    """

    def __init__(
        self, source: Callable[[Any], Any], upstream: UpstreamOf, options: Mapping[str, Any], *, blocking: bool
    ) -> None:
        for option in options:
            if option in _NOT_HERE:
                raise TypeError(f"a transport takes no {option}=: {_NOT_HERE[option]}")
        self._source = source
        self._guard: Callable[..., Any] = guard_stream if blocking else guard_async
        self._options: dict[str, Any] = {"events": _EVENTS, **options}
        tokens: Any = options.get("tokens")
        if callable(tokens):
            self._options["tokens"] = lambda exchange: tokens(exchange.request)
        self._upstream_of = lru_cache(MOST_ORIGINS)(_chooser(upstream, options))
        self._sender = lru_cache(MOST_ORIGINS)(self._made)
        single = any(options.get(name) is not None for name in _SINGLE)
        self._plan("checked", False, None if upstream is None or single else Upstream("checked"))

    def sender(self, exchange: Exchange) -> Callable[[Exchange], Any]:
        """What sends this request."""
        return self._sender(exchange.origin, exchange.method, exchange.repeatable)

    def upstream_of(self, origin: str) -> Upstream | None:
        """What all requests to this origin share."""
        return self._upstream_of(origin)

    def _made(self, origin: str, method: str, repeatable: bool) -> Callable[[Exchange], Any]:
        plan = replace(
            self._plan(f"{method} {origin}", repeatable, self._upstream_of(origin)),
            unsafe=f"it may have been done, and {method} is not repeatable; send an {KEY} header (idempotency_key=True "
            "adds one), or say idempotent=True",
        )
        return self._guard(plan, self._source, None)  # type: ignore[no-any-return]

    def _plan(self, name: str, repeatable: bool, upstream: Upstream | None) -> Any:
        """Raises TypeError and ValueError for options that make no sense; one is made with the transport, at once."""
        return plan_of(name, {**self._options, "idempotent": repeatable, "upstream": upstream}, stream=True)


def _chooser(upstream: Any, options: Mapping[str, Any]) -> Callable[[str], Upstream | None]:
    """Whose guards the requests to an origin pass."""
    if upstream == "per origin":
        single = any(options.get(name) is not None for name in _SINGLE)
        return (lambda _: None) if single else Upstream
    if upstream is None or isinstance(upstream, Upstream):
        return lambda _: upstream
    if not callable(upstream) or isinstance(upstream, type):
        raise ValueError(
            "upstream must be an Upstream for all requests, a function of the origin that gives one, None for none, "
            f'or "per origin", not {upstream!r}'
        )
    return upstream  # type: ignore[no-any-return]
