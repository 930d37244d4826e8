"""What an attempt's error means, as a frozen value: the answer of the classifier and the question to the decision.

Must never know where the facts came from. Prevents the two costly mistakes: repeating what can never succeed, and
repeating what may already have been done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from forbear.core.validation import flag, seconds


class Kind(StrEnum):
    """What went wrong, as a closed set. In brackets: whether the next attempt may pass."""

    RATE_LIMITED = "rate limited"  # too many requests for now (yes)
    OVERLOADED = "overloaded"  # the service sheds load (yes)
    SERVER_ERROR = "server error"  # the service failed (yes)
    TIMEOUT = "timeout"  # no answer in time (yes)
    CONNECTION_REFUSED = "connection refused"  # nothing was sent (yes)
    CONNECTION_LOST = "connection lost"  # broke after something was sent (yes)
    CONFLICT = "conflict"  # somebody else holds it (yes)
    INVALID_REQUEST = "invalid request"  # can never succeed (no)
    AUTH = "auth"  # the key is wrong or may not do this (no)
    NOT_FOUND = "not found"  # there is nothing there (no)
    REJECTED_RESULT = "rejected result"  # the caller refuses the value (yes)
    GAVE_UP = "gave up"  # a forbear layer has already retried to the end, or refused (no)
    UNKNOWN = "unknown"  # not known to be transient (no)


Executed = Literal["no", "maybe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What one failed attempt means for the call.

    `transient`: the next attempt may pass. `safe_to_retry`: repeating does no harm. `retry_after`: the server's
    own minimum wait in seconds, or None. `executed`: "no" where the failure proves that the server did nothing.
    """

    transient: bool
    safe_to_retry: bool = True
    retry_after: float | None = None
    kind: Kind = Kind.UNKNOWN
    executed: Executed = "maybe"
    status: int | None = None

    def __post_init__(self) -> None:
        flag("transient", self.transient)
        flag("safe_to_retry", self.safe_to_retry)
        if self.retry_after is not None:
            object.__setattr__(self, "retry_after", seconds("retry_after", self.retry_after, endless=False))
