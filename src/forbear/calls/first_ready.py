"""`first_ready`: of several services that can give the same answer, the one that can take a call first.

Decided here: the order. A service that must not be asked now (its circuit is open, it has asked for a pause, its limits
are used up) comes behind those that may be, and one that will not be ready before the deadline is not asked at all.
Must never know how a service is called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from forbear._aio.waiting import sleep_here
from forbear._runtime.scope import around, deadline_in, world_of
from forbear.calls.callables import is_coroutine_function, makes_a_stream, name_of
from forbear.calls.fallback import plan_in
from forbear.errors import DeadlineExceeded, given_up_by

F = TypeVar("F", bound=Callable[..., object])


def first_ready(*calls: F) -> F:
    """One function of several: it calls the one whose service can take the call first, and the next if that fails.

        ask = first_ready(ask_openai, ask_azure)  # a function of its own
        @openai.retry(fallback=first_ready(ask_azure, ask_bedrock))  # or a fallback

    `calls` are functions decorated with `upstream.retry(...)` and the like, all async or all blocking, with the same
    arguments. Of those that are ready now the first in the order given; else the one that is ready soonest, if that is
    before the deadline around. One that gives up is followed by the next; an error that no retry can help leaves at
    once.

    Raises what the last one raised; DeadlineExceeded, with the least wait as `hint`, where none is ready in time.
    """
    plans = [plan_in(call) for call in calls]
    for call, plan in zip(calls, plans, strict=True):
        if plan is None or not hasattr(plan.gate, "ready_in"):
            raise TypeError(f"{name_of(call)} is no call of an Upstream: decorate it with upstream.retry(...)")
        if hasattr(call, "__forbear_choice__"):
            raise TypeError(f"{name_of(call)} is a choice already: name all of them in one first_ready(...)")
        if makes_a_stream(call):
            raise TypeError(f"{name_of(call)} is a stream: first_ready takes functions with one result")
    if not calls or len({is_coroutine_function(call) for call in calls}) > 1:
        raise TypeError("first_ready takes one or more functions, all of them async or all of them blocking")
    chosen = _async_choice(calls) if is_coroutine_function(calls[0]) else _choice(calls)
    made: Any = functools.update_wrapper(chosen, calls[0])
    made.__forbear_plan__, made.__forbear_choice__ = plans[0], True
    return cast("F", made)


def _choice(calls: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        left = list(calls)
        while True:
            one = _next(left)
            shut_for = _shut_for(one)
            if shut_for:
                world_of(around()).sleep(shut_for)
            try:
                return one(*args, **kwargs)
            except Exception as error:
                if not _goes_on(left, one, error):
                    raise

    return call


def _async_choice(calls: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        left = list(calls)
        while True:
            one = _next(left)
            shut_for = _shut_for(one)
            if shut_for:
                await sleep_here(shut_for)
            try:
                return await one(*args, **kwargs)
            except Exception as error:
                if not _goes_on(left, one, error):
                    raise

    return call


def _next(left: list[Callable[..., Any]]) -> Callable[..., Any]:
    """The one that is ready first, taken off the list. Raises DeadlineExceeded where none is in time."""
    one = min(left, key=_ready_in)
    least = _ready_in(one)
    if least > 0 and least >= _time_left():
        names = " or ".join(map(name_of, left))
        raise DeadlineExceeded("deadline", 0, None, hint=least, held_by=f"{names} (none is ready before the deadline)")
    left.remove(one)
    return one


def _goes_on(left: list[Callable[..., Any]], one: Callable[..., Any], error: Exception) -> bool:
    """Whether another one is asked after this one has failed."""
    if not left or not given_up_by(error, plan_in(one)):
        return False
    least = min(map(_ready_in, left))
    return least <= 0 or least < _time_left()


def _shut_for(call: Callable[..., Any]) -> float:
    """Seconds until its circuit lets a trial through. For a pause or a limit the call itself waits in line."""
    plan: Any = plan_in(call)
    breaker = plan.gate.breaker
    return 0.0 if breaker is None else breaker.shut_for() or 0.0


def _ready_in(call: Callable[..., Any]) -> float:
    plan: Any = plan_in(call)
    return plan.gate.ready_in()  # type: ignore[no-any-return]


def _time_left() -> float:
    """Seconds to the deadline around; infinite where there is none."""
    outer = around()
    world = world_of(outer)
    now = world.clock()
    return deadline_in(world, outer, now) - now
