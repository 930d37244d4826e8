"""Every public name is what it says, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("first", ["retry", "retry_sync", "attempts", "is_retryable", "Policy", "Failure", "testing"])
def test_every_public_name_is_what_it_says_whatever_was_imported_before(first: str) -> None:
    program = f"""
import forbear
getattr(forbear, {first!r}, None) or __import__("forbear.{first}")
from forbear import classify
assert callable(classify), classify
for name in forbear.__all__:
    assert type(getattr(forbear, name)).__name__ != "module", name
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
