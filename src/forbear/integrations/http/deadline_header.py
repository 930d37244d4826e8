"""How a deadline travels in the headers of a request.

Decided here: what is written, and what of all that others write is believed. An instant lets a request that has waited
in a queue be known as late, but needs clocks that agree; `grpc-timeout`, seconds that are left, needs none. Must never
read a clock: whoever asks knows what time it is. Prevents work for callers who have left, and a nonsense header that
fails a request.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from forbear.classify.dates import http_date, rfc3339, wait_or_epoch

INSTANT = "X-Request-Deadline"
GRPC = "grpc-timeout"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# How many of each unit make a second, or how many seconds make one: the finest first, as it is written.
_PER_SECOND = {"n": 1_000_000_000, "u": 1_000_000, "m": 1_000, "S": 1}
_SECONDS = {"M": 60, "H": 3_600}
_MOST = 10**8  # eight digits are all that gRPC allows


def write(name: str, left: float, wall: float) -> str | None:
    """The value of the header `name` that says: `left` seconds from now, which is `wall` in epoch seconds.

    For `grpc-timeout` the seconds in gRPC's form, for any other name the instant as RFC 3339 with milliseconds, both
    rounded down. None where there is no end, or one that can't be written.
    """
    if not left < math.inf:  # NaN too
        return None
    return _grpc(left) if _is_grpc(name) else _instant(left, wall)


def read(name: str, value: str, wall: float) -> float | None:
    """Seconds left by the header `name` at `wall`, in epoch seconds; negative where it is past. None for nonsense.

    `grpc-timeout` has gRPC's form. Any other header may hold RFC 3339, an HTTP date, an epoch in seconds or
    milliseconds, or a number of seconds that are left; a date without a zone is in UTC. Never raises.
    """
    if _is_grpc(name):
        return _read_grpc(value)
    wait = wait_or_epoch(value, None)
    if wait is not None:
        return wait
    instant = wait_or_epoch(value, 0.0)
    if instant is None and value.strip()[10:11] in ("T", "t", " "):  # a day alone is no deadline
        instant = rfc3339(value.upper())
    if instant is None:
        instant = http_date(value)
    left = math.nan if instant is None else instant - wall
    return left if math.isfinite(left) else None


def _is_grpc(name: str) -> bool:
    return name.lower() == GRPC


def _instant(left: float, wall: float) -> str | None:
    try:
        micros = round((wall + left) * 1_000_000)  # a float of epoch seconds is no finer
        instant = _EPOCH + timedelta(milliseconds=micros // 1_000)
    except (OverflowError, ValueError):
        return None
    return instant.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _grpc(left: float) -> str:
    """The finest unit that has room. Where nothing is left a nanosecond is: some take 0 for no limit at all."""
    above, below = max(left, 0.0).as_integer_ratio()  # exact: a float's product may be rounded up
    for unit, per_second in _PER_SECOND.items():
        amount = above * per_second // below
        if amount < _MOST:
            return f"{max(amount, 1)}{unit}"
    for unit, seconds in _SECONDS.items():
        amount = above // (below * seconds)
        if amount < _MOST:
            return f"{amount}{unit}"
    return f"{_MOST - 1}H"


def _read_grpc(value: str) -> float | None:
    text = value.strip()
    digits, unit = text[:-1], text[-1:]
    if not 0 < len(digits) <= 8 or not digits.isascii() or not digits.isdigit():
        return None
    if unit in _PER_SECOND:
        return int(digits) / _PER_SECOND[unit]
    return float(int(digits) * _SECONDS[unit]) if unit in _SECONDS else None
