"""What an error means for the call that met it.

Decided here: the order in which an error's facts are believed: the status before the class. An error that nothing is
known about is permanent: to repeat it blindly multiplies load and hides mistakes. Must never import a library whose
errors it reads.
"""

from __future__ import annotations

from forbear.classify.hints import retry_after_of
from forbear.classify.network import transport_of
from forbear.classify.status import TOOLKIT, is_transient_status, kind_of_status, nothing_done
from forbear.core.failure import Executed, Failure, Kind
from forbear.errors import ApiError, CircuitOpenError, ResultRejected, RetryError


def classify(error: BaseException, *, idempotent: bool = True) -> Failure:
    """What the error means: transient or not, done or not, and the server's wait.

    `idempotent` says whether repeating does no harm even where the server may have acted.
    """
    if isinstance(error, ResultRejected):
        return Failure(transient=True, kind=Kind.REJECTED_RESULT)
    if isinstance(error, (RetryError, CircuitOpenError)):
        return Failure(transient=False, kind=Kind.GAVE_UP)
    status = status_code_of(error)
    if status is not None:
        return _of_status(error, status, idempotent)
    return _of_class(error, idempotent)


def is_retryable(error: BaseException) -> bool:
    """Whether the default rule retries the error.

    Of `ApiError`: 408, 429 and every 5xx. Of everything else: what `classify` calls transient.
    """
    if isinstance(error, ApiError):
        return error.status in (408, 429) or 500 <= error.status <= 599
    return classify(error).transient


def is_transient(error: BaseException) -> bool:
    """Whether the LLM toolkit's rule retries the error: 408, 409, 429, 500, 502, 503, 504, 529, and the network."""
    status = status_code_of(error)
    return status in TOOLKIT if status is not None else classify(error).transient


def status_code_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries, or None."""
    response = getattr(error, "response", None)
    for owner, name in ((error, "status_code"), (error, "status"), (response, "status_code"), (response, "status")):
        value = getattr(owner, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return int(value)
    return None


def _of_status(error: BaseException, status: int, idempotent: bool) -> Failure:
    hint = retry_after_of(error)
    executed: Executed = "no" if nothing_done(status, hint is not None) else "maybe"
    return Failure(
        transient=is_transient_status(status),
        safe_to_retry=idempotent or executed == "no",
        retry_after=hint,
        kind=kind_of_status(status),
        executed=executed,
        status=status,
    )


def _of_class(error: BaseException, idempotent: bool) -> Failure:
    transport = transport_of(error)
    if transport is None or transport.kind is None:
        return Failure(transient=False, safe_to_retry=idempotent, retry_after=retry_after_of(error))
    return Failure(
        transient=True,
        safe_to_retry=idempotent or transport.executed == "no",
        retry_after=retry_after_of(error),
        kind=transport.kind,
        executed=transport.executed,
    )
