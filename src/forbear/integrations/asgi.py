"""Deadlines and errors at the door of an ASGI application: FastAPI, Starlette, or any other.

Decided here: how long a request may take, which one is not begun at all, and what an error of forbear is answered with
when the application has not answered it itself. Knows ASGI and no framework, and never what an application does.
Prevents work for callers who have left, requests that outlive them, and failures of other services that look like our
own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Never, Self

from forbear.calls.deadline import Deadline, DeadlineBlock, deadline
from forbear.calls.verdicts import retry_after_of, wall_clock
from forbear.classify.groups import MOST_IN_GROUPS, made_from
from forbear.core.validation import Seconds, flag, optional_seconds, refuse_unknown, seconds
from forbear.errors import CircuitOpenError, DeadlineExceeded, GiveUpReason, RetryError, mark_of, type_name
from forbear.integrations.http.deadline_header import GRPC, INSTANT, read

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAXIMUM = 60.0  # seconds; the longest that common gateways and workers wait for an answer
MARGIN = 0.05  # seconds; an answer needs some to reach the caller before it stops waiting

logger = logging.getLogger("forbear")

# Names that are tried first.
_MEANT = {
    **dict.fromkeys(
        ("deadline", "limit", "max", "max_deadline", "max_timeout", "maximum_timeout", "request_timeout", "seconds",
         "timeout", "total"), "maximum"),
    **dict.fromkeys(("deadline_header", "header_name", "header_names", "headers", "names"), "header"),
    **dict.fromkeys(("dry_run", "log_only", "observe", "report_only", "shadow"), "observe_only"),
    **dict.fromkeys(("grace", "reserve", "slack"), "margin"),
    "counter": "counts", "metrics": "counts", "stats": "counts",
}  # fmt: skip
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # what a header's name may be, by RFC 9110
_MORE_TIME = "allow more time with maximum=, or in the header of its caller"


@dataclass(slots=True, kw_only=True)
class DeadlineCounts:
    """What a `DeadlineMiddleware` has seen: totals since the object was made. Make it yourself to keep hold of it.

    `requests`: all of them. `with_deadline`: those whose deadline could be read. `unreadable`: those with a deadline
    that could not. `clipped`: those with a longer one than the maximum. `late`: no time was left when they came.
    `overran`: they were not done in time. `failed`: an error of forbear left the application unanswered. The last three
    are answered by the middleware; where it only observes, they tell what it would have answered, or cut.
    """

    requests: int = 0
    with_deadline: int = 0
    unreadable: int = 0
    clipped: int = 0
    late: int = 0
    overran: int = 0
    failed: int = 0

    def snapshot(self) -> Self:
        """A copy that stands still."""
        return replace(self)


class DeadlineMiddleware:
    """Binds each request to its caller's deadline, and answers the errors of forbear that leave the application.

    `maximum`: seconds that a request may take at most, whatever its caller says, and where it says nothing; None: no
    such bound. `margin`: seconds of the caller's deadline that are kept back for answering. `header`: the names of the
    headers that are read; the tightest counts, () reads none. `observe_only`: sheds, cuts and answers nothing, but
    counts and logs. `counts`: where to count.

    Raises ValueError for settings that can't hold, and TypeError for options that there are not.
    """

    def __init__(
        self,
        app: App,
        *,
        maximum: Seconds | None = MAXIMUM,
        margin: Seconds = MARGIN,
        header: str | Iterable[str] = (INSTANT, GRPC),
        observe_only: bool = False,
        counts: DeadlineCounts | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown("DeadlineMiddleware", unknown, _MEANT)
        self._app = _checked(app)
        self._maximum = optional_seconds("maximum", maximum, zero=False)
        self._margin = seconds("margin", margin, endless=False)
        self._names = _names_of(header)
        self._observe_only = flag("observe_only", observe_only)
        self.counts = DeadlineCounts() if counts is None else _kept(counts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection. Only requests of HTTP are bound: a WebSocket has no end of its own."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope)
        late = limit is not None and limit <= 0
        if late:
            self.counts.late += 1
            self._log_seldom(self.counts.late, "that came with no time left", "answered 504 at once")
        if self._observe_only:
            await self._watched(limit, scope, receive, send, late=late)
        elif late:
            await _answer(_LATE, scope, send)
        else:
            await self._bound(limit, scope, receive, send)

    def _limit(self, scope: Scope) -> float | None:
        """Seconds that this request may take; not above zero where it is late, None where nothing bounds it."""
        wall, granted, unreadable = wall_clock(), math.inf, False
        for key, value in scope["headers"]:
            name = self._names.get(key.lower())
            if name is not None:
                left = read(name, value.decode("latin-1"), wall)
                unreadable = unreadable or left is None
                granted = granted if left is None else min(granted, left)
        counts, maximum = self.counts, self._maximum
        counts.requests += 1
        counts.unreadable += unreadable
        if granted == math.inf:
            return maximum
        counts.with_deadline += 1
        granted -= self._margin
        if maximum is None or granted <= maximum:
            return granted
        counts.clipped += 1
        return maximum

    async def _bound(self, limit: float | None, scope: Scope, receive: Receive, send: Send) -> None:
        response, block = _Response(send), deadline(limit)
        try:
            async with AsyncExitStack() as stack:
                response.runs_under(await _entered(block, stack), block, stack)
                try:
                    await self._app(scope, receive, response.send)
                finally:
                    self._log_end(response)
        except Exception as error:
            cut = block.timed_out and _is_cut(error)
            if cut:
                error.add_note(f"forbear: the request was cut by DeadlineMiddleware; {_MORE_TIME}")
            known = None if response.started else _known(error, cut=cut)
            if known is None:
                raise
            self.counts.failed += 1
            trouble, said = known
            logger.warning("answered %d to %s: %s", trouble.status, _place(scope), said)
            await _answer(trouble, scope, send)

    async def _watched(self, limit: float | None, scope: Scope, receive: Receive, send: Send, *, late: bool) -> None:
        """Changes nothing, and sees what would have been changed."""
        response = _Response(send)
        if not late:
            with deadline(limit) as would_hold:  # left at once: only its clock is wanted
                pass
            response.runs_under(would_hold)
        try:
            await self._app(scope, receive, response.send)
        except Exception as error:
            known = None if response.started else _known(error)
            if known is not None:
                self.counts.failed += 1
                trouble, said = known
                logger.warning("would have answered %d to %s: %s", trouble.status, _place(scope), said)
            raise
        finally:
            self._log_end(response)

    def _log_end(self, response: _Response) -> None:
        if response.in_time():
            return
        self.counts.overran += 1
        self._log_seldom(self.counts.overran, "not done in time", "cut, or answered late")

    def _log_seldom(self, count: int, what: str, done: str) -> None:
        """Each doubling is told: in an overload, a line per request would be one more load."""
        if count & (count - 1) == 0:
            logger.warning("requests %s: %d so far (%s)", what, count, "only observed" if self._observe_only else done)


class _Response:
    """One answer on its way. Its deadline ends with its last byte: what the application does then is its own."""

    __slots__ = ("_block", "_deadline", "_in_time", "_send", "_stack", "_trailers", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._deadline: Deadline | None = None
        self._block: DeadlineBlock | None = None
        self._stack: AsyncExitStack | None = None
        self._in_time: bool | None = None
        self._trailers = False
        self.started = False

    def runs_under(
        self, holds: Deadline | None, block: DeadlineBlock | None = None, stack: AsyncExitStack | None = None
    ) -> None:
        """The deadline that holds, and the block that is left when the answer is complete."""
        self._deadline, self._block, self._stack = holds, block, stack

    async def send(self, message: Message) -> None:
        """Passes a message on."""
        if message["type"] == "http.response.start":
            self.started = True
            self._trailers = bool(message.get("trailers"))
        await self._send(message)
        if self._in_time is None and self._is_last(message):
            self.in_time()
            # Where the cut is already on its way, the block must see it arrive.
            if self._stack is not None and self._block is not None and not self._block.timed_out:
                await self._stack.aclose()

    def in_time(self) -> bool:
        """Whether the answer was complete before its deadline; where it is not yet, whether that is still ahead."""
        if self._in_time is None:
            self._in_time = self._deadline is None or not self._deadline.expired
        return self._in_time

    def _is_last(self, message: Message) -> bool:
        match message["type"]:
            case "http.response.body":
                return not message.get("more_body") and not self._trailers
            case "http.response.trailers":
                return not message.get("more_trailers")
            case kind:
                return bool(kind == "http.response.pathsend")


async def _entered(block: DeadlineBlock, stack: AsyncExitStack) -> Deadline | None:
    """Under asyncio the block also cuts what knows nothing of deadlines. Elsewhere it binds the calls of forbear."""
    if asyncio._get_running_loop() is None:  # noqa: SLF001  # public, despite its name
        return stack.enter_context(block)
    return await stack.enter_async_context(block)


# ---- what may be given -----------------------------------------------------------------------------------------------


def _checked(app: Any) -> App:
    if callable(app):
        return app  # type: ignore[no-any-return]
    raise TypeError(
        f"DeadlineMiddleware goes around an ASGI application, not {type(app).__name__}: DeadlineMiddleware(app), or "
        "app.add_middleware(DeadlineMiddleware)"
    )


def _kept(counts: Any) -> DeadlineCounts:
    if isinstance(counts, DeadlineCounts):
        return counts
    raise ValueError("counts must be an object of yours to count in: counts = DeadlineCounts(), then counts=counts")


def _names_of(header: Any) -> dict[bytes, str]:
    several = isinstance(header, Iterable) and not isinstance(header, str)
    names: tuple[Any, ...] = tuple(header) if several else (header,)
    if not all(isinstance(name, str) and _TOKEN.fullmatch(name) for name in names):
        raise ValueError(
            "header must name one header or several, such as ('X-Request-Deadline', 'grpc-timeout'), each by a text "
            "without spaces, commas and colons; () reads none"
        )
    return {name.lower().encode("ascii"): name for name in names}


# ---- what an error is answered with ----------------------------------------------------------------------------------


class _Trouble(NamedTuple):
    """An answer: `text` says what happened, `hint` the seconds after which to come back, where they are known."""

    status: int
    text: str
    hint: float | None = None


_LATE = _Trouble(504, "the deadline of this request had passed when it came")
_DOWN = _Trouble(503, "a service behind this one is down")
_OF_REASON = {
    "max_attempts": _Trouble(502, "a service behind this one has failed, and failed again"),
    "deadline": _Trouble(504, "the time for this request is over"),
    "budget": _Trouble(503, "a service behind this one is failing for everyone"),
}
_COME_LATER = "a service behind this one asks to come back later than this request can wait"
_LONGEST_HINT = 1e9  # seconds; no wait lasts thirty years


class _Found(NamedTuple):
    """The error by which a request is answered, and how."""

    error: BaseException
    trouble: _Trouble


def _known(error: BaseException, *, cut: bool = False) -> tuple[_Trouble, str] | None:
    """How an error is answered, and what is logged of it. Not the error by which: its frames must not keep it alive."""
    found = _found_in(error)
    return None if found is None else (found.trouble, _summary(error, found.error, cut=cut))


def _found_in(error: BaseException) -> _Found | None:
    """The nearest error of ours that this one was made from on purpose, itself included; None without one.

    All errors of a group must be so made, and the first decides: one that is not is a mistake that must be seen.
    """
    found: _Found | None = None
    todo, seen = [error], set[int]()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        nearest = _nearest(one)
        if nearest is not None:
            found = found or nearest
        elif isinstance(one, BaseExceptionGroup) and len(seen) < MOST_IN_GROUPS:
            todo.extend(reversed(one.exceptions))
        else:
            return None
    return found


def _nearest(error: BaseException) -> _Found | None:
    trouble = _trouble_of(error)
    if trouble is not None:
        return _Found(error, trouble)
    # A client's own error around ours; what was only being handled when an error was raised is not what it means.
    for origin in made_from(error, contexts=False):
        trouble = _trouble_of(origin)
        if trouble is not None:
            return _Found(origin, trouble)
    return None


def _trouble_of(error: BaseException) -> _Trouble | None:
    """How an error of forbear is answered, or one that it has raised again after giving up. None for all others."""
    if isinstance(error, CircuitOpenError):
        return _DOWN._replace(hint=error.retry_in)
    if isinstance(error, RetryError):
        return _gave_up(error.reason, error.hint)
    fact = mark_of(error)
    return None if fact is None else _gave_up(fact.reason, retry_after_of(error))


def _gave_up(reason: GiveUpReason, hint: float | None) -> _Trouble:
    trouble = _OF_REASON[reason]._replace(hint=hint)
    # Had the wait been short enough it would have been waited for: the time is seldom over then.
    return trouble._replace(text=_COME_LATER) if hint and reason == "deadline" else trouble


def _is_cut(error: BaseException) -> bool:
    """Whether a deadline block has made the error: no call of forbear was under way there, so none knows more."""
    return isinstance(error, DeadlineExceeded) and not (error.last_error or error.held_by) and error.elapsed > 0


async def _answer(trouble: _Trouble, scope: Scope, send: Send) -> None:
    body = json.dumps({"error": trouble.text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if trouble.hint is not None and trouble.hint < _LONGEST_HINT:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(trouble.hint))))
    await send({"type": "http.response.start", "status": trouble.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else body})


def _summary(error: BaseException, own: BaseException, *, cut: bool = False) -> str:
    """What is told of `error`, by `own`: our texts hold no secrets; of a foreign error nothing but its type is told."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    fact = mark_of(own)
    if cut and isinstance(own, RetryError):
        text = f"{type_name(own)}: the request was cut after {own.elapsed:.2f} s; {_MORE_TIME}"
    elif fact is None:
        text = f"{type_name(own)}: {own}"
    else:
        text = f"{type_name(own)} after attempt {fact.attempts} in {fact.elapsed:.2f} s ({fact.reason})"
    return text if error is own else f"{text}; it came as {type_name(error)}"


def _place(scope: Scope) -> str:
    """Which request it was, without its path: keys and names of people are in paths."""
    endpoint = getattr(scope.get("endpoint"), "__qualname__", "")
    return f"{scope.get('method', '')} {endpoint}".strip() or "a request"
