"""Calls through boto3: Bedrock's Converse, and its event stream, whose binary frames are written here."""

from __future__ import annotations

import struct
import zlib
from contextlib import closing
from typing import Any

import boto3
from botocore.config import Config

from sdk.places import Call, Event, Place, streaming

QUESTION: dict[str, Any] = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "x"}]}]}


def client(place: Place) -> Any:
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=place.connect_timeout,
        read_timeout=place.read_timeout,
    )
    session = boto3.Session("k", "s", region_name="us-east-1")
    return session.client("bedrock-runtime", endpoint_url=place.url, config=config)


def converse(place: Place) -> object:
    with closing(client(place)) as service:
        return service.converse(**QUESTION)


def converse_stream(place: Place) -> object:
    with closing(client(place)) as service, closing(service.converse_stream(**QUESTION)["stream"]) as stream:
        return list(stream)


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of the event-stream encoding: lengths, their checksum, headers, payload, checksum of all."""
    packed = b"".join(
        struct.pack(f"!B{len(name)}sBH{len(value)}s", len(name), name.encode(), 7, len(value), value.encode())
        for name, value in headers.items()
    )
    lengths = struct.pack("!II", len(packed) + len(payload) + 16, len(packed))
    message = lengths + struct.pack("!I", zlib.crc32(lengths)) + packed + payload
    return message + struct.pack("!I", zlib.crc32(message))


def as_frame(said: Event) -> bytes:
    kind = {":message-type": "exception", ":exception-type": said.name or "", ":content-type": "application/json"}
    return frame(kind, said.data.encode())


START = frame(
    {":message-type": "event", ":event-type": "messageStart", ":content-type": "application/json"},
    b'{"role": "assistant"}',
)
CALLS = {
    "converse": Call(converse),
    "converse-stream": streaming(
        converse_stream, START, written=as_frame, content_type="application/vnd.amazon.eventstream"
    ),
}
