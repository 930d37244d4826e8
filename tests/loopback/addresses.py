"""Addresses at which a connection fails before any server can do anything: refused, unanswered, or without a name.

Each is made on this machine and works without a network. A real name is never asked for.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

NAME = "api.upstream.invalid"  # reserved by RFC 6761: no resolver knows it
FULL_AFTER = 3  # connections, on Linux, that an unattended listener with an empty backlog takes before it is silent


@contextmanager
def refused() -> Iterator[str]:
    """An address where nothing listens. The port is kept, so that nobody else can begin to."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{kept.getsockname()[1]}"


@contextmanager
def unanswered() -> Iterator[str]:
    """An address whose queue of new connections is full: the client's SYN is dropped, and connecting takes for ever."""
    with ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(FULL_AFTER):
            caller = held.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def unresolvable(error: int = socket.EAI_NONAME) -> Iterator[str]:
    """An address whose name the resolver refuses with this error; other names are resolved as ever."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
        if host in (NAME, NAME.encode()):
            raise socket.gaierror(error, "Name or service not known" if error == socket.EAI_NONAME else "Try again")
        return real(host, *rest, **options)

    with mock.patch.object(socket, "getaddrinfo", getaddrinfo):
        yield f"{NAME}:9"
