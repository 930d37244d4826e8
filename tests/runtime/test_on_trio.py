"""The same decorated coroutine runs under trio, with trio's own cancellation, and under anyio."""

from __future__ import annotations

import asyncio

import anyio
import pytest
import trio

from forbear import ApiError, DeadlineExceeded, attempts, current_attempt, deadline, retry
from forbear.testing import FakeTime, Flaky, record_events


@retry(max_attempts=3, attempt_timeout=0.1, base=0.001)
async def three_times(seen: list[int | None]) -> str:
    attempt = current_attempt()
    assert attempt is not None
    seen.append(attempt.number)
    if len(seen) == 1:
        raise ApiError(503)
    if len(seen) == 2:
        await anyio.sleep(30)
    return "done"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_one_coroutine_runs_on_every_event_loop(backend: str) -> None:
    seen: list[int | None] = []
    assert anyio.run(three_times, seen, backend=backend) == "done"
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("where", ["attempt", "wait"])
def test_a_cancel_scope_around_the_call_is_respected(backend: str, where: str) -> None:
    calls = []

    async def fn() -> None:
        calls.append(1)
        if where == "wait":
            raise ConnectionError
        await anyio.sleep(30)

    async def main() -> None:
        with record_events() as events:
            with anyio.move_on_after(0.02) as scope:
                await retry(fn, attempt_timeout=5, base=30, jitter="none")
            assert scope.cancelled_caught
        assert events.ends[-1].reason == "cancelled"

    anyio.run(main, backend=backend)
    assert calls == [1]


def test_the_deadline_ends_an_attempt_under_trio() -> None:
    async def main() -> None:
        with pytest.raises(DeadlineExceeded) as caught:
            await retry(lambda: trio.sleep(30), attempt_timeout=None, deadline=0.02)
        assert isinstance(caught.value.__cause__, TimeoutError)
        with deadline(0.0), pytest.raises(DeadlineExceeded):
            await retry(lambda: trio.sleep(0))

    trio.run(main)


def test_fake_time_moves_at_once_under_trio() -> None:
    async def main() -> object:
        return await retry(Flaky(*[ApiError(500)] * 3, "done").asynchronous, base=3600, cap=3600, deadline=None)

    with FakeTime(rng=lambda: 1.0) as fake:
        assert trio.run(main) == "done"
    assert fake.sleeps == [3600] * 3


def test_blocks_with_a_timer_say_that_they_need_asyncio() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"trio\.move_on_after"):
            async with deadline(1.0):
                pass
        with pytest.raises(RuntimeError, match=r"trio\.move_on_after"):
            async for attempt in attempts():
                async with attempt:
                    pass

    trio.run(main)


def test_without_any_event_loop_the_error_says_how_to_start_one() -> None:
    coroutine = retry(lambda: asyncio.sleep(0))
    with pytest.raises(RuntimeError, match=r"asyncio\.run"):
        coroutine.send(None)
