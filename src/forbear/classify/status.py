"""HTTP statuses: which may pass next time, and which prove that the server did nothing.

Decided here: the two sets and the kind of each status. Must never know where a status came from.
"""

from __future__ import annotations

from forbear.core.failure import Kind

# 408, 425 and 429 say "not now"; 409 is a lock or a race in the SDKs' reading; a 5xx is the server's own trouble, but
# 501 and 505 will be answered the same way tomorrow.
_TRANSIENT_4XX = frozenset({408, 409, 425, 429})
_PERMANENT_5XX = frozenset({501, 505})

# The statuses that the LLM toolkit's rule retries, and no others.
TOOLKIT = frozenset({408, 409, 429, 500, 502, 503, 504, 529})

_KINDS = {
    401: Kind.AUTH,
    403: Kind.AUTH,
    404: Kind.NOT_FOUND,
    408: Kind.TIMEOUT,
    409: Kind.CONFLICT,
    410: Kind.NOT_FOUND,
    425: Kind.OVERLOADED,
    429: Kind.RATE_LIMITED,
    503: Kind.OVERLOADED,
    504: Kind.TIMEOUT,
    529: Kind.OVERLOADED,
}


def is_transient_status(status: int) -> bool:
    """Whether the same request may pass next time."""
    return status in _TRANSIENT_4XX or (500 <= status <= 599 and status not in _PERMANENT_5XX)


def kind_of_status(status: int) -> Kind:
    """The kind of failure that a status stands for."""
    if status in _KINDS:
        return _KINDS[status]
    return Kind.SERVER_ERROR if status >= 500 else Kind.INVALID_REQUEST


def nothing_done(status: int, hinted: bool) -> bool:
    """Whether the status proves that the server did not act: refused for now, or shed with a time to come back."""
    return status in (425, 429) or (status == 503 and hinted)
