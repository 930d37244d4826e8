"""The fixtures of the scripted server: `loopback`, and `authority` for TLS.

Take them into a folder's `conftest.py` by name, as its other fixtures are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from loopback.server import Server

if TYPE_CHECKING:
    from loopback.certificates import Authority


@pytest.fixture
def loopback() -> Iterator[Server]:
    """A running server that answers 200 until the test gives it a script."""
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Certificates for `Server(tls=authority.context(...))`. Skips where trustme is not installed."""
    pytest.importorskip("trustme", reason="trustme is not installed")
    from loopback.certificates import Authority  # noqa: PLC0415  # trustme is there only with the SDKs

    return Authority(tmp_path_factory.mktemp("certificates"))
