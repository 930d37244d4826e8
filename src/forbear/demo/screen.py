"""What a person sees of the demo: progress while it runs, then the table and the sentence.

Decided here: a terminal gets bars that move; a pipe gets plain lines, a few seconds apart and without control codes.
Must never compute a figure.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from forbear.demo.figures import GRACE, ROWS, Figures
from forbear.demo.load import Tally

LINE_EVERY = 2.0  # seconds between two plain lines, if the server goes on as before


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """How the run stands. `states` are the server's own, in the order of `tallies`."""

    tallies: Sequence[Tally]
    states: Sequence[dict[str, Any]]

    @property
    def elapsed(self) -> float:
        """Seconds since the server got its first request."""
        elapsed: float = self.states[0]["elapsed"]
        return elapsed

    @property
    def server(self) -> str:
        """What the server is doing."""
        phase: str = self.states[0]["phase"]
        return phase


class Screen(Protocol):
    """Is shown the run as it stands, several times a second."""

    def show(self, moment: Moment) -> None:
        """Shows it, if it is time to."""


class Nothing:
    """For a reader that wants the result only."""

    def show(self, moment: Moment) -> None:
        """Shows nothing."""


class Bars:
    """A bar for each contender, and what the server is doing."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self.progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:>4.0f}/{task.total:.0f}"),
            TextColumn("[green]{task.fields[succeeded]} ok"),
            TextColumn("[red]{task.fields[failed]} failed"),
            TextColumn("[dim]{task.fields[requests]} requests"),
        )
        self.bars: list[TaskID] = [
            self.progress.add_task(tally.contender.name, total=tally.calls, succeeded=0, failed=0, requests=0)
            for tally in tallies
        ]
        self.server = Text("")

    def show(self, moment: Moment) -> None:
        """Moves the bars."""
        for bar, tally, state in zip(self.bars, moment.tallies, moment.states, strict=True):
            done, good = len(tally.outcomes), tally.succeeded
            self.progress.update(bar, completed=done, succeeded=good, failed=done - good, requests=state["requests"])
        self.server.plain = f"server     {moment.elapsed:4.1f} s  {moment.server}"


class Lines:
    """One line whenever the server changes, and now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = ("", -LINE_EVERY)

    def show(self, moment: Moment) -> None:
        """Writes a line, if it is time for one."""
        server, at = self.last
        if moment.server == server and moment.elapsed < at + LINE_EVERY:
            return
        self.last = (moment.server, moment.elapsed)
        counts = (f"{t.contender.name} {t.succeeded}/{len(t.outcomes)} ok" for t in moment.tallies)
        self.console.print(f"{moment.elapsed:5.1f} s  {'  '.join(counts)}  server: {moment.server}", soft_wrap=True)


def console_of_stdout() -> Console:
    """Where people look; plain text unless that is a terminal."""
    return Console(file=sys.stdout, highlight=False, markup=False)


@contextmanager
def screen_on(console: Console, tallies: Sequence[Tally]) -> Generator[Screen, None, None]:
    """The screen that fits the console."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield Lines(console)
        return
    bars = Bars(tallies)
    with Live(Group(bars.progress, bars.server), console=console, refresh_per_second=10):
        yield bars


def opening(console: Console, tallies: Sequence[Tally], *, seed: int, seconds: float) -> None:
    """Says what is about to happen, and what each contender may do."""
    console.print(
        f"{tallies[0].calls} calls each over {seconds:g} s to an API on this machine that misbehaves (seed {seed}).",
        soft_wrap=True,
    )
    for tally in tallies:
        console.print(f"  {tally.contender.name:<10}  {tally.contender.allowed}", soft_wrap=True)
    console.print()


def closing(console: Console, names: Sequence[str], figures: Sequence[Figures], sentence: str) -> None:
    """The table, and what it shows."""
    table = Table("", title="measured in this run", title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    for row in ROWS:
        table.add_row(row.label, *map(row.shown, figures))
    console.print()
    console.print(table)
    console.print(
        f"Requests are as the server counted them; p50 and p99 are over all calls, failed ones too; a call is over the "
        f"deadline when it ends more than {GRACE:g} s after it."
    )
    for name, each in zip(names, figures, strict=True):
        if each.errors:
            console.print(f"Failed calls of {name}: {', '.join(f'{n} {kind}' for kind, n in each.errors.items())}.")
    console.print()
    console.print(sentence)
