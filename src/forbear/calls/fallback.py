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
from forbear._runtime.steps import is_awaitable
from forbear._runtime.streaming import END
from forbear._runtime.telling import log_mistake, tell
from forbear._sync.driver import close
from forbear.calls.callables import name_of
from forbear.core.deadline import ends_at, tightened
from forbear.core.events import FellBack
from forbear.errors import RetryError, UsageError, given_up_by, type_name


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
        budget = getattr(plan.gate, "budget", None)
        other = plan_in(self.answer)
        same = budget is not None and other is not None and getattr(other.gate, "budget", None) is budget
        return not same or budget.try_take()  # type: ignore[union-attr]  # it is not None where it is the same

    def make(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], plan: Plan) -> Any:
        """What it gives: a result, or what has to be awaited or iterated first."""
        tell(plan, FellBack(call=plan.name, fallback=self.name, error_type=type_name(error)))
        if not callable(self.answer):
            return self.answer
        return self.answer(error) if plan_in(self.answer) is None else self.answer(*args, **kwargs)


def plan_in(function: Any) -> Plan | None:
    """The plan of a function that forbear has made; None for any other."""
    while isinstance(function, functools.partial):
        function = function.func
    plan = getattr(function, "__forbear_plan__", None)
    return plan if isinstance(plan, Plan) else None


class Rest:
    """What is left of a call's time: it binds the calls that are made in the block."""

    __slots__ = ("_at", "_scope", "_world")

    def __init__(self, plan: Plan) -> None:
        outer = around()
        world = world_of(outer)
        self._world = world if plan.world is None else plan.world(world)
        now = self._world.clock()
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
            raise UsageError("fallback is async, but this call is blocking: give it a plain function")
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
            with rest:
                made = fallback.make(error, args, kwargs, plan)
        finally:
            chunks.close()
        chunks = chunks_of(made)
        try:
            while True:
                with rest:
                    chunk = next(chunks, END)
                if chunk is END:
                    return
                yield chunk
        finally:
            close(chunks)

    return call


def chunks_of(made: Any) -> Any:
    """The chunks of what a fallback gave: of something to iterate its items, else the thing itself."""
    if is_awaitable(made) or (hasattr(type(made), "__aiter__") and not hasattr(type(made), "__iter__")):
        close(made)
        raise UsageError("fallback is async, but this stream is blocking: give it a plain function or generator")
    single = isinstance(made, (str, bytes, dict)) or not hasattr(type(made), "__iter__")
    return iter((made,) if single else made)
