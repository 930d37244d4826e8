"""What a run measured, and the one sentence that says what it shows.

Decided here: how each figure is computed, which figures count in the sentence, and that the sentence names every one of
them, whoever it favours. Must never know how a call was made, and must round before it compares: what is shown as equal
is called equal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forbear.demo.load import PROMISE, Outcome

# Seconds. To cancel an attempt takes a moment, so a call may end just after its deadline; only what is later than this
# is counted as late. The seconds over the deadline are counted from the deadline itself.
GRACE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One contender's run. Durations are seconds.

    in_time: succeeded within the deadline. requests: as the server counted them. p50, p99: how long callers waited, of
    all calls, failed ones too. late: calls that took longer than the deadline; over, worst_over: by how much, together
    and at worst. too_early: requests sent before the time that the server's Retry-After had named.
    """

    calls: int
    succeeded: int
    in_time: int
    requests: int
    requests_per_call: float
    p50: float
    p99: float
    late: int
    over: float
    worst_over: float
    too_early: int
    errors: dict[str, int]
    answers: dict[str, int]


def figures_of(outcomes: Sequence[Outcome], state: Mapping[str, Any]) -> Figures:
    """The figures of one contender, from what its callers saw and what the server counted."""
    elapsed = sorted(outcome.elapsed for outcome in outcomes)
    over = [max(0.0, seconds - PROMISE) for seconds in elapsed]
    good = [outcome.elapsed for outcome in outcomes if outcome.error is None]
    return Figures(
        calls=len(outcomes),
        succeeded=len(good),
        in_time=sum(seconds <= PROMISE + GRACE for seconds in good),
        requests=state["requests"],
        requests_per_call=state["requests"] / len(outcomes),
        p50=percentile(elapsed, 50),
        p99=percentile(elapsed, 99),
        late=sum(seconds > GRACE for seconds in over),
        over=sum(over),
        worst_over=max(over),
        too_early=state["too_early"],
        errors=dict(Counter(outcome.error for outcome in outcomes if outcome.error is not None).most_common()),
        answers={kind: count for kind, count in state["answers"].items() if count},
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank: a value that was measured, none between two."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure that is shown. `shown` makes its text; `score`, if it counts, is to be high."""

    label: str
    shown: Callable[[Figures], str]
    score: Callable[[Figures], float] | None = None


ROWS = (
    Row(
        label="calls succeeded",
        shown=lambda f: f"{f.succeeded} of {f.calls}",
        score=lambda f: f.succeeded,
    ),
    Row(
        label=f"calls succeeded within {PROMISE:g} s",
        shown=lambda f: f"{f.in_time} of {f.calls}",
        score=lambda f: f.in_time,
    ),
    Row(
        label="requests sent per call",
        shown=lambda f: f"{f.requests_per_call:.2f}",
        score=lambda f: -round(f.requests_per_call, 2),
    ),
    Row(label="p50", shown=lambda f: f"{f.p50:.2f} s", score=lambda f: -round(f.p50, 2)),
    Row(label="p99", shown=lambda f: f"{f.p99:.2f} s", score=lambda f: -round(f.p99, 2)),
    Row(label="calls over the deadline", shown=lambda f: f"{f.late}", score=lambda f: -f.late),
    Row(label="time over deadline, all calls", shown=lambda f: f"{f.over:.2f} s"),
    Row(label="time over deadline, worst call", shown=lambda f: f"{f.worst_over:.2f} s"),
    Row(label="requests before Retry-After was up", shown=lambda f: f"{f.too_early}", score=lambda f: -f.too_early),
)


def verdict(naive: Figures, ours: Figures) -> str:
    """What the figures show, in one sentence: every figure that counts is in it, with the winner it has."""
    won: dict[str, list[str]] = {
        "forbear did better on": [],
        "the naive loop did better on": [],
        "they were level on": [],
    }
    for row in ROWS:
        if row.score is not None:
            winner, compared = _compared(row.score(ours) - row.score(naive), row.shown(ours), row.shown(naive))
            won[winner].append(f"{row.label} ({compared})")
    return f"In this run {'; '.join(f'{winner} {_listed(labels)}' for winner, labels in won.items() if labels)}."


def _compared(lead: float, ours: str, naive: str) -> tuple[str, str]:
    if lead > 0:
        return "forbear did better on", f"{ours} against {naive}"
    if lead < 0:
        return "the naive loop did better on", f"{naive} against {ours}"
    return "they were level on", ours


def _listed(labels: list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
