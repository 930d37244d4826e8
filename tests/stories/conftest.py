"""The fixtures that run a test once for every form of call."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from forms import async_form as async_form
from forms import blocking_form as blocking_form
from forms import form as form
