"""R071: failed requests count against a service's limit too, so each attempt takes a place, not each call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forbear import RateLimiter, Upstream, retry
from forbear.testing import FakeTime, Flaky


def most_in(window: float, instants: list[float]) -> int:
    return max(sum(begin <= instant < begin + window - 1e-6 for instant in instants) for begin in instants)


@pytest.mark.parametrize("kind", ["upstream", "limiter"])
async def test_five_calls_that_fail_twice_make_five_attempts_in_any_ten_seconds(kind: str) -> None:
    with FakeTime() as clock:
        guards: dict[str, Any] = {
            "upstream": Upstream("service", requests_per_minute=30, strict_window=10),
            "limiter": RateLimiter(30, strict_window=10),
        }
        fns = [Flaky(ConnectionError(), ConnectionError(), then="done") for _ in range(5)]
        calls = [retry(fn.asynchronous, deadline=None, **{kind: guards[kind]}) for fn in fns]
        assert await asyncio.gather(*calls) == ["done"] * 5
        went = sorted(at for fn in fns for at in fn.started_at)
    assert len(went) == 15
    assert most_in(10.0, went) == 5
    assert clock.now <= 31.0


async def test_attempts_that_hang_and_are_cut_have_paid() -> None:
    upstream = Upstream("service", requests_per_minute=60, burst=60)
    with FakeTime():
        calls = [retry(lambda: asyncio.sleep(60), attempt_timeout=1, max_attempts=1, upstream=upstream)] * 1
        await asyncio.gather(*calls, return_exceptions=True)
        assert upstream.snapshot().requests_left == pytest.approx(60)
        task = asyncio.create_task(upstream.retry(lambda: asyncio.sleep(60)))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert upstream.snapshot().requests_left == pytest.approx(59.1)


def test_what_never_reached_the_service_has_not() -> None:
    upstream = Upstream("service", requests_per_minute=60, burst=60)
    with FakeTime():
        upstream.retry_sync(Flaky(ConnectionRefusedError(), then="done"), base=0)
        assert upstream.snapshot().requests_left == pytest.approx(59)
