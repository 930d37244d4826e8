"""What a call weighs while it waits: the memory of 20,000 calls in flight, per call, above the bare coroutine.

Each contender runs in a fresh process, so that nobody uses memory which another has left on a free list. There, one
task per call waits for the same event; when all have reached it, what `tracemalloc` counts is divided by the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Coroutine, Iterable, Mapping
from statistics import median
from typing import Any

from overhead import ASYNC, Contender, Target, installed, number, setting, setting_text, table, targets_text

CALLS = 20_000
BARE = "bare await"
# A task is made from an expression; what is a statement can't be one.
CONTENDERS = {each.name: each for each in ASYNC if each.call.startswith("await ")}


class Gate:
    """Where all calls wait."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.reached = 0

    def passage(self) -> Any:
        """A function that waits here: a plain one, as a user would decorate it."""

        async def wait() -> int:
            self.reached += 1
            await self.opened.wait()
            return 1

        return wait


def calls_of(contender: Contender, gate: Gate) -> Any:
    """A function that makes the coroutine of one call."""
    names = contender.names() | {"fn": contender.made(gate.passage())}
    return eval(f"lambda: {contender.call.removeprefix('await ')}", names)


async def weigh(contender: Contender, count: int) -> float:
    """Bytes per call, all that belongs to it included: task, coroutines, timers, the wait itself."""
    gate = Gate()
    call = calls_of(contender, gate)
    await first_use(call, gate)
    gc.collect()
    tracemalloc.start()
    tasks = [asyncio.create_task(call()) for _ in range(count)]
    while gate.reached < count:
        await asyncio.sleep(0)
    gc.collect()  # what could go is gone
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gate.opened.set()
    await asyncio.gather(*tasks)
    assert gate.reached == count, "calls ran into their timeout while they were made: take fewer with --calls"
    return used / count


async def first_use(call: Any, gate: Gate) -> None:
    """One call that passes: what is made once, at first use, is not a call's weight."""
    first: Coroutine[Any, Any, int] = call()
    gate.opened.set()
    assert await first == 1
    gate.opened.clear()
    gate.reached = 0


def weigh_elsewhere(name: str, count: int) -> float:
    # -E and -s: no debugging switch in the environment changes what is weighed.
    command = [sys.executable, "-E", "-s", __file__, "--one", name, "--calls", str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measured(rounds: int, count: int) -> dict[str, Any]:
    present = [each for each in CONTENDERS.values() if installed(each.package)]
    found = {each.name: median(weigh_elsewhere(each.name, count) for _ in range(rounds)) for each in present}
    rows = [
        {
            "name": each.name,
            "bytes": found[each.name],
            "above_bare": found[each.name] - found[BARE],
            "limits": each.limits,
        }
        for each in present
    ]
    above = {row["name"]: row["above_bare"] for row in rows}
    target = Target(name="bytes per call in flight", measured=above.get("forbear"), bound=500)
    return {
        "setting": setting(),
        "calls": count,
        "rounds": rounds,
        "inflight": rows,
        "targets": [target.as_row()],
    }


def weights_text(rows: Iterable[Mapping[str, Any]], count: int) -> str:
    head = ("", "bytes a call", "above the bare coroutine", "limits kept")
    cells = (
        (row["name"], number(round(row["bytes"])), number(round(row["above_bare"])), row["limits"]) for row in rows
    )
    return f"{count:,} calls in flight\n{table(head, cells)}"


def report(found: Mapping[str, Any]) -> str:
    weights = weights_text(found["inflight"], found["calls"])
    return "\n\n".join((setting_text(found["setting"]), weights, targets_text(found["targets"])))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="processes per contender (default %(default)s)")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls in flight (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(asyncio.run(weigh(CONTENDERS[options.one], options.calls)))
        return
    found = measured(options.rounds, options.calls)
    print(json.dumps(found, indent=2, ensure_ascii=False) if options.json else report(found))


if __name__ == "__main__":
    main()
