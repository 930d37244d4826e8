"""Functions that are told of every event of every call in this process.

Decided here: who listens. A listener's own errors are logged by type and place, and never change a call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from forbear.core.events import Event

Listener = Callable[[Event], None]

# Every plan holds this very list, so that a listener that joins later is heard of; empty, it costs a call nothing.
listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Tells `listener` every event of every call, in all threads, while the block runs.

    It is called in the thread and task of the call, must be quick, and must not raise.
    """
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)
