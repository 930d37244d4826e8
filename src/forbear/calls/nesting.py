"""Notices a client that has retried by itself what forbear is about to retry: its attempts and ours multiply.

Decided here: which errors tell it, and what is said about it. Prevents the 9 requests of a call that was meant to make
3, which nobody sees until the service is in trouble and gets three times the load.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

from forbear.classify.attributes import attribute, tried
from forbear.errors import NestedRetriesWarning

# What clients that Stainless generates (openai, anthropic, groq and others) send: how many retries there were.
COUNTED = "x-stainless-retry-count"
_ADVICE = "let one of them retry: forbear.integrations.sole_owner(client) turns the client's own retries off"


def warn_if_nested(name: str, error: BaseException, max_attempts: int | None) -> None:
    """Warns where the error says that its client has made several requests in this one of several attempts."""
    requests = 1 if max_attempts == 1 else requests_behind(error)
    if requests > 1:
        up_to = "" if max_attempts is None else f", so {max_attempts} attempts make up to {max_attempts * requests}"
        warn(f"{name}: the client made {requests} requests in one attempt{up_to}; {_ADVICE}")


def warn(text: str) -> None:
    """Warns of retries that multiply, at the place in the program from which they come."""
    warnings.warn(text, NestedRetriesWarning, stacklevel=_level())


def _level() -> int:
    """How far up the first frame is that is not ours."""
    frame, level = sys._getframe(1), 1  # noqa: SLF001  # public, despite its name
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("forbear."):
        frame, level = frame.f_back, level + 1
    return level


def requests_behind(error: BaseException) -> int:
    """How many requests an error's client has made for it, as far as it says so; 1 where it does not."""
    response = attribute(error, "response")
    if isinstance(response, dict):  # botocore's
        metadata = response.get("ResponseMetadata")
        return 1 + _count(metadata.get("RetryAttempts")) if isinstance(metadata, Mapping) else 1
    headers: Any = attribute(attribute(response, "request") or attribute(error, "request"), "headers")
    return 1 if headers is None else 1 + retries_counted(headers)


def retries_counted(headers: Any) -> int:
    """How many retries of its client's a request tells of; 0 where its headers can't be read."""
    return tried(lambda: _count(headers.get(COUNTED))) or 0


def _count(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 4:
        return int(value)
    return value if type(value) is int and 0 < value < 1_000 else 0
