"""What an error means for the call that met it.

Decided here: the order in which an error's facts are believed. A code in the body comes first, as it is the most exact;
then the server's own word (`x-should-retry`), which never overrules a permanent code; then the status; then the class
of a network failure, made more exact by what it came from; then what the error was made from. An error that nothing is
known about is permanent: to repeat it blindly multiplies load and hides mistakes. Must never import a library whose
errors it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from forbear.classify.attributes import attribute, tried
from forbear.classify.dates import plain_number
from forbear.classify.doubts import Doubts, warn_of
from forbear.classify.facts import Facts, Reader, status_in
from forbear.classify.groups import MOST_IN_GROUPS, leaves, made_from
from forbear.classify.network import UNREACHABLE, Transport, errno_of, nothing_was_sent, transport_of
from forbear.classify.providers import ALL
from forbear.classify.rules import Rule, RuleBook
from forbear.classify.status import TOOLKIT, executed_by_status, kind_of_status
from forbear.core.failure import PERMITS, Executed, Failure, Kind
from forbear.errors import ApiError, CircuitOpenError, ResultRejected, RetryError

# Python's own errors that say "this program is wrong": what they were made from does not make them pass.
_MISTAKES = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip


class Verdict(NamedTuple):
    """What one error alone says, and the rule that says it."""

    kind: Kind
    transient: bool
    executed: Executed
    rule: str
    facts: Facts


class _Answer(Exception):
    """Stands in for the error that a client would have made of a failed answer."""

    def __init__(self, response: object) -> None:
        super().__init__()
        self.response = response


class Classifier:
    """Tells what errors mean. `rules` are asked before the ones that forbear brings, and overrule them.

    `hints` are functions of an answer's body, as a mapping, that give the seconds which it asks to wait, or None; they
    are asked before all other places. One that raises, or gives what is no wait, has found nothing.
    A rule that names a class which does not exist is told by a UserWarning: at once where it looks like a slip of the
    pen, else when the first error of that package comes which no rule matches.

    Calling it tells whether an error is transient, so it can be given as `retryable=`. Raises ValueError if a reader
    of hints is no function.
    """

    def __init__(self, rules: Iterable[Rule] = (), hints: Iterable[Reader] = ()) -> None:
        self._own = RuleBook(rules)
        self._book = _BOOK
        self._readers = tuple(hints)
        for reader in self._readers:
            if not callable(reader):
                raise ValueError(f"hints must be functions of a body, not {type(reader).__name__}")
        self._doubts = Doubts(self._own.rules)
        warn_of(self._doubts.at_once(), level=2)

    def __call__(self, error: BaseException) -> bool:
        """Whether the error is transient."""
        return self.classify(error).transient

    def classify(self, error: BaseException, *, idempotent: bool = True, now: float | None = None) -> Failure:
        """What the error means. `idempotent`: repeating does no harm even where the server may have acted.

        `now` is the wall clock in epoch seconds, for hints that are dates without the response's own date.
        """
        try:
            return self._judged(error, idempotent, now, set())
        except Exception:  # an object that can't be read must not take the place of the failure that it is
            return Failure(transient=False, safe_to_retry=idempotent, rule="it can't be read")

    def _judged(self, error: BaseException, idempotent: bool, now: float | None, seen: set[int]) -> Failure:
        """The verdict; `seen` are the errors that have been looked at on the way, over all groups and causes."""
        seen.add(id(error))
        if isinstance(error, BaseExceptionGroup):
            return self._of_group(error, idempotent, now, seen)
        if isinstance(error, ResultRejected):
            return self._of_result(error.result, idempotent, now)
        if isinstance(error, (RetryError, CircuitOpenError)):
            return Failure(transient=False, safe_to_retry=idempotent, kind=Kind.GAVE_UP, rule="given up, or refused")
        if not isinstance(error, Exception):
            return Failure(transient=False, safe_to_retry=False, kind=Kind.CANCELLED, rule="it must leave")
        facts = Facts(error, now, self._readers)
        verdict = self._verdict(facts)
        if verdict is not None:
            return _failure(verdict, idempotent)
        return self._of_origin(error, idempotent, now, seen) or Failure(
            transient=False, safe_to_retry=idempotent, retry_after=facts.hint, rule="nothing is known about it"
        )

    def _of_result(self, result: object, idempotent: bool, now: float | None) -> Failure:
        """A refused result. One that is a failed answer itself (a response with status 503) is judged as its error."""
        status = tried(status_in, attribute(result, "status_code")) or tried(status_in, attribute(result, "status"))
        if status is None:
            return Failure(transient=True, kind=Kind.REJECTED_RESULT, executed="no", rule="a refused result")
        verdict = self._judged(_Answer(result), idempotent, now, set())
        return replace(verdict, transient=True, rule=f"a refused result: {verdict.rule}")

    def _of_group(
        self, group: BaseExceptionGroup[BaseException], idempotent: bool, now: float | None, seen: set[int]
    ) -> Failure:
        """Transient only if every leaf is; the hint is the largest; the first permanent leaf says what it is."""
        found: list[Failure] = []
        for leaf in leaves(group):
            if len(seen) > MOST_IN_GROUPS:
                return Failure(transient=False, safe_to_retry=idempotent, rule="a group too large to be judged")
            if id(leaf) not in seen:
                found.append(self._judged(leaf, idempotent, now, seen))
        if not found:  # it holds only what has led to it
            return Failure(transient=False, safe_to_retry=idempotent, rule="a group without errors of its own")
        decisive = next((failure for failure in found if not failure.transient), found[0])
        hints = [failure.retry_after for failure in found if failure.retry_after is not None]
        return replace(
            decisive,
            safe_to_retry=all(failure.safe_to_retry for failure in found),
            executed="no" if all(failure.executed == "no" for failure in found) else "maybe",
            retry_after=max(hints, default=None),
            rule=f"the group's {decisive.rule}",
        )

    def _of_origin(self, error: Exception, idempotent: bool, now: float | None, seen: set[int]) -> Failure | None:
        """What an error without a meaning of its own was made from, if that means something."""
        if isinstance(error, _MISTAKES):
            return None
        for origin in made_from(error, contexts=False):
            if isinstance(origin, BaseExceptionGroup) and id(origin) in seen:
                continue  # it has led here
            if isinstance(origin, (BaseExceptionGroup, RetryError, CircuitOpenError)):
                return self._judged(origin, idempotent, now, seen)
            its = Facts(origin, now, self._readers) if isinstance(origin, Exception) else None
            verdict = self._verdict(its) if its is not None else None
            if verdict is not None:
                return replace(_failure(verdict, idempotent), rule=f"made from: {verdict.rule}")
        return None

    def _by_status_or_class(self, facts: Facts) -> Verdict | None:
        status = facts.status
        if status is not None:
            kind = kind_of_status(status)
            executed = "maybe" if facts.inside_answer else executed_by_status(status, hinted=facts.hint is not None)
            return Verdict(kind, PERMITS[kind].transient, executed, f"status {status}", facts)
        transport = transport_of(facts.error)
        if transport is None and errno_of(facts.error) in UNREACHABLE:
            return Verdict(Kind.CONNECTION_REFUSED, True, "no", "the network is unreachable", facts)
        if transport is None:
            return None
        if transport.generic:
            return self._exact(transport, facts)
        if nothing_was_sent(transport, facts.error):
            transport = transport._replace(executed="no")
        return _by_class(transport, facts)

    def _exact(self, transport: Transport, facts: Facts) -> Verdict:
        """A class that says little, made exact by what the error came from.

        That nothing was sent is believed from any link of the chain: a connection that was never made sends nothing.
        """
        best = transport
        for origin in made_from(facts.error, contexts=True):
            if isinstance(origin, (RetryError, CircuitOpenError)):
                return Verdict(Kind.GAVE_UP, False, "maybe", "made from an error that was retried to the end", facts)
            its = Facts(origin, facts.now, facts.readers)
            rule = (self._own_rule(its) if self._own.rules else None) or self._book.find(its)
            if rule is not None:
                return _by_rule(rule, facts)
            found = transport_of(origin)
            if found is None:
                continue
            if found.kind is Kind.INSECURE:
                return _by_class(found, facts)
            if best.generic:
                best, other = found, best
            else:
                other = found
            if other.executed == "no":
                best = best._replace(executed="no")
        return _by_class(best, facts)

    def _own_rule(self, facts: Facts) -> Rule | None:
        """The caller's own rule that decides, or None; then those that can't match as meant are told."""
        rule = self._own.find(facts)
        if rule is None and self._doubts:
            tried(warn_of, self._doubts.about(facts), level=1)  # where warnings are errors, the verdict is the same
        return rule

    def _verdict(self, facts: Facts) -> Verdict | None:
        own = self._own_rule(facts) if self._own.rules else None
        if own is not None:
            return _by_rule(own, facts, "own rule: ")
        rule = self._book.find(facts)
        if rule is not None and not rule.passes:
            return _by_rule(rule, facts)
        found = _by_rule(rule, facts) if rule is not None else self._by_status_or_class(facts)
        word = directive(facts)
        if word is None:
            return found
        if found is None:
            kind, executed = Kind.UNKNOWN, PERMITS[Kind.UNKNOWN].executed
        else:
            kind, executed = found.kind, found.executed
        return Verdict(kind, word, executed, f"the server says {'to retry' if word else 'not to retry'}", facts)


def _by_class(transport: Transport, facts: Facts) -> Verdict:
    return Verdict(transport.kind, transport.passes, transport.executed, f"class {transport.name}", facts)


def _by_rule(rule: Rule, facts: Facts, prefix: str = "") -> Verdict:
    if rule.executed is not None:
        executed = rule.executed
    elif facts.status is None or facts.inside_answer:
        executed = "maybe"
    elif facts.status >= 500 or facts.status == 429:
        executed = executed_by_status(facts.status, hinted=facts.hint is not None)
    else:
        executed = rule.done
    return Verdict(rule.kind, rule.passes, executed, prefix + rule.why(facts), facts)


def directive(facts: Facts) -> bool | None:
    """The server's own word whether to retry; None where it says nothing."""
    headers = facts.headers
    word = headers.get("x-should-retry", headers.get("stripe-should-retry", "")).lower() if headers else ""
    if word in ("true", "false"):
        return word == "true"
    pushback = headers.get("grpc-retry-pushback-ms")
    return False if pushback is not None and plain_number(pushback) is None else None  # negative or no number: don't


def _failure(verdict: Verdict, idempotent: bool) -> Failure:
    facts = verdict.facts
    if verdict.executed == "no" and facts.repeated:
        verdict = verdict._replace(executed="maybe", rule=f"{verdict.rule}, after retries of the library's own")
    return Failure(
        transient=verdict.transient,
        safe_to_retry=idempotent or verdict.executed == "no",
        retry_after=facts.hint,
        kind=verdict.kind,
        executed=verdict.executed,
        status=facts.status,
        code=facts.codes[0] if facts.codes else None,
        provider=facts.library,
        rule=verdict.rule,
    )


class _Default(Classifier):
    """What `is_retryable` asks: an `ApiError` is judged by its status alone, by itself and in a group alike."""

    def _judged(self, error: BaseException, idempotent: bool, now: float | None, seen: set[int]) -> Failure:
        failure = super()._judged(error, idempotent, now, seen)
        if not isinstance(error, ApiError):
            return failure
        status = failure.status
        return replace(failure, transient=status is not None and (status in (408, 429) or status >= 500))


_BOOK = RuleBook(ALL)
_DEFAULT = Classifier()
_RETRYABLE = _Default()
classify = _DEFAULT.classify


def is_retryable(error: BaseException) -> bool:
    """Whether the default rule retries the error.

    Of `ApiError`: 408, 429 and every 5xx. Of everything else: what `classify` calls transient. Of a group: if it
    retries every error in it.
    """
    return _RETRYABLE.classify(error).transient


def is_transient(error: BaseException) -> bool:
    """Whether the LLM toolkit's rule retries the error: 408, 409, 429, 500, 502, 503, 504, 529, and the network.

    A permanent error code and the server's own word come first.
    """
    failure = classify(error)
    facts = tried(Facts, error)
    if failure.status is None or not failure.transient or facts is None or directive(facts) is not None:
        return failure.transient
    return failure.status in TOOLKIT


def status_code_of(error: BaseException) -> int | None:
    """The HTTP status (400 to 599) that an error carries, or None."""
    facts = tried(Facts, error)
    return None if facts is None else facts.status


def retry_after_of(error: BaseException, now: float | None = None) -> float | None:
    """The server's minimum wait in seconds that an error carries, or None. `now` is the wall clock in epoch seconds."""
    facts = tried(Facts, error, now)
    return None if facts is None else facts.hint
