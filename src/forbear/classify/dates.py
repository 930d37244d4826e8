"""Points in time and lengths of time as servers write them.

Decided here: what counts as one. A reader never raises and gives None for nonsense, NaN, infinity and negatives. Must
never read the clock: whoever asks knows what time it is.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_PLAIN = re.compile(r"\s*([0-9]{1,300}(?:\.[0-9]{0,300})?)\s*", re.ASCII)
_PART = re.compile(r"([0-9]{1,30}(?:\.[0-9]{0,30})?)(ms|us|µs|ns|h|m|s|d)", re.ASCII)
# The forms of HTTP and of mail, in ASCII: Python's reader by itself would take "2_1" and other scripts' digits for 21.
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?"
_DATE = re.compile(
    rf"\s*([a-z]{{3,9}}(,\s*|\s+))?[0-9]{{1,2}}[\s-]+[a-z]{{3,9}}[\s-]+[0-9]{{2,9}}\s+{_CLOCK}(\s+([a-z]{{1,5}}|[+-][0-9]{{4}}))?\s*"
    rf"|\s*[a-z]{{3,9}}\s+[a-z]{{3,9}}\s+[0-9]{{1,2}}\s+{_CLOCK}\s+[0-9]{{4}}\s*",
    re.ASCII | re.IGNORECASE,
)
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_EPOCH_MILLISECONDS = 1e11  # as seconds this lies beyond the year 5000
_EPOCH_SECONDS = 1e9  # no wait lasts thirty years, so a number as large as this is a date


def plain_number(value: object) -> float | None:
    """A finite number that is not negative: an int or float, or text of plain decimal digits."""
    if isinstance(value, str):
        if len(value) < 16 and value.isascii() and value.isdigit():
            return float(value)  # nearly all of them, without the price of a pattern
        match = _PLAIN.fullmatch(value)
        return None if match is None else _finite(float(match.group(1)))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return _finite(float(value))
    except OverflowError:
        return None


def _finite(number: float) -> float | None:
    return number if 0 <= number < math.inf else None


def length_of_time(value: object) -> float | None:
    """Seconds of "6m0s", "120ms", "1h2m3.5s", "34.07s", or of a plain number of seconds."""
    plain = plain_number(value)
    if plain is not None or not isinstance(value, str) or len(value) > 100:
        return plain
    text, end, total = value.strip(), 0, 0.0
    for part in _PART.finditer(text):
        if part.start() != end:
            return None
        total += float(part.group(1)) * _UNITS[part.group(2)]
        end = part.end()
    return total if text and end == len(text) and total < math.inf else None


def http_date(value: object) -> float | None:
    """Epoch seconds of an HTTP date in any of its three forms, in UTC where it names no zone, or "-0000"."""
    if not isinstance(value, str) or not 8 < len(value) < 100 or _DATE.fullmatch(value) is None:
        return None
    try:
        instant = parsedate_to_datetime(value)
        return (instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant).timestamp()
    except Exception:
        return None


def rfc3339(value: object) -> float | None:
    """Epoch seconds of "2026-12-01T00:00:42Z"."""
    if not isinstance(value, str) or not 8 < len(value) < 100 or not value.isascii() or value.strip()[4:5] != "-":
        return None  # without dashes it may be a number
    try:
        instant = datetime.fromisoformat(value.strip())
        return (instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant).timestamp()
    except (ValueError, OverflowError):
        return None


def wait_or_epoch(value: object, now: float | None) -> float | None:
    """Seconds from now of a number that may be a wait, or an epoch in seconds or milliseconds."""
    number = plain_number(value)
    if number is None or number < _EPOCH_SECONDS:
        return number
    instant = number / 1000 if number >= _EPOCH_MILLISECONDS else number
    return None if now is None else max(0.0, instant - now)
