"""One call under retryhop's rules, as forbear's drivers ask about it.

Decided here: those rules (what is listed, what replaces the backoff, that the deadline is looked at between attempts
only), and how they are told to the drivers: as a classifier, which answers once for each failed attempt, and as a
backoff, which hands out the wait that the classifier has found. Prevents a second loop beside the drivers'.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from forbear.calls.current import current_attempt
from forbear.classify.failures import Classifier
from forbear.compat.retryhop.backoff import Backoff
from forbear.compat.retryhop.circuit import Circuit, Pass, enter
from forbear.compat.retryhop.outcome import Listed, bare, final_of
from forbear.core.breaker_settings import Verdict
from forbear.core.failure import Failure
from forbear.errors import ResultRejected
from forbear.errors import RetryError as GivenUp
from forbear.upstream.breaker_options import verdict_of_outcome

WaitHint = Callable[[BaseException | None, Any], float | None]


@dataclass(frozen=True, slots=True)
class Rules:
    """What one `retry` was asked to do."""

    attempts: int
    exceptions: tuple[type[BaseException], ...]
    retry_on: Callable[[BaseException], bool] | None
    backoff: Backoff
    retry_if_result: Callable[[Any], bool] | None
    wait_hint: WaitHint | None
    deadline: float | None
    circuit: Circuit | None

    @property
    def lists_given_up(self) -> bool:
        """Whether somebody asks by name for what forbear never does by itself: to retry what was retried."""
        return any(issubclass(kind, GivenUp) for kind in self.exceptions)


class Run:
    """One call, as a block around the driver's: it holds the call's place in the circuit, what failed last, and the
    wait that was decided on.
    """

    __slots__ = ("_outer", "delay", "last", "passed", "refusal", "rules")

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.passed: Pass | None = None
        self.refusal: BaseException | None = None
        self.last: Exception | None = None
        self.delay = math.inf
        self._outer: Run | None = None

    def __enter__(self) -> None:
        self._outer = _running.get()
        _running.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _running.get() is self:  # else the collector ends it, in a context that is not ours
            _running.set(self._outer)
        self._outer = None
        if error is None:
            return
        # Only what forbear refuses to look at has not told the circuit yet; it counts for what it was made of.
        self.tell(verdict_of_outcome(error) if isinstance(error, self.rules.exceptions) else "neutral")
        final: BaseException | None = None
        if isinstance(error, Listed):
            final = error.error
        elif isinstance(error, GivenUp) and error.last_error is self.last:
            final = final_of(error)
        self.last = self.refusal = None
        try:
            if final is not None:
                raise final
        finally:
            del final, error, trace  # a frame must not keep alive what it raises

    def pass_circuit(self) -> None:
        """Before an attempt. Raises what the circuit raises, caused by the failure before it."""
        if self.rules.circuit is None:
            return
        try:
            self.passed = enter(self.rules.circuit)
        except BaseException as refusal:
            self.refusal = refusal
            attempt = current_attempt()
            if attempt is not None and refusal.__cause__ is None and attempt.previous_error is not None:
                refusal.__cause__ = bare(attempt.previous_error)
            raise

    def tell(self, verdict: Verdict) -> None:
        """Tells the circuit what came of the attempt. Only the first word counts."""
        passed, self.passed = self.passed, None
        if passed is not None:
            passed.leave(verdict)

    def refuses(self, result: object) -> bool:
        """Whether a result counts as a failure."""
        rule = self.rules.retry_if_result
        try:
            refused = rule is not None and bool(rule(bare(result)))
        except BaseException:
            self.tell("success")
            raise
        if not refused:
            self.tell("success")
        return refused

    def retries(self, error: Exception) -> bool:
        """Whether an error counts as a failure that may pass."""
        if error is self.refusal:
            return False
        if isinstance(error, ResultRejected):
            self.tell("failure")
            return True
        meant = bare(error)
        if not isinstance(meant, self.rules.exceptions):
            self.tell("neutral")
            return False
        verdict: Verdict = "success"  # it is an answer
        try:
            if self.rules.retry_on is None or self.rules.retry_on(meant):
                verdict = "failure"
        finally:
            self.tell(verdict)
        return verdict == "failure"

    def decide(self, error: Exception) -> float | None:
        """The wait that the server asks for, if it does; in `delay` the one without it, infinite to give up."""
        self.last, self.delay = error, math.inf
        attempt = current_attempt()
        if attempt is None or attempt.number >= self.rules.attempts:
            return None
        hint = self._hint(error)
        delay = max(0.0, float(self.rules.backoff(attempt.number) if hint is None else hint))
        if self.rules.deadline is not None:
            call = attempt._call  # noqa: SLF001  # ours
            left = self.rules.deadline - (call.world.clock() - call.run.started_at)
            if left <= 0 or (hint is not None and delay > left):
                return None
            delay = min(delay, left)
        if hint is not None and delay < math.inf:
            return delay
        self.delay = delay
        return None

    def _hint(self, error: Exception) -> float | None:
        if self.rules.wait_hint is None:
            return None
        if isinstance(error, ResultRejected):
            return self.rules.wait_hint(None, bare(error.result))
        return self.rules.wait_hint(bare(error), None)


_running: ContextVar[Run | None] = ContextVar("forbear_retryhop_run", default=None)


def running() -> Run:
    """The call of this surface that runs here, the innermost of nested ones."""
    run = _running.get()
    if run is None:
        raise RuntimeError("no call of this surface runs here")
    return run


class Judge(Classifier):
    """What a failed attempt means for the call that runs here; asked once for each."""

    def classify(self, error: BaseException, *, idempotent: bool = True, now: float | None = None) -> Failure:
        """The verdict of the rules, with the facts that forbear's own finds for those who listen."""
        facts, run = super().classify(error, idempotent=idempotent, now=now), running()
        if not isinstance(error, Exception) or not run.retries(error):
            return replace(facts, transient=False, retry_after=None)
        return replace(facts, transient=True, retry_after=run.decide(error))
