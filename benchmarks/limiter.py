"""What a limiter costs while many wait for it: CPU time per grant, for 100 to 16,000 waiting tasks.

Each contender and number runs in a fresh process. There, so many tasks ask for a place over and over, so that the line
never gets shorter; when all stand in it, the CPU time of the process over a second is divided by the grants; the
cheapest of five seconds counts. All allow the same rate. A limiter whose cost is too high can't keep up with its own
rate; "of its rate" shows that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from overhead import Target, installed, number, setting, setting_text, table, targets_text

RATE = 20_000  # grants a second
WAITERS = (100, 1_000, 4_000, 16_000)
ROUNDS, SECONDS = 5, 1.0  # the cheapest round counts: the others are this one and what the machine did beside it
MOST_SECONDS = 30.0  # for a limiter that is busy with itself

# How a limiter is made and asked, as source text: its package is imported only where it takes part.
CONTENDERS: dict[str, tuple[str, str, str]] = {
    "forbear": ("forbear", f"forbear.RateLimiter({RATE * 60}, burst=1)", "acquire_async()"),
    "aiolimiter": ("aiolimiter", f"aiolimiter.AsyncLimiter(1, 1 / {RATE})", "acquire()"),
    "pyrate-limiter": (
        "pyrate_limiter",
        f"pyrate_limiter.Limiter(pyrate_limiter.Rate({RATE}, 1000))",
        "try_acquire_async('all')",
    ),
    "retryhop": ("retryhop", f"retryhop.RateLimiter({RATE * 60})", "acquire_async()"),
}
PACKAGES = {"pyrate_limiter": "pyrate-limiter"}


async def measure(name: str, waiters: int) -> dict[str, float]:
    """CPU microseconds per grant, and the share of the rate that was reached, with so many tasks in line."""
    package, made, asked = CONTENDERS[name]
    names = {package: __import__(package)}
    limiter = eval(made, names)
    ask = eval(f"lambda limiter: limiter.{asked}")
    grants = 0

    async def wait_again_and_again() -> None:
        nonlocal grants
        while True:
            await ask(limiter)
            grants += 1

    tasks = [asyncio.create_task(wait_again_and_again()) for _ in range(waiters)]
    await asyncio.sleep(2.0)  # all stand in line, and what may leave at once has left
    found = []
    for _ in range(ROUNDS):
        before, cpu, wall = grants, time.process_time(), time.monotonic()
        await asyncio.sleep(SECONDS)
        granted, cpu, wall = grants - before, time.process_time() - cpu, time.monotonic() - wall
        found.append((cpu / max(1, granted) * 1e6, granted / wall / RATE))
    for task in tasks:
        task.cancel()
    cpu, share = min(found)
    return {"cpu": cpu, "share": share}


def measured_elsewhere(name: str, waiters: int) -> dict[str, Any]:
    """`measure`, in a process of its own; nothing where it does not come to an end."""
    command = [sys.executable, __file__, "--one", name, str(waiters)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        return {"cpu": None, "share": None}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(waiters: Iterable[int]) -> dict[str, Any]:
    """All figures."""
    rows: dict[str, dict[int, Any]] = {}
    for name, (package, *_) in CONTENDERS.items():
        if not installed(PACKAGES.get(package, package)):
            print(f"{name} is not installed: left out", file=sys.stderr)
            continue
        rows[name] = {}
        for count in waiters:
            print(f"{name}, {count:,} waiters ...", file=sys.stderr)
            rows[name][count] = measured_elsewhere(name, count)
    return {"setting": setting(), "rate": RATE, "rows": rows, "targets": [each.as_row() for each in targets(rows)]}


def targets(rows: Mapping[str, Mapping[int, Any]]) -> list[Target]:
    ours = rows["forbear"]
    most, least = max(ours), min(ours)
    return [
        Target(name="µs per grant, most waiters", measured=ours[most]["cpu"], bound=10.0),
        Target(name="most waiters / fewest", measured=ours[most]["cpu"] / ours[least]["cpu"], bound=1.5),
    ]


def report(found: Mapping[str, Any]) -> str:
    """The figures as text."""
    rows = found["rows"]
    counts = list(rows["forbear"])
    lines = [
        (name, *(f"{number(row[count]['cpu'])} ({row[count]['share']:.0%})" if row[count]["cpu"] else "not in time"
                 for count in counts))
        for name, row in rows.items()
    ]  # fmt: skip
    head = ("CPU µs per grant (of its rate)", *(f"{count:,} waiting" for count in counts))
    return "\n\n".join((setting_text(found["setting"]), table(head, lines), targets_text(found["targets"])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--waiters", type=int, nargs="+", default=WAITERS, help="tasks in line")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(asyncio.run(measure(given.one[0], int(given.one[1])))))
        return
    found = measured(given.waiters)
    print(json.dumps(found, indent=2) if given.json else report(found))


if __name__ == "__main__":
    main()
