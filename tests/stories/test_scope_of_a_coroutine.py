"""A coroutine obeys the deadlines around the place where it is awaited, not those where it was made."""

from __future__ import annotations

import pytest

from forbear import RetryError, current_deadline, deadline, retry, retry_call
from forbear.testing import FakeTime, Flaky, Hang

WAYS = {
    "lambda": lambda flaky, **o: retry(**o)(lambda: flaky.asynchronous())(),  # noqa: PLW0108  # the lambda is the point
    "retry_call": lambda flaky, **o: retry_call(lambda: flaky.asynchronous(), retry_options=o),  # noqa: PLW0108
    "coroutine function": lambda flaky, **o: retry(**o)(flaky.asynchronous)(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_the_deadline_where_it_is_awaited_holds(way) -> None:
    with FakeTime() as clock:
        call = way(Flaky(then=Hang(100.0)), attempt_timeout=None)
        with pytest.raises(RetryError), deadline(2.0):
            await call
        assert clock.now == pytest.approx(2.0)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_the_scope_where_it_is_awaited_stays(way) -> None:
    call = way(Flaky("done"))
    with deadline(2.0):
        await call
        assert current_deadline() is not None


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_scope_that_has_ended_does_not_come_back(way) -> None:
    with deadline(2.0):
        call = way(Flaky("done"))
    await call
    assert current_deadline() is None


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_time_before_it_is_awaited_does_not_count(way) -> None:
    with FakeTime() as clock:
        call = way(Flaky(Hang(1.0, "done")), deadline=5.0, attempt_timeout=2.0)
        clock.advance(100.0)
        assert await call == "done"
