"""What all tests share."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import hypothesis as hypothesis  # before the freezing below: its plugins ask the collector for objects
import pytest
import uvloop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine to its end on a new event loop, once for each kind of loop."""

    def run_on_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(coroutine)

    return run_on_loop


def pytest_collection_finish() -> None:
    """What the modules of the tests have loaded stays: the many tests that call the collector need not walk it."""
    gc.collect()
    gc.freeze()
