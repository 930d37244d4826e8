"""`first_ready`: of several services that can give the same answer, the one that can take a call first.

Decided here: the order. A service that must not be asked now (its circuit is open, it has asked for a pause, its limits
leave no room for this call) comes behind those that may be, one where somebody must leave first behind those whose time
is known, and one that will not be ready before the deadline is not asked at all. Must never know how a service is
called.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

from forbear._aio.waiting import sleep_here
from forbear._runtime.scope import around, world_of
from forbear.calls.callables import is_coroutine_function, makes_a_stream, name_of
from forbear.calls.fallback import Rest, choice_in, plan_in
from forbear.errors import DeadlineExceeded, given_up_by

F = TypeVar("F", bound=Callable[..., object])


def first_ready(*calls: F) -> F:
    """One function of several: it calls the one whose service can take the call first, and the next if that gives up.

        ask = first_ready(ask_openai, ask_azure)  # a function of its own
        @openai.retry(fallback=first_ready(ask_azure, ask_bedrock))  # or a fallback

    `calls` are functions decorated with `upstream.retry(...)` and the like, all async or all blocking, with the same
    arguments. Of those that are ready now the first in the order given; else the one that is ready soonest, for whose
    trial, pause or limit it waits. One that would not be ready before its own deadline, counted from the beginning, or
    the one around, is not asked. An error that no retry can help leaves at once.

    Raises what the last one raised; DeadlineExceeded, with the least wait as `hint`, where none is ready in time.
    """
    for call in calls:
        if not callable(call):
            raise TypeError(
                f"first_ready takes functions one by one, not {type(call).__name__}: first_ready(ask_a, ask_b)"
            )
        plan = plan_in(call)
        if plan is None or not hasattr(plan.gate, "ready_in"):
            raise TypeError(f"{name_of(call)} is no call of an Upstream: decorate it with upstream.retry(...)")
        if choice_in(call) is not None:
            raise TypeError(f"{name_of(call)} is a choice already: name all of them in one first_ready(...)")
        if makes_a_stream(call):
            raise TypeError(f"{name_of(call)} is a stream: first_ready takes functions with one result")
    if not calls or len({is_coroutine_function(call) for call in calls}) > 1:
        raise TypeError("first_ready takes one or more functions, all of them async or all of them blocking")
    make = _chosen_async if is_coroutine_function(calls[0]) else _chosen
    made: Any = functools.update_wrapper(make(calls, None, None), calls[0])
    made.__qualname__ = f"first_ready({', '.join(map(name_of, calls))})"
    made.__forbear_choice__ = functools.partial(make, calls)
    return cast("F", made)


class _Choice:
    """One call of a choice: those that are left to be asked, each with the rest of its own time.

    `spared`: a retry budget whose service is asked only for its price; where that can't be paid, `instead_of` leaves.
    """

    def __init__(
        self, calls: tuple[Callable[..., Any], ...], spared: Any, instead_of: Exception | None, args: Any, kwargs: Any
    ) -> None:
        plans: list[Any] = [plan_in(call) for call in calls]
        self._left = [(call, plan, Rest(plan)) for call, plan in zip(calls, plans, strict=True)]
        self._spared, self._instead_of = spared, instead_of
        self._given = (args, kwargs)

    def next(self) -> tuple[Callable[..., Any], Rest, float]:
        """The one that is ready first, its time, and how long its circuit is still open. Raises DeadlineExceeded where
        none is ready in time.
        """
        ranked, unpaid = sorted(self._left, key=self._rank), False
        for one in ranked:
            call, plan, rest = one
            if not self._in_time(one):
                continue
            self._left.remove(one)
            if self._spared is None or plan.gate.budget is not self._spared or self._spared.try_take():
                return call, rest, self._shut_for(plan)
            unpaid = True
        if self._instead_of is not None and unpaid:
            raise self._instead_of
        names = " or ".join(name_of(call) for call, _, _ in ranked)
        least = min((self._known(one) for one in ranked), default=0.0)
        raise DeadlineExceeded(
            "deadline",
            0,
            None,
            hint=None if least == math.inf else least,
            held_by=f"{names} (none is ready before the deadline)",
        )

    def goes_on(self, call: Callable[..., Any], error: Exception) -> bool:
        """Whether another one is asked after this one has failed."""
        return given_up_by(error, plan_in(call)) and any(map(self._in_time, self._left))

    def _rank(self, one: tuple[Any, Any, Rest]) -> tuple[bool, float]:
        wait = one[1].gate.ready_in(*self._given)
        return wait == math.inf, wait

    def _known(self, one: tuple[Any, Any, Rest]) -> float:
        """Seconds until it is ready; 0 where somebody must leave first, which can be any time."""
        wait, shut_for = one[1].gate.ready_in(*self._given), self._shut_for(one[1])
        return shut_for if wait == math.inf else max(wait, shut_for)

    def _in_time(self, one: tuple[Any, Any, Rest]) -> bool:
        known = self._known(one)
        return known <= 0 or known < one[2].left()

    def _shut_for(self, plan: Any) -> float:
        """Seconds until its circuit lets a trial through. For a pause or a limit the call itself waits in line."""
        breaker = None if plan.gate.observe_only else plan.gate.breaker
        if breaker is None:
            return 0.0
        return math.inf if breaker.state == "forced_open" else breaker.shut_for() or 0.0


def _chosen(calls: tuple[Callable[..., Any], ...], spared: Any, instead_of: Exception | None) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        choice = _Choice(calls, spared, instead_of, args, kwargs)
        while True:
            one, rest, shut_for = choice.next()
            if shut_for:
                world_of(around()).sleep(shut_for)
            try:
                with rest:
                    return one(*args, **kwargs)
            except Exception as error:
                if not choice.goes_on(one, error):
                    raise

    return call


def _chosen_async(
    calls: tuple[Callable[..., Any], ...], spared: Any, instead_of: Exception | None
) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        choice = _Choice(calls, spared, instead_of, args, kwargs)
        while True:
            one, rest, shut_for = choice.next()
            if shut_for:
                await sleep_here(shut_for)
            try:
                with rest:
                    return await one(*args, **kwargs)
            except Exception as error:
                if not choice.goes_on(one, error):
                    raise

    return call
