"""What an attempt's error means, as a frozen value: the answer of the classifier and the question to the decision.

Must never know where the facts came from. Prevents the two costly mistakes: repeating what can never succeed, and
repeating what may already have been done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from forbear.core.validation import flag, seconds


class Kind(StrEnum):
    """What went wrong, as a closed set. `PERMITS` says what each of them allows."""

    RATE_LIMITED = "rate limited"  # too many requests for now
    QUOTA_SPENT = "quota spent"  # no money or quota left: waiting seconds does not bring it back
    OVERLOADED = "overloaded"  # the service sheds load
    SERVER_ERROR = "server error"  # the service failed
    TIMEOUT = "timeout"  # no answer in time
    POOL_FULL = "pool full"  # no free connection of our own: nothing was sent, and the service knows of nothing
    CONNECTION_REFUSED = "connection refused"  # no connection was made: refused, unknown host, failed handshake
    CONNECTION_LOST = "connection lost"  # broke after something was sent
    BAD_ANSWER = "bad answer"  # an answer came, but cut short or not what it claims to be
    CONFLICT = "conflict"  # somebody else holds it, or changed it first
    INVALID_REQUEST = "invalid request"  # can never succeed as it is
    TOO_LONG = "too long"  # too much was asked for at once
    CONTENT_REFUSED = "content refused"  # a filter or policy refuses the content
    AUTH = "auth"  # the key is wrong, or may not do this
    INSECURE = "insecure"  # the certificate can't be trusted
    NOT_FOUND = "not found"  # there is nothing there
    REJECTED_RESULT = "rejected result"  # the caller refuses the value
    CANCELLED = "cancelled"  # somebody does not want it any more
    GAVE_UP = "gave up"  # a forbear layer has already retried to the end, or refused
    UNKNOWN = "unknown"  # nothing is known about it


Executed = Literal["no", "maybe"]


class Permit(NamedTuple):
    """What a kind of failure allows: may the next attempt pass, and may the server have acted on this one?"""

    transient: bool
    executed: Executed


PERMITS: dict[Kind, Permit] = {
    Kind.RATE_LIMITED: Permit(True, "no"),
    Kind.QUOTA_SPENT: Permit(False, "no"),
    Kind.OVERLOADED: Permit(True, "maybe"),
    Kind.SERVER_ERROR: Permit(True, "maybe"),
    Kind.TIMEOUT: Permit(True, "maybe"),
    Kind.POOL_FULL: Permit(True, "no"),
    Kind.CONNECTION_REFUSED: Permit(True, "no"),
    Kind.CONNECTION_LOST: Permit(True, "maybe"),
    Kind.BAD_ANSWER: Permit(True, "maybe"),
    Kind.CONFLICT: Permit(True, "maybe"),
    Kind.INVALID_REQUEST: Permit(False, "no"),
    Kind.TOO_LONG: Permit(False, "no"),
    Kind.CONTENT_REFUSED: Permit(False, "no"),
    Kind.AUTH: Permit(False, "no"),
    Kind.INSECURE: Permit(False, "no"),
    Kind.NOT_FOUND: Permit(False, "no"),
    Kind.REJECTED_RESULT: Permit(True, "no"),
    Kind.CANCELLED: Permit(False, "maybe"),
    Kind.GAVE_UP: Permit(False, "maybe"),
    Kind.UNKNOWN: Permit(False, "maybe"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What one failed attempt means for the call.

    `transient`: the next attempt may pass. `safe_to_retry`: repeating does no harm. `retry_after`: the server's
    own minimum wait in seconds, or None. `executed`: "no" where the failure proves that the server did nothing.
    `status`, `code`, `provider`: the HTTP status, the error code and whose library it was, where they are known.
    `rule`: what decided, in words.
    """

    transient: bool
    safe_to_retry: bool = True
    retry_after: float | None = None
    kind: Kind = Kind.UNKNOWN
    executed: Executed = "maybe"
    status: int | None = None
    code: str | None = field(default=None, repr=False)  # a word of the server's
    provider: str | None = None
    rule: str = ""

    def __post_init__(self) -> None:
        flag("transient", self.transient)
        flag("safe_to_retry", self.safe_to_retry)
        if self.retry_after is not None:
            object.__setattr__(self, "retry_after", seconds("retry_after", self.retry_after, endless=False))
