"""The run of one call: which attempt it is at, what has been waited, what went wrong lately.

A small mutable object with one owner and no lock; the recipe (`Policy`) stays frozen and shared. Decided here: what
a failed attempt adds to the record, and what the final error tells. Must never know how time passes or who waits.
Prevents memory that grows with the number of attempts: the record is bounded.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from forbear.core.deadline import attempt_limit, remaining
from forbear.core.decision import (
    ATTEMPTS,
    BUDGET,
    DEADLINE,
    INTERRUPTED,
    PERMANENT,
    UNSAFE,
    Retry,
    Stop,
    decide,
    refusal,
)
from forbear.core.events import RetryState
from forbear.core.failure import Failure
from forbear.core.policy import Policy
from forbear.core.stream import Delivery
from forbear.errors import AttemptSummary, GiveUpReason, ResultRejected, RetryError, gave_up, type_name

HISTORY = 10  # attempts that a final error remembers: enough to see a pattern, and bounded


class Pending(NamedTuple):
    """A failure whose next attempt is decided on but has not begun."""

    error: BaseException
    answer: Retry
    failure: Failure


class Run:
    """One call under a policy. Instants are numbers on the driver's clock, durations seconds.

    `number` is the current attempt's, from 1; `attempt_at` the instant when it began; `previous_error` what the one
    before it ended with, `pending` the failure that waits for its next attempt, `key` the idempotency key once one was
    asked for, `mistake` an error of the caller's own rule, which must leave as it is, `forbidden` why the attempt must
    not be followed by another, if it says so. `stream` is what a stream has
    delivered; None where the call is none. `copies`: how many more of the current attempt a hedge has sent; each has a
    run of its own, `of` this one. `rounds` counts attempts without their copies.
    """

    __slots__ = (
        "attempt_at",
        "copies",
        "deadline_at",
        "forbidden",
        "hint",
        "history",
        "key",
        "mistake",
        "number",
        "of",
        "pending",
        "policy",
        "previous_delay",
        "previous_error",
        "rounds",
        "started_at",
        "stream",
        "waited",
    )  # fmt: skip

    def __init__(self, policy: Policy, started_at: float, deadline_at: float) -> None:
        self.policy = policy
        self.started_at = self.attempt_at = started_at
        self.deadline_at = deadline_at
        self.number = self.rounds = 1
        self.copies = 0
        self.of: Run | None = None
        self.waited = 0.0
        self.hint: float | None = None
        self.previous_delay: float | None = None
        self.previous_error: BaseException | None = None
        self.key: str | None = None
        self.pending: Pending | None = None
        self.mistake: BaseException | None = None
        self.forbidden: str | None = None
        self.stream: Delivery | None = None
        self.history: deque[AttemptSummary] = deque(maxlen=HISTORY)

    def left(self, now: float) -> float:
        """Seconds left of the whole call, never negative; may be infinite."""
        return remaining(self.deadline_at, now)

    @property
    def completed(self) -> int:
        """How often the function has been called."""
        return self.number + self.copies

    def copy(self, now: float) -> Run:
        """A copy of the current attempt, that begins now."""
        self.copies += 1
        copy = Run(self.policy, self.started_at, self.deadline_at)
        copy.of, copy.number, copy.attempt_at = self, self.completed, now
        copy.waited, copy.previous_error = self.waited, self.previous_error
        return copy

    @property
    def limit(self) -> float:
        """Seconds that the current attempt may take; 0 where no time was left when it began; may be infinite.

        The driver must not begin an attempt with a limit of 0, and must cut it at any other. Of a stream: to the end of
        the wait that is under way.
        """
        if self.stream is not None:
            return self.stream.due_at - self.attempt_at
        return attempt_limit(self.policy.attempt_timeout, self.left(self.attempt_at))

    def cut_short(self, usual: float, now: float) -> bool:
        """Whether an attempt that was too slow has been cut before its `usual` time was over, at the deadline.

        A stream that brings content is not too slow, however long it is.
        """
        limit = self.limit
        short, stream = limit < usual, self.stream
        if stream is not None:
            short = stream.cut_by in ("deadline", "total") if stream.flowing else short and stream.cut_by == "deadline"
        return short and now - self.attempt_at >= 0.9 * limit

    def refusal(self, failure: Failure) -> Stop | None:
        """Why no wait could help after this failure, whatever its length; None where one could."""
        stop = refusal(self.policy, failure, self.completed)
        if self.forbidden is not None and stop != PERMANENT:
            stop = UNSAFE
        if self.stream is None or self.stream.repeatable or stop in (UNSAFE, PERMANENT):
            return stop
        return INTERRUPTED  # the consumer has seen a part of it

    def failed(
        self,
        error: BaseException,
        failure: Failure,
        now: float,
        random: float,
        *,
        paid: bool = True,
        attempt: Run | None = None,
        ended_at: float | None = None,
    ) -> Retry | Stop:
        """Adds a failed attempt to the record and decides what now. After a `Retry` the driver calls `resumed`.

        `paid`: whether the service's budget has a place for a retry. `attempt`: the one that failed, where it is a
        copy. `ended_at`: when it failed, if that was earlier.
        """
        answer = decide(
            self.policy,
            failure,
            completed_attempts=self.completed,
            remaining=self.left(now),
            random=random,
            previous_delay=self.previous_delay,
            rounds=self.rounds,
        )
        if answer == ATTEMPTS and self.left(now) <= 0:
            answer = DEADLINE  # both limits are met; that the time is gone is what a caller must know
        if isinstance(answer, Retry) and not paid:
            answer = BUDGET
        stop = self.refusal(failure)
        if stop is not None and (stop == INTERRUPTED or self.forbidden is not None):
            answer = stop
        self.hint = failure.retry_after
        delay = answer.delay if isinstance(answer, Retry) else None
        self.remember(attempt or self, error, failure, now if ended_at is None else ended_at, delay)
        if isinstance(answer, Retry) and answer.source == "backoff":
            self.previous_delay = answer.delay
        elif isinstance(answer, Retry) and answer.source == "shortened backoff":
            # Shortened for one more attempt. Were it done again, attempts would follow each other without a wait.
            self.policy = self.policy.replace(late_backoff="stop")
        return answer

    def remember(
        self, attempt: Run, error: BaseException, failure: Failure, ended_at: float, delay: float | None = None
    ) -> None:
        """Adds a failed attempt, this one or a copy of it, to what the final error tells."""
        self.history.append(
            AttemptSummary(
                number=attempt.number,
                error_type=type_name(error),
                status=failure.status,
                elapsed=max(0.0, ended_at - attempt.attempt_at),
                delay=delay,
            )
        )

    def resumed(self, pending: Pending, now: float) -> None:
        """The wait is over: the next attempt begins now, and the pending error becomes the previous one."""
        self.waited += pending.answer.delay
        self.previous_error = pending.error
        self.number, self.copies, self.forbidden = self.completed + 1, 0, None
        self.rounds += 1
        self.attempt_at = now

    def given_up(
        self,
        reason: GiveUpReason,
        error: BaseException | None,
        now: float,
        attempts: int,
        *,
        held_by: str | None = None,
    ) -> RetryError:
        """The final error, with `error` as its cause and all that the record knows."""
        return gave_up(
            reason,
            attempts,
            error,
            elapsed=max(0.0, now - self.started_at),
            waited=self.waited,
            hint=self.hint,
            history=tuple(sorted(self.history, key=lambda summary: summary.number)),
            held_by=held_by,
        )

    def state(self, call: str, pending: Pending, now: float) -> RetryState:
        """What a hook is told before the wait."""
        error, answer, failure = pending
        rejected = isinstance(error, ResultRejected)
        return RetryState(
            call=call,
            attempt=self.number,
            max_attempts=self.policy.max_attempts,
            delay=answer.delay,
            source=answer.source,
            elapsed=max(0.0, now - self.started_at),
            remaining=self.left(now),
            kind=failure.kind,
            status=failure.status,
            error_type=type_name(error),
            error=None if rejected else error,
            result=error.result if isinstance(error, ResultRejected) else None,
        )
