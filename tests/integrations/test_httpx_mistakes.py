"""A transport that is put around the wrong thing says so at once; the inner one's own retries are off."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from forbear import Upstream
from forbear.errors import UsageError
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


async def test_a_transport_in_a_client_of_the_other_kind_says_which_to_take() -> None:
    with pytest.raises(UsageError, match="an async client needs AsyncTransport"):
        await httpx.AsyncClient(transport=with_httpx.Transport()).get("http://127.0.0.1:9")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a blocking client needs Transport"):
        httpx.Client(transport=with_httpx.AsyncTransport()).get("http://127.0.0.1:9")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"verify": False}, "give it to the inner one"),
        ({"http2": True}, "give it to the inner one"),
        ({"status_forcelist": [500]}, "retryable="),
        ({"hedge": 0.1}, "hedge the function"),
        ({"retry_if_result": bool}, "retryable="),
        ({"total": 3}, "max_attempts"),
        ({"backoff_factor": 1}, "base"),
    ],
)
def test_options_of_others_are_answered_with_ours(options: dict[str, Any], advice: str) -> None:
    for kind in (with_httpx.Transport, with_httpx.AsyncTransport):
        with pytest.raises(TypeError, match=advice):
            kind(**options)


async def on_retry(_: object) -> None: ...


def test_an_async_hook_is_refused_where_nobody_awaits_it() -> None:
    with pytest.raises(ValueError, match="on_retry is async"):
        with_httpx.Transport(on_retry=on_retry)
    with_httpx.AsyncTransport(on_retry=on_retry)


def test_a_function_that_gives_no_upstream_is_told_so() -> None:
    upstream: Any = lambda origin: "an upstream"  # noqa: E731
    transport = with_httpx.Transport(httpx.MockTransport(lambda _: httpx.Response(200)), upstream=upstream)
    with httpx.Client(transport=transport) as client, pytest.raises(UsageError, match="not str"):
        client.get("http://service.example")


def test_a_function_that_chooses_may_ask_for_another_origin() -> None:
    asked: list[str] = []

    def choose(origin: str) -> Any:
        asked.append(origin)
        return transport.upstream_of("https://main.example") if "main" not in origin else Upstream("main")

    transport = with_httpx.Transport(upstream=choose)
    assert transport.upstream_of("https://other.example") is transport.upstream_of("https://main.example")
    assert len(asked) == 2


def test_an_inner_transport_finds_the_content_of_a_request_as_without_us() -> None:
    class Signing(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, content=request.content)

    with httpx.Client(transport=with_httpx.Transport(Signing())) as client:
        assert client.post("http://service.example", json={"a": 1}, headers={"Idempotency-Key": "k"}).json() == {"a": 1}


@pytest.mark.parametrize(("made", "advice"), [("text", "encode it"), (None, "AsyncBody"), (7, "AsyncBody")])
def test_a_body_that_is_no_bytes_is_told_so(made: Any, advice: str) -> None:
    with pytest.raises(UsageError, match=advice):
        list(with_httpx.Body(lambda: made))


async def test_an_async_body_takes_bytes_and_says_what_it_does_not_take() -> None:
    assert [chunk async for chunk in with_httpx.AsyncBody(lambda: b"all")] == [b"all"]  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError, match="async iterable"):
        _ = [chunk async for chunk in with_httpx.AsyncBody(lambda: [b"a"])]  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
def test_a_key_is_added_where_it_says_something(method: str) -> None:
    seen: list[httpx.Request] = []

    def server(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    transport = with_httpx.Transport(httpx.MockTransport(server), idempotency_key=True, attempt_header="x_retry_count")
    with httpx.Client(transport=transport) as client:
        client.request(method, "http://service.example")
    assert ("idempotency-key" in seen[0].headers) is (method == "POST")
    assert seen[0].headers["x_retry_count"] == "0"
