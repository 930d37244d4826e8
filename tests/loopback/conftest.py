"""The scripted server's own fixtures, for the tests that prove it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from loopback.fixtures import authority as authority
from loopback.fixtures import loopback as loopback
