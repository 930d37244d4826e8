"""What takes the place of a result when a call has been given up.

Decided here: which errors a fallback answers (those that mean "given up", or those that were asked for), and that it
has no more time and budget than the call had. Must never know how the call was made. Prevents a plan B that doubles
the wait, or that goes to the very service whose retries have just been refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from forbear._runtime.call import Plan
from forbear._runtime.scope import Scope, around, deadline_in, world_of
from forbear._runtime.source import END
from forbear._runtime.steps import is_awaitable
from forbear._runtime.telling import log_mistake, tell
from forbear._sync.driver import close
from forbear.calls.callables import name_of
from forbear.core.deadline import ends_at, tightened
from forbear.core.events import FellBack
from forbear.errors import RetryError, StreamInterrupted, UsageError, given_up_by, type_name

MOST_KEPT = 1_000  # chunks of a fallback's stream that an error remembers


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """What answers in the place of a call. `on` says of which errors; None: those that mean that it was given up."""

    answer: Any
    on: Callable[[Exception], bool] | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", name_of(self.answer) if callable(self.answer) else "a value")

    def takes(self, error: Exception, plan: Plan) -> bool:
        """Whether it answers this error of a call under `plan`. One to the same service needs a place in its budget."""
        last = error.last_error if isinstance(error, RetryError) else None
        if self.on is None:
            takes = given_up_by(error, plan)
        else:
            takes = self._asked_for(error) or (isinstance(last, Exception) and self._asked_for(last))
        return takes and self._paid(plan)

    def _asked_for(self, error: Exception) -> bool:
        """What the rule says; a broken one says no, and the real error leaves."""
        try:
            return self.on is not None and bool(self.on(error))
        except Exception as mistake:
            log_mistake("fallback_on", mistake)
            return False

    def _paid(self, plan: Plan) -> bool:
        budget, other = budget_of(plan), plan_in(self.answer)
        same = budget is not None and other is not None and budget_of(other) is budget
        return not same or choice_in(self.answer) is not None or bool(budget is not None and budget.try_take())

    def make(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], plan: Plan) -> Any:
        """What it gives: a result, or what has to be awaited or iterated first."""
        choice = choice_in(self.answer)
        if choice is not None:  # the one that is chosen pays, if it goes to the same service
            chosen = choice(budget_of(plan), error)
            if isinstance(self.answer, functools.partial):
                chosen = functools.partial(chosen, *self.answer.args, **self.answer.keywords)
            return chosen(*args, **kwargs)
        if not callable(self.answer):
            return self.answer
        return self.answer(error) if plan_in(self.answer) is None else self.answer(*args, **kwargs)

    def answered(self, error: Exception, plan: Plan) -> None:
        """It has given an answer, or the first part of one."""
        tell(plan, FellBack(call=plan.name, fallback=self.name, error_type=type_name(error)))


def budget_of(plan: Plan) -> Any:
    """The retry budget that the calls of a plan draw on; None without one."""
    return getattr(plan.gate, "budget", None)


def choice_in(function: Any) -> Callable[[Any, Exception], Callable[..., Any]] | None:
    """What makes the function that `first_ready` has made anew, for a retry budget whose service is asked only for its
    price, and the error that leaves where that can't be paid; None for any other function.
    """
    return getattr(unwrapped(function), "__forbear_choice__", None)


def plan_in(function: Any) -> Plan | None:
    """The plan of a function that forbear has made; None for any other."""
    plan = getattr(unwrapped(function), "__forbear_plan__", None)
    return plan if isinstance(plan, Plan) else None


def unwrapped(function: Any) -> Any:
    """The function that a partial calls."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


class Rest:
    """What is left of a call's time: it binds the calls that are made in the block."""

    __slots__ = ("_at", "_scope", "_since", "_world")

    def __init__(self, plan: Plan) -> None:
        outer = around()
        world = world_of(outer)
        self._world = world if plan.world is None else plan.world(world)
        now = self._since = self._world.clock()
        self._at = tightened(ends_at(now, plan.policy.deadline), deadline_in(self._world, outer, now))

    def left(self) -> float:
        """Seconds of it; negative where it is over."""
        return self._at - self._world.clock()

    def __enter__(self) -> None:
        self._scope = Scope(self._world, self._at, around())
        self._scope.enter()

    def __exit__(self, *_: object) -> None:
        self._scope.end()


def with_fallback(guarded: Callable[..., Any], plan: Plan, fallback: Fallback) -> Callable[..., Any]:
    """`guarded`, whose place the fallback takes when it gives up. Blocking."""

    def call(*args: Any, **kwargs: Any) -> Any:
        rest = Rest(plan)
        try:
            return guarded(*args, **kwargs)
        except Exception as error:
            if not fallback.takes(error, plan):
                raise
            with rest:
                result = fallback.make(error, args, kwargs, plan)
            if is_awaitable(result):
                close(result)
                raise UsageError("fallback is async, but this call is blocking: give it a plain function") from error
            fallback.answered(error, plan)
            return result

    return call


def with_fallback_stream(
    guarded: Callable[..., Generator[Any, None, Any]], plan: Plan, fallback: Fallback
) -> Callable[..., Generator[Any, None, Any]]:
    """A blocking stream, whose place the fallback's takes when it gives up before anything was handed over."""

    def call(*args: Any, **kwargs: Any) -> Generator[Any, None, Any]:
        rest, shown = Rest(plan), False
        chunks: Any = guarded(*args, **kwargs)
        try:
            while True:
                try:
                    chunk = next(chunks)
                except StopIteration as ended:
                    return ended.value
                shown = True
                yield chunk
        except Exception as error:
            if shown or not fallback.takes(error, plan):
                raise
            came = Came(fallback, plan, error)
        finally:
            chunks.close()
        with rest:
            chunks = chunks_of(fallback.make(came.instead_of, args, kwargs, plan))
        try:
            while True:
                with came, rest:
                    chunk = next(chunks, END)
                if came.add(chunk) is END:
                    return None
                yield chunk
        finally:
            close(chunks)

    return call


class Came:
    """What a fallback's stream has brought. In its block a failure after the first chunk is StreamInterrupted."""

    def __init__(self, fallback: Fallback, plan: Plan, error: Exception) -> None:
        self._fallback, self._plan, self.instead_of = fallback, plan, error
        self._chunks: list[Any] = []
        self._count = 0

    def add(self, chunk: Any) -> Any:
        """The chunk, or END, which goes to the consumer."""
        if not self._count:
            self._fallback.answered(self.instead_of, self._plan)
        if chunk is not END:
            self._count += 1
            if self._count <= MOST_KEPT:
                self._chunks.append(chunk)
        return chunk

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._count and isinstance(error, Exception) and not isinstance(error, StreamInterrupted):
            raise StreamInterrupted(self._count, tuple(self._chunks), error)


def chunks_of(made: Any) -> Any:
    """The chunks of what a fallback gave: of a list, a tuple, a generator or a stream; any other thing is one chunk."""
    kind = type(made)
    if is_awaitable(made) or (hasattr(kind, "__aiter__") and not hasattr(kind, "__iter__")):
        close(made)
        raise UsageError("fallback is async, but this stream is blocking: give it a plain function or generator")
    return iter(made if isinstance(made, (list, tuple)) or hasattr(kind, "__next__") else (made,))
