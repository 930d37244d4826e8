"""Calls through grpcio, against a server of its own: gRPC speaks HTTP/2, which the scripted server does not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from sdk.places import Call, Place

UNARY, STREAM = "/forbear.Test/Unary", "/forbear.Test/Stream"
ONE_TRY = [("grpc.enable_retries", 0)]


def target(place: Place) -> str:
    return place.url.removeprefix("http://")


def unary(place: Place) -> object:
    with grpc.insecure_channel(target(place), ONE_TRY) as channel:
        return channel.unary_unary(UNARY)(b"x", timeout=place.timeout)


def stream(place: Place) -> object:
    with grpc.insecure_channel(target(place), ONE_TRY) as channel:
        return list(channel.unary_stream(STREAM)(b"x", timeout=place.timeout))


async def unary_async(place: Place) -> object:
    async with grpc.aio.insecure_channel(target(place), ONE_TRY) as channel:
        return await channel.unary_unary(UNARY)(b"x", timeout=place.timeout)


@contextmanager
def serve(body: dict[str, Any]) -> Iterator[Place]:
    """A server that ends every call with the status and the trailing metadata that `body` names."""

    def end(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata(tuple(trailers(body)))
        context.abort(grpc.StatusCode[body["code"]], body.get("message", ""))

    def answer_stream(_request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield b"first"
        end(context)

    methods = {
        UNARY: grpc.unary_unary_rpc_method_handler(lambda _request, context: end(context)),
        STREAM: grpc.unary_stream_rpc_method_handler(answer_stream),
    }
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers([Handlers(methods)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield Place(f"http://127.0.0.1:{port}")
        finally:
            server.stop(None).wait()


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Finds a method by its path."""

    def __init__(self, methods: dict[str, Any]) -> None:
        self._methods = methods

    def service(self, details: Any) -> Any:
        """The handler of a call, or None."""
        return self._methods.get(details.method)


def trailers(body: dict[str, Any]) -> Iterator[tuple[str, str | bytes]]:
    """Trailing metadata: a pushback as text, and a `google.rpc.Status` with a RetryInfo, as protobuf."""
    if "pushback_ms" in body:
        yield "grpc-retry-pushback-ms", str(body["pushback_ms"])
    if "retry_delay" in body:
        yield "grpc-status-details-bin", status_with_delay(body["retry_delay"])


def status_with_delay(delay: float) -> bytes:
    """`google.rpc.Status{details: [RetryInfo{retry_delay}]}`, in protobuf's wire format."""
    whole = int(delay)
    duration = field(1, whole) + field(2, round((delay - whole) * 1_000_000_000))
    retry_info = field(1, duration)
    anything = field(1, b"type.googleapis.com/google.rpc.RetryInfo") + field(2, retry_info)
    return field(1, 8) + field(3, anything)


def field(number: int, value: int | bytes) -> bytes:
    """One field of a protobuf message: a whole number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    """A whole number, seven bits to a byte, the lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


CALLS = {
    "unary": Call(unary, tried=False, serve=serve),
    "unary-async": Call(unary_async, tried=False, serve=serve),
    "stream": Call(stream, tried=False, serve=serve),
}
