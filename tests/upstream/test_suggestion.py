"""An Upstream suggests an attempt timeout from how long its own attempts took.

Proven: which ends of an attempt are recorded, and with what time; that a wait for a place is none of it; that each
clock and each scope has a record of its own; and that threads lose nothing.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from forbear import Hedge, Kind, RetryError, Upstream, deadline
from forbear.testing import FakeTime
from forbear.upstream.counts import MOST_CLOCKS

ONCE: dict[str, Any] = {"max_attempts": 1, "deadline": None, "attempt_timeout": None}

TWICE: dict[str, Any] = {**ONCE, "max_attempts": 2}


def taking(*seconds: float) -> Callable[[], Awaitable[None]]:
    """A function whose calls take so long, one after the other, and the last time for ever."""
    times = iter([*seconds, *itertools.repeat(seconds[-1], 10_000)])

    async def answer() -> None:
        await asyncio.sleep(next(times))

    return answer


async def calls(upstream: Upstream, seconds: float, count: int = 20) -> None:
    for _ in range(count):
        await upstream.retry(taking(seconds), **ONCE)


def known(upstream: Upstream) -> str:
    """How many attempts the record holds, as the error says it."""
    with pytest.raises(ValueError, match="attempts that were answered or cut") as caught:
        upstream.suggest_attempt_timeout()
    return str(caught.value).partition(" attempts")[0].rpartition(" ")[2]


def roughly(seconds: float) -> Any:
    """A record is up to 2 % too long, and rounded up that is up to a tenth."""
    return pytest.approx(seconds * 1.05, rel=0.06)


# ---- what is suggested ----------------------------------------------------------------------------------------------


async def test_twenty_answers_are_enough_and_fewer_are_refused_with_the_number() -> None:
    with FakeTime():
        upstream = Upstream("service")
        await calls(upstream, 0.4, 19)
        said = (
            r"^Upstream 'service' has lately seen 19 attempts that were answered or cut by a timeout, and 20 are needed"
        )
        with pytest.raises(ValueError, match=said):
            upstream.suggest_attempt_timeout()
        await calls(upstream, 0.4, 1)
        assert upstream.suggest_attempt_timeout() == roughly(1.0)


async def test_the_patience_bounds_it_and_is_checked() -> None:
    with FakeTime():
        upstream = Upstream("service")
        with pytest.raises(ValueError, match=r"^patience is 0, which leaves no time at all"):
            upstream.suggest_attempt_timeout(patience=0)
        await calls(upstream, 0.4)
        assert upstream.suggest_attempt_timeout(patience=1.2) == 0.6
        assert upstream.suggest_attempt_timeout(1.2) == 0.6
        with pytest.raises(ValueError, match=r"^patience is 0\.5 s, which leaves 0\.25 s to each of two attempts"):
            upstream.suggest_attempt_timeout(patience=0.5)


async def test_what_is_old_is_forgotten() -> None:
    with FakeTime():
        upstream = Upstream("service")
        await calls(upstream, 9.0)
        await asyncio.sleep(7_200)
        assert known(upstream) == "0"


# ---- what is recorded -----------------------------------------------------------------------------------------------


async def test_attempts_that_were_cut_count_with_the_time_they_had_taken() -> None:
    with FakeTime():
        upstream = Upstream("service")
        await calls(upstream, 0.1, 19)
        assert known(upstream) == "19"
        await upstream.retry(taking(60.0, 0.1), max_attempts=2, attempt_timeout=2.0, deadline=None)
        assert upstream.snapshot().failures == {Kind.TIMEOUT: 1}
        assert upstream.suggest_attempt_timeout() == roughly(2.5)


async def test_a_timeout_that_is_too_short_for_any_answer_still_gives_a_longer_one() -> None:
    with FakeTime():
        upstream = Upstream("service", adaptive=False, budget=None)
        for _ in range(20):
            with pytest.raises(RetryError):
                await upstream.retry(taking(60.0), max_attempts=1, attempt_timeout=0.2, deadline=None)
        assert upstream.suggest_attempt_timeout() == roughly(0.5)


async def test_a_cut_at_a_deadline_that_left_no_time_says_nothing() -> None:
    with FakeTime():
        upstream = Upstream("service")
        await calls(upstream, 1.0, 18)
        for patience in (0.1, 0.5):
            with pytest.raises(RetryError), deadline(patience):
                await upstream.retry(taking(60.0), **ONCE)
        assert known(upstream) == "18"
        with pytest.raises(RetryError), deadline(5.0):
            await upstream.retry(taking(60.0), **ONCE)
        assert known(upstream) == "19"


async def test_failures_say_nothing_however_long_they_took() -> None:
    async def fails() -> None:
        await asyncio.sleep(30.0)
        raise ConnectionResetError

    with FakeTime():
        upstream = Upstream("service")
        await calls(upstream, 0.1, 10)
        with pytest.raises(RetryError):
            await upstream.retry(fails, **ONCE)
        assert known(upstream) == "10"


async def test_a_result_that_is_refused_says_nothing() -> None:
    with FakeTime():
        upstream = Upstream("service")
        with pytest.raises(RetryError):
            await upstream.retry(taking(1.0), retry_if_result=lambda result: result is None, **ONCE)
        assert known(upstream) == "0"


async def test_whoever_gives_up_waiting_counts_where_an_answer_was_due() -> None:
    with FakeTime():
        upstream = Upstream("service")
        await calls(upstream, 1.0, 17)
        for patience in (0.5, 3.0):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(patience):
                    await upstream.retry(taking(60.0), **ONCE)
        assert known(upstream) == "18"


async def test_the_wait_for_a_place_and_the_wait_between_attempts_are_no_part_of_it() -> None:
    with FakeTime() as clock:
        upstream = Upstream("service", requests_per_minute=6, burst=1)
        await calls(upstream, 0.4)
        assert clock.now >= 190, "it was held back"
        assert upstream.suggest_attempt_timeout() == roughly(1.0)
    with FakeTime():
        upstream = Upstream("service", adaptive=False)
        for _ in range(20):
            failures = iter([ConnectionResetError()])

            async def fails_first(failures: Iterator[Exception] = failures) -> None:
                for failure in failures:
                    raise failure
                await asyncio.sleep(0.4)

            await upstream.retry(fails_first, max_attempts=2, backoff=[5.0], deadline=None, attempt_timeout=None)
        assert upstream.suggest_attempt_timeout() == roughly(1.0)


async def test_where_nothing_is_held_back_it_is_recorded_too() -> None:
    with FakeTime():
        upstream = Upstream("service", requests_per_minute=1, observe_only=True)
        await calls(upstream, 0.4)
        assert upstream.snapshot().held, "it would have held some back"
        assert upstream.suggest_attempt_timeout() == roughly(1.0)


async def test_of_copies_the_loser_counts_as_well() -> None:
    with FakeTime():
        upstream = Upstream("service")
        for _ in range(10):
            await upstream.retry(taking(60.0, 0.1), hedge=Hedge(1.0), **TWICE)
        assert upstream.snapshot().successes == 10
        assert upstream.suggest_attempt_timeout() == roughly(2.75), "ten of 0.1 s and ten that were cut after 1.1 s"


def test_blocking_calls_are_recorded() -> None:
    with FakeTime() as clock:
        upstream = Upstream("service")
        for _ in range(20):
            upstream.retry_sync(lambda: clock.sleep(0.4), **ONCE)
        assert upstream.suggest_attempt_timeout() == roughly(1.0)


async def test_blocks_are_recorded() -> None:
    with FakeTime():
        upstream = Upstream("service")
        for _ in range(20):
            async for attempt in upstream.attempts(**ONCE):
                async with attempt:
                    await asyncio.sleep(0.4)
        assert upstream.suggest_attempt_timeout() == roughly(1.0)


# ---- streams --------------------------------------------------------------------------------------------------------

STREAM: dict[str, Any] = {"max_attempts": 1, "deadline": None, "first_timeout": None, "gap_timeout": None}
IMPATIENT: dict[str, Any] = {**STREAM, "first_timeout": 0.4001, "gap_timeout": 5.0}


def flowing(first: float, rest: float = 30.0, broken: bool = False) -> Callable[[], AsyncIterator[str]]:
    async def source() -> AsyncIterator[str]:
        await asyncio.sleep(first)
        yield "first"
        await asyncio.sleep(rest)
        if broken:
            raise ConnectionResetError
        yield "rest"

    return source


async def test_of_a_stream_the_time_to_the_first_content_counts_and_not_its_length() -> None:
    with FakeTime():
        upstream = Upstream("service")
        for _ in range(20):
            assert [chunk async for chunk in upstream.stream(flowing(0.4), **STREAM)] == ["first", "rest"]
        assert upstream.suggest_attempt_timeout() == roughly(1.0)


def test_of_a_blocking_stream_too() -> None:
    with FakeTime() as clock:

        def source() -> Iterator[str]:
            clock.sleep(0.4)
            yield "first"
            clock.sleep(30.0)
            yield "rest"

        upstream = Upstream("service")
        for _ in range(20):
            assert list(upstream.stream(source, **STREAM)) == ["first", "rest"]
        assert upstream.suggest_attempt_timeout() == roughly(1.0)


async def test_it_counts_whatever_comes_of_the_stream_afterwards() -> None:
    with FakeTime():
        upstream = Upstream("service", adaptive=False, budget=None)
        for _ in range(7):
            with pytest.raises(Exception, match="after 1"):
                _ = [chunk async for chunk in upstream.stream(flowing(0.4, broken=True), **STREAM)]
        for _ in range(7):
            with pytest.raises(Exception, match="after 1"):
                _ = [chunk async for chunk in upstream.stream(flowing(0.4), **IMPATIENT)]
        for _ in range(6):
            async with upstream.stream(flowing(0.4), **STREAM) as left:
                async for _chunk in left:
                    break
        assert upstream.suggest_attempt_timeout() == roughly(1.0)


async def test_a_stream_that_was_cut_before_its_first_content_counts_with_that_time() -> None:
    with FakeTime():
        upstream = Upstream("service", adaptive=False, budget=None)
        for _ in range(20):
            with pytest.raises(RetryError):
                _ = [chunk async for chunk in upstream.stream(flowing(60.0), **IMPATIENT)]
        assert upstream.suggest_attempt_timeout() == roughly(1.0)


async def test_a_stream_without_content_says_nothing() -> None:
    async def nothing() -> AsyncIterator[str]:
        await asyncio.sleep(1.0)
        for chunk in ():
            yield chunk

    with FakeTime():
        upstream = Upstream("service")
        assert [chunk async for chunk in upstream.stream(nothing, **STREAM)] == []
        assert upstream.snapshot().successes == 1
        assert known(upstream) == "0"


# ---- whose record it is ---------------------------------------------------------------------------------------------


async def test_each_clock_has_a_record_of_its_own_and_few_are_kept() -> None:
    upstream = Upstream("service")
    for _ in range(2 * MOST_CLOCKS):
        with FakeTime():
            await calls(upstream, 0.4, 1)
            assert known(upstream) == "1"
    assert len(upstream.counts._times) == MOST_CLOCKS
    assert known(upstream) == "0"


async def test_scopes_and_copies_have_records_of_their_own() -> None:
    with FakeTime():
        upstream = Upstream("service")
        await calls(upstream, 0.4)
        assert upstream.suggest_attempt_timeout() == roughly(1.0)
        assert known(upstream.for_("eu")) == "0"
        assert known(copy.copy(upstream)) == "0"


def test_threads_lose_nothing() -> None:
    upstream = Upstream("service")

    def work() -> None:
        for _ in range(200):
            upstream.retry_sync(lambda: None, **ONCE)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (times,) = upstream.counts._times.values()
    assert times.total(0.0) == 1_600
    assert 0 < upstream.suggest_attempt_timeout() < 1
