"""The surface twice: forbear's, and the library's own where it is installed."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture(params=["forbear.compat.retryhop", "retryhop"], ids=["ours", "original"])
def hop(request: pytest.FixtureRequest) -> Any:
    """One library after the other: what is tested on both is true of both."""
    if request.param == "retryhop":
        return pytest.importorskip("retryhop")
    return importlib.import_module(request.param)


@pytest.fixture
def original() -> Any:
    """The library itself."""
    return pytest.importorskip("retryhop")
