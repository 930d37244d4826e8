"""What the tests of integrations need: the way to the scripted server, and no proxy between client and server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from loopback.fixtures import authority as authority
from loopback.fixtures import loopback as loopback
from sockets.ways import blocking as blocking
from sockets.ways import unblocking as unblocking
from sockets.ways import way as way


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback interface is called directly, whatever the machine's environment says."""
    for name in os.environ:
        if name.lower() in {"http_proxy", "https_proxy", "all_proxy"}:
            monkeypatch.delenv(name)


@pytest.fixture(params=["blocking", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Of a client."""
    return str(request.param)
