"""Waits in google.rpc.Status, as JSON and as the bytes of its wire format."""

from __future__ import annotations

from typing import Any

import pytest

from forbear.classify.rpc import retry_delay_in, retry_delay_in_bytes
from foreign import Thing

TYPE = "type.googleapis.com/google.rpc.RetryInfo"


def varint(number: int) -> bytes:
    """A number as protobuf writes it: seven bits in a byte, the lowest first."""
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def duration(seconds: int = 0, nanos: int = 0) -> bytes:
    """Protobuf leaves out what is zero."""
    return (field(1, seconds) if seconds else b"") + (field(2, nanos) if nanos else b"")


def retry_info(delay: bytes) -> bytes:
    return field(3, field(1, TYPE.encode()) + field(2, field(1, delay)))


def status(*details: bytes) -> bytes:
    return field(1, 8) + field(2, b"out of quota") + b"".join(details)


OTHER = field(3, field(1, b"type.googleapis.com/google.rpc.QuotaFailure") + field(2, b"\x0a\x00"))


# ---- JSON and objects --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "seconds"), [("34s", 34.0), ("0s", 0.0), ("34.074824224s", 34.074824224), ("5", 5.0)]
)
def test_the_delay_is_found_among_the_details(delay: str, seconds: float) -> None:
    other = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "retryDelay": "99s"}
    info = {"@type": TYPE, "retryDelay": delay}
    assert retry_delay_in([info]) == seconds
    assert retry_delay_in([other, "noise", None, info]) == seconds
    assert retry_delay_in((info, {"@type": TYPE, "retryDelay": "99s"})) == seconds


@pytest.mark.parametrize("delay", ["-1s", "soon", "", None, {"seconds": 3}, "nans"])
def test_a_delay_that_is_none_is_nothing(delay: object) -> None:
    assert retry_delay_in([{"@type": TYPE, "retryDelay": delay}]) is None
    assert retry_delay_in([{"@type": TYPE}]) is None


def test_an_object_may_carry_the_delay_as_an_attribute() -> None:
    assert retry_delay_in([Thing(reason="x"), Thing(retry_delay=Thing(seconds=3, nanos=500_000_000))]) == 3.5
    assert retry_delay_in([Thing(retry_delay=Thing(seconds=3))]) == 3.0
    assert retry_delay_in([Thing(retry_delay=Thing(nanos=1))]) == 1e-9
    assert retry_delay_in([Thing(retry_delay=Thing())]) == 0.0


@pytest.mark.parametrize(("seconds", "nanos"), [(-1, 0), (0, -1), ("3", 0), (3, 0.5), (10**12, 0), (10**400, 0)])
def test_a_duration_of_an_object_that_is_none_is_nothing(seconds: Any, nanos: Any) -> None:
    assert retry_delay_in([Thing(retry_delay=Thing(seconds=seconds, nanos=nanos))]) is None


@pytest.mark.parametrize("details", [None, "details", 7, {}, {"@type": TYPE, "retryDelay": "3s"}, [], ()])
def test_details_are_a_list_or_there_are_none(details: object) -> None:
    assert retry_delay_in(details) is None


def test_only_the_first_details_are_looked_at() -> None:
    info = {"@type": TYPE, "retryDelay": "3s"}
    assert retry_delay_in([{}] * 15 + [info]) == 3.0
    assert retry_delay_in([{}] * 10**6 + [info]) is None


# ---- bytes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(3, 0), (0, 500_000_000), (3, 500_000_000), (0, 0), (200, 0), (10**9, 999_999_999)]
)
def test_the_delay_is_found_in_the_bytes_of_a_status(seconds: int, nanos: int) -> None:
    wanted = seconds + nanos / 1e9
    for data in (
        status(retry_info(duration(seconds, nanos))),
        status(OTHER, retry_info(duration(seconds, nanos)), OTHER),
    ):
        assert retry_delay_in_bytes(data) == wanted
        assert retry_delay_in_bytes(bytearray(data)) == wanted


def test_a_retry_info_without_a_delay_is_one_of_zero() -> None:
    assert retry_delay_in_bytes(status(field(3, field(1, TYPE.encode())))) == 0.0


@pytest.mark.parametrize("data", [b"", status(), status(OTHER), field(3, 7), b"x", None, "text", 7, [3]])
def test_without_a_retry_info_there_is_no_delay(data: object) -> None:
    assert retry_delay_in_bytes(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",  # a number that is cut off
        b"\x08",  # a field without its value
        b"\xff" * 30,  # a number without an end
        b"\x1a\xff\xff\xff\xff\x0f",  # a length beyond the data
        b"\x09" + b"\x00" * 8,  # a form that a status does not use
        b"\x1b\x1c",  # a group
        field(3, b"\xff" * 30),
        field(3, field(1, 7)),
        field(3, field(1, TYPE.encode()) + field(2, field(1, b"\xff" * 30))),
        status(retry_info(duration(2**63))),
        status(field(3, field(1, TYPE.encode()) + field(2, field(1, field(1, b"bytes"))))),
    ],
)
def test_broken_bytes_are_no_delay(data: bytes) -> None:
    assert retry_delay_in_bytes(data) is None


def test_every_cut_of_a_status_is_a_delay_or_nothing() -> None:
    data = status(OTHER, retry_info(duration(3, 500_000_000)))
    for end in range(len(data)):
        assert retry_delay_in_bytes(data[:end]) in {None, 0.0, 3.0, 3.5}
