"""A circuit breaker as users hold it: one object, shared by all calls to one service.

Decided here: on whose clock it lives, who is told of a change, and which calls are part of another one. When it opens
is the business of the core. All decisions are made under one lock, which is never held while anything foreign runs: a
lock around the call would make all calls of a service wait for each other.

Make one breaker for each thing that fails alone: a host, a model, a region. One for a whole provider shuts out what
still works.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack, cast
from weakref import WeakSet

from forbear._runtime.scope import around, world_of
from forbear._runtime.steps import is_awaitable
from forbear._runtime.telling import log_mistake
from forbear._runtime.world import Clock
from forbear.core.breaker import Breaker, BreakerSnapshot, Permit, Refused, State, Transition
from forbear.core.breaker_settings import VERDICTS, BreakerSettings, Verdict
from forbear.core.validation import Seconds
from forbear.errors import CircuitOpenError
from forbear.upstream.breaker_options import MEANT, BreakerOptions, verdict_of_outcome

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
Judge = Callable[[Exception | None, Any], Verdict]
Listener = Callable[["CircuitBreaker", Transition], object]
Command = Callable[[Breaker, float], Transition | None]

_USUAL = BreakerSettings()
MOST_CLOCKS = 8  # whose states are kept: the real one and a few of tests


class Lease:
    """A call that was let through. Whoever holds it must `leave` it, with what came of the call.

    `permit` is None where the call is part of another one that holds a lease of the same breaker: then it counts there.
    `left`: it is over. `block`: it belongs to a `with` block. `core` and `clock` are those that it began with.
    """

    __slots__ = ("_holds", "block", "breaker", "clock", "core", "left", "permit")

    def __init__(self, breaker: CircuitBreaker, core: Breaker, clock: Clock, permit: Permit | None) -> None:
        self.breaker = breaker
        self.core = core
        self.clock = clock
        self.permit = permit
        self.left = self.block = self._holds = False

    @property
    def alive(self) -> bool:
        """Whether calls made inside are still part of this one."""
        return self._holds and not self.left

    def attach(self) -> None:
        """What is called from here on, in this context, is part of this call."""
        self._holds = True
        _held.set((*(lease for lease in _held.get() if lease is not self and not lease.left), self))

    def detach(self) -> None:
        """What is called from here on is no part of this call, which goes on: its body is handed to somebody else."""
        self._holds = False
        if not self.block:  # whose end looks for it
            self._forget()

    def _forget(self) -> None:
        held = _held.get()
        if self in held:
            _held.set(tuple(lease for lease in held if lease is not self and not lease.left))

    def leave(self, verdict: Verdict) -> None:
        """The call is over; only the first word counts. From any thread, task or context."""
        if verdict not in VERDICTS:
            raise ValueError(f"the verdict must be one of {', '.join(map(repr, VERDICTS))}, not {verdict!r}")
        self.breaker._end(self, verdict)  # noqa: SLF001  # ours
        self._forget()


# The leases of this chain of calls, the innermost last. Tasks and copied contexts inherit it, so that a call there
# knows what it is part of. One that was left counts no more, whatever an old context remembers.
_held: ContextVar[tuple[Lease, ...]] = ContextVar("forbear_breaker_leases", default=())


class CircuitBreaker:
    """Stops calls to a service that is known to fail: they get `CircuitOpenError` at once, and the service gets air.

    It opens after `failure_threshold` failed calls in a row, or by `failure_rate`; after `recovery_time` seconds it
    lets `trials` through, whose success closes it. All settings: see `BreakerSettings`.

    As a block (`with breaker:`, `async with breaker:`), as a decorator of `def` and `async def` (`@breaker`), or by
    hand: `lease = breaker.enter()`, then `lease.leave("success")`. Write it by hand too in a generator, whose steps
    may run in changing contexts.

    name: for people. clock: the instants that it counts by; by default the world's around, which `FakeTime` replaces.
    on_change: told each change of state, as `on_change(breaker, transition)`, after the fact; threads may tell two
    changes in the other order, which `transition.generation` shows. verdict: what an outcome means, as
    `verdict(error, result)`, for blocks and decorated functions; errors that are no Exception, and `CircuitOpenError`,
    are never offered to it, and always neutral.

    A call made inside a call of the same breaker, however far below, is part of it: it is let through, and counts once.

    Instants of two clocks do not mix: on a new clock (the next `FakeTime`, or the end of one) it begins anew, closed;
    only `force_open` and `disable` hold on. All that is asked is answered for the clock around. A copy and an unpickled
    one have the settings and a state of their own, and begin closed. A forked child goes on with the state it found.
    """

    def __init__(
        self,
        failure_threshold: int | None = _USUAL.failure_threshold,
        recovery_time: Seconds = _USUAL.recovery_time,
        *,
        name: str | None = None,
        clock: Clock | None = None,
        on_change: Listener | None = None,
        verdict: Judge = verdict_of_outcome,
        **options: Unpack[BreakerOptions],
    ) -> None:
        for option in options:
            if option not in BreakerOptions.__annotations__:
                meant = MEANT.get(option)
                raise TypeError(f"a breaker has no option {option}=" + (f"; use {meant}" if meant else ""))
        functions: tuple[tuple[str, Any], ...] = (("clock", clock), ("on_change", on_change), ("verdict", verdict))
        for option, function in functions:
            if function is not None and (not callable(function) or inspect.iscoroutinefunction(function)):
                raise ValueError(f"{option} must be a plain function, neither async nor {type(function).__name__}")
        self.settings = BreakerSettings(failure_threshold=failure_threshold, recovery_time=recovery_time, **options)
        self.name = name
        self._clock = clock
        self._on_change = on_change
        self._verdict = verdict
        self._lock = threading.Lock()
        self._decides: int | None = None  # the thread that holds the lock
        self._late: deque[tuple[Lease, Verdict]] = deque()
        self._cores: dict[Clock, Breaker] = {}
        self._commanded: Command | None = None
        _all.add(self)

    @property
    def state(self) -> State:
        """What a call made here and now would find: "closed", "open", "half_open", "forced_open" or "disabled"."""
        return self.snapshot().state

    @property
    def retry_in(self) -> float:
        """After how many seconds it makes sense to ask again; 0 where a call would be let through."""
        return self.snapshot().retry_in

    def snapshot(self) -> BreakerSnapshot:
        """How it stands, as a frozen value."""
        clock = self._clock_around()
        now = clock()
        return self._decide(lambda: self._core_on(clock, now).snapshot(now))

    def force_open(self) -> None:
        """Lets no call through, until `reset` or `disable`."""
        self._command(Breaker.force_open)

    def disable(self) -> None:
        """Lets all calls through and counts nothing, until `reset` or `force_open`."""
        self._command(Breaker.disable)

    def reset(self) -> None:
        """Closed, with nothing counted. Calls that are on their way count for nothing."""
        self._command(Breaker.reset)

    def shut_for(self) -> float | None:
        """Seconds for which a call made here would be refused; None where it would be let through."""
        retry_in = self.retry_in
        return None if retry_in <= 0 or self._is_around() else retry_in

    def enter(self) -> Lease:
        """A lease for one call, in the context in which it will run. Raises CircuitOpenError where none is allowed."""
        clock = self._clock_around()
        now = clock()
        inside = self._is_around()

        def ask() -> tuple[Breaker, Transition | None, Permit | Refused | None, Transition | None]:
            core = self._core_on(clock, now, keep=True)
            known = core.last
            return core, known, None if inside else core.ask(now), core.last

        core, known, answer, change = self._decide(ask)
        if isinstance(answer, Refused):
            raise self.refusal(answer.retry_in)
        lease = Lease(self, core, clock, answer)
        lease.attach()
        if change is not known:
            try:
                self._tell(change)
            except BaseException:
                lease.leave("neutral")
                raise
        return lease

    def __enter__(self) -> Lease:
        lease = self.enter()
        lease.block = True
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        own = [lease for lease in _held.get() if lease.breaker is self and lease.block and not lease.left]
        if own:  # else the block was entered in another context, which is lost
            self._settle(own[-1], error, None)

    async def __aenter__(self) -> Lease:
        return self.__enter__()

    async def __aexit__(self, *ended: object) -> None:
        self.__exit__(*cast("Any", ended))

    def __call__(self, fn: Callable[P, R], /) -> Callable[P, R]:
        """The same function, guarded. What it returns to be awaited counts when it has been awaited."""
        return cast("Callable[P, R]", self._decorated(fn))

    def __copy__(self) -> CircuitBreaker:
        make, arguments = self.__reduce__()
        return cast("CircuitBreaker", make(*arguments))

    def __deepcopy__(self, memo: dict[int, Any]) -> CircuitBreaker:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        given = {"name": self.name, "clock": self._clock, "on_change": self._on_change, "verdict": self._verdict}
        return (_made_anew, (type(self), self.settings, given))

    def __repr__(self) -> str:
        return f"<CircuitBreaker{'' if self.name is None else f' {self.name!r}'}, {self.state}>"

    def _decorated(self, fn: Any) -> Any:
        if isinstance(fn, (classmethod, staticmethod)):
            return type(fn)(self._decorated(fn.__func__))
        if not callable(fn) or isinstance(fn, type):
            raise TypeError(f"a breaker guards the function that makes the call, not {type(fn).__name__}")
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise TypeError(
                "this is a generator: its failures come while it is iterated, after the call has returned; "
                "guard the function that opens the stream"
            )
        guard = self._guard_async if inspect.iscoroutinefunction(fn) else self._guard
        return functools.update_wrapper(guard(fn), fn)

    def _guard(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            lease = self.enter()
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                self._settle(lease, error, None)
                raise
            if is_awaitable(result):
                lease.detach()
                return self._awaited(lease, lambda: result)
            self._settle(lease, None, result)
            return result

        return call

    def _guard_async(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._awaited(self.enter(), lambda: fn(*args, **kwargs))

        return call

    async def _awaited(self, lease: Lease, make: Callable[[], Awaitable[Any]]) -> Any:
        lease.attach()
        try:
            result = await make()
        except BaseException as error:
            self._settle(lease, error, None)
            raise
        self._settle(lease, None, result)
        return result

    def _settle(self, lease: Lease, error: BaseException | None, result: object) -> None:
        """Ends a lease with the verdict on an outcome; a rule that is broken is logged, and the default one holds."""
        verdict = verdict_of_outcome(error)
        try:
            if error is None or (isinstance(error, Exception) and not isinstance(error, CircuitOpenError)):
                said = self._verdict(error, result)
                if said not in VERDICTS:
                    raise ValueError(f"verdict must return one of {VERDICTS}")
                verdict = said
        except Exception as mistake:
            log_mistake("verdict", mistake)
        finally:
            lease.leave(verdict)

    def _end(self, lease: Lease, verdict: Verdict) -> None:
        if self._decides == threading.get_ident():  # the collector ends a call while this thread decides about another
            self._late.append((lease, verdict))
            return
        now = lease.clock()
        random = world_of(around()).random() if verdict == "failure" and self.settings.jitter else 0.0

        def end() -> Transition | None:
            left, lease.left = lease.left, True
            if left or lease.permit is None or self._cores.get(lease.clock) is not lease.core:
                return None
            return lease.core.record(lease.permit, verdict, now, random)

        self._tell(self._decide(end))

    def _command(self, command: Command) -> None:
        clock = self._clock_around()
        now = clock()

        def change() -> Transition | None:
            core = self._core_on(clock, now)
            self._cores = {clock: core}
            self._commanded = None if command is Breaker.reset else command
            return command(core, now)

        self._tell(self._decide(change))

    def _decide(self, step: Callable[[], D]) -> D:
        """Does a step under the lock; then what had to wait for its end."""
        with self._lock:
            self._decides = threading.get_ident()
            try:
                result = step()
            finally:
                self._decides = None
        while self._late:
            self._end(*self._late.popleft())
        return result

    def _tell(self, change: Transition | None) -> None:
        if change is not None and self._on_change is not None:
            try:
                self._on_change(self, change)
            except Exception as mistake:
                log_mistake("on_change", mistake)

    def _clock_around(self) -> Clock:
        return world_of(around()).clock if self._clock is None else self._clock

    def _core_on(self, clock: Clock, now: float, *, keep: bool = False) -> Breaker:
        """The state on this clock; a new one begins with what was commanded. To look is not to keep it."""
        core = self._cores.get(clock)
        if core is None:
            core = Breaker(self.settings)
            if self._commanded is not None:
                self._commanded(core, now)
            if keep:
                self._cores = {**dict(tuple(self._cores.items())[-MOST_CLOCKS:]), clock: core}
        return core

    def _is_around(self) -> bool:
        """Whether this call is part of one that holds a lease of this breaker."""
        return any(lease.breaker is self and lease.permit is not None and lease.alive for lease in _held.get())

    def refusal(self, retry_in: float) -> CircuitOpenError:
        """A new error for one call that is not let through."""
        return CircuitOpenError(retry_in, self.name)


def _made_anew(kind: type[CircuitBreaker], settings: BreakerSettings, given: dict[str, Any]) -> CircuitBreaker:
    """A breaker with these settings, closed. Calls `__init__` with what it was called with."""
    known: Any = {name: getattr(settings, name) for name in BreakerOptions.__annotations__}
    return kind(settings.failure_threshold, settings.recovery_time, **given, **known)


_all: WeakSet[CircuitBreaker] = WeakSet()


def _after_fork() -> None:
    """In a forked child a lock that another thread held at that moment would stay held for ever."""
    for breaker in tuple(_all):
        breaker._lock = threading.Lock()  # noqa: SLF001  # ours


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
