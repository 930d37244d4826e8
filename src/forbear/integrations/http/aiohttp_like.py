"""All of the middleware for aiohttp but the library itself, which comes as an argument.

Decided here: a request is one call; its response is the first thing of a stream, and its body the rest, which its
caller reads from the response itself while we watch: its lease is held until it was read, closed, or forgotten, and it
ends at the deadline. Prevents connections that stay busy with answers nobody reads, and bodies that are read for ever.
"""

from __future__ import annotations

import asyncio
import math
import warnings
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from forbear.core.stream import StreamSettings
from forbear.errors import GaveUp, StreamInterrupted, mark
from forbear.integrations.http.exchange import AttemptLog, Exchange, Rules, as_seen, least
from forbear.integrations.http.replay import Replay
from forbear.integrations.http.watching import Watch

_LONGEST = 1e9  # seconds; a longer wait needs no timer
_SHARE = 0.95  # of an attempt's time, at least
_EARLY = 0.01  # seconds; the timers of attempts fire up to so much late
_ADVICE = "give bytes, a file that can seek, or AsyncBody(function), whose function makes it anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """The library, and our errors that are its own too, by the name of ours."""

    library: ModuleType
    errors: dict[str, type[Any]]


# ---- one request -----------------------------------------------------------------------------------------------------


class _Head:
    """What remains of a response that its caller has: were it kept itself, it could not be collected as garbage."""

    __slots__ = ("headers", "status")

    def __init__(self, response: Any) -> None:
        self.headers = response.headers
        self.status = response.status


class AiohttpExchange(Exchange):
    """One request, and all attempts at it. `response` is that of the attempt that runs. `over` is set when the caller
    has done with the body, and then `broke` is what broke it, `closed` that it was closed before its end.
    """

    __slots__ = (
        "began", "broke", "clocks", "closed", "given", "handler", "loop", "over", "partner", "request", "response",
    )  # fmt: skip

    def __init__(
        self,
        partner: Partner,
        rules: Rules,
        clocks: StreamSettings,
        request: Any,
        handler: Any,
        replay: Replay,
        watch: Watch | None,
    ) -> None:
        super().__init__(rules, request.method, str(request.url.origin()), request.headers, replay, watch)
        self.partner = partner
        self.clocks = clocks
        self.request: Any = request
        self.handler: Any = handler
        self.given = request.headers
        self.loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        self.response: Any = None
        self.broke: Exception | None = None
        self.began = 0.0
        self.closed = False

    async def send(self) -> None:
        """One attempt, up to what is read inside of it. Raises the error that its answer stands for, if it is one."""
        await self._prepare()
        try:
            await self._in_time()
        except BaseException:
            self._forbid()
            raise

    async def _prepare(self) -> None:
        """An attempt begins: the request is as its caller made it, and has our headers besides."""
        attempt, request = self.begin(), self.request
        self.began, self.response, self.whole = attempt.elapsed, None, False
        again, request.response = request.response is not None, None
        if again:
            with suppress(Exception):  # it ended with whatever ended the attempt before
                await request.close()  # what writes the body must not move a file under us
        request.headers = self.given.copy()  # the answer to each attempt tells with which it was made
        for name, value in self.headers_of(attempt, self.given).items():
            request.headers[name] = value
        if again:
            request.update_expect_continue()

    async def _in_time(self) -> None:
        """Makes the attempt. The timer here knows whether anything was sent, the one around it does not."""
        limit = self._limit()
        clock = asyncio.timeout(limit if limit < _LONGEST else None)
        try:
            async with clock:
                self.response = response = await self.handler(self.request)
                self.whole = response.connection is None  # all of it came with its head
                if self.rules.holds(self.method, response.status, response.headers):
                    _quicken(response.connection, self.gap)
                    self._judge(await self._held())
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise self._late() from error

    def _limit(self) -> float:
        """Seconds until the attempt ends: a little before its own time is over, but not before the deadline."""
        attempt = self.attempt
        left = None if attempt is None else attempt.timeout
        if attempt is None or left is None:
            return math.inf
        ends_at_deadline = attempt.deadline is not None and attempt.deadline.remaining() - left < _EARLY
        return left + _EARLY if ends_at_deadline else max(left - _EARLY, left * _SHARE)

    def _forbid(self) -> None:
        """The attempt has failed, or was cut: it may be that no other can be made."""
        if self.attempt is None:
            return
        if self.replay.once and self.request.response is not None:  # it was sent, or is being sent
            self.attempt.forbid_retry(f"the body of the request can be read only once; {_ADVICE}")
        if _session_is_late(self.request):
            self.attempt.forbid_retry("the session's total timeout, which is around all attempts, is over")

    def _late(self) -> Exception:
        """The attempt's time is over."""
        library = self.partner.library
        if self.request.response is None:  # nothing was sent yet
            return library.ConnectionTimeoutError("the attempt's time was over before there was a connection")  # type: ignore[no-any-return]
        return library.ServerTimeoutError("the attempt's time was over before its answer was complete")  # type: ignore[no-any-return]

    async def _held(self) -> bytes:
        """What is read of the body inside the attempt; it can be read again."""
        content, chunks, size = self.response.content, list[bytes](), 0
        room = self.rules.room(self.response.status)
        while size <= room and (chunk := await content.readany()):
            chunks.append(chunk)
            size += len(chunk)
        self.whole = content.is_eof()  # as the last of it may have come with what went beyond the room
        held = b"".join(chunks)
        if held:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # it is for aiohttp's own use, as here
                content.unread_data(held)
        return held

    def _judge(self, held: bytes) -> None:
        """Raises the error that the answer stands for, if it is one."""
        response: Any = self.response
        if response.status < 400:
            return
        about, text = response.request_info, response.reason or ""
        error: Any = self.partner.library.ClientResponseError(
            about, response.history, status=response.status, message=text, headers=response.headers
        )
        error.body = held
        if not self.whole:
            room = self.rules.room(response.status)
            cut = f"the answer is a failure, and longer than {room:,} bytes: it was not read to its end"
            response.content.set_exception(self.partner.library.ClientPayloadError(cut))
        self.refused = (error, response)
        del error  # a frame must not keep alive what it raises
        raise self.refused[0]

    def drop(self) -> None:
        """An attempt is over: a response that nobody gets is closed, as its connection would be lost for the pool."""
        if isinstance(self.response, self.partner.library.ClientResponse) and not self.whole:
            self.response.close()

    # ---- what the caller gets ----------------------------------------------------------------------------------------

    def own(self, error: BaseException) -> BaseException:
        """`error` as one of aiohttp. A session's own limit of time stays what it is."""
        if type(error) is TimeoutError and self.request is not None and _session_is_late(self.request):
            return error
        return as_seen(error, self.partner.errors, self.partner.library.ServerTimeoutError)

    def asked(self) -> tuple[str, object]:
        """The address, and the body where it is bytes."""
        content = getattr(self.request.body, "_value", None)
        return str(self.request.url), content if isinstance(content, bytes) else None

    def show(self, response: Any, log: AttemptLog) -> None:
        """As an attribute; and its `raise_for_status` marks what it raises, if it was retried in vain."""
        response.__forbear_log__ = log
        if log.gave_up is not None:
            kind = self.partner.library.ClientResponseError
            about = {"status": response.status, "message": response.reason or "", "headers": response.headers}
            anew = partial(kind, response.request_info, response.history, **about)
            response.raise_for_status = partial(_raise_marked, weakref.ref(response), kind, anew, log.gave_up)

    async def received(self, chunks: AsyncGenerator[Any]) -> Any:
        """The response as its caller gets it."""
        self.whole = self.whole or self.response.connection is None  # it may have come to its end meanwhile
        if not self.whole:
            return self.hand_over(chunks)
        with suppress(StreamInterrupted):  # there is nothing more to come too late
            await anext(chunks, None)
        return self.handed_out(self.response)

    # ---- the rest of the body ----------------------------------------------------------------------------------------

    def hand_over(self, chunks: AsyncGenerator[Any]) -> Any:
        """The response, whose body is still to come: its caller reads it, and we watch."""
        response: Any = self.response
        self.handed_out(response)
        response.connection.add_callback(partial(self._ended, weakref.ref(response)))
        _quicken(response.connection, self.clocks.gap_timeout)
        # From here on we hold nothing that holds the response.
        self.response = _Head(response)
        watcher = self.loop.create_task(self._watch_over(chunks, weakref.ref(response), self._time_left()))
        self.request = self.handler = None
        _WATCHERS.add(watcher)
        watcher.add_done_callback(_WATCHERS.discard)
        return response

    def _time_left(self) -> float | None:
        """Seconds that the rest may take; None for no limit."""
        attempt, total = self.attempt, self.clocks.total_timeout
        if attempt is None:
            return None
        left = None if total is None else max(0.0, total - (attempt.elapsed - self.began))
        left = left if attempt.deadline is None else least(left, attempt.deadline.remaining())
        return None if left is None or left >= _LONGEST else left

    def _ended(self, reference: weakref.ref[Any]) -> None:
        """The connection has gone back: the body was read to its end, closed, or broken, or nobody holds it."""
        response = reference()
        content = None if response is None else response.content
        broke = None if content is None else content.exception()
        if response is not None and _session_is_late(response):
            self.broke = TimeoutError("the session's total timeout was over before the answer was read")
        elif broke is None or type(broke) is self.partner.library.ClientConnectionError:  # "Connection closed"
            self.closed = content is None or not content.is_eof()
        elif isinstance(broke, Exception):
            self.broke = broke
        self.loop.call_soon_threadsafe(self.over.set)  # the garbage collector runs in any thread

    async def _watch_over(self, chunks: AsyncGenerator[Any], reference: weakref.ref[Any], left: float | None) -> None:
        """Gives all back once the caller has done with the body, and ends the body where it takes too long."""
        async with aclosing(chunks):
            try:
                async with asyncio.timeout(left):
                    await self.over.wait()
            except TimeoutError:
                self.broke = TimeoutError("the answer's time was over before it was read")
            if self.closed:
                return
            try:
                await anext(chunks, None)
            except StreamInterrupted as error:
                response = reference()
                if response is not None and not self.over.is_set():
                    response.content.set_exception(self.at_the_deadline(self.own(error.__cause__ or error)))
                    response.close()


_WATCHERS = set[asyncio.Task[None]]()  # the event loop holds its tasks only weakly


class Sending:
    """One attempt: what is iterated, and the response once it is there, whose headers the guards read."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: AiohttpExchange) -> None:
        self._exchange = exchange

    @property
    def response(self) -> Any:
        """The response, or what remains of it; None before it came."""
        return self._exchange.response

    async def __aiter__(self) -> AsyncGenerator[str]:
        exchange = self._exchange
        try:
            await exchange.send()
            yield "head"  # not the response itself, which the frames that wait here would keep alive
            if exchange.broke is not None:
                raise exchange.broke
        finally:
            exchange.drop()


def _raise_marked(reference: weakref.ref[Any], kind: type[Exception], anew: Any, gave_up: GaveUp) -> None:
    """`raise_for_status` of a response that was retried in vain: no layer around it must retry it again.

    It is in the response, so it must not hold it. `anew` makes the error where it is gone, as it is at once in
    `(await session.get(url)).raise_for_status()`.
    """
    response = reference()
    try:
        if response is None:
            raise anew()
        type(response).raise_for_status(response)
    except kind as error:
        mark(error, gave_up)
        raise


def _quicken(connection: Any, gap: float | None) -> None:
    """From now on nothing that is read in this answer may take longer than `gap` seconds to come."""
    protocol = None if connection is None else connection.protocol
    if gap is None or protocol is None:
        return
    protocol.read_timeout = least(protocol.read_timeout, gap)
    if not protocol._reading_paused:  # noqa: SLF001  # else it starts when reading goes on
        protocol.start_timeout()


def _session_is_late(owner: Any) -> bool:
    """Whether the session's total timeout, which is around all attempts, is over: of a request, or of its response."""
    try:
        owner._timer.assert_timeout()  # noqa: SLF001
    except TimeoutError:
        return True
    return False
