"""HTTP statuses: which may pass next time, and which prove that the server did nothing.

Decided here: the kind of each status. Must never know where a status came from.
"""

from __future__ import annotations

from forbear.core.failure import Executed, Kind

# The statuses that the LLM toolkit's rule retries, and no others.
TOOLKIT = frozenset({408, 409, 429, 500, 502, 503, 504, 529})

_KINDS: dict[int, Kind] = {
    401: Kind.AUTH,
    402: Kind.QUOTA_SPENT,
    403: Kind.AUTH,
    404: Kind.NOT_FOUND,
    407: Kind.AUTH,
    408: Kind.TIMEOUT,
    409: Kind.CONFLICT,
    410: Kind.NOT_FOUND,
    413: Kind.TOO_LONG,
    414: Kind.TOO_LONG,
    425: Kind.OVERLOADED,
    429: Kind.RATE_LIMITED,
    431: Kind.TOO_LONG,
    451: Kind.CONTENT_REFUSED,
    499: Kind.CANCELLED,
    501: Kind.INVALID_REQUEST,  # not implemented today, and not tomorrow
    503: Kind.OVERLOADED,
    504: Kind.TIMEOUT,
    505: Kind.INVALID_REQUEST,
    524: Kind.TIMEOUT,
    529: Kind.OVERLOADED,
}


def kind_of_status(status: int) -> Kind:
    """The kind of failure that a status stands for."""
    return _KINDS.get(status) or (Kind.SERVER_ERROR if status >= 500 else Kind.INVALID_REQUEST)


def executed_by_status(status: int, *, hinted: bool) -> Executed:
    """Whether the server may have acted: not where it refused for now, nor where it names a time to come back."""
    if status in (425, 429) or (hinted and status in (503, 529)):
        return "no"
    return "maybe" if status >= 500 or status in (408, 409, 499) else "no"
