"""Fixtures for pytest, found by pytest itself once forbear is installed.

fake_time: a `FakeTime` that holds for the test. instant_waits: the list of waits that took no time.
forbear_events: the events of the test's calls. Nothing is imported until a test asks for one of them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from forbear.testing.events import Events
    from forbear.testing.fake_time import FakeTime


@pytest.fixture
def fake_time() -> Generator[FakeTime]:
    """Time that jumps when everyone waits."""
    from forbear.testing.fake_time import FakeTime

    with FakeTime() as time:
        yield time


@pytest.fixture
def instant_waits() -> Generator[list[float]]:
    """Waits between attempts take no time; the list has what they would have been."""
    from forbear.testing.instant import instant_waits

    with instant_waits() as waits:
        yield waits


@pytest.fixture
def forbear_events() -> Generator[Events]:
    """The events of all calls of the test."""
    from forbear.testing.events import record_events

    with record_events() as events:
        yield events
