"""What all tests on real SDKs need: the way to the modules of this folder, and no proxy between client and server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback interface is called directly, whatever the machine's environment says."""
    for name in os.environ:
        if name.lower() in {"http_proxy", "https_proxy", "all_proxy"}:
            monkeypatch.delenv(name)
