"""Waits in google.rpc.Status: as JSON details, and as the bytes that gRPC sends in its trailers.

Decided here: just enough of the wire format to find a RetryInfo. A reader never raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forbear.classify.dates import length_of_time

MAX_STATUS = 65_536  # bytes that are looked at; a status is much smaller


def retry_delay_in(details: object) -> float | None:
    """Seconds of the RetryInfo among JSON details, or among objects with such an attribute."""
    for detail in details[:16] if isinstance(details, (list, tuple)) else ():
        if isinstance(detail, Mapping) and str(detail.get("@type", "")).endswith("google.rpc.RetryInfo"):
            return length_of_time(detail.get("retryDelay"))
        delay: Any = getattr(detail, "retry_delay", None)
        if delay is not None:
            return _duration(getattr(delay, "seconds", 0), getattr(delay, "nanos", 0))
    return None


def retry_delay_in_bytes(data: object) -> float | None:
    """Seconds of the RetryInfo in a serialised google.rpc.Status."""
    try:
        for number, value in _fields(bytes(data) if isinstance(data, (bytes, bytearray)) else b""):
            if number == 3:  # details: google.protobuf.Any
                packed = dict(_fields(_part(value)))
                if b"google.rpc.RetryInfo" in _part(packed.get(1)):
                    delay = dict(_fields(_part(dict(_fields(_part(packed.get(2)))).get(1))))
                    return _duration(delay.get(1, 0), delay.get(2, 0))
    except (IndexError, ValueError, TypeError):
        pass
    return None


def _part(value: object) -> bytes:
    """A length-delimited field; empty where it is none."""
    return value if isinstance(value, bytes) else b""


def _duration(seconds: object, nanos: object) -> float | None:
    if not isinstance(seconds, int) or not isinstance(nanos, int) or seconds < 0 or nanos < 0:
        return None
    return float(seconds) + nanos / 1e9 if seconds < 1e12 else None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: varints and length-delimited ones."""
    at, data = 0, data[:MAX_STATUS]
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif key & 7 == 2:
            size, at = _varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError("not a form that a status uses")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number without an end")
