"""Pictures of the runs, as SVG: one small chart per competitor, with the same axes, so that they can be compared.

Colours and letters follow the reader's light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from traces import Result

WIDE, HIGH = 270, 120  # of one chart's area
LEFT, ABOVE, GAP_X, GAP_Y = 62, 84, 34, 62
COLUMNS = 3
STYLE = """
svg { --paper: #ffffff; --ink: #1f2328; --faint: #d8dee4; --soft: #57606a; --first: #0969da; --second: #bc4c00; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #0d1117; --ink: #e6edf3; --faint: #30363d; --soft: #9198a1; --first: #4493f8; --second: #f0883e; }
}
text { fill: var(--ink); font: 11px system-ui, sans-serif; } .soft { fill: var(--soft); }
.title { font-size: 16px; font-weight: 600; } .name { font-size: 12px; font-weight: 600; }
.paper { fill: var(--paper); } .grid { stroke: var(--faint); } .mark { stroke: var(--soft); stroke-dasharray: 3 3; }
.first { fill: var(--first); fill-opacity: 0.25; stroke: var(--first); }
.second { fill: none; stroke: var(--second); stroke-width: 1.4; }
.key-first { fill: var(--first); } .key-second { fill: var(--second); }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """`area` and `line` are keys of a result's series with their labels. `mark` is a level that matters."""

    file: str
    trace: str
    title: str
    area: tuple[str, str]
    line: tuple[str, str] | None
    until: float
    top: float
    mark: tuple[float, str] | None = None


PICTURES = (
    Picture(
        file="outage.svg",
        trace="outage",
        title="An outage of 3 s: requests that reach the server, per second",
        area=("answered", "answered"),
        line=("requests", "all requests (the first instant, 1,000 calls, is cut off)"),
        until=12.0,
        top=2_000.0,
        mark=(500.0, "room for 500/s"),
    ),
    Picture(
        file="overload.svg",
        trace="overload",
        title="An overload of 5 s: calls that succeed, per second",
        area=("goodput", "succeeded"),
        line=("requests", "all requests"),
        until=120.0,
        top=300.0,
        mark=(80.0, "load: 80/s"),
    ),
    Picture(
        file="limit-unknown.svg",
        trace="limit-unknown",
        title="A rate limit that the client does not know: requests per second",
        area=("accepted", "accepted"),
        line=("rejected", "rejected"),
        until=90.0,
        top=60.0,
        mark=(10.0, "limit: 10/s"),
    ),
    Picture(
        file="metastable.svg",
        trace="metastable",
        title="A stop of 10 s at a load of 280/s: calls that succeed, per second",
        area=("goodput 280", "succeeded"),
        line=("sent 280", "all requests"),
        until=300.0,
        top=600.0,
        mark=(280.0, "load: 280/s"),
    ),
)


def draw(results: Mapping[str, Mapping[str, Result]], folder: Path) -> list[Path]:
    """Writes each picture whose trace was run."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for picture in PICTURES:
        runs = [run for run in results.get(picture.trace, {}).values() if picture.area[0] in run.series]
        if runs:
            path = folder / picture.file
            path.write_text(svg(picture, runs), encoding="utf-8")
            written.append(path)
    return written


def svg(picture: Picture, runs: Sequence[Result]) -> str:
    rows = math.ceil(len(runs) / COLUMNS)
    width = LEFT + COLUMNS * (WIDE + GAP_X)
    height = ABOVE + rows * (HIGH + GAP_Y)
    charts = [chart(picture, run, *_corner(place)) for place, run in enumerate(runs)]
    clips = f'<clipPath id="area"><rect width="{WIDE}" height="{HIGH}"/></clipPath>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(picture.title)}</title><style>{STYLE}</style><defs>{clips}</defs>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            f'<text class="title" x="16" y="28">{escape(picture.title)}</text>',
            *key(picture),
            *charts,
            "</svg>\n",
        ]
    )


def _corner(place: int) -> tuple[int, int]:
    row, column = divmod(place, COLUMNS)
    return LEFT + column * (WIDE + GAP_X), ABOVE + row * (HIGH + GAP_Y)


def key(picture: Picture) -> list[str]:
    found, x = [], 16
    for kind, entry in (("first", picture.area), ("second", picture.line)):
        if entry is not None:
            found.append(f'<rect class="key-{kind}" x="{x}" y="42" width="10" height="10"/>')
            found.append(f'<text x="{x + 15}" y="51">{escape(entry[1])}</text>')
            x += 40 + 6 * len(entry[1])
    if picture.mark is not None:
        found.append(f'<path class="mark" d="M{x} 47h20"/><text x="{x + 26}" y="51">{escape(picture.mark[1])}</text>')
    return found


def chart(picture: Picture, run: Result, left: int, above: int) -> str:
    def x(seconds: float) -> float:
        return WIDE * seconds / picture.until

    def y(rate: float) -> float:
        return HIGH * (1 - rate / picture.top)

    parts = [f'<g transform="translate({left} {above})">', f'<text class="name" y="-8">{escape(run.competitor)}</text>']
    parts += axes(picture, x, y)
    area = outline(run.series[picture.area[0]], run.width, x, y)
    drawn = f'<path class="first" d="M0 {HIGH}{area}V{HIGH}Z"/>'
    if picture.line is not None:
        drawn += f'<path class="second" d="M{outline(run.series[picture.line[0]], run.width, x, y)[1:]}"/>'
    if picture.mark is not None:
        drawn += f'<path class="mark" d="M0 {y(picture.mark[0]):.1f}H{WIDE}"/>'
    return "".join([*parts, f'<g clip-path="url(#area)">{drawn}</g>', "</g>"])


def outline(values: Sequence[float], width: float, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """Steps: a bin is a level, not a point."""
    steps = (f"L{x(i * width):.1f} {y(value):.1f}H{x((i + 1) * width):.1f}" for i, value in enumerate(values))
    return "".join(steps)


def axes(picture: Picture, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    found = []
    for rate in ticks(picture.top):
        found.append(f'<path class="grid" d="M0 {y(rate):.1f}H{WIDE}"/>')
        found.append(f'<text class="soft" x="-6" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:,g}</text>')
    found += [
        f'<text class="soft" x="{x(seconds):.1f}" y="{HIGH + 15}" text-anchor="middle">{seconds:g}</text>'
        for seconds in ticks(picture.until)
    ]
    found.append(f'<text class="soft" x="{WIDE}" y="{HIGH + 29}" text-anchor="end">seconds</text>')
    return found


def ticks(top: float, most: int = 5) -> list[float]:
    """Round numbers from 0 to `top`."""
    size = 10 ** math.floor(math.log10(top))
    step = next(size * factor for factor in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if top / (size * factor) <= most)
    return [step * number for number in range(int(top / step) + 1)]
