"""The server's own wait, read from an error: an attribute, or the Retry-After header in seconds or as a date.

Decided here: what counts as a wait. A reader never raises: nonsense, NaN, infinity and negatives are no hint. Must
never read the clock: a date is read against the response's own `Date`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any


def retry_after_of(error: BaseException) -> float | None:
    """The server's minimum wait in seconds that an error carries, or None."""
    given = getattr(error, "retry_after", None)
    if given is not None:
        return _finite(given)
    headers = headers_of(error)
    if headers is None:
        return None
    milliseconds = _finite(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    wait = _finite(value)
    return wait if wait is not None else _until(value, headers.get("date"))


def headers_of(error: BaseException) -> dict[str, str] | None:
    """The headers of an error or its response, names in lower case; None where there are none."""
    for owner in (getattr(error, "response", None), error):
        headers = getattr(owner, "headers", None)
        if isinstance(headers, Mapping):
            return {str(name).lower(): str(value) for name, value in _items(headers)}
    return None


def _items(headers: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(headers.items())
    except Exception:
        return []


def _finite(value: object) -> float | None:
    """A finite number that is not negative, of a number or a plain decimal text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if 0 <= result < math.inf else None


def _until(value: str | None, date: str | None) -> float | None:
    """Seconds from the response's date to an HTTP date; None where either can't be read."""
    end, start = _instant(value), _instant(date)
    return None if end is None or start is None else max(0.0, (end - start).total_seconds())


def _instant(value: str | None) -> datetime | None:
    if not value:
        return None
    try:
        instant = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # HTTP dates are in UTC, also in the forms that name no zone.
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant
