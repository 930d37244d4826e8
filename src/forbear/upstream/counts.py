"""What the guards of a service have done, or would have done where they only observe."""

from __future__ import annotations

from forbear.core.failure import Kind


class Counts:
    """Totals since the service's object was made.

    `held`: attempts that had to wait for their place. `too_late`: refused, as no place could be had before their
    deadline. `unpaid`: retries for which the budget had no place. `shut_out`: refused by the open circuit.
    """

    __slots__ = ("failures", "held", "shut_out", "successes", "too_late", "unpaid")

    def __init__(self) -> None:
        self.successes = self.held = self.too_late = self.unpaid = self.shut_out = 0
        self.failures: dict[Kind, int] = {}

    def failed(self, kind: Kind) -> None:
        """One more failure of this kind. Called under a lock."""
        self.failures[kind] = self.failures.get(kind, 0) + 1
