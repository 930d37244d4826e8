"""The typed examples do what their types say."""

from __future__ import annotations

import importlib.util
from pathlib import Path


async def test_the_typed_examples_run() -> None:
    spec = importlib.util.spec_from_file_location("typed_examples", Path(__file__).parent / "examples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    await module.forms()
    assert module.Client.make(3).value == 3
