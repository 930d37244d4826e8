"""A rate limiter as users hold it: requests and tokens per minute, for threads and tasks alike.

Decided here: how one waits without retries. Who goes next is the line's business, how long it takes the meters'.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import time
import warnings
from collections.abc import Callable
from typing import Any, Never, ParamSpec, TypeVar, cast

from forbear._runtime.line import Line, Ticket
from forbear._runtime.scope import around, deadline_in, world_of
from forbear._runtime.threads import ThreadTicket
from forbear._runtime.tickets import async_ticket
from forbear._runtime.world import Clock, World, blocking_sleep, in_event_loop
from forbear.core.rate import Cost, Rates, RateSettings
from forbear.core.room import Place, Room
from forbear.core.validation import Seconds, number, optional_seconds, refuse_unknown
from forbear.errors import gave_up
from forbear.upstream.cost import Tokens, tokens_of
from forbear.upstream.entrance import Entrance

P = ParamSpec("P")
R = TypeVar("R")

BLOCKS_THE_LOOP = (
    "a blocking acquire() waits inside a running event loop and stops everything else in it: "
    "use acquire_async(), or make the limited function async"
)


# Names that users of other libraries try first.
MEANT = {
    "rpm": "requests_per_minute",
    "tpm": "tokens_per_minute",
    "rate": "requests_per_minute",
    "max_rate": "requests_per_minute",
    "requests_per_second": "requests_per_minute (60 times as much)",
    "window": "strict_window (seconds)",
    "period": "strict_window (seconds)",
}


class RateLimiter:
    """At most so many requests and tokens per minute; who would go over waits, first come, first served.

    requests_per_minute, tokens_per_minute: one of them or both. They are taken together or not at all.
    burst: how many requests may leave at once after a pause (tokens in proportion). None: a whole minute's, so that
        the first minute may see twice the limit.
    strict_window: seconds; then no window of this length ever holds more than its share: `requests_per_minute=30,
        strict_window=10.0` is at most 5 in any 10 s.
    clock: the instants that it counts by; by default those of the world around, which `FakeTime` replaces.

    One object serves threads, tasks and successive event loops; a task never blocks its loop. A wait that is cancelled
    gives back everything, and those behind move up.

    Raises ValueError without any limit, and for one call of more tokens than a minute allows.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        burst: float | None = None,
        strict_window: Seconds | None = None,
        clock: Clock | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown("RateLimiter", unknown, MEANT)
        self.settings = RateSettings(
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            burst=burst,
            strict_window=strict_window,  # type: ignore[arg-type]  # it is made seconds there
        )
        self.clock = clock
        self.entrance: Entrance[Cost, Place] = Entrance(
            lambda now: Room(Rates(self.settings, now), None, None), strict=self.settings.strict_window is not None
        )

    def reserve(self, tokens: float = 0) -> float:
        """Books a request and `tokens` behind all who wait; the seconds that the caller must wait before it sends."""
        line, cost = self._line(), self.settings.cost(tokens)
        return line.book(Ticket(cost))

    def consume(self, tokens: float) -> None:
        """Settles what a call really used: the actual tokens less those that were reserved; negative gives back."""
        amount = number("tokens", tokens)
        if math.isinf(amount):
            raise ValueError(f"tokens is {amount:g}: what a call has used is finite")
        line = self._line()
        line.act(lambda now: rates_in(line).give(Cost(0.0, -amount), now, now))

    def acquire(self, tokens: float = 0, *, timeout: Seconds | None = None) -> None:
        """Waits, in this thread, until a request of `tokens` may be sent.

        Raises DeadlineExceeded (a TimeoutError) at once where that is later than `timeout` seconds from now, or than
        the deadline around.
        """
        world = self._world()
        line = self.entrance.on(self.clock or world.clock)
        if self._on_foreign_clock(world):
            booked, wait = self._book(line, world, tokens, timeout)
            try:
                world.sleep(wait)
            except BaseException:
                _abandon(line, booked)
                raise
            return
        ticket: ThreadTicket[Cost, Place] = ThreadTicket(self.settings.cost(tokens), self._until(line, world, timeout))
        _refuse_late(line.join(ticket))
        if not ticket.settled:
            if world.sleep is blocking_sleep and in_event_loop():
                warnings.warn(BLOCKS_THE_LOOP, RuntimeWarning, stacklevel=2)
            try:
                ticket.wait(line, world)
            except BaseException:
                _abandon(line, ticket)
                raise
        _check(line, ticket)

    async def acquire_async(self, tokens: float = 0, *, timeout: Seconds | None = None) -> None:
        """As `acquire`, for async code: waits without blocking the event loop."""
        world = self._world()
        line = self.entrance.on(self.clock or world.clock)
        if self._on_foreign_clock(world):
            booked, wait = self._book(line, world, tokens, timeout)
            try:
                await (world.async_sleep or asyncio.sleep)(wait)
            except BaseException:
                _abandon(line, booked)
                raise
            return
        ticket = async_ticket(world)(self.settings.cost(tokens), self._until(line, world, timeout))
        _refuse_late(line.join(ticket))
        if not ticket.settled:
            try:
                await ticket.wait(line, world)
            except BaseException:
                _abandon(line, ticket)
                raise
        _check(line, ticket)

    def limit(self, tokens: Tokens = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: each call of the function waits for its turn. `tokens`: a number, or a function of the call's
        arguments. Inside a retry each attempt pays.
        """

        def wrap(fn: Callable[P, R], /) -> Callable[P, R]:
            return cast("Callable[P, R]", self._decorated(fn, tokens))

        return wrap

    def _decorated(self, fn: Any, tokens: Tokens) -> Any:
        if isinstance(fn, (classmethod, staticmethod)):
            return type(fn)(self._decorated(fn.__func__, tokens))
        if not callable(fn) or isinstance(fn, type):
            raise TypeError(
                f"a limiter limits the function that makes the call, not {type(fn).__name__}: put @limiter.limit(), "
                "parentheses included, on that"
            )
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise TypeError("this is a generator, which runs after the call: limit the function that opens the stream")
        is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
        guarded = self._limited_async(fn, tokens) if is_async else self._limited(fn, tokens)
        return functools.update_wrapper(guarded, fn)

    def _limited(self, fn: Callable[..., Any], tokens: Tokens) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.acquire(tokens_of(tokens, args, kwargs))
            return fn(*args, **kwargs)

        return call

    def _limited_async(self, fn: Callable[..., Any], tokens: Tokens) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await self.acquire_async(tokens_of(tokens, args, kwargs))
            return await fn(*args, **kwargs)

        return call

    def _world(self) -> World:
        brought = None if self.clock is None else getattr(self.clock, "world", None)
        return brought if isinstance(brought, World) else world_of(around())

    def _line(self) -> Line[Cost, Place]:
        return self.entrance.on(self.clock or self._world().clock)

    def _on_foreign_clock(self, world: World) -> bool:
        """Whether waiting does not move the clock that it counts by."""
        return self.clock is not None and self.clock not in (world.clock, time.monotonic)

    def _until(self, line: Line[Cost, Place], world: World, timeout: Seconds | None) -> float:
        scope = around()
        if timeout is None and (scope is None or scope.deadline_at == math.inf):
            return math.inf
        limit = optional_seconds("timeout", timeout)
        now, elsewhere = line.clock(), world.clock()
        granted = deadline_in(world, around(), elsewhere)
        if line.clock != world.clock:
            granted += now - elsewhere
        return min(math.inf if limit is None else now + limit, granted)

    def _book(
        self, line: Line[Cost, Place], world: World, tokens: float, timeout: Seconds | None
    ) -> tuple[Ticket[Cost, Place], float]:
        """As `reserve`, where it can be in time."""
        ticket: Ticket[Cost, Place] = Ticket(self.settings.cost(tokens), self._until(line, world, timeout))
        needed = line.book(ticket)
        _refuse_late(needed if ticket.too_late else None)
        return ticket, needed

    def __copy__(self) -> RateLimiter:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> RateLimiter:
        kind, args = self.__reduce__()
        return cast("RateLimiter", kind(*args))

    def __reduce__(self) -> tuple[Any, ...]:
        facts = self.settings
        return (
            _made_from,
            (facts.requests_per_minute, facts.tokens_per_minute, facts.burst, facts.strict_window, self.clock),
        )

    def __repr__(self) -> str:
        limits = (("requests", self.settings.requests_per_minute), ("tokens", self.settings.tokens_per_minute))
        text = " and ".join(f"{limit:g} {name}" for name, limit in limits if limit is not None)
        return f"<RateLimiter, {text} per minute>"


def rates_in(line: Line[Cost, Place]) -> Rates:
    """The meters behind a line that has some."""
    room = line.room
    if not isinstance(room, Room) or room.rates is None:
        raise TypeError("there is no rate limit behind this line")
    return room.rates


def _refuse_late(needed: float | None) -> None:
    if needed is not None:
        raise gave_up("deadline", 0, None, hint=needed, held_by="the limiter")


def _abandon(line: Line[Cost, Place], ticket: Ticket[Cost, Place]) -> None:
    """Nobody waits for the ticket any more: what it got goes back."""
    if line.leave(ticket) and ticket.place is not None:
        place, room = ticket.place, cast("Room", line.room)
        line.act(lambda now: room.untake(place, now))


def _check(line: Line[Cost, Place], ticket: Ticket[Cost, Place]) -> None:
    if ticket.place is None:
        line.leave(ticket)
        raise gave_up("deadline", 0, None, hint=line.needed(ticket.cost), held_by="the limiter")


def _made_from(*settings: Any) -> RateLimiter:
    requests, tokens, burst, window, clock = settings
    return RateLimiter(requests, tokens, burst=burst, strict_window=window, clock=clock)
