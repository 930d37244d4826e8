"""Every error that forbear raises.

    Exception
    ├── ApiError                 an HTTP-like failure, for code that has no client library of its own
    ├── RetryError               the call was given up
    │   ├── RetriesExhausted     reason "max_attempts"
    │   ├── DeadlineExceeded     reason "deadline"; a TimeoutError too
    │   └── BudgetExhausted      reason "budget"
    ├── CircuitOpenError         refused at once: the service is known to be down
    ├── ResultRejected           the function returned what `retry_if_result` refuses
    ├── StreamInterrupted        a stream broke after content had reached the consumer
    ├── StreamTruncated          a stream ended without its last event
    ├── ErrorEvent               an event of a stream that reports a failure
    ├── UsageError               forbear was used in a way that can't work; a TypeError too
    └── SummaryError             stands in for an error that could not be pickled

Decided here: what a message says, what survives pickling, and the mark by which an outer layer knows that an
inner one has already retried to the end (without it, three layers of three attempts make 27 requests).

No message or repr holds text of a foreign error, an argument, a header or an address: that is where keys and
passwords hide. The foreign error itself is at hand as `last_error` and `__cause__`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from time import monotonic
from typing import Any, Literal

GiveUpReason = Literal["max_attempts", "deadline", "budget"]


class ApiError(Exception):
    """A failed answer of an HTTP-like service.

    `status` is the HTTP status, `retry_after` the server's own wait in seconds, or None.
    """

    def __init__(self, status: int, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(status, message, retry_after)
        self.status = status
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.status} {self.message}".strip()


class ResultRejected(Exception):
    """The function returned a value that `retry_if_result` refuses. The value is in `result`."""

    def __init__(self, result: object = None) -> None:
        super().__init__(f"retry_if_result refused a value of type {type(result).__name__}")
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.result,))


class StreamInterrupted(Exception):
    """A stream broke after content had reached the consumer, so nothing was repeated.

    `contents` counts the contents that were delivered, `delivered` holds them in order (up to about a million
    characters or bytes; of events of known shape, their text). What broke it is the `__cause__`. Chunks that can't be
    pickled are left out of a pickled one.
    """

    def __init__(self, contents: int, delivered: tuple[Any, ...] = (), cause: BaseException | None = None) -> None:
        parts = "1 content was" if contents == 1 else f"{contents} contents were"
        why = "" if cause is None else f" by {type_name(cause)}"
        told = (
            ""
            if isinstance(cause, (RetryError, UsageError))
            else ("; to recover from what may pass: after_content='restart' or 'buffer', or resume=function")
        )
        super().__init__(f"the stream was interrupted{why} after {parts} delivered; what came is in .delivered{told}")
        self.contents = contents
        self.delivered = delivered
        self.__cause__ = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.contents, _picklable_chunks(self.delivered), picklable(self.__cause__)))


class StreamTruncated(Exception):
    """A stream ended without its last event: the answer is not complete, whatever the connection says."""

    def __init__(self, contents: int = 0) -> None:
        super().__init__(
            f"the stream ended without its last event, after {contents} contents; if it has none, leave events= out"
        )
        self.contents = contents

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.contents,))


class ErrorEvent(Exception):
    """An event of a stream that reports a failure. `body` is what it says, as a dictionary."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__("the service reported a failure inside the stream; what it says is in .body")
        self.body = body

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.body,))


class UsageError(TypeError):
    """forbear was used in a way that can't work. Never retried, whatever the rule says."""


class NestedRetriesWarning(UserWarning):
    """Two layers retry the same request, so their attempts multiply. The message counts them."""


class SummaryError(Exception):
    """Stands in for an error that could not be pickled.

    `error_type` is that error's qualified class name, `text` what `str()` gave for it (left out of our own text).
    """

    def __init__(self, error_type: str, text: str = "") -> None:
        super().__init__(f"{error_type} (the original could not be pickled; its text is in .text)")
        self.error_type = error_type
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.error_type, self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSummary:
    """One failed attempt, as the final error remembers it. Holds no traceback and no foreign text.

    `number` counts from 1; `error_type` is the qualified class name; `status` the HTTP status if one was known;
    `elapsed` the seconds the attempt took; `delay` the seconds waited after it (None: no wait followed).
    """

    number: int
    error_type: str
    status: int | None = None
    elapsed: float = 0.0
    delay: float | None = None


class RetryError(Exception):
    """The call was given up.

    `reason` says why: "max_attempts", "deadline" or "budget". `attempts` counts the calls of the function,
    `last_error` (also `__cause__`) is the error of the last one, None only where no attempt was made.
    `elapsed` and `waited` are seconds, `hint` the server's own last wait in seconds (when to come back), or None.
    `history` holds the last few attempts, oldest first. `last_result` is the value refused last, if one was.
    `held_by` names the `Upstream` or limiter where no place could be had in time; `hint` is then the least wait there.
    """

    def __init__(
        self,
        reason: GiveUpReason,
        attempts: int,
        last_error: BaseException | None,
        *,
        elapsed: float = 0.0,
        waited: float = 0.0,
        hint: float | None = None,
        history: tuple[AttemptSummary, ...] = (),
        held_by: str | None = None,
    ) -> None:
        super().__init__(_gave_up_text(reason, attempts, last_error, elapsed, waited, hint, held_by))
        self.reason: GiveUpReason = reason
        self.attempts = attempts
        self.last_error = last_error
        self.elapsed = elapsed
        self.waited = waited
        self.hint = hint
        self.history = history
        self.held_by = held_by
        self.__cause__ = last_error

    @property
    def last_result(self) -> Any:
        """The value that `retry_if_result` refused last, or None."""
        return self.last_error.result if isinstance(self.last_error, ResultRejected) else None

    def as_a(self, kind: type[RetryError]) -> RetryError:
        """The same in another class, such as one that is an error of a client library too."""
        return _rebuild(kind, self.reason, self.attempts, self.last_error, self._facts())

    def __copy__(self) -> RetryError:
        return _rebuild(type(self), self.reason, self.attempts, self.last_error, self._facts())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.reason, self.attempts, picklable(self.last_error), self._facts()))

    def _facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("elapsed", "waited", "hint", "history", "held_by")}


class RetriesExhausted(RetryError):
    """All attempts that `max_attempts` allows have failed."""


class DeadlineExceeded(RetryError, TimeoutError):
    """The deadline has passed, or leaves no room for the next wait. A `TimeoutError` too."""


class BudgetExhausted(RetryError):
    """The service's retry budget is empty: retrying now would add to an outage."""


class CircuitOpenError(Exception):
    """The circuit breaker `name` is open: nothing was sent. A trial is allowed in `retry_in` seconds."""

    def __init__(self, retry_in: float = 0.0, name: str | None = None) -> None:
        whose = "" if name is None else f" of {name!r}"
        super().__init__(f"the circuit{whose} is open and nothing was sent; try again in {retry_in:.2f} s")
        self.retry_in = retry_in
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.retry_in, self.name))


_CLASS_OF_REASON: dict[GiveUpReason, type[RetryError]] = {
    "max_attempts": RetriesExhausted,
    "deadline": DeadlineExceeded,
    "budget": BudgetExhausted,
}


def gave_up(reason: GiveUpReason, attempts: int, last_error: BaseException | None, **facts: Any) -> RetryError:
    """The error of the class that belongs to `reason`."""
    return _CLASS_OF_REASON[reason](reason, attempts, last_error, **facts)


def type_name(error: BaseException | None) -> str:
    """The qualified class name of an error: `httpx.ReadTimeout`, or `TimeoutError` for a built-in one."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_NEXT_STEP: dict[GiveUpReason, str] = {
    "max_attempts": "allow more with max_attempts=, or see last_error for what to mend",
    "deadline": "allow more time with deadline=, or see last_error for what took it",
    "budget": "the service is failing for everyone: come back later",
}


def _gave_up_text(
    reason: GiveUpReason,
    attempts: int,
    last_error: BaseException | None,
    elapsed: float,
    waited: float,
    hint: float | None,
    held_by: str | None,
) -> str:
    if held_by is not None:
        made = "the first attempt" if not attempts else "1 attempt" if attempts == 1 else f"{attempts} attempts"
        text = f"gave up {'after' if attempts else 'before'} {made}, {elapsed:.2f} s after the call began: "
        text += f"no place in time at {held_by}"
        text += "" if last_error is None else f"; the last failed with {type_name(last_error)}"
        text += f"; come back in {hint:.2f} s" if hint else ""
        return f"{text}; allow more time with deadline="
    if last_error is None and elapsed > 0:
        return f"the block was cut at its deadline after {elapsed:.2f} s; allow more time with deadline(...)"
    if last_error is None:
        return f"gave up before the first attempt ({reason}): no time was left; allow more with deadline="
    count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    text = f"gave up after {count} in {elapsed:.2f} s, {waited:.2f} s of it waiting ({reason}); "
    text += f"the last failed with {type_name(last_error)}; "
    if hint is not None and reason == "deadline":
        return text + f"the server asked to come back in {hint:.2f} s"
    return text + _NEXT_STEP[reason]


def picklable(error: BaseException | None) -> BaseException | None:
    """The error itself if it survives a round trip, else a summary. Some fail only when they are loaded."""
    if error is None or isinstance(error, RetryError):  # which sees to its own cause
        return error
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # just written by ourselves
    except Exception:
        return SummaryError(type_name(error), _text_of(error))
    return error


def _picklable_chunks(chunks: tuple[Any, ...]) -> tuple[Any, ...]:
    """The chunks of a stream if they survive a round trip, else none of them."""
    try:
        pickle.loads(pickle.dumps(chunks))  # noqa: S301  # just written by ourselves
    except Exception:
        return ()
    return chunks


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _rebuild(
    kind: Callable[..., RetryError],
    reason: GiveUpReason,
    attempts: int,
    last_error: BaseException | None,
    facts: dict[str, Any],
) -> RetryError:
    return kind(reason, attempts, last_error, **facts)


# ---- the mark against double retries -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp:
    """What an error that was re-raised after retries carries in `__forbear__`.

    `by` is the plan of the call that gave up, `within` the calls around it: they must not retry it again. An unpickled
    mark has None there: it comes from another process, and was made for whoever gets it. `thread` and `at` tell when
    and where it was made, in seconds of `time.monotonic`.
    """

    reason: GiveUpReason
    attempts: int
    elapsed: float
    waited: float
    by: object = field(default=None, repr=False, compare=False)
    within: tuple[object, ...] | None = field(default=None, repr=False, compare=False)
    thread: int = field(default_factory=get_ident, repr=False, compare=False)
    at: float = field(default_factory=monotonic, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_gave_up_elsewhere, (self.reason, self.attempts, self.elapsed, self.waited))


_NOTE = "forbear: "


def mark(error: BaseException, fact: GaveUp) -> None:
    """Marks an error that is about to be re-raised after retries, and adds a note that says so."""
    # object's own setter: an error that is a frozen dataclass refuses its class's one.
    object.__setattr__(error, "__forbear__", fact)
    notes = [note for note in getattr(error, "__notes__", ()) if not str(note).startswith(_NOTE)]
    notes.append(
        f"{_NOTE}gave up after attempt {fact.attempts} in {fact.elapsed:.2f} s, {fact.waited:.2f} s of it waiting "
        f"({fact.reason})"
    )
    object.__setattr__(error, "__notes__", notes)


def mark_of(error: BaseException) -> GaveUp | None:
    """The mark of an error that was re-raised after retries, or None."""
    fact = getattr(error, "__forbear__", None)
    if fact is None:
        try:  # of a response that was given up, and of which a client has made an error
            fact = getattr(getattr(error, "response", None), "__forbear__", None)
        except Exception:  # a foreign property may raise
            return None
    return fact if isinstance(fact, GaveUp) else None


def already_retried(error: BaseException, call: object, since: float = float("-inf")) -> bool:
    """Whether a forbear layer inside `call` has retried this error to the end.

    The mark of a call elsewhere does not count: one error object that many calls raise (a module-level constant, a
    mock's side effect) is a new failure each time. A call in another thread, which knows of no call around it as
    executors copy no context, counts if it gave up since this attempt began, at `since` on `time.monotonic`.
    """
    if isinstance(error, RetryError):
        return True
    fact = mark_of(error)
    if fact is None:
        return False
    if not fact.within:
        return fact.within is None or (fact.thread != get_ident() and fact.at >= since)
    return any(one is call for one in fact.within)


def given_up_by(error: BaseException, plan: object) -> bool:
    """Whether a call under `plan` has given up with this error."""
    fact = mark_of(error)
    return isinstance(error, (RetryError, CircuitOpenError)) or (fact is not None and fact.by is plan)


def _gave_up_elsewhere(reason: GiveUpReason, attempts: int, elapsed: float, waited: float) -> GaveUp:
    return GaveUp(reason=reason, attempts=attempts, elapsed=elapsed, waited=waited)
