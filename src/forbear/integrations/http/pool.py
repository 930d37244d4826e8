"""Connections that a pool of httpcore has lost, given back to it.

A request that stops waiting for a connection in the very moment in which the pool has made one for it leaves that one
behind: nobody uses it, nobody closes it, and its place is gone for good (httpcore#1093; its successor httpcore2 has
mended it). Decided here: which connections are lost, and nothing else about a pool. Prevents a client that can't send
anything any more after a storm of timeouts.
"""

from __future__ import annotations

from typing import Any


def free_lost(transport: Any) -> None:
    """Gives back the places of connections that were made for requests which have gone. Others are left alone."""
    pool: Any = getattr(transport, "_pool", None)
    if type(pool).__module__.partition(".")[0] != "httpcore":
        return
    try:
        with pool._optional_thread_lock:  # noqa: SLF001  # as the pool's own steps do
            wanted = {id(request.connection) for request in pool._requests}  # noqa: SLF001
            for connection in pool.connections:
                if id(connection) not in wanted and connection.info() == "CONNECTING":
                    _own(connection)._connect_failed = True  # noqa: SLF001  # the pool takes it for closed then
    except AttributeError:  # another version, which keeps this elsewhere
        return


def _own(connection: Any) -> Any:
    """The connection itself, which one through a proxy is a shell around."""
    while not hasattr(connection, "_connect_failed"):
        connection = connection._connection  # noqa: SLF001
    return connection
