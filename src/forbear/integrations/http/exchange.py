"""One HTTP call: which requests may be sent again, what each attempt sends, and what the caller learns of it.

Decided here: the rules of methods and keys, and the headers of ours. Must never know a client library. Prevents the
second order, payment or mail that a retried POST makes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forbear.calls.current import Attempt, current_attempt
from forbear.calls.nesting import retries_counted, warn
from forbear.calls.verdicts import wall_clock
from forbear.core.validation import flag, number
from forbear.errors import AttemptSummary, CircuitOpenError, DeadlineExceeded, GaveUp, RetryError, mark, mark_of
from forbear.integrations.http import deadline_header
from forbear.integrations.http.replay import ADVICE, Replay
from forbear.integrations.http.watching import Watch

# RFC 9110, section 9.2.2: to send these twice does what sending them once does.
REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
TOO_SHORT = 0.005  # seconds before the deadline, in which a timer that was meant to end there may fire
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
KEY = "Idempotency-Key"  # draft-ietf-httpapi-idempotency-key-header
HOLD_BODY = 1_048_576  # bytes: an answer that fits is read inside its attempt; a longer one would fill memory
HOLD_FAILURE = 16_777_216  # bytes: a failure is read whole to be judged and handed out; what is longer is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How requests are sent.

    idempotent: whether any request may be sent again; None: as its method and its key say. key_header: the header of
    the idempotency key; adds_key: whether requests without one get one. deadline_header: which header tells the server
    when nobody waits any more; attempt_header: which one how many attempts there were before; None: not told.
    hold_body: up to how many bytes of an answer are read inside the attempt. hold_json: whether an answer of JSON is
    read there too where its length is not known.
    """

    idempotent: bool | None = None
    key_header: str = KEY
    adds_key: bool = False
    deadline_header: str | None = deadline_header.INSTANT
    attempt_header: str | None = None
    hold_body: int = HOLD_BODY
    hold_json: bool = False

    @classmethod
    def of(
        cls,
        idempotent: bool | None,
        idempotency_key: bool | str,
        deadline_header: str | None,
        attempt_header: str | None,
        hold_body: int,
        hold_json: bool,
    ) -> Rules:
        """The rules that the options of a transport describe. Raises ValueError for what makes no sense."""
        for option, name in (("deadline_header", deadline_header), ("attempt_header", attempt_header)):
            if name is not None and not _is_name(name):
                raise ValueError(f"{option} must be the name of a header, or None, not {name!r}")
        if not isinstance(idempotency_key, bool) and not _is_name(idempotency_key):
            raise ValueError(
                "idempotency_key says whether a request without a key gets one: True, False, or the name of its header"
            )
        most = number("hold_body", hold_body)
        if most < 0 or most % 1:
            raise ValueError(f"hold_body is {most:g}: it must be a whole number of bytes, 0 or more")
        return cls(
            idempotent=None if idempotent is None else flag("idempotent", idempotent),
            key_header=idempotency_key if isinstance(idempotency_key, str) else KEY,
            adds_key=bool(idempotency_key),
            deadline_header=deadline_header,
            attempt_header=attempt_header,
            hold_body=int(most),
            hold_json=flag("hold_json", hold_json),
        )

    def repeatable(self, method: str, headers: Mapping[str, Any]) -> bool:
        """Whether a request may be sent again although the server may have acted on it."""
        if self.idempotent is not None:
            return self.idempotent
        return method in REPEATABLE or self.adds_key or self.key_header in headers

    def room(self, status: int) -> int:
        """Bytes of an answer that may be read inside the attempt: a failure is to be judged by its body."""
        return max(self.hold_body, HOLD_FAILURE) if status >= 400 else self.hold_body

    def holds(self, method: str, status: int, headers: Mapping[str, str]) -> bool:
        """Whether an answer is read inside its attempt: errors, what is short, and what has no body at all."""
        if status == 101:  # the connection changes its protocol, and goes on
            return False
        if status >= 400 or method == "HEAD" or status in (204, 304):
            return True
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and "transfer-encoding" not in headers:
            return len(length) < 16 and int(length) <= self.hold_body
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        return self.hold_json and kind == "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """What was sent for one request: `response.extensions["forbear"]` of httpx and httpx2, `response.forbear` of
    requests, `attempt_log(response)` of aiohttp.

    attempts: how many were made. history: those that failed, the last ten. waited, elapsed: seconds. gave_up: why the
    response is a failure that was handed out all the same, once no further attempt made sense; else None.
    """

    attempts: int
    history: tuple[AttemptSummary, ...]
    waited: float
    elapsed: float
    gave_up: GaveUp | None = None


class Exchange:
    """One request and all attempts at it. `attempt` is the one that runs, or ran last.

    gap: seconds without a byte that its answer may take where it is read inside the attempt; None: no such limit.
    whole: whether the body of its answer was read to its end there. watch: is told what was given up; mostly None.
    """

    __slots__ = ("attempt", "gap", "method", "origin", "refused", "repeatable", "replay", "rules", "watch", "whole")

    def __init__(
        self,
        rules: Rules,
        method: str,
        origin: str,
        headers: Mapping[str, Any],
        replay: Replay,
        watch: Watch | None = None,
    ) -> None:
        self.rules = rules
        self.watch = watch
        self.whole = False
        self.method = method
        self.origin = origin
        self.replay = replay
        self.repeatable = rules.repeatable(method, headers)
        self.attempt: Attempt | None = None
        self.gap: float | None = None
        retries = retries_counted(headers)
        if retries:
            warn(
                f"{self.name}: the client retries by itself what forbear retries, this is its attempt {retries + 1}: "
                "give it max_retries=0, or use forbear.integrations.sole_owner(client)"
            )
        self.refused: tuple[Exception, Any] | None = None  # an error that stands for a response, and that response

    @property
    def name(self) -> str:
        """What the call is called in events and messages; a path may hold what nobody else must see."""
        return f"{self.method} {self.origin}"

    def begin(self) -> Attempt:
        """An attempt begins."""
        self.attempt = attempt = current_attempt()
        if attempt is None:
            raise RuntimeError("a request is sent as an attempt of a call")
        self.refused = None
        self.replay.rewind()
        return attempt

    def headers_of(self, attempt: Attempt, given: Mapping[str, Any]) -> dict[str, str]:
        """The headers that an attempt brings besides those that the caller has `given`."""
        rules, added = self.rules, dict[str, str]()
        if rules.adds_key and self.method not in REPEATABLE and rules.key_header not in given:
            added[rules.key_header] = attempt.idempotency_key
        if rules.deadline_header is not None and rules.deadline_header not in given and attempt.deadline is not None:
            told = deadline_header.write(rules.deadline_header, attempt.deadline.remaining(), wall_clock())
            if told is not None:
                added[rules.deadline_header] = told
        if rules.attempt_header is not None:
            added[rules.attempt_header] = str(attempt.number - 1)
        return added

    def body_begun(self) -> None:
        """The body of the request is being read, and can be read only once: no other attempt can send it."""
        if self.attempt is not None:
            self.attempt.forbid_retry(f"the body of the request can be read only once; {ADVICE}")

    def log(self, gave_up: GaveUp | None = None) -> AttemptLog:
        """What was sent so far."""
        attempt = self.attempt
        if attempt is None:
            raise RuntimeError("nothing was sent")
        return AttemptLog(
            attempts=attempt.number,
            history=attempt.history,
            waited=attempt.waited,
            elapsed=attempt.elapsed,
            gave_up=gave_up,
        )

    # ---- what is the library's own -----------------------------------------------------------------------------------

    def own(self, error: BaseException) -> BaseException:
        """`error` as one of the library's own, for which there may be handlers."""
        raise NotImplementedError

    def asked(self) -> tuple[str, object]:
        """The address, and the body where it is known: two requests with the same are the same request."""
        raise NotImplementedError

    def show(self, response: Any, log: AttemptLog) -> None:
        """Puts the log where its caller finds it."""
        raise NotImplementedError

    def received(self, chunks: Any) -> Any:
        """An answer has come, whose body is the rest of the chunks: what the caller gets. Of async code: to await."""
        raise NotImplementedError

    # ---- what the caller gets ----------------------------------------------------------------------------------------

    def handed_out(self, response: Any, error: BaseException | None = None) -> Any:
        """The response as the caller gets it. `error`: the one that it stands for, if it is a failure."""
        gave_up = None if error is None else mark_of(error)
        self.show(response, self.log(gave_up))
        if gave_up is not None:
            self._note()
        return response

    def seen(self, error: BaseException) -> BaseException:
        """What the caller sees of the error that the call ends with."""
        if isinstance(error, RetryError) or mark_of(error) is not None:
            self._note()
        return self.own(error)

    def at_the_deadline(self, late: BaseException) -> BaseException:
        """What the caller sees of a body that took too long: DeadlineExceeded where it was the deadline that cut it."""
        attempt = self.attempt
        if attempt is None or attempt.deadline is None or attempt.deadline.remaining() > TOO_SHORT:
            return late
        facts = {"elapsed": attempt.elapsed, "waited": attempt.waited, "history": attempt.history}
        return self.own(DeadlineExceeded("deadline", attempt.number, late, **facts))  # type: ignore[arg-type]

    def _note(self) -> None:
        """The request was given up: it is noted, in case the client repeats it."""
        if self.watch is not None and self.attempt is not None:
            self.watch.gave_up((self.method, *self.asked()), self.attempt.number)

    def response_of(self, error: BaseException) -> Any:
        """The response that `error` stands for, to be handed out in its place; None where it stands for none."""
        refused, self.refused = self.refused, None  # a record that kept its error would keep its frames
        if refused is None or refused[0] is not error:
            return None
        response = refused[1]
        fact = mark_of(error)
        if fact is not None:  # whoever makes an error of it must not be retried either
            object.__setattr__(response, "__forbear__", fact)
        return response


def as_seen(
    error: BaseException, errors: Mapping[str, type[Any]], late: Callable[[str], BaseException]
) -> BaseException:
    """What the caller of a library sees of `error`: one of the library's own, for which there may be handlers.

    errors: ours that are its own too, by the name of ours. late: makes its own of the text of an attempt that was cut.
    """
    kind = errors.get(type(error).__name__)
    if kind is not None and isinstance(error, RetryError):
        return error.as_a(kind)
    if kind is not None and isinstance(error, CircuitOpenError):
        own: BaseException = kind(error.retry_in, error.name)
    elif type(error) is TimeoutError:
        own = late(str(error))
    else:
        return error
    own.__cause__ = error.__cause__
    fact = mark_of(error)
    if fact is not None:
        mark(own, fact)
    return own


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _TOKEN.fullmatch(name) is not None


def least(given: float | None, left: float | None) -> float | None:
    """The tighter of two limits in seconds; None is no limit."""
    if left is None or left == math.inf:
        return given
    return left if given is None else min(given, left)
