"""`classify` and `retry_after_of` as users call them: they know what time it is.

The classifier itself is pure; dates that a server names are read against the wall clock of the world around the call.
"""

from __future__ import annotations

from collections.abc import Mapping

from forbear._runtime.scope import around, world_of
from forbear.classify import failures, limits
from forbear.core.events import RetryState
from forbear.core.failure import Failure
from forbear.core.rate import Limit


def classify(error: BaseException, *, idempotent: bool = True) -> Failure:
    """What an error means: transient or not, done or not, the server's wait, and the rule that says so.

    `idempotent` says whether repeating does no harm even where the server may have acted. Never raises.
    """
    return failures.classify(error, idempotent=idempotent, now=wall_clock())


def retry_after_of(error: BaseException) -> float | None:
    """The server's minimum wait in seconds that an error carries, in any of the forms in use; None without one."""
    return failures.retry_after_of(error, wall_clock())


def read_limits(headers: Mapping[str, str], now: float | None = None) -> tuple[Limit, ...]:
    """The limits that a response's headers report: what is allowed, what is left, when it is full again.

    `now`: epoch seconds, for resets that are dates; None: as the wall clock says.
    """
    return limits.read_limits(headers, wall_clock() if now is None else now)


def describe(state: RetryState) -> str:
    """One line for a log: what failed, how long the wait is, and who asked for it. Holds no text of the error."""
    failed = "rejected result" if state.error is None else state.error_type.rpartition(".")[2]
    status = "" if state.status is None else f" (HTTP {state.status})"
    source = "server Retry-After" if state.source in ("hint", "capped hint") else "backoff"
    return (
        f"attempt {state.attempt} failed: {failed}{status}; "
        f"waiting {state.delay:.2f}s ({source}), elapsed {state.elapsed:.1f}s"
    )


def wall_clock() -> float:
    """Epoch seconds, in the world that holds here."""
    return world_of(around()).wall()
