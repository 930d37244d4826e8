"""Proves that each module of the pure rooms is covered by its own test file alone, every line and every branch.

    .venv/bin/python tests/proofs.py

`src/forbear/core/backoff.py` belongs to `tests/core/test_backoff.py`, and so on; a module without a test file or a
test file without a module fails the run. Lines that are reached only by chance, from the tests of another module,
count for nothing here. A folder of data is left out: see `DATA`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("core", "classify")
# Folders that hold tables and no code. Importing them covers all their lines, so coverage would prove nothing; one test
# file for each checks what the tables say.
DATA = {Path("src/forbear/classify/providers"): Path("tests/classify/test_providers.py")}
AT_ONCE = 2  # pairs that are run at the same time
PATIENCE = 50.0  # seconds that one command may take
# No cache is left behind. Properties have tests of their own, and loading their library costs more than a whole pair.
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")


class Pair(NamedTuple):
    """A module and the test file that proves it, as paths below the root."""

    module: Path
    tests: Path


class Verdict(NamedTuple):
    """How a pair came out; `report` says what is missing, and is empty where nothing is."""

    pair: Pair
    seconds: float
    report: str


def pairs(root: Path, rooms: Sequence[str] = ROOMS) -> tuple[list[Pair], list[str]]:
    """The pairs whose both halves exist, and a complaint about each half that stands alone."""
    found: list[Pair] = []
    complaints = [
        f"{data} has no test file: write {proof}" for data, proof in DATA.items() if not (root / proof).is_file()
    ]
    for room in rooms:
        source, tests = Path("src/forbear") / room, Path("tests") / room
        for path in sorted((root / source).rglob("*.py")):
            module = path.relative_to(root)
            if module.name == "__init__.py" or not DATA.keys().isdisjoint(module.parents):
                continue
            proof = tests / module.relative_to(source).with_name(f"test_{module.name}")
            if (root / proof).is_file():
                found.append(Pair(module, proof))
            else:
                complaints.append(f"{module} has no test file: write {proof}")
        known = {pair.tests for pair in found} | set(DATA.values())
        for path in sorted((root / tests).rglob("test_*.py")):
            proof = path.relative_to(root)
            if proof not in known:
                module = source / proof.relative_to(tests).with_name(proof.name.removeprefix("test_"))
                complaints.append(f"{proof} proves no module: there is no {module}")
    return found, complaints


def prove(pair: Pair, root: Path = ROOT) -> Verdict:
    """Runs the test file alone and measures its module alone."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        data = f"--data-file={Path(directory) / 'coverage'}"
        only = f"--include={pair.module}"
        report = _run(root, "run", "--branch", data, only, *PYTEST, str(pair.tests))
        if not report:
            report = _run(root, "report", "--fail-under=100", "--show-missing", data, only)
    return Verdict(pair, time.perf_counter() - begun, report)


def _run(root: Path, *arguments: str) -> str:
    """What `coverage` said, where it failed; nothing where it went well."""
    command = (sys.executable, "-m", "coverage", *arguments)
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {PATIENCE:g} s"
    return "" if done.returncode == 0 else f"{done.stdout}\n{done.stderr}".strip()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """0 where every module is proven, else 1."""
    begun = time.perf_counter()
    found, complaints = pairs(ROOT)
    unproven = len(complaints)
    for complaint in complaints:
        _say(f"FAILED  {complaint}")
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for verdict in pool.map(prove, found):
            word = "FAILED" if verdict.report else "proven"
            _say(f"{word}  {verdict.pair.module}  by  {verdict.pair.tests}  ({verdict.seconds:.1f} s)")
            if verdict.report:
                unproven += 1
                _say(verdict.report)
    total = time.perf_counter() - begun
    _say(f"{len(found)} pairs in {total:.1f} s, " + (f"{unproven} failures" if unproven else "every branch proven"))
    return 1 if unproven or not found else 0


if __name__ == "__main__":
    sys.exit(main())
