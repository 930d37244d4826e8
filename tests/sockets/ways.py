"""httpx and httpx2, blocking and async, used by the same words: one test serves all four."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import pytest

QUICK: dict[str, Any] = {"base": 0.001, "cap": 0.002}
PATIENT = 30.0  # seconds of the client's own timeouts, which must not be what ends anything here
WAYS = [("httpx", True), ("httpx", False), ("httpx2", True), ("httpx2", False)]
NAMES = [f"{name}, {'blocking' if blocking else 'async'}" for name, blocking in WAYS]


class Way:
    """One library, blocking or async."""

    def __init__(self, name: str, blocking: bool) -> None:
        self.library: Any = pytest.importorskip(name)
        self.ours: Any = import_module(f"forbear.integrations.{name}")
        self.blocking = blocking

    def transport(self, inner: dict[str, Any] | None = None, **options: Any) -> Any:
        """One of ours, around one of the library's with these options."""
        kind = self.library.HTTPTransport if self.blocking else self.library.AsyncHTTPTransport
        make = self.ours.Transport if self.blocking else self.ours.AsyncTransport
        return make(None if inner is None else kind(**inner), **{**QUICK, **options})

    def make(
        self,
        inner: dict[str, Any] | None = None,
        *,
        connections: int | None = None,
        timeout: Any = PATIENT,
        **options: Any,
    ) -> Any:
        """A client, of at most so many connections."""
        if connections is not None:
            inner = {**(inner or {}), "limits": self.library.Limits(max_connections=connections)}
        kind = self.library.Client if self.blocking else self.library.AsyncClient
        return kind(transport=self.transport(inner, **options), timeout=timeout)

    @asynccontextmanager
    async def client(self, inner: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Any]:
        """As `make`, closed at the end of the block."""
        client = self.make(inner, **options)
        try:
            yield client
        finally:
            await self.do(client.close if self.blocking else client.aclose)

    async def do(self, method: Any, *args: Any, **options: Any) -> Any:
        """A call of a method of the client, or of a response; a blocking one in a thread."""
        if self.blocking:
            return await asyncio.to_thread(method, *args, **options)
        return await method(*args, **options)

    async def open(self, client: Any, url: str, method: str = "GET", **options: Any) -> Any:
        """The response, its body unread."""
        return await self.do(client.send, client.build_request(method, url, **options), stream=True)

    def chunks(self, response: Any) -> Any:
        """What is iterated of a body."""
        return response.iter_raw() if self.blocking else response.aiter_raw()

    async def next(self, chunks: Any) -> Any:
        """The next chunk, None behind the last one."""
        if self.blocking:
            return await asyncio.to_thread(next, chunks, None)
        return await anext(chunks, None)

    async def raw(self, response: Any) -> list[bytes]:
        """All chunks of a body, as they came."""
        if self.blocking:
            return await asyncio.to_thread(lambda: list(response.iter_raw()))
        return [chunk async for chunk in response.aiter_raw()]

    async def close(self, response: Any) -> None:
        """Ends a response."""
        await self.do(response.close if self.blocking else response.aclose)


@pytest.fixture(params=WAYS, ids=NAMES)
def way(request: pytest.FixtureRequest) -> Way:
    """Each of the four."""
    return Way(*request.param)


@pytest.fixture(params=WAYS[::2], ids=NAMES[::2])
def blocking(request: pytest.FixtureRequest) -> Way:
    """The blocking ones."""
    return Way(*request.param)


@pytest.fixture(params=WAYS[1::2], ids=NAMES[1::2])
def unblocking(request: pytest.FixtureRequest) -> Way:
    """The async ones."""
    return Way(*request.param)
