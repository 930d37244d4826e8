"""The examples in the README and the docs are what they claim to be: they run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md")))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

# What an example may take for granted: the reader's own client and functions.
READERS_OWN = """
import os
os.environ.update(OPENAI_API_KEY="key", ANTHROPIC_API_KEY="key")
class client:
    async def complete(prompt): return prompt
    async def send(key): return key
    async def post(path, **request): assert request["headers"]["Idempotency-Key"]
def load_rows(timeout): return []
def http_get(url, timeout): assert timeout; return b""
def run_the_program(): retry_sync(iter_failing)
_left = [ConnectionError("x")]
def iter_failing():
    if _left: raise _left.pop()
from forbear import retry_sync
url = "x"
"""
# An example that only defines something is also called.
THEN = {"async def main() -> None:": "import asyncio; asyncio.run(main())",
        "async def pay(": "import asyncio; asyncio.run(pay(3))"}  # fmt: skip


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for number, match in enumerate(EXAMPLE.finditer((ROOT / page).read_text(encoding="utf-8")), 1):
            found.append((f"{page}#{number}", match.group(1)))
    return found


EXAMPLES = examples()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_the_example_runs_and_prints_what_it_says(code: str, tmp_path: Path) -> None:
    more = "\n".join(call for start, call in THEN.items() if start in code)
    script = tmp_path / "example.py"
    script.write_text(f"{READERS_OWN}\n{code}\n{more}\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"print\(.*\)  # (.*)", code)
    printed = done.stdout.splitlines()
    for line in said:
        assert line in printed or "when the server" in line, f"{line!r} is not in {printed}"
