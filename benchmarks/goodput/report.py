"""Tables of the figures, the targets of forbear, and the same as data."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from peers import notes, present
from runs import TRACES
from traces import Figure, Result, Trace


def text_of(figure: Figure, value: float) -> str:
    if math.isnan(value):
        return "-"
    match figure.shape:
        case "share":
            return f"{100 * value:.1f} %"
        case "fine":
            return f"{100 * value:.2f} %"
        case "millis":
            return f"{1000 * value:,.0f} ms"
        case "micros":
            return f"{1e6 * value:.3f} µs"
        case "ratio":
            return f"{value:.2f}"
        case "seconds":
            return f"{value:.3f} s" if 0.001 <= value < 0.1 else f"{value:.2f} s"
        case "instant":
            return "never" if value == math.inf else f"{value:g} s"
        case "count":
            return f"{value:,.0f}"


def by_competitor(results: Iterable[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.competitor, []).append(result)
    return found


def values(results: Sequence[Result], figure: Figure) -> list[float]:
    """The figure in each run; runs that have none are left out."""
    found = [result.figures.get(figure.key, math.nan) for result in results]
    return [value for value in found if not math.isnan(value)]


def cell(results: Sequence[Result], figure: Figure, *, ranged: bool) -> str:
    """The median, or the smallest and the greatest where all runs count."""
    found = values(results, figure)
    if not found:
        return "-"
    if not ranged:
        return text_of(figure, median(found))
    least, most = text_of(figure, min(found)), text_of(figure, max(found))
    return least if least == most else f"{least} .. {most}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))]
        return "  ".join(padded).rstrip()

    return "\n".join([line(lines[0]), line(["-" * width for width in widths]), *map(line, lines[1:])])


def goal(figure: Figure) -> str:
    return f"{figure.sense} {text_of(figure, figure.target)}" if figure.sense else ""


def trace_text(trace: Trace, results: Sequence[Result], *, ranged: bool) -> str:
    figures = [figure for figure in trace.figures if values(results, figure)]
    rows = []
    for name, own in by_competitor(results).items():
        rows.append([name, *(cell(own, figure, ranged=ranged) for figure in figures)])
        known = trace.published.get(name, {})
        if known and all(trace.scale.get(key) == value for key, value in own[0].scale.items()):
            rows.append(
                [
                    "   as published",
                    *(text_of(figure, known[figure.key]) if figure.key in known else "" for figure in figures),
                ]
            )
    if any(figure.sense for figure in figures):
        rows.append([f"target of {trace.subjects[0]}", *map(goal, figures)])
    head = ("", *(figure.title for figure in figures))
    return "\n".join([trace.title, f"({trace.model}{_scale_text(trace, results)})", table(head, rows)])


def _scale_text(trace: Trace, results: Sequence[Result]) -> str:
    """What differs from the point that the title speaks of."""
    changed: dict[str, set[str]] = {}
    for result in results:
        for key, value in result.scale.items():
            if trace.scale.get(key) != value:
                changed.setdefault(key, set()).add(_plain(value))
    words = [f"{key}={' '.join(sorted(found))}" for key, found in changed.items()]
    return f"; here with {', '.join(words)}" if words else ""


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class Reached(NamedTuple):
    """What one of those that must reach the target came to, in each run."""

    trace: Trace
    figure: Figure
    subject: str
    found: list[float]

    @property
    def met(self) -> int:
        return sum(map(self.figure.met, self.found))


def targets(results: Iterable[Result]) -> list[Reached]:
    results = list(results)
    reached = []
    for trace in TRACES.values():
        for subject in trace.subjects:
            own = [result for result in results if result.trace == trace.name and result.competitor == subject]
            reached += [
                Reached(trace, figure, subject, values(own, figure)) for figure in trace.figures if figure.sense
            ]
    return [each for each in reached if each.found]


def targets_text(results: Iterable[Result]) -> str:
    rows = []
    for each in targets(results):
        figure, found, met = each.figure, each.found, each.met
        worst = min(found) if figure.sense == ">=" else max(found)
        verdict = "met" if met == len(found) else f"met in {met} of {len(found)} runs" if met else "NOT MET"
        rows.append([each.trace.name, each.subject, figure.title, text_of(figure, worst), goal(figure), verdict])
    if not rows:
        return ""
    return "Targets of forbear\n" + table(("", "", "figure", "worst", "target", ""), rows)


def versions() -> dict[str, str]:
    found = {peer.package: peer.version for peer in present() if peer.package}
    return {"python": platform.python_version(), **found}


def report(results: Sequence[Result], *, ranged: bool, seeds: int, judged: bool = True) -> str:
    by_trace: dict[str, list[Result]] = {}
    for result in results:
        by_trace.setdefault(result.trace, []).append(result)
    setting = ", ".join(f"{name} {version}" for name, version in versions().items())
    how = "smallest and greatest of all runs" if ranged else f"median of {seeds} seeds" if seeds > 1 else "one seed"
    parts = [
        f"{setting}\nVirtual time; {how}.",
        *(trace_text(TRACES[name], own, ranged=ranged) for name, own in by_trace.items()),
        targets_text(results)
        if judged
        else "Small traces: the targets are for the whole ones, and are not judged here.",
        "\n".join(notes()),
    ]
    return "\n\n".join(part for part in parts if part)


def as_data(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "versions": versions(),
        "notes": notes(),
        "results": [
            {
                "trace": result.trace,
                "competitor": result.competitor,
                "seed": result.seed,
                "scale": dict(result.scale),
                "figures": {key: number(value) for key, value in result.figures.items()},
            }
            for result in results
        ],
        "targets": [
            {
                "trace": each.trace.name,
                "figure": each.figure.key,
                "competitor": each.subject,
                "target": goal(each.figure),
                "met": each.met == len(each.found),
            }
            for each in targets(results)
        ],
    }


def number(value: float) -> float | str | None:
    """JSON knows no infinity."""
    return None if math.isnan(value) else "never" if math.isinf(value) else value


def series_of(results: Sequence[Result], trace: str) -> Mapping[str, Result]:
    """The first run of each competitor, for pictures."""
    return {name: own[0] for name, own in by_competitor(r for r in results if r.trace == trace).items()}
