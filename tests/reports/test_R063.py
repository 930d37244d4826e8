"""R063: to wait for a local limit is no failed attempt: fifty jobs, a good server and one request a second all end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forbear import RateLimiter, Upstream, retry
from forbear.testing import FakeTime, record_events


@pytest.mark.parametrize("kind", ["upstream", "limiter"])
async def test_fifty_jobs_of_three_attempts_end_in_about_fifty_seconds(kind: str) -> None:
    guards: dict[str, Any] = {
        "upstream": Upstream("service", requests_per_minute=60),
        "limiter": RateLimiter(60, burst=1),
    }
    with FakeTime() as clock, record_events() as events:
        answers: list[int] = []

        async def job(number: int) -> None:
            await asyncio.sleep(0.05)
            answers.append(number)

        options = {"max_attempts": 3, "attempt_timeout": 1.0, "deadline": None, kind: guards[kind]}
        await asyncio.gather(*[retry(lambda number=number: job(number), **options) for number in range(50)])
        assert clock.now == pytest.approx(49.05, abs=0.1)
    assert answers == list(range(50))
    assert [event.outcome for event in events.attempts] == ["success"] * 50
    assert {event.attempt for event in events.attempts} == {1}
    assert max(event.elapsed for event in events.attempts) < 0.1
    assert max(event.waited for event in events.ends) == pytest.approx(49.0, abs=0.1)
