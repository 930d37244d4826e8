"""How an SDK is called: the call itself, where it goes, and what the service would say to it.

An SDK's module in `raising` lists its calls; everything that goes wrong is scripted by others. So a call never catches,
retries or judges: it does what a program would do, with the SDK's own retries off.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from loopback import event

PATIENT = 20.0  # seconds; a limit that no call reaches unless it is meant to
SHORT = 0.1  # seconds a call waits for what never comes


class Missing(Exception):
    """Something that a call needs is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not installed")


@dataclass(frozen=True)
class Place:
    """Where a call goes, and how long it waits (seconds) for a connection and for the next bytes."""

    url: str
    connect_timeout: float = PATIENT
    read_timeout: float = PATIENT

    @property
    def timeout(self) -> float:
        """For SDKs that know one limit only."""
        return min(self.connect_timeout, self.read_timeout)


@dataclass(frozen=True)
class Event:
    """An error that a service reports inside an answer that began well."""

    data: str
    name: str | None = None


def as_server_sent(said: Event) -> bytes:
    """How most services write an event."""
    return event(said.data, said.name)


Making: TypeAlias = Callable[[Place], Any]  # or a coroutine function


@dataclass(frozen=True)
class Call:
    """One way in which a program calls a service through an SDK.

    `make` does it, sync or async. `answer` is a healthy body, or its beginning. `opening` are the healthy first chunks
    of a stream (empty: no stream), `written` is how the service writes an event of it. `serve`, where HTTP is not
    spoken, stands a server of that protocol up, which does what a case's body says. `tried`: whether troubles are tried
    with it; not where another call of the SDK takes the same way, or where no server is asked.
    """

    make: Making
    answer: bytes = b'{"id": "x", "object": "'
    opening: tuple[bytes, ...] = ()
    written: Callable[[Event], bytes] = as_server_sent
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    tried: bool = True
    serve: Callable[[dict[str, Any]], AbstractContextManager[Place]] | None = None


def streaming(make: Making, *opening: bytes, content_type: str = "text/event-stream", **more: Any) -> Call:
    """A call whose answer is a stream that begins with these chunks."""
    return Call(make, opening=opening, headers={"content-type": content_type}, **more)
