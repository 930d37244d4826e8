"""A cancellation leaves a stream at once, at every place where it can wait, and nothing of the stream stays behind.

Each scenario is cancelled at its first suspension, at its second, and so on until it comes to its own end.
"""

from __future__ import annotations

import asyncio
import itertools
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any

import pytest
import trio

from forbear import CircuitBreaker, RetryBudget, Upstream, stream
from forbear._runtime.scope import current
from forbear.testing import record_events

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Sleep = Callable[[float], Coroutine[Any, Any, None]]
MODES = ["raise", "restart", "buffer", "resume"]


@types.coroutine
def interrupted(inner: Coroutine[Any, Any, Any], at: int, interrupt: Callable[[], object]) -> Generator[Any, Any, Any]:
    """`inner`, with a call of `interrupt` at its suspension number `at`."""
    steps, error = itertools.count(1), None
    value: Any = None
    while True:
        try:
            waits_for = inner.send(value) if error is None else inner.throw(error)
        except StopIteration as ended:
            return ended.value
        finally:
            error = None
        if next(steps) == at:
            interrupt()
        try:
            value = yield waits_for
        except BaseException as thrown:
            error, value = thrown, None


class Log:
    """What the sources of a scenario did."""

    def __init__(self, sleep: Sleep) -> None:
        self.sleep = sleep
        self.opened = self.closed = self.entered = self.left = 0
        self.chunks: list[Any] = []
        self.interrupted_in: str | None = None
        self.place = "before"
        self.ended = False  # whether a source has come to its end

    async def two_steps(self, place: str) -> None:
        self.place = place
        await self.sleep(0)
        await self.sleep(0)


class Around:
    """A connection: slow to open, slow to close."""

    def __init__(self, log: Log, mode: str) -> None:
        self.log = log
        self.mode = mode

    async def __aenter__(self) -> Chunks:
        await self.log.two_steps("enter")
        self.log.entered += 1
        return Chunks(self.log, self.mode)

    async def __aexit__(self, *_: object) -> None:
        self.log.left += 1
        await self.log.two_steps("exit")


class Chunks:
    """The stream of one attempt, slow in everything. The first attempt fails: after content, where the mode allows."""

    def __init__(self, log: Log, mode: str) -> None:
        self.log = log
        log.opened += 1
        fails = log.opened == 1
        content = mode != "raise"
        self.script: list[Any] = ["", "a", ConnectionError()] if fails and content else ["", ConnectionError()]
        if not fails:
            self.script = ["", "b", "c"]

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> str:
        await self.log.two_steps("chunk")
        if not self.script:
            self.log.ended = True
            raise StopAsyncIteration
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return str(step)

    async def aclose(self) -> None:
        self.log.closed += 1
        await self.log.two_steps("close")


def service() -> Upstream:
    return Upstream(
        "service",
        requests_per_minute=3_000,  # 20 ms: also on a busy machine the second attempt has to wait
        burst=1,
        max_concurrency=1,
        breaker=CircuitBreaker(5),
        budget=RetryBudget(when_empty="wait"),
        adaptive=False,
    )


def opened(upstream: Upstream, log: Log, mode: str) -> Any:
    async def hook(_: object) -> None:
        await log.two_steps("hook")

    async def wait(_: float) -> None:
        await log.two_steps("wait")

    def make(*_: Any) -> Any:
        log.place = "make"
        return Around(log, mode)

    options: dict[str, Any] = {"resume": make} if mode == "resume" else {"after_content": mode}
    return upstream.stream(make, on_retry=hook, sleep=wait, rng=lambda: 1.0, base=0.001, **options)


async def consume(upstream: Upstream, log: Log, mode: str, *, leaves: bool) -> None:
    async with opened(upstream, log, mode) as chunks:
        async for chunk in chunks:
            log.chunks.append(chunk)
            await log.two_steps("consumer")
            if leaves and chunk == "b":
                break
    log.place = "after"


def at_rest(upstream: Upstream) -> bool:
    snapshot = upstream.snapshot()
    trials = 0 if snapshot.breaker is None else snapshot.breaker.trials
    return (snapshot.in_flight, snapshot.waiting, snapshot.waiting_retries, trials) == (0, 0, 0, 0)


def held_timers(loop: asyncio.AbstractEventLoop) -> int:
    wheel = getattr(loop, "_forbear_wheel", None)
    return 0 if wheel is None else sum(len(slot.cuts) for slot in wheel.slots.values())


async def cancelled_at(number: int, mode: str, *, leaves: bool, soon: bool) -> tuple[Log, bool]:
    """Whether the scenario was met by its cancellation, and what it did."""
    log, upstream, loop = Log(asyncio.sleep), service(), asyncio.get_running_loop()
    after: list[int] = []

    def interrupt() -> None:
        log.interrupted_in = log.place
        if soon:
            loop.call_soon(task.cancel)
        else:
            task.cancel()

    async def main() -> None:
        try:
            await interrupted(consume(upstream, log, mode, leaves=leaves), number, interrupt)
        except asyncio.CancelledError:
            after.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]
            assert current.get() is None
            raise

    task = asyncio.create_task(main())
    await asyncio.wait([task])
    assert (log.closed, log.left) == (log.opened, log.entered), (number, log.interrupted_in)
    assert at_rest(upstream), (number, log.interrupted_in)
    assert held_timers(loop) == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}
    if log.interrupted_in is None:
        await task
        assert after == []
        return log, False
    with pytest.raises(asyncio.CancelledError):
        await task
    assert after == [1], "one request to end, taken back by nobody"
    return log, True


@pytest.mark.parametrize(("leaves", "soon"), [(False, False), (True, True)], ids=["to the end", "left early"])
@pytest.mark.parametrize("mode", MODES)
def test_it_leaves_at_once_wherever_it_meets_the_stream(run: Run, mode: str, leaves: bool, soon: bool) -> None:
    async def main() -> list[str | None]:
        places: list[str | None] = []
        for number in itertools.count(1):
            log, met = await cancelled_at(number, mode, leaves=leaves, soon=soon)
            if not met:
                assert log.chunks[-1] == ("b" if leaves else "c")
                return places
            places.append(log.interrupted_in)
        raise AssertionError

    places = run(main())
    assert {"enter", "chunk", "close", "exit", "hook", "wait", "consumer"} <= set(places)
    assert 30 <= len(places) <= 60


@pytest.mark.parametrize("mode", MODES)
def test_it_is_told_once_as_a_cancellation(run: Run, mode: str) -> None:
    async def main() -> None:
        for number in itertools.count(1):
            with record_events() as events:
                log, met = await cancelled_at(number, mode, leaves=False, soon=False)
            if not met:
                return
            ends = [event.reason for event in events.ends]
            if log.interrupted_in == "consumer":  # to the stream it is a close, or its end was told before
                assert ends == (["success"] if log.ended else ["closed"]), (number, log.chunks)
            elif log.ended:  # the last close: the answer was complete
                assert ends == ["success"], number
            else:
                assert ends == ["cancelled"], (number, log.interrupted_in)

    run(main())


@pytest.mark.parametrize("into", [OSError, ExceptionGroup], ids=["another error", "a group"])
@pytest.mark.parametrize("mode", ["raise", "restart"])
def test_a_close_that_makes_another_error_of_it_does_not_save_the_stream(run: Run, mode: str, into: Any) -> None:
    attempts: list[int] = []
    closing: list[int] = []

    class Source(Chunks):
        async def aclose(self) -> None:
            closing.append(1)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise (OSError() if into is OSError else ExceptionGroup("", [OSError()])) from None

    async def main() -> None:
        def make() -> Any:
            attempts.append(1)
            return Source(Log(asyncio.sleep), mode)

        async def consumer() -> None:
            async for _ in stream(make, after_content=mode, base=0):  # type: ignore[call-overload]
                pass

        task = asyncio.create_task(consumer())
        while not closing:
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.5)
        try:
            assert done
            assert task.cancelled()
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=0.5)

    run(main())
    assert attempts == [1]


def test_one_that_a_source_swallows_by_its_end_does_not_lead_to_another_attempt(run: Run) -> None:
    calls: list[int] = []

    async def source() -> AsyncIterator[str]:
        calls.append(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError("broken by the cancellation") from None
        yield "never"

    async def main() -> None:
        async def consumer() -> None:
            async for _ in stream(source, base=0):
                pass

        task = asyncio.create_task(consumer())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert calls == [1]


def test_one_in_the_very_step_in_which_a_chunk_comes_wins(run: Run) -> None:
    async def main() -> None:
        for before in range(3):
            for after in range(3):
                loop = asyncio.get_running_loop()
                gate = loop.create_future()
                got: list[str] = []
                closed: list[int] = []

                async def source(gate: asyncio.Future[str] = gate, closed: list[int] = closed) -> AsyncIterator[str]:
                    try:
                        yield await gate
                        await asyncio.sleep(60)
                    finally:
                        closed.append(1)

                async def consumer(source: Any = source, got: list[str] = got) -> None:
                    async with stream(source) as chunks:
                        async for chunk in chunks:
                            got.append(chunk)  # noqa: PERF401

                task = asyncio.create_task(consumer())
                await asyncio.sleep(0)
                for _ in range(before):
                    loop.call_soon(lambda: None)
                gate.set_result("a")
                for _ in range(after):
                    loop.call_soon(lambda: None)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert (got, closed) == ([], [1])

    run(main())


@pytest.mark.parametrize("limit", [0.01, 0.06])  # an exact timer, a shared slot
def test_an_outer_timeout_that_fires_with_the_streams_own_is_the_outer_ones(run: Run, limit: float) -> None:
    calls: list[int] = []

    async def source() -> AsyncIterator[str]:
        calls.append(1)
        await asyncio.sleep(60)
        yield "never"

    async def main() -> None:
        for shift in (-0.004, -0.001, 0.0, 0.001, 0.004, 0.008):
            calls.clear()
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(limit + shift):
                    options: dict[str, Any] = {"first_timeout": limit, "base": 10, "jitter": "none", "deadline": 1000}
                    async for _ in stream(source, **options):
                        pass
            assert type(caught.value) is TimeoutError
            assert calls == [1]
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())


def test_a_timeout_of_the_consumers_own_between_chunks_is_none_of_the_streams(run: Run) -> None:
    async def source() -> AsyncIterator[str]:
        for chunk in "ab":
            yield chunk

    async def main() -> None:
        got: list[str] = []
        async for chunk in stream(source, gap_timeout=0.01, first_timeout=0.01):
            got.append(chunk)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await asyncio.sleep(60)
        assert got == ["a", "b"]
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())


@pytest.mark.parametrize("mode", MODES)
def test_under_trio_too(mode: str) -> None:
    places: list[str | None] = []

    async def at(number: int) -> bool:
        log, upstream = Log(trio.sleep), service()

        def interrupt() -> None:
            log.interrupted_in = log.place
            scope.cancel()

        with trio.CancelScope() as scope:
            await interrupted(consume(upstream, log, mode, leaves=False), number, interrupt)
        assert current.get() is None
        assert (log.closed, log.left) == (log.opened, log.entered), (number, log.interrupted_in)
        assert at_rest(upstream), (number, log.interrupted_in)
        if log.interrupted_in is None:
            assert log.chunks[-1] == "c"
            return False
        assert scope.cancelled_caught
        places.append(log.interrupted_in)
        return True

    async def main() -> None:
        number = 1
        while await at(number):
            number += 1

    trio.run(main)
    assert {"enter", "chunk", "close", "exit", "hook", "wait", "consumer"} <= set(places)
    assert len(places) >= 30
