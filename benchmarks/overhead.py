"""What a retry costs while nothing fails: one successful call, asyncio and blocking, and the import.

All contenders run in one process and take turns, round by round and in a new order each time, so that a slow moment of
the machine hits all of them alike. Ratios are taken within a round; the median of the rounds is what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import importlib
import importlib.metadata
import json
import os
import platform
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

Fn = Callable[..., Any]
Turns = Callable[[int], float]  # makes so many calls; nanoseconds of one
Rounds = dict[str, list[float]]  # nanoseconds of one call, by contender; one number a round

ATTEMPTS = 5
ATTEMPT_TIMEOUT = 10.0
DEADLINE = 60.0
CALLS = 1_000  # in one turn of one contender: a millisecond for a cheap one
WARM_UP = 20  # calls before the clock starts: the turn of another contender has emptied the caches


# What one writes by hand instead of using a library.


def jittered(attempt: int) -> float:
    return random.uniform(0.0, min(30.0, 0.5 * 2.0 ** (attempt - 1)))


def loop_by_hand(fn: Fn) -> Fn:
    @functools.wraps(fn)
    async def retried(*args: Any, **kwargs: Any) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await fn(*args, **kwargs)
            except ConnectionError:
                if attempt == ATTEMPTS:
                    raise
                await asyncio.sleep(jittered(attempt))
        raise AssertionError

    return retried


def loop_by_hand_with_timeout(fn: Fn) -> Fn:
    @functools.wraps(fn)
    async def retried(*args: Any, **kwargs: Any) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with asyncio.timeout(ATTEMPT_TIMEOUT):
                    return await fn(*args, **kwargs)
            except (ConnectionError, TimeoutError):
                if attempt == ATTEMPTS:
                    raise
                await asyncio.sleep(jittered(attempt))
        raise AssertionError

    return retried


def within_timeout(fn: Fn) -> Fn:
    @functools.wraps(fn)
    async def limited(*args: Any, **kwargs: Any) -> Any:
        async with asyncio.timeout(ATTEMPT_TIMEOUT):
            return await fn(*args, **kwargs)

    return limited


def blocking_loop_by_hand(fn: Fn) -> Fn:
    @functools.wraps(fn)
    def retried(*args: Any, **kwargs: Any) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return fn(*args, **kwargs)
            except ConnectionError:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(jittered(attempt))
        raise AssertionError

    return retried


def blocking_loop_by_hand_with_deadline(fn: Fn) -> Fn:
    @functools.wraps(fn)
    def retried(*args: Any, **kwargs: Any) -> Any:
        ends_at = time.monotonic() + DEADLINE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return fn(*args, **kwargs)
            except ConnectionError:
                delay = jittered(attempt)
                if attempt == ATTEMPTS or time.monotonic() + delay >= ends_at:
                    raise
                time.sleep(delay)
        raise AssertionError

    return retried


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to make a call.

    decorator: what stands above the function, if anything, as source text: the package that it needs is imported only
    where it takes part. limits: which limits of time are kept; "between attempts" means that an attempt which hangs is
    not cut. call: the statement that is timed.
    """

    name: str
    decorator: str = ""
    package: str | None = None
    limits: str = "none"
    call: str = "await fn()"

    def names(self) -> dict[str, Any]:
        """What the source texts may name."""
        return globals() | ({self.package: importlib.import_module(self.package)} if self.package else {})

    def made(self, fn: Fn) -> Fn:
        """`fn`, decorated."""
        return eval(self.decorator, self.names())(fn) if self.decorator else fn


# Each library is told the same thing where it can be told: five attempts, exponential backoff with jitter, the
# connection errors, and the limits of time that forbear has by default. Each keeps as much of it as it can.
IN_TIMEOUT = "async with asyncio.timeout(ATTEMPT_TIMEOUT): await fn()"
TENACITY = "tenacity.retry(stop=tenacity.stop_after_attempt(5), wait=tenacity.wait_exponential_jitter())"
TENACITY_AND_TIMEOUT = f"lambda fn: {TENACITY}(within_timeout(fn))"
STAMINA = "stamina.retry(on=ConnectionError, attempts=5, timeout=60.0)"
BACKOFF = "backoff.on_exception(backoff.expo, ConnectionError, max_tries=5)"
RETRYHOP = "retryhop.retry(attempts=5, exceptions=ConnectionError, deadline=60.0)"
NOPANIC = "nopanic.retry(attempts=5, on=ConnectionError)"
NOPANIC_TIMEOUT = (
    "lambda fn: nopanic.retry(attempts=5, on=ConnectionError, max_time=60.0)(nopanic.timeout(ATTEMPT_TIMEOUT)(fn))"
)
AIORETRY = "aioretry.retry(lambda info: (info.fails >= ATTEMPTS, jittered(info.fails)))"
CALL_FORM = "await forbear.retry(fn, max_attempts=5, attempt_timeout=10.0, deadline=60.0)"
CALL_FORM_SYNC = "forbear.retry_sync(fn, max_attempts=5, attempt_timeout=10.0, deadline=60.0)"
NO_LIMITS = "forbear.retry(attempt_timeout=None, deadline=None)"
ATTEMPT, BOTH, BETWEEN = "attempt", "attempt and deadline", "between attempts"

ASYNC = (
    Contender(name="bare await"),
    Contender(name="asyncio.timeout alone", call=IN_TIMEOUT, limits=ATTEMPT),
    Contender(name="by hand", decorator="loop_by_hand"),
    Contender(name="by hand + asyncio.timeout", decorator="loop_by_hand_with_timeout", limits=ATTEMPT),
    Contender(name="forbear", package="forbear", decorator="forbear.retry()", limits=BOTH),
    Contender(name="forbear, call form", package="forbear", call=CALL_FORM, limits=BOTH),
    Contender(name="forbear, no limits", package="forbear", decorator=NO_LIMITS),
    Contender(name="tenacity", package="tenacity", decorator=TENACITY),
    Contender(name="tenacity + asyncio.timeout", package="tenacity", decorator=TENACITY_AND_TIMEOUT, limits=ATTEMPT),
    Contender(name="stamina", package="stamina", decorator=STAMINA, limits=BETWEEN),
    Contender(name="backoff", package="backoff", decorator=BACKOFF),
    Contender(name="retryhop", package="retryhop", decorator=RETRYHOP, limits=BETWEEN),
    Contender(name="nopanic", package="nopanic", decorator=NOPANIC),
    Contender(name="nopanic + its timeout", package="nopanic", decorator=NOPANIC_TIMEOUT, limits=ATTEMPT),
    Contender(name="aioretry", package="aioretry", decorator=AIORETRY),
)
SYNC = (
    Contender(name="bare call", call="fn()"),
    Contender(name="by hand", decorator="blocking_loop_by_hand", call="fn()"),
    Contender(name="by hand + deadline", decorator="blocking_loop_by_hand_with_deadline", call="fn()", limits=BETWEEN),
    Contender(name="forbear", package="forbear", decorator="forbear.retry_sync()", call="fn()", limits=BETWEEN),
    Contender(name="forbear, call form", package="forbear", call=CALL_FORM_SYNC, limits=BETWEEN),
    Contender(name="tenacity", package="tenacity", decorator=TENACITY, call="fn()"),
    Contender(name="stamina", package="stamina", decorator=STAMINA, call="fn()", limits=BETWEEN),
    Contender(name="backoff", package="backoff", decorator=BACKOFF, call="fn()"),
    Contender(name="retryhop", package="retryhop", decorator=RETRYHOP, call="fn()", limits=BETWEEN),
    Contender(name="nopanic", package="nopanic", decorator=NOPANIC, call="fn()"),
)
IMPORTS = {  # statement: the package it needs
    "import dataclasses, typing": None,
    "import forbear": "forbear",
    "from forbear import retry_sync": "forbear",
    "from forbear import retry": "forbear",
    "import asyncio": None,
    "import tenacity": "tenacity",
    "import stamina": "stamina",
    "import backoff": "backoff",
    "import retryhop": "retryhop",
    "import nopanic": "nopanic",
    "import aioretry": "aioretry",
}
PACKAGES = tuple(dict.fromkeys(package for package in IMPORTS.values() if package))


@functools.cache
def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed(package: str | None) -> bool:
    return package is None or version_of(package) is not None


# Each contender gets a copy of the loop, its inline caches included: nobody's calls make it slow for the others.
ASYNC_TURN = """
async def turn(fn, count, clock=time.perf_counter_ns):
    start = clock()
    for _ in range(count):
        {call}
    await asyncio.sleep(0)  # the loop clears away the timers that the calls left behind
    return (clock() - start) / count
"""
SYNC_TURN = """
def turn(fn, count, clock=time.perf_counter_ns):
    start = clock()
    for _ in range(count):
        {call}
    return (clock() - start) / count
"""


def turn_of(template: str, contender: Contender) -> Fn:
    names = contender.names()
    exec(template.format(call=contender.call), names)  # as timeit does it
    return names["turn"]


@contextmanager
def async_turns(contender: Contender) -> Iterator[Turns]:
    """A loop of its own for each contender: what one leaves in the timers' heap is not cleared at another's cost."""

    async def answer() -> int:
        return 1

    turn, fn = turn_of(ASYNC_TURN, contender), contender.made(answer)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        yield lambda count: loop.run_until_complete(turn(fn, count))


@contextmanager
def sync_turns(contender: Contender) -> Iterator[Turns]:
    def answer() -> int:
        return 1

    turn, fn = turn_of(SYNC_TURN, contender), contender.made(answer)
    yield lambda count: turn(fn, count)


def measure(
    contenders: Iterable[Contender], turns_of: Callable[[Contender], AbstractContextManager[Turns]], rounds: int
) -> Rounds:
    """Nanoseconds of one call, of all contenders in each round."""
    with ExitStack() as stack:
        turns = {each.name: stack.enter_context(turns_of(each)) for each in contenders if installed(each.package)}
        found: Rounds = {name: [] for name in turns}
        # The collector stays on: what a library makes it do is part of its price. What lives already is left out.
        gc.collect()
        gc.freeze()
        for seed in range(rounds):
            for name in random.Random(seed).sample(list(turns), len(turns)):
                turns[name](WARM_UP)
                found[name].append(turns[name](CALLS))
        gc.unfreeze()
    return found


IMPORT_PROBE = """
import sys, time
before = set(sys.modules)
start = time.perf_counter_ns()
{statement}
elapsed = time.perf_counter_ns() - start
new = set(sys.modules) - before
print(elapsed, len(new), int("asyncio" in new))
"""


def probe_import(statement: str) -> tuple[int, int, bool]:
    """Nanoseconds, modules loaded anew, and whether asyncio is among them, in a fresh process."""
    command = [sys.executable, "-I", "-c", IMPORT_PROBE.format(statement=statement)]
    elapsed, modules, loads_asyncio = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(elapsed), int(modules), loads_asyncio == "1"


def measure_imports(rounds: int) -> tuple[Rounds, dict[str, dict[str, Any]]]:
    statements = [statement for statement, package in IMPORTS.items() if installed(package)]
    found: Rounds = {statement: [] for statement in statements}
    facts: dict[str, dict[str, Any]] = {}
    for seed in range(-1, rounds):  # the first round only fills the caches of the file system
        for statement in random.Random(seed).sample(statements, len(statements)):
            elapsed, modules, loads_asyncio = probe_import(statement)
            facts[statement] = {"modules": modules, "asyncio": loads_asyncio}
            if seed >= 0:
                found[statement].append(elapsed)
    return found, facts


def ratio(found: Rounds, name: str, other: str) -> float | None:
    """How many times the price of `other` is paid for `name`: the median of the rounds."""
    if name not in found or other not in found:
        return None
    return median(a / b for a, b in zip(found[name], found[other], strict=True))


def rows_of(found: Rounds, names: Iterable[str], reference: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "median_ns": median(found[name]),
            "min_ns": min(found[name]),
            f"per_{reference}": ratio(found, name, reference),
        }
        for name in names
        if name in found
    ]


def call_rows(found: Rounds, contenders: Iterable[Contender]) -> list[dict[str, Any]]:
    limits = {each.name: each.limits for each in contenders}
    return [{**row, "limits": limits[row["name"]]} for row in rows_of(found, limits, "forbear")]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure of the design. `measured` is None where a contender is missing; then nothing can be said."""

    name: str
    measured: float | None
    bound: float
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        return "met" if (self.measured >= self.bound if self.at_least else self.measured <= self.bound) else "missed"

    def as_row(self) -> dict[str, Any]:
        sign = "≥" if self.at_least else "≤"
        return {"name": self.name, "measured": self.measured, "target": f"{sign} {self.bound:g}", "is": self.verdict}


def targets(calls: Rounds, blocking: Rounds, imports: Rounds, facts: Mapping[str, Mapping[str, Any]]) -> list[Target]:
    forbear, alone = "forbear", "asyncio.timeout alone"
    front, plain = "import forbear", "import dataclasses, typing"
    loaded = facts.get(front, {})
    return [
        Target(name="async call / asyncio.timeout alone", measured=ratio(calls, forbear, alone), bound=0.5),
        Target(name="tenacity / async call", measured=ratio(calls, "tenacity", forbear), bound=15, at_least=True),
        Target(name="stamina / async call", measured=ratio(calls, "stamina", forbear), bound=15, at_least=True),
        Target(name="blocking call / loop by hand", measured=ratio(blocking, forbear, "by hand"), bound=3),
        Target(name="tenacity / blocking call", measured=ratio(blocking, "tenacity", forbear), bound=20, at_least=True),
        Target(name="import forbear: modules", measured=loaded.get("modules"), bound=45),
        Target(name="import forbear: asyncio loaded", measured=loaded.get("asyncio"), bound=0),
        Target(name="import forbear / dataclasses + typing", measured=ratio(imports, front, plain), bound=1.5),
    ]


def setting() -> dict[str, Any]:
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "packages": {package: version_of(package) for package in PACKAGES if installed(package)},
        "skipped": [package for package in PACKAGES if not installed(package)],
    }


def measured(rounds: int, import_rounds: int) -> dict[str, Any]:
    calls = measure(ASYNC, async_turns, rounds)
    blocking = measure(SYNC, sync_turns, rounds)
    imports, facts = measure_imports(import_rounds)
    return {
        "setting": setting(),
        "rounds": {"calls": rounds, "imports": import_rounds, "calls_a_round": CALLS},
        "async": call_rows(calls, ASYNC),
        "blocking": call_rows(blocking, SYNC),
        "imports": [{**row, **facts[row["name"]]} for row in rows_of(imports, IMPORTS, "import dataclasses, typing")],
        "targets": [target.as_row() for target in targets(calls, blocking, imports, facts)],
    }


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Columns that line up: the first to the left, the others to the right."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in cells).rstrip()
        for cells in (list(enumerate(zip(line, widths, strict=True))) for line in lines)
    )


def number(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:,.2f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


def setting_text(found: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    skipped = [f"skipped: {name} is not installed (pip install 'forbear[bench]')" for name in found["skipped"]]
    lines = [f"{found['python']} on {found['machine']}", textwrap.fill(versions, 100), *skipped]
    return "\n".join(filter(None, lines))


def calls_text(title: str, rows: Iterable[Mapping[str, Any]]) -> str:
    head = ("", "ns (median)", "ns (min)", "/ forbear", "limits kept")
    cells = (
        (r["name"], number(r["median_ns"]), number(r["min_ns"]), number(r["per_forbear"]), r["limits"]) for r in rows
    )
    return f"{title}\n{table(head, cells)}"


def imports_text(rows: Iterable[Mapping[str, Any]]) -> str:
    head = ("", "ms (median)", "ms (min)", "/ (dataclasses, typing)", "new modules", "asyncio")
    cells = (
        (
            row["name"],
            number(row["median_ns"] / 1e6),
            number(row["min_ns"] / 1e6),
            number(row["per_import dataclasses, typing"]),
            str(row["modules"]),
            "yes" if row["asyncio"] else "no",
        )
        for row in rows
    )
    return f"Import, in a fresh process each time\n{table(head, cells)}"


def targets_text(rows: Iterable[Mapping[str, Any]]) -> str:
    cells = ((row["name"], number(row["measured"]), row["target"], row["is"]) for row in rows)
    return f"Targets\n{table(('', 'measured', 'target', ''), cells)}"


def report(found: Mapping[str, Any]) -> str:
    rounds = found["rounds"]
    return "\n\n".join(
        [
            setting_text(found["setting"]),
            calls_text(f"One successful async call, {rounds['calls']} rounds of {CALLS} calls", found["async"]),
            calls_text(f"One successful blocking call, {rounds['calls']} rounds of {CALLS} calls", found["blocking"]),
            imports_text(found["imports"]),
            targets_text(found["targets"]),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100, help="rounds of calls (default %(default)s)")
    parser.add_argument("--import-rounds", type=int, default=15, help="rounds of imports (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    found = measured(options.rounds, options.import_rounds)
    print(json.dumps(found, indent=2, ensure_ascii=False) if options.json else report(found))


if __name__ == "__main__":
    main()
