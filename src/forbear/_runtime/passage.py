"""What the drivers know of the guards that a call must pass: this, and nothing else.

Decided here: the order of events. Before each attempt the call is admitted, which may take time; after it, the guards
learn how it ended. What has been taken is always given back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from forbear._runtime.line import Line, Ticket
from forbear._runtime.world import Clock
from forbear.core.failure import Failure
from forbear.core.hedge import HedgeSettings, Hedging

if TYPE_CHECKING:
    from forbear._runtime.call import Call

R = TypeVar("R")
Standing = tuple[Line[Any, Any], Ticket[Any, Any]]


class Passage(Protocol):
    """One call's way through the guards, for all its attempts."""

    def admission(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], ticket: Callable[..., Ticket[Any, Any]]
    ) -> Generator[Standing, None, None]:
        """Admits the attempt that begins now. Yields each line that must be waited in, with the ticket to wait on.

        A driver that can't wait any longer closes the generator: all that was taken is given back. Raises
        CircuitOpenError, or DeadlineExceeded where no place can be had in time.
        """
        ...

    def copied(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Admits a copy of an attempt that is under way, if it need not wait and nothing speaks against it."""
        ...

    def succeeded(self, result: object) -> None:
        """The attempt has returned."""
        ...

    def failed(self, error: BaseException, failure: Failure, random: float, *, cut: bool) -> None:
        """The attempt has failed. `random` is in [0, 1). `cut`: it had less than an attempt's time, and used it up."""
        ...

    def handed_over(self) -> Callable[[], None]:
        """What the attempt has taken belongs to somebody else from now on, who gives it back by calling this."""
        ...

    def stepped_out(self) -> None:
        """The attempt goes on, but what runs from here on, in this context, is no part of it."""
        ...

    def stepped_in(self) -> None:
        """What runs from here on, in this context, is part of the attempt again."""
        ...

    def dropped(self) -> None:
        """The attempt was cancelled, or has not begun. Does nothing after one of the others."""
        ...

    def undone(self) -> None:
        """The attempt has not begun after all: all that it took is there again."""
        ...

    def pay(self, failure: Failure) -> bool:
        """Takes a retry's place in the budget; False where there is none and the call must stop."""
        ...

    def refund(self) -> None:
        """The retry that was paid for does not happen."""
        ...

    def shut(self) -> Exception | None:
        """The error that a retry would only meet; None where the circuit lets it through."""
        ...


class Hedge(Protocol):
    """What all calls that share it know of how long attempts take, and the copies that they have sent."""

    settings: HedgeSettings
    sent: int
    won: int
    suppressed: int
    wasted: float

    def ask(self, clock: Clock, step: Callable[[Hedging, float], R], /) -> R:
        """Does a step of the state on this clock."""
        ...


class Gate(Protocol):
    """The guards of a service, as a plan holds them."""

    def open(self, call: Call) -> Passage:
        """A way through for one call."""
        ...
