"""What the scripted server can do to a client: a closed set of steps, each the answer to one request.

Nothing here opens a socket: a step is a frozen description, so a script can be a parameter, be compared and be printed.
`TurnAway` and `Talk` take the whole connection, before any request is read; all others answer one HTTP request. With
HTTP/2, what a step does to "the connection" by RST it does to its stream (RST_STREAM, with INTERNAL_ERROR), and by FIN
to the connection. `Speak` has no meaning there, and `RefuseStream` and `GoAway` have none in HTTP/1.1.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from loopback.wire import Line, Request

HeaderPairs: TypeAlias = Mapping[str, str] | Sequence[tuple[str, str]]
Ending: TypeAlias = Literal["whole", "close", "reset", "hang"]
BREATH = 0.05  # seconds in which the client reads what was sent, before the connection is broken under it


@dataclass(frozen=True)
class Reply:
    """A whole answer. A body that is not text or bytes is sent as JSON.

    `after`: seconds before its first byte. `drip`: seconds between single bytes of the whole answer (None: at once).
    HTTP/2 has its headers at once, and then one frame of data for each byte; a header like `Connection` is left out.
    """

    status: int = 200
    headers: HeaderPairs = ()
    body: Any = b""
    after: float = 0.0
    drip: float | None = None


@dataclass(frozen=True)
class Hang:
    """The request was read; no answer ever comes. Ends when the client leaves or the server stops."""


@dataclass(frozen=True)
class Close:
    """FIN after the request was read, before any answer."""


@dataclass(frozen=True)
class Reset:
    """RST after the request was read, before any answer."""


@dataclass(frozen=True)
class Cut:
    """An answer whose Content-Length promises `missing` bytes more than come; then FIN (HTTP/2: END_STREAM), or RST."""

    body: Any = b""
    status: int = 200
    headers: HeaderPairs = ()
    missing: int = 512
    reset: bool = False


@dataclass(frozen=True)
class Stream:
    """A chunked answer. A number among the chunks is a pause in seconds.

    `ends`: "whole" sends the last chunk, "close" (FIN) and "reset" (RST) do not, "hang" sends nothing more for ever.
    With HTTP/2 each chunk is a frame of data.
    """

    chunks: Sequence[bytes | float]
    ends: Ending = "whole"
    status: int = 200
    headers: HeaderPairs = field(default_factory=lambda: {"content-type": "text/event-stream"})


@dataclass(frozen=True)
class Speak:
    """These bytes as they are, then FIN: a reply that is not HTTP, or one that is HTTP in an unusual way."""

    data: bytes


@dataclass(frozen=True)
class RefuseStream:
    """HTTP/2: RST_STREAM with REFUSED_STREAM, which says that the server has not looked at the request."""


@dataclass(frozen=True)
class GoAway:
    """HTTP/2: GOAWAY, and FIN a breath later. Requests on streams above `last` were not looked at; of the others that
    are not answered yet, no more comes.
    """

    last: int = 0


@dataclass(frozen=True)
class Choose:
    """The step that `of` gives for the request: for answers that depend on what was asked."""

    of: Callable[[Request], Reply | Hang | Close | Reset | Cut | Stream | Speak | RefuseStream | GoAway]


@dataclass(frozen=True)
class TurnAway:
    """The client's first bytes are thrown away, before TLS and HTTP; then FIN, RST, or nothing for ever."""

    how: Literal["close", "reset", "hang"] = "close"


@dataclass(frozen=True)
class Talk:
    """Another protocol than HTTP: `talk` has the whole connection, which is closed when it returns."""

    talk: Callable[[Line], Awaitable[None]]


RequestStep: TypeAlias = Reply | Hang | Close | Reset | Cut | Stream | Speak | RefuseStream | GoAway | Choose
Step: TypeAlias = RequestStep | TurnAway | Talk
Taking: TypeAlias = Callable[[Request], AbstractContextManager[RequestStep]]  # the step for a request, while it lasts


def event(data: Any, name: str | None = None) -> bytes:
    """One server-sent event. Data that is not text is sent as JSON."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def json_line(data: Any) -> bytes:
    """One line of a JSON-lines stream."""
    return (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n"
