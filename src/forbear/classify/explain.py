"""The classifier, explained: the verdict on an answer that somebody describes, and the whole book as a page.

Decided here: how a verdict reads. Must never decide one: what is shown is what `classify` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forbear.classify.failures import Classifier
from forbear.classify.providers import ALL, transports
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
        "## Classes of network failures\n\n" + _table(_CLASS_HEAD, map(_class_row, transports.ROWS)),
    ]
    return "\n\n".join(parts) + "\n"


_PREFACE = """\
# What every error means

This page is made from the data that `classify` reads: `forbear explain-error --table`. For one answer ask
`forbear explain-error --status 429 --header 'Retry-After: 5' --body '{"error": {"code": "insufficient_quota"}}'`.

Facts are believed in this order: a code (or text, or class) that a rule names; the server's own `x-should-retry`, which
never overrules a permanent code; the status; the class of a network failure, made more exact by what it came from; then
what the error was made from (`__cause__`). Of several rules that match, the one that names more wins; of equals, the
permanent one. Of a group of errors every one must be transient. What nothing is known about is permanent.

Where sources disagree, this is what is chosen and why:

- A reset of a rate limit is waited for in full where its limit is used up: a little late beats another refusal.
- `Retry-After: 0` is a value: come back at once, after the backoff that the policy draws.
- A quota per day, or of zero, is spent, even where the same answer names a wait of seconds.
- A 409 is retried (it mostly is a lock or a race), but not Anthropic's `conflict_error`.
- Waits in prose ("try again in 20s") are not read: prose is no contract.
- A host that has no name (EAI_NONAME) is retried: resolvers flap, and the deadline bounds it.
- JSON that can't be read is a mistake like any `ValueError`, and is not retried.
- 423, 499, 501 and 505 are not retried; a bare RESOURCE_EXHAUSTED of gRPC may be a message that is too large."""

_RULE_HEAD = ("library", "matches", "kind", "retried", "source")
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
    done = (row.executed or permit.executed) + ("; made exact by its cause" if row.generic else "")
    return (", ".join(row.packages), classes, row.kind.value, _yes(permit.transient), done)


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
