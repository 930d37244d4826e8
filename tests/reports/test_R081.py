"""R081: a budget for hedges that is used up suppresses the next copy, and never ends what is under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forbear import Hedge, RetryBudget, Upstream, current_attempt, retry
from forbear.core.hedge import SAVED
from forbear.testing import FakeTime, record_events


class Service:
    """The primary answers after three seconds, a copy never."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.cancelled: list[float] = []

    async def __call__(self) -> str:
        attempt, loop = current_attempt(), asyncio.get_running_loop()
        assert attempt is not None
        self.began.append(round(loop.time(), 6))
        try:
            await asyncio.sleep(3 if attempt.number == 1 else 60)
        except asyncio.CancelledError:
            self.cancelled.append(round(loop.time(), 6))
            raise
        return "the primary's answer"


@pytest.mark.parametrize("whose", ["retry budget", "service's budget"])
async def test_one_extra_is_sent_the_second_suppressed_and_the_primarys_answer_returned(whose: str) -> None:
    budget = RetryBudget(initial=1, earned=0)
    options: dict[str, Any] = (
        {"budget": budget} if whose == "retry budget" else {"upstream": Upstream("service", budget=budget)}
    )
    hedge, service = Hedge(1.0, max_copies=3), Service()
    with FakeTime() as clock, record_events() as events:
        assert await retry(service, hedge=hedge, attempt_timeout=None, **options) == "the primary's answer"
        assert clock.now == pytest.approx(3.0)
    assert service.began == pytest.approx([0.0, 1.0])
    assert service.cancelled == pytest.approx([3.0]), "the copy lost, at the end and not before"
    assert (hedge.sent, hedge.won) == (1, 0)
    assert hedge.suppressed >= 1
    assert [(event.attempt, event.outcome) for event in events.attempts] == [(1, "success"), (2, "cancelled")]
    assert [event.reason for event in events.ends] == ["success"]


async def test_so_it_is_where_the_hedges_own_copies_are_used_up() -> None:
    hedge, service = Hedge(1.0, max_copies=3), Service()
    with FakeTime() as clock:
        hedge.ask(clock, lambda state, _: [state.take() for _ in range(int(SAVED) - 1)])  # all but one
        began = clock.now
        assert await retry(service, hedge=hedge, attempt_timeout=None) == "the primary's answer"
        assert clock.now - began == pytest.approx(3.0)
        assert [one - service.began[0] for one in service.began] == pytest.approx([0.0, 1.0])
        assert hedge.snapshot().balance == pytest.approx(0.05)
    assert (hedge.sent, hedge.won) == (1, 0)
    assert hedge.suppressed >= 1


async def test_with_nothing_left_at_all_the_primary_goes_on_alone() -> None:
    hedge, service = Hedge(1.0, max_copies=3), Service()
    with FakeTime() as clock:
        hedge.ask(clock, lambda state, _: [state.take() for _ in range(int(SAVED))])
        assert await retry(service, hedge=hedge) == "the primary's answer"
    assert (service.began, service.cancelled) == ([0.0], [])
    assert hedge.sent == 0
    assert hedge.suppressed == 1  # the one that was due, however often it was looked at
