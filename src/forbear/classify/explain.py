"""The classifier, explained: the verdict on an answer that somebody describes, and the whole book as a page.

Decided here: how a verdict reads. Must never decide one: what is shown is what `classify` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forbear.classify.failures import Classifier
from forbear.classify.providers import ALL, disputed, transports
from forbear.classify.rules import Rule
from forbear.classify.status import executed_by_status, kind_of_status
from forbear.core.failure import PERMITS, Failure, Kind

_STATUSES = (400, 401, 402, 403, 404, 407, 408, 409, 410, 413, 414, 422, 423, 425, 429, 431, 451, 499, 500, 501, 502,
             503, 504, 505, 520, 524, 529)  # fmt: skip


class DescribedError(Exception):
    """An error with nothing but a status, headers and a body."""

    def __init__(self, status: int | None, headers: Mapping[str, str], body: str) -> None:
        super().__init__("an answer that somebody described")
        self.status_code = status
        self.headers = headers
        self.body = body


def explain(
    status: int | None, headers: Mapping[str, str], body: str, *, provider: str = "", now: float | None = None
) -> Failure:
    """The verdict on an answer, as if an error of the library `provider` had carried it."""
    kind = type("DescribedError", (DescribedError,), {"__module__": provider or __name__})
    return Classifier().classify(kind(status, headers, body), now=now)


def in_words(failure: Failure) -> str:
    """A verdict for people."""
    retried = "yes" if failure.transient else "no"
    safe = "nothing was done" if failure.executed == "no" else "it may have been done: only if repeating does no harm"
    lines = [f"kind: {failure.kind.value}", f"retried: {retried}" + (f" ({safe})" if failure.transient else "")]
    if failure.retry_after is not None:
        lines.append(f"the server asks to wait: {failure.retry_after:g} s")
    if failure.code is not None:
        lines.append(f"code: {failure.code}")
    return "\n".join([*lines, f"decided by: {failure.rule}"])


def page() -> str:
    """The whole book as Markdown."""
    parts = [
        _PREFACE,
        "## Kinds\n\n" + _table(("kind", "retried", "may have been done"), map(_kind_row, Kind)),
        "## Codes, texts and classes\n\n" + _table(_RULE_HEAD, map(_rule_row, sorted(ALL, key=_order))),
        "## Statuses\n\n" + _table(("status", "kind", "retried", "may have been done"), map(_status_row, _STATUSES)),
        "## Classes of network failures\n\n" + _NETWORK + _table(_CLASS_HEAD, map(_class_row, transports.ROWS)),
        "## Disputed\n\n" + _DISPUTED + _table(_CHOICE_HEAD, map(_choice_row, disputed.CHOICES)),
    ]
    return "\n\n".join(parts) + "\n"


_PREFACE = """\
# What every error means

This page is made from the data that `classify` reads: `forbear explain-error --table`. For one answer ask
`forbear explain-error --status 429 --header 'Retry-After: 5' --body '{"error": {"code": "insufficient_quota"}}'`.

Facts are believed in this order: a code (or text, or class) that a rule names; the server's own `x-should-retry`, which
never overrules a permanent code; the status; the class of a network failure, made more exact by what it came from; then
what the error was made from (`__cause__`). Of several rules that match, the one that names more wins: a text more than
a code, a code more than a status, a status more than a class; of two classes, the one nearer to the error's own; of
equals, the permanent one. Of a group of errors every one must be transient. What nothing is known about is permanent.

Waits in prose ("try again in 20s") are not read: prose is no contract. A bare RESOURCE_EXHAUSTED of gRPC is not
retried: it may be a message that is too large."""

_NETWORK = """\
"May have been done" is "no" also for an error that was raised while a connection was being made, the handshake of TLS
included; for a stream that the peer of HTTP/2 refused; and wherever that is true of what a library made its error from.
The `ProxyError` of httpx begins with the status that the proxy answered: one that may pass is a refused connection.

"""
_DISPUTED = """\
Documents, libraries and users say different things of these. Each is tested on the real error of the real library.

"""

_RULE_HEAD = ("library", "matches", "kind", "retried", "source")
_CHOICE_HEAD = ("case", "what comes", "retried", "why")
_CLASS_HEAD = ("library", "classes", "kind", "retried", "may have been done")


def _order(rule: Rule) -> tuple[str, str, int]:
    return (rule.source, rule.provider, -rule.rank)


def _kind_row(kind: Kind) -> tuple[str, ...]:
    permit = PERMITS[kind]
    return (kind.value, _yes(permit.transient), permit.executed)


def _rule_row(rule: Rule) -> tuple[str, ...]:
    matches = str(rule).removeprefix(rule.provider).removeprefix(", ")
    return (rule.provider or "any", matches, rule.kind.value, _yes(rule.passes), rule.source)


def _status_row(status: int) -> tuple[str, ...]:
    kind = kind_of_status(status)
    plain, hinted = executed_by_status(status, hinted=False), executed_by_status(status, hinted=True)
    done = plain if plain == hinted else f"{plain}; {hinted} with a hint"
    return (str(status), kind.value, _yes(PERMITS[kind].transient), done)


def _class_row(row: transports.Row) -> tuple[str, ...]:
    permit = PERMITS[row.kind]
    classes = ", ".join(row.classes)
    more = {"status": "; made exact by its text", "event": "; no for a refused stream"}.get(row.carries, "")
    done = (row.executed or permit.executed) + ("; made exact by its cause" if row.generic else more)
    return (", ".join(row.packages), classes, row.kind.value, _yes(permit.transient), done)


def _choice_row(choice: disputed.Choice) -> tuple[str, ...]:
    waits = "" if choice.wait is None else f", after {choice.wait:g} s"
    return (choice.case, choice.comes, _yes(choice.retried) + waits, choice.why)


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
