"""What all tests on real SDKs need: the way to the modules of this folder, and no proxy between client and server."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from loopback.fixtures import authority as authority
from loopback.fixtures import loopback as loopback


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback interface is called directly, whatever the machine's environment says."""
    for name in os.environ:
        if name.lower() in {"http_proxy", "https_proxy", "all_proxy"}:
            monkeypatch.delenv(name)


# ---- for tests of streams --------------------------------------------------------------------------------------------


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Any:
    """The way to stream under test; skips where its SDK is not installed."""
    found = request.param
    pytest.importorskip(found.sdk, reason=f"{found.sdk} is not installed")
    return found


@pytest.fixture
def server() -> Iterator[Any]:
    """The scripted server."""
    with import_module("loopback").Server() as running:
        yield running


@pytest.fixture(scope="module")
def little_to_collect() -> Iterator[None]:
    """The SDKs make so many classes that a full collection takes long: what is there before a test is passed over."""
    yield
    gc.unfreeze()


@pytest.fixture
def no_complaints(api: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the interpreter can only complain of fails the test: among it, warnings raised where an object dies."""
    gc.collect()
    gc.freeze()
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda said: told.append(f"{said.exc_value!r} in {said.object!r}"))
    yield
    gc.collect()
    assert told == []
