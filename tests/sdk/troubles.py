"""Every way in which a call fails without an answer that could be read: a closed set, to be tried with every SDK.

A trouble makes the place that a call is sent to. It is about sockets only, and says what can be known for certain:
whether the request can have reached the service.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, TypeAlias

from loopback import (
    Close,
    Cut,
    Hang,
    Line,
    Reset,
    Server,
    Speak,
    Step,
    Stream,
    Talk,
    TurnAway,
    refused,
    unanswered,
    unresolvable,
)
from sdk.places import PATIENT, SHORT, Call, Missing, Place

Executed: TypeAlias = Literal["no", "maybe"]
Makes: TypeAlias = Callable[[Call], AbstractContextManager[Place]]


@dataclass(frozen=True)
class Trouble:
    """One way to fail, and what may be concluded from it.

    `executed`: whether the service may have acted. `retryable`: whether the same call may succeed later (None: opinions
    differ). `scope`: which calls are tried with it, those with a whole answer, with a stream, or on a full pool.
    """

    makes: Makes
    executed: Executed
    retryable: bool | None = True
    scope: Literal["whole", "stream", "pool"] = "whole"

    def meets(self, name: str, call: Call) -> bool:
        """Whether a call of this name is tried with this trouble."""
        own = "pool" if name == "full-pool" else "stream" if call.opening else "whole"
        return self.scope == own and call.tried


def served(step: Callable[[Call], Step], read_timeout: float = PATIENT) -> Makes:
    """A server that does one thing."""

    @contextmanager
    def make(call: Call) -> Iterator[Place]:
        with Server(step(call)) as server:
            yield Place(server.url, read_timeout=read_timeout)

    return make


def absent(address: Callable[[], AbstractContextManager[str]], connect_timeout: float = PATIENT) -> Makes:
    """No server."""

    @contextmanager
    def make(_call: Call) -> Iterator[Place]:
        with address() as host:
            yield Place(f"http://{host}", connect_timeout=connect_timeout)

    return make


def insecure(flaw: str) -> Makes:
    """A server whose certificate no client trusts."""

    @contextmanager
    def make(_call: Call) -> Iterator[Place]:
        if find_spec("trustme") is None:
            raise Missing("trustme")
        from loopback.certificates import untrusted  # noqa: PLC0415  # it needs trustme

        with Server(tls=untrusted(flaw)) as server:
            yield Place(server.url)

    return make


def no_handshake(step: Step, timeout: float = PATIENT) -> Makes:
    """A port that is called with TLS and does not speak it."""

    @contextmanager
    def make(_call: Call) -> Iterator[Place]:
        with Server(step) as server:
            yield Place(f"https://{server.host}", connect_timeout=timeout, read_timeout=timeout)

    return make


async def answer_in_plain(line: Line) -> None:
    """What a web server says to a TLS greeting on its plain port."""
    await line.reader.read(65536)
    await line.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def broken_stream(ends: Literal["close", "reset", "hang"]) -> Makes:
    """A stream that begins well, and then ends or stops."""
    return served(
        lambda call: Stream(call.opening, ends, headers=call.headers),
        read_timeout=SHORT if ends == "hang" else PATIENT,
    )


TROUBLES: dict[str, Trouble] = {
    "refused": Trouble(absent(refused), "no"),
    "dns-noname": Trouble(absent(unresolvable), "no", None),
    "dns-again": Trouble(absent(lambda: unresolvable(socket.EAI_AGAIN)), "no"),
    "connect-timeout": Trouble(absent(unanswered, SHORT), "no"),
    "tls-self-signed": Trouble(insecure("self-signed"), "no", retryable=False),
    "tls-unknown-issuer": Trouble(insecure("unknown-issuer"), "no", retryable=False),
    "tls-plain-port": Trouble(no_handshake(Talk(answer_in_plain)), "no", None),
    "tls-close": Trouble(no_handshake(TurnAway("close")), "no"),
    "tls-reset": Trouble(no_handshake(TurnAway("reset")), "no"),
    "tls-stall": Trouble(no_handshake(TurnAway("hang"), SHORT), "no"),
    "read-timeout": Trouble(served(lambda _call: Hang(), SHORT), "maybe"),
    "reset": Trouble(served(lambda _call: Reset()), "maybe"),
    "close": Trouble(served(lambda _call: Close()), "maybe"),
    "not-http": Trouble(served(lambda _call: Speak(b"\x00\x01 this is not HTTP\r\n\r\n")), "maybe", None),
    "cut": Trouble(served(lambda call: Cut(call.answer, headers=call.headers)), "maybe"),
    "cut-reset": Trouble(served(lambda call: Cut(call.answer, headers=call.headers, reset=True)), "maybe"),
    "stream-cut": Trouble(broken_stream("close"), "maybe", scope="stream"),
    "stream-reset": Trouble(broken_stream("reset"), "maybe", scope="stream"),
    "stream-stall": Trouble(broken_stream("hang"), "maybe", scope="stream"),
    "full-pool": Trouble(served(lambda _call: Stream([b"held"], "hang"), SHORT), "no", scope="pool"),
}
