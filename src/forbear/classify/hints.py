"""The server's own wait: how long it asks to be left alone, in any of the forms that are in use.

Decided here: which form is believed. A reader of the caller's own is asked first; an explicit "retry after" beats a
rate limit's reset; milliseconds beat seconds; a limit's reset counts only where the failure is one of the rate. Must
never read the clock and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forbear.classify.attributes import tried
from forbear.classify.dates import http_date, plain_number
from forbear.classify.limits import binding_wait, read_limits
from forbear.classify.rpc import retry_delay_in, retry_delay_in_bytes

if TYPE_CHECKING:
    from forbear.classify.facts import Facts

_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms")
_RATE_STATUSES = frozenset({402, 403, 429})


def hint_of(facts: Facts) -> float | None:
    """The server's minimum wait in seconds, or None."""
    given = _plugged_in(facts) if facts.readers else None
    if given is None and "retry_after" in facts.own:
        given = plain_number(tried(_seconds, facts.own["retry_after"]))
    if given is not None:
        return given
    headers = facts.headers
    found = explicit_wait(headers, facts.now) if headers else None
    if found is None and "grpc-status-details-bin" in headers:
        found = retry_delay_in_bytes(headers["grpc-status-details-bin"].encode("latin-1", "ignore"))
    if found is None and facts.body is not None:
        found = tried(_in_body, facts)
    if found is None and headers and (facts.status in _RATE_STATUSES or facts.status is None):
        found = binding_wait(read_limits(headers, instant_of(headers, facts.now)), certain=facts.status != 429)
    return found


def explicit_wait(headers: Mapping[str, str], now: float | None) -> float | None:
    """Seconds that a "retry after" header asks for: milliseconds, seconds, or a date against the response's own."""
    for name in _MILLISECONDS:
        if name in headers:
            milliseconds = plain_number(headers[name])
            if milliseconds is not None:
                return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    wait = plain_number(value)
    if wait is not None:
        return wait
    end, start = http_date(value), instant_of(headers, now)
    return None if end is None or start is None else max(0.0, end - start)


def instant_of(headers: Mapping[str, str], now: float | None) -> float | None:
    """When the response was made, in epoch seconds: by the server's clock if it says so, else by ours."""
    sent = http_date(headers.get("date"))
    return now if sent is None else sent


def _plugged_in(facts: Facts) -> float | None:
    """What the first reader of the caller's own finds that finds anything; one that fails has found nothing."""
    if isinstance(facts.body, Mapping):
        for reader in facts.readers:
            found = plain_number(tried(_seconds, tried(reader, facts.body)))
            if found is not None:
                return found
    return None


def _seconds(value: Any) -> Any:
    """What should be a number of seconds, or a timedelta; a text there is somebody else's business."""
    return value.total_seconds() if hasattr(value, "total_seconds") else None if isinstance(value, str) else value


def _in_body(facts: Facts) -> float | None:
    body = facts.body
    if isinstance(body, list):  # google-api-core hands over the details alone
        return retry_delay_in(body)
    if not isinstance(body, Mapping):
        return None
    error = body.get("error")
    part = error if isinstance(error, Mapping) else body
    found = retry_delay_in(part.get("details"))
    if found is None and facts.status == 503:
        found = plain_number(body.get("estimated_time"))
    if found is None:
        metadata = part.get("metadata")
        inner = metadata.get("headers") if isinstance(metadata, Mapping) else None
        if isinstance(inner, Mapping):
            headers = {str(name).lower(): str(value) for name, value in inner.items()}
            answered = instant_of(headers, instant_of(facts.headers, facts.now))  # by whoever said it, else on the way
            found = explicit_wait(headers, answered)
            if found is None:
                found = binding_wait(read_limits(headers, answered))
    return found
