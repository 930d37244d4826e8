"""The circuit breaker with retryhop's methods, on forbear's states.

Decided here: what the methods without a permit mean (`record_success` and the like, which do not say whose call they
are about), and how a call passes a breaker of any kind. When a circuit opens is the business of forbear's core.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from forbear.core.breaker import Permit, Refused
from forbear.core.breaker_settings import BreakerSettings, Verdict
from forbear.errors import CircuitOpenError as CircuitOpenError
from forbear.upstream.breaker import CircuitBreaker as Breaker

TRIAL_TIMEOUT = 600.0  # seconds; longer than the clients of the big providers wait for an answer
_NEVER = 2**63  # failures
_FOREVER = 1e9  # seconds


class CircuitBreaker(Breaker):
    """Opens after `failure_threshold` failed attempts in a row; lets one trial through after `recovery_time` seconds.

    It is a `forbear.CircuitBreaker` too: a block, a decorator, and good for `breaker=`. `clock` gives its instants.

    A result that comes while the circuit is open belongs to an older call and changes nothing; a trial that is never
    heard of again keeps its place for ten minutes. Raises ValueError for a threshold below 1 or no recovery time.
    """

    CLOSED: ClassVar[str] = "closed"
    OPEN: ClassVar[str] = "open"
    HALF_OPEN: ClassVar[str] = "half_open"

    def __init__(
        self,
        failure_threshold: int = 5,
        recovery_time: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            _threshold(failure_threshold),
            _recovery(recovery_time),
            clock=None if clock is time.monotonic else clock,  # the real one is the world's, which a test may replace
            trial_timeout=TRIAL_TIMEOUT,
            rate_limited="failure",
        )
        self._trial: Permit | None = None

    @property
    def failure_threshold(self) -> int:
        """How many failures in a row open the circuit."""
        return self.settings.failure_threshold or _NEVER

    @failure_threshold.setter
    def failure_threshold(self, value: int) -> None:
        self._change(replace(self.settings, failure_threshold=_threshold(value)))

    @property
    def recovery_time(self) -> float:
        """Seconds from the opening to the first trial."""
        return self.settings.recovery_time

    @recovery_time.setter
    def recovery_time(self, value: float) -> None:
        self._change(replace(self.settings, recovery_time=_recovery(value)))

    def before_call(self) -> None:
        """Call this before a call. Raises CircuitOpenError where none may be made."""
        clock = self._clock_around()
        now = clock()
        with self._lock:
            core = self._core_on(clock, now, keep=True)
            known = core.last
            answer = core.ask(now)
            change = core.last
            if isinstance(answer, Permit) and answer.trial is not None:
                self._trial = answer
        if isinstance(answer, Refused):
            raise self.refusal(answer.retry_in)
        self._tell(None if change is known else change)

    def record_success(self) -> None:
        """The call has succeeded: closes a half-open circuit, and failures are counted anew."""
        self._record("success")

    def record_failure(self) -> None:
        """The call has failed: opens a half-open circuit, and counts."""
        self._record("failure")

    def release_trial(self) -> None:
        """The call came to no end: the place of a trial is free again."""
        self._record("neutral")

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self.settings
        return (
            type(self),
            (settings.failure_threshold, settings.recovery_time, self._clock or time.monotonic),
        )

    def _record(self, verdict: Verdict) -> None:
        clock = self._clock_around()
        now = clock()
        with self._lock:
            core = self._core_on(clock, now, keep=True)
            snapshot = core.snapshot(now)
            permit, trial = Permit(snapshot.generation), self._trial
            self._trial = None
            if trial is not None and trial.generation == snapshot.generation:
                permit = trial
            elif snapshot.state == "half_open" and verdict != "neutral":  # a trial that nobody has announced
                answer = core.ask(now)
                permit = answer if isinstance(answer, Permit) else permit
            change = core.record(permit, verdict, now)
        self._tell(change)

    def _change(self, settings: BreakerSettings) -> None:
        with self._lock:
            self.settings = settings
            for core in self._cores.values():
                core.settings = settings


def _threshold(value: float) -> int:
    if value < 1:
        raise ValueError(f"failure_threshold is {value}: it counts failures, so 1 is the least")
    return _NEVER if value == math.inf else math.ceil(value)


def _recovery(value: float) -> float:
    if value <= 0:
        raise ValueError(f"recovery_time is {value}: a circuit that opens stays open for a while, so give seconds")
    return min(float(value), _FOREVER)


class Circuit(Protocol):
    """What `circuit=` takes: any object with these methods."""

    def before_call(self) -> None:
        """Raises where no call may be made."""
        ...

    def record_success(self) -> object:
        """The call has succeeded."""
        ...

    def record_failure(self) -> object:
        """The call has failed."""
        ...

    def release_trial(self) -> object:
        """The call came to no end."""
        ...


class Pass(Protocol):
    """One call's way through a breaker."""

    def attach(self) -> None:
        """What is called from here on is part of the call."""
        ...

    def detach(self) -> None:
        """The call goes on elsewhere."""
        ...

    def leave(self, verdict: Verdict, /) -> None:
        """The call is over."""
        ...


class ByHand:
    """The way through a breaker of somebody else's making, by its own methods."""

    __slots__ = ("_circuit",)

    def __init__(self, circuit: Circuit) -> None:
        circuit.before_call()
        self._circuit = circuit

    def attach(self) -> None:
        """It knows of no context."""

    def detach(self) -> None:
        """It knows of no context."""

    def leave(self, verdict: Verdict, /) -> None:
        """Tells the breaker, by the method that means this."""
        match verdict:
            case "failure":
                self._circuit.record_failure()
            case "neutral":
                self._circuit.release_trial()
            case _:
                self._circuit.record_success()


def enter(circuit: Circuit | Breaker) -> Pass:
    """Passes the breaker. Raises CircuitOpenError, or what else the breaker raises, where no call may be made."""
    if isinstance(circuit, Breaker) and type(circuit) in (CircuitBreaker, Breaker):
        return circuit.enter()  # a lease: what comes of an older call can't be taken for the trial's
    return ByHand(circuit)  # type: ignore[arg-type]  # a class of one's own may have its own methods
