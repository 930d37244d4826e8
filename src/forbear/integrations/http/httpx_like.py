"""What the transports for httpx and for its successor httpx2 have in common, which is all but the library's name.

Decided here: a request is one call; its response is the first thing of a stream, and its body the rest. So what a
stream has an HTTP call has too: leases that are held until the body is closed, clocks, and one clean error. Must never
import either library: it comes as an argument.

Prevents connections that stay busy with answers nobody reads, and bodies that are read past the deadline.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from forbear.errors import StreamInterrupted
from forbear.integrations.http.clipping import Timeouts, clip, tracing
from forbear.integrations.http.exchange import AttemptLog, Exchange, Rules, as_seen, least
from forbear.integrations.http.replay import Replay, position_of, replay_of
from forbear.integrations.http.watching import Watch

_CLOCKS = ("connect", "read", "write", "pool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """The library, and what it needs of ours as classes of its own.

    body, async_body: streams of the rest of an answer. sent: a stream of a request's body.
    errors: our errors, which are the library's own too, by the name of ours.
    """

    library: ModuleType
    body: type[Any]
    async_body: type[Any]
    sent: type[Any]
    errors: dict[str, type[Any]]


def origin_of(url: Any) -> str:
    """Scheme, host and port of a URL; a name and password in it stay out."""
    return f"{url.scheme}://{url.netloc.decode('ascii').rpartition('@')[2]}"


class Head(NamedTuple):
    """What the guards read of an answer."""

    headers: Any


class HttpxExchange(Exchange):
    """One request of httpx, and all attempts at it. `inner` sends it; `response` is that of the attempt that runs,
    until the caller has it; `head` is what remains of it.

    stream: its body, as the inner transport gave it. size: bytes of it that were read inside the attempt; late: whether
    its time was over then; broke: whether that of a failure broke off, which is judged by what has come. limit: seconds
    for an attempt to the head of its answer, where the library's own timers end it; began: seconds after the call when
    it did.
    """

    __slots__ = (
        "began", "blocking", "broke", "head", "inner", "late", "limit", "partner", "request", "response", "sent",
        "size", "stream",
    )  # fmt: skip

    def __init__(
        self,
        partner: Partner,
        rules: Rules,
        inner: Any,
        request: Any,
        watch: Watch | None,
        *,
        blocking: bool,
        limit: float | None = None,
    ) -> None:
        replay = replay_of_stream(request.stream, partner)
        super().__init__(rules, request.method, origin_of(request.url), request.headers, replay, watch)
        self.partner = partner
        self.inner = inner
        self.request = request
        self.blocking = blocking
        self.limit = limit
        self.began = 0.0
        self.response: Any = None
        self.head: Head | None = None
        self.stream: Any = None
        self.sent: Sent | None = None
        self.late = self.broke = False
        self.size = 0

    def outgoing(self) -> Any:
        """The request as the attempt that begins now sends it. The caller's own stays as it is."""
        attempt, request = self.begin(), self.request
        self.response = self.head = None
        self.whole = self.late = self.broke = False
        self.size = 0
        self.began = attempt.elapsed
        headers = request.headers.copy()
        for name, value in self.headers_of(attempt, headers).items():
            headers[name] = value
        given = request.extensions.get("timeout") or {}
        most = least(self.limit, attempt.timeout)
        timeouts = {name: least(given.get(name), most) for name in _CLOCKS}
        extensions = {**request.extensions, "timeout": Timeouts(timeouts, self.left)}
        made = self.partner.library.Request(
            request.method,
            request.url,
            headers=headers,
            stream=self._to_send(),
            extensions=tracing(extensions) if self.blocking else extensions,
        )
        if isinstance(request.stream, self.partner.library.ByteStream):
            made.read()  # so that what signs or records it below finds its content, as without us
        return made

    def _to_send(self) -> Any:
        """The body that this attempt sends: bytes as they are, all others so that they can be closed after it."""
        stream = self.request.stream
        if isinstance(stream, self.partner.library.ByteStream):
            return stream
        self.sent = self.partner.sent(self.body_begun if self.replay.once else None, stream)
        return self.sent

    def left(self) -> float:
        """Seconds that the next read or write may take; may be infinite."""
        left = self._left()
        return left if self.gap is None or self.head is None else min(left, self.gap)

    def _left(self) -> float:
        """Seconds until the attempt, or the wait that is under way, has taken too long."""
        attempt = self.attempt
        timeout = None if attempt is None else attempt.timeout
        left = math.inf if timeout is None else timeout
        if self.blocking or attempt is None:
            return left
        if self.limit is None or (self.response is None and self.head is not None):
            return left
        return min(left, self.limit - attempt.elapsed + self.began)

    def came(self, response: Any) -> bool:
        """The head of an answer has come: whether its body is to be read inside the attempt."""
        self.response, self.stream, self.head = response, response.stream, Head(response.headers)
        if self.blocking and response.status_code != 101:
            clip(response.extensions.get("network_stream"))  # that of a connection which was there before us
        if response.is_stream_consumed:  # it is there already, as that of a mock or a cache is
            self.whole = True
            self.judge([response.content])
            return False
        return self.rules.holds(self.method, response.status_code, response.headers)

    def take(self, held: list[bytes], chunk: bytes) -> bool:
        """More of an answer that is read inside the attempt has come. Whether there is room for the next chunk.

        Raises the library's ReadTimeout where it came after the time was over; what ends in time may be taken in late.
        """
        if self.late:
            raise self.partner.library.ReadTimeout("the attempt's time was over before its answer was complete")
        self.late = self._left() <= 0
        held.append(chunk)
        self.size += len(chunk)
        return self.size <= self._room

    @property
    def _room(self) -> int:
        return self.rules.room(self.response.status_code)

    def breaks(self, error: Exception) -> None:
        """A body broke, or is too slow, while it was read inside the attempt. Raises the error, unless the answer is a
        failure anyway.
        """
        if self.response.status_code < 400:
            raise error
        self.broke = True

    def judge(self, held: list[bytes]) -> None:
        """The body was read, as far as there is room. Raises the error that the answer stands for, if it is one."""
        response, content = self.response, b"".join(held)
        if not self.whole and not self.broke and self.size <= self._room:
            self.whole = True
            response.stream = self.partner.library.ByteStream(content)
        if response.status_code < 400:
            return
        if not self.whole:
            self._cut(response, held)
        self.refused, self.response = (self._error_of(response, content), response), None
        raise self.refused[0]  # no name for it here: a frame must not keep alive what it raises

    def _cut(self, response: Any, held: list[bytes]) -> None:
        """A long answer that is a failure, and may be handed out all the same: what was read of it, then an error."""
        why = "its body broke off" if self.broke else f"longer than {self._room:,} bytes"
        text = f"the answer is a failure, and {why}: the rest was not read"
        error = self.partner.library.ReadError(text)
        if self.blocking:
            response.stream = self.partner.body(self, _then_raise(held, error))
        else:
            response.stream = self.partner.async_body(self, _then_raise_async(held, error))

    def _error_of(self, response: Any, content: bytes) -> Exception:
        """The library's own error for an answer, with a copy of it: the caller may still read the answer itself."""
        library = self.partner.library
        copy = library.Response(
            response.status_code,
            headers=response.headers,
            stream=library.ByteStream(content),
            request=self.request,
            extensions=response.extensions,
        )
        with suppress(Exception):  # a body that can't be decoded says nothing; its status does
            copy.read()
        text = f"{response.status_code} {response.reason_phrase} for {self.name}"
        return library.HTTPStatusError(text, request=self.request, response=copy)  # type: ignore[no-any-return]

    def own(self, error: BaseException) -> BaseException:
        """`error` as one of httpx."""
        return as_seen(error, self.partner.errors, self.partner.library.ReadTimeout)

    def asked(self) -> tuple[str, object]:
        """The address, and what was read of the body; None for a stream."""
        return str(self.request.url), getattr(self.request, "_content", None)

    def show(self, response: Any, log: AttemptLog) -> None:
        """Among the extensions."""
        response.extensions["forbear"] = log

    def received(self, chunks: Any) -> Any:
        """The response as its caller gets it, with the rest of its body."""
        if not self.blocking:
            return self._received_async(chunks)
        if self.whole:
            with suppress(StreamInterrupted):  # there is nothing more to come too late
                next(chunks, None)
        return self._with_rest(self.partner.body, chunks)

    async def _received_async(self, chunks: Any) -> Any:
        if self.whole:
            with suppress(StreamInterrupted):
                await anext(chunks, None)
        return self._with_rest(self.partner.async_body, chunks)

    def _with_rest(self, body: type[Any], chunks: Any) -> Any:
        response, self.response = self.response, None  # it belongs to its caller from now on
        if not self.whole:
            response.stream = body(self, chunks)
        return self.handed_out(response)

    def broken(self, interrupted: StreamInterrupted) -> BaseException:
        """What a caller sees of an answer whose body broke."""
        cause = interrupted.__cause__
        if cause is None:
            return interrupted
        seen = self.own(cause)
        return self.at_the_deadline(seen) if isinstance(seen, self.partner.library.TimeoutException) else seen


def _then_raise(chunks: list[bytes], error: Exception) -> Generator[bytes]:
    yield from chunks
    raise error


async def _then_raise_async(chunks: list[bytes], error: Exception) -> AsyncGenerator[bytes]:
    for chunk in chunks:
        yield chunk
    raise error


# ---- the body of a request -------------------------------------------------------------------------------------------


class Sent:
    """A request's body in one attempt, which is closed after it, however far it was read. `begun` is called when
    somebody begins to; None: nobody wants to know.
    """

    def __init__(self, begun: Callable[[], None] | None, stream: Any) -> None:
        self._begun = begun
        self._stream = stream
        self._chunks: Any = None

    def __iter__(self) -> Iterator[bytes]:
        if self._begun is not None:
            self._begun()
        self._chunks = iter(self._stream)
        return self._chunks  # type: ignore[no-any-return]

    def __aiter__(self) -> Any:
        if self._begun is not None:
            self._begun()
        self._chunks = self._stream.__aiter__()
        return self._chunks

    def finish(self) -> None:
        """Closes what was read; a file, or an iterator of the caller's own, is its caller's to close."""
        if isinstance(self._chunks, Generator):
            self._chunks.close()

    async def afinish(self) -> None:
        """As `finish`, in async code."""
        if isinstance(self._chunks, AsyncGenerator):
            await self._chunks.aclose()


def replay_of_stream(stream: Any, partner: Partner) -> Replay:
    """How the body of a request is sent again. Its streams keep what the caller gave under these names."""
    if isinstance(stream, partner.library.ByteStream):
        return Replay()
    fields = getattr(stream, "fields", None)
    if isinstance(fields, list):  # a multipart form: it sets its files back by itself, to their beginning
        files = [field.file for field in fields if not isinstance(getattr(field, "file", b""), (bytes, str))]
        return Replay(once=any(position_of(file) is None for file in files))
    return replay_of(getattr(stream, "_stream", stream if hasattr(type(stream), "__next__") else _OPAQUE))


class _Opaque:
    """A body of which nobody knows whether it can be read again."""


_OPAQUE = _Opaque()
