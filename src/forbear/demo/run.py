"""One run of the demo, from the first process to the last line.

Decided here: the order of things, and what the JSON of a run holds.
"""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import rich.console

from forbear import __version__
from forbear.demo.backend import Api, ServerError, misbehaving_api
from forbear.demo.figures import GRACE, Figures, figures_of, verdict
from forbear.demo.load import ARRIVE_OVER, PROMISE, Contender, Lateness, Tally, client_for, contenders, make_calls
from forbear.demo.screen import Moment, Nothing, Screen, closing, console_of_stdout, opening, screen_on
from forbear.demo.script import PHASES

ASK_EVERY = 0.2  # seconds between two questions to the server
LATE = 0.2  # seconds; a process whose timers are later than this had too little of the machine to be trusted
QUOTA_SHARE = 0.5  # of the calls that arrive in a second; so that a rate limit is felt, and ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run brought. `took`: seconds for everything; `timers_late`: how late this process's own timers were."""

    seed: int
    contenders: tuple[Contender, ...]
    figures: tuple[Figures, ...]
    took: float
    timers_late: float

    @property
    def sentence(self) -> str:
        """What the figures show."""
        return verdict(*self.figures)


def run(*, calls: int, seed: int, as_json: bool) -> int:
    """Runs the demo and prints its result; gives the exit code of the process."""
    try:
        if as_json:
            sys.stdout.write(json.dumps(as_object(asyncio.run(contest(calls, seed, None))), indent=2) + "\n")
        else:
            show(calls, seed)
    except ServerError as error:
        sys.stderr.write(f"forbear demo: {error}\n")
        return 1
    return 0


def show(calls: int, seed: int) -> None:
    """The run for people."""
    console = console_of_stdout()
    report = asyncio.run(contest(calls, seed, console))
    closing(console, [contender.name for contender in report.contenders], report.figures, report.sentence)
    if report.timers_late > LATE:
        console.print(f"This machine was busy: its timers were up to {report.timers_late:.2f} s late, "
                      "and both contenders' times are too long by as much.")  # fmt: skip


async def contest(calls: int, seed: int, console: rich.console.Console | None) -> Report:
    """The run itself, shown on `console` if there is one."""
    began_at, lateness = time.monotonic(), Lateness()
    tallies = [Tally(contender, calls) for contender in contenders(seed)]
    quota = max(1, round(QUOTA_SHARE * calls / ARRIVE_OVER))
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(misbehaving_api(seed=seed, quota=quota, apps=len(tallies)))
        asker = await stack.enter_async_context(client_for(api.control))
        clients = [await stack.enter_async_context(client_for(address)) for address in api.apps]
        if console is not None:
            opening(console, tallies, seed=seed, seconds=ARRIVE_OVER)
        screen = Nothing() if console is None else stack.enter_context(screen_on(console, tallies))
        async with beside(lateness.watch()), beside(watch(api, asker, tallies, screen)):
            await make_calls(tallies, clients)
        states = await api.states(asker)
        screen.show(Moment(tallies=tallies, states=states))
    return Report(
        seed=seed,
        contenders=tuple(tally.contender for tally in tallies),
        figures=tuple(figures_of(tally.outcomes, state) for tally, state in zip(tallies, states, strict=True)),
        took=time.monotonic() - began_at,
        timers_late=lateness.worst,
    )


async def watch(api: Api, asker: httpx.AsyncClient, tallies: list[Tally], screen: Screen) -> None:
    """Asks the server how it stands and shows it, until cancelled."""
    while True:
        screen.show(Moment(tallies=tallies, states=await api.states(asker)))
        await asyncio.sleep(ASK_EVERY)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None, None]:
    """Endless work that goes on while the block runs, and ends with it. What it raises is raised after the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        task.result()


def as_object(report: Report) -> dict[str, Any]:
    """The run for programs. All durations are seconds."""
    return {
        "seed": report.seed,
        "calls": report.figures[0].calls,
        "deadline": PROMISE,
        "grace": GRACE,
        "arrivals": ARRIVE_OVER,
        "took": report.took,
        "timers_late": report.timers_late,
        "versions": {"forbear": __version__, "httpx": httpx.__version__, "python": platform.python_version()},
        "script": [phase.says for phase in PHASES],
        "contenders": {
            contender.name: {"allowed": contender.allowed, **asdict(figures)}
            for contender, figures in zip(report.contenders, report.figures, strict=True)
        },
        "verdict": report.sentence,
    }
