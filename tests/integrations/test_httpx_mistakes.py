"""A transport that is put around the wrong thing says so at once; the inner one's own retries are off."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from forbear.integrations import httpx as with_httpx
from forbear.integrations import sole_owner
from loopback import refused


@pytest.mark.parametrize(
    ("kind", "inner", "advice"),
    [
        (with_httpx.Transport, httpx.AsyncHTTPTransport(), "use AsyncTransport"),
        (with_httpx.AsyncTransport, httpx.HTTPTransport(), "use Transport"),
        (with_httpx.Transport, httpx.Client(), "sole_owner"),
        (with_httpx.AsyncTransport, httpx.AsyncClient(), "sole_owner"),
        (with_httpx.Transport, httpx.HTTPTransport, "HTTPTransport"),
        (with_httpx.Transport, "https://service.example", "sole_owner"),
    ],
)
def test_what_is_no_transport_is_refused(kind: Any, inner: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        kind(inner)


def test_the_retries_of_the_inner_transport_are_off() -> None:
    events: list[str] = []

    def trace(name: str, info: dict[str, Any]) -> None:
        if name == "connection.connect_tcp.started":
            events.append(name)

    with refused() as address:
        for client in (
            httpx.Client(transport=with_httpx.Transport(httpx.HTTPTransport(retries=5), max_attempts=2, base=0.001)),
            sole_owner(httpx.Client(transport=httpx.HTTPTransport(retries=5)), max_attempts=2, base=0.001),
        ):
            events.clear()
            with client, pytest.raises(httpx.TransportError):
                client.get(f"http://{address}", extensions={"trace": trace})
            assert len(events) == 2
