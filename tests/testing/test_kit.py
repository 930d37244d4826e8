"""The test kit does what it promises to other people's tests."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest
import uvloop

from forbear import ApiError, RetriesExhausted, RetryError, constant, current_deadline, deadline, retry, retry_sync
from forbear._runtime.scope import current
from forbear.observe.hooks import listeners
from forbear.testing import FakeTime, Flaky, Hang, instant_waits, record_events

HOURS: dict[str, Any] = {"max_attempts": None, "deadline": 1e6, "backoff": constant(3600)}


async def test_fifty_waits_of_an_hour_take_no_time_and_can_be_asserted() -> None:
    began = time.monotonic()
    with FakeTime() as fake:
        assert retry_sync(Flaky(*[ApiError(503)] * 50, "done"), **HOURS) == "done"
        assert await retry(Flaky(*[ApiError(503)] * 50, "done").asynchronous, **HOURS) == "done"
        assert fake.now == 100 * 3600
        assert fake.sleeps == [3600] * 100
    assert time.monotonic() - began < 2


async def test_asyncio_lives_in_the_same_time() -> None:
    order = []

    async def after(delay: float) -> None:
        await asyncio.sleep(delay)
        order.append((delay, fake.now))

    with FakeTime(start=50) as fake:
        await asyncio.gather(after(300), after(100), after(200))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.sleep(3600)
        assert order == [(100, 150), (200, 250), (300, 350)]
        assert fake() == fake.now == 357
    assert repr(fake) == "<FakeTime at 357 s>"


async def test_nothing_stays_behind() -> None:
    loop = asyncio.get_running_loop()
    before = (loop._selector, current.get(), list(listeners))  # type: ignore[attr-defined]
    with pytest.raises(RetriesExhausted), FakeTime(), record_events(), instant_waits(max_attempts=1):
        await retry(Flaky(then=ConnectionError).asynchronous)
    assert (loop._selector, current.get(), listeners) == before  # type: ignore[attr-defined]
    began = time.monotonic()
    await asyncio.sleep(0.02)
    assert time.monotonic() - began >= 0.019


async def test_timers_set_before_keep_their_distance() -> None:
    fired: list[float] = []
    with FakeTime() as fake:
        pass
    loop = asyncio.get_running_loop()
    loop.call_later(5, lambda: fired.append(fake.now))
    with FakeTime() as fake:
        await asyncio.sleep(10)
    assert fired[0] == pytest.approx(5, abs=0.5)


async def test_real_sockets_and_threads_get_the_patience_they_need() -> None:
    with FakeTime(patience=5.0) as fake:
        assert await retry(lambda: asyncio.to_thread(lambda: time.sleep(0.05) or "done"), attempt_timeout=1) == "done"
        assert fake.now == 0


async def test_a_timer_whose_attempt_has_ended_does_not_move_time() -> None:
    with FakeTime(patience=0.01) as fake:
        assert await retry(Flaky("done").asynchronous) == "done"
        await asyncio.to_thread(time.sleep, 0.1)
        assert fake.now == 0


async def test_blocking_waits_move_time_at_once_also_in_threads() -> None:
    with FakeTime() as fake:
        context = contextvars.copy_context()
        flaky = Flaky(*[ConnectionError] * 3, "done")
        thread = threading.Thread(target=context.run, args=(retry_sync, flaky), kwargs=HOURS)
        thread.start()
        thread.join()
        assert (flaky.calls, fake.now) == (4, 3 * 3600)
        assert flaky.started_at == [0, 3600, 7200, 10800]


def test_a_loop_whose_clock_is_its_own_is_refused() -> None:
    async def main() -> None:
        with FakeTime():
            pass

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(RuntimeError, match="uvloop"):
        runner.run(main())


def test_time_goes_only_forward() -> None:
    with pytest.raises(ValueError, match="back"):
        FakeTime().advance(-1)


async def test_waits_can_be_made_instant_and_attempts_capped() -> None:
    with instant_waits() as waits:
        flaky = Flaky(ConnectionError, ApiError(429, retry_after=40), "done")
        assert retry_sync(flaky, rng=lambda: 1.0) == "done"
        assert await retry(Flaky(ConnectionError, "done").asynchronous, rng=lambda: 1.0) == "done"
        assert waits == [0.5, 40, 0.5]
    for cap, expected in ((1, 1), (2, 2), (9, 5)):
        with instant_waits(max_attempts=cap):
            flaky = Flaky(then=ConnectionError)
            with pytest.raises(RetryError):
                retry_sync(flaky)
            assert flaky.calls == expected
    with instant_waits(max_attempts=3):
        flaky = Flaky(then=ConnectionError)
        with pytest.raises(RetryError):
            retry_sync(flaky, max_attempts=None)
        assert flaky.calls == 3
    with deadline(5), instant_waits():
        assert current_deadline() is not None
    with pytest.raises(ValueError, match="max_attempts"), instant_waits(max_attempts=0):
        pass


async def test_a_script_that_is_too_short_says_so() -> None:
    flaky = Flaky(ConnectionError)
    with FakeTime(), pytest.raises(AssertionError, match="call 2 of a Flaky with 1 outcomes"):
        retry_sync(flaky)
    with FakeTime() as fake:
        assert Flaky(Hang(3, "slow"))() == "slow"
        assert await Flaky(Hang(3, "slow")).asynchronous() == "slow"
        with pytest.raises(KeyError):
            Flaky(Hang(3, KeyError()))(1, x=2)
        assert fake.now == 9


def test_only_the_events_of_the_block_are_recorded() -> None:
    with record_events() as events:
        thread = threading.Thread(target=retry_sync, args=(lambda: "elsewhere",))
        thread.start()
        thread.join()
        retry_sync(lambda: "here")
    retry_sync(lambda: "later")
    assert [type(event).__name__ for event in events] == ["AttemptEnded", "CallEnded"]


def test_the_fixtures_are_found_by_pytest(pytester_run: Any) -> None:
    pytester_run(
        """
        import asyncio
        from forbear import retry, retry_sync
        from forbear.testing import Flaky

        def test_sync(fake_time, forbear_events):
            assert retry_sync(Flaky(ConnectionError, "done"), base=100, cap=100, deadline=None) == "done"
            assert len(fake_time.sleeps) == len(forbear_events.waits) == 1

        def test_async(fake_time):
            async def main():
                return await retry(Flaky(ConnectionError, "done").asynchronous, base=1e5, cap=1e5, deadline=None)
            assert asyncio.run(main()) == "done"

        async def test_async_by_a_plugin(fake_time):
            assert await retry(Flaky(ConnectionError, "done").asynchronous, base=1e5, cap=1e5, deadline=None) == "done"
            assert len(fake_time.sleeps) == 1

        def test_instant(instant_waits):
            assert retry_sync(Flaky(ConnectionError, "done"), base=1e5, cap=1e5, deadline=None) == "done"
            assert len(instant_waits) == 1
        """,
        passed=4,
    )


@pytest.fixture
def pytester_run(tmp_path: Any) -> Any:
    def run(code: str, passed: int) -> None:
        settings = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error"
        (tmp_path / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
        (tmp_path / "test_user.py").write_text(textwrap.dedent(code))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-c", "pytest.ini", "-p", "no:cacheprovider"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert f"{passed} passed" in done.stdout, done.stdout + done.stderr

    return run
