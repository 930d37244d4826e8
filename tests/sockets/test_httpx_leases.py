"""What an HTTP call through httpx or httpx2 holds is given back, whatever ends the call or its body.

Leases of the service and of its circuit breaker, connections of the pool, timers, time limits around the caller, and
memory. An answer belongs to whoever reads it: in another task, another thread, in part, or never.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
import trio

from forbear import CircuitBreaker, DeadlineExceeded, RetriesExhausted, Upstream, deadline
from forbear.classify.failures import classify
from loopback import Choose, Cut, Hang, Reply, Request, Reset, Server, Stream
from sockets.ways import Way


def in_flight(client: Any, url: str) -> int:
    return client._transport.upstream_of(url).snapshot().in_flight  # type: ignore[no-any-return]


def at_rest(client: Any, url: str) -> bool:
    """Whether nothing of the service is held, and no connection of the pool is busy or waited for."""
    snapshot = client._transport.upstream_of(url).snapshot()
    trials = 0 if snapshot.breaker is None else snapshot.breaker.trials
    pool = client._transport.inner._pool
    busy = [one for one in pool.connections if not (one.is_idle() or one.is_closed())]
    return (snapshot.in_flight, snapshot.waiting, snapshot.waiting_retries, trials) == (0, 0, 0, 0) and not (
        busy or pool._requests
    )


async def comes_back(client: Any, url: str) -> bool:
    """Whether what is held of a service comes back with the collector."""
    for _ in range(10):  # the first finds the answer, others what its generators have left to their loop
        gc.collect()
        if in_flight(client, url) == 0:
            return True
        await asyncio.sleep(0.02)
    return False


async def soon(true: Callable[[], object]) -> bool:
    """Whether it becomes true within a second."""
    for _ in range(200):
        if true():
            return True
        await asyncio.sleep(0.005)
    return False


# ---- whoever reads, and however far ----------------------------------------------------------------------------------


@pytest.fixture
def streaming(loopback: Server) -> Server:
    """Answers in three chunks, with a pause between them."""
    return loopback.script(Stream([b"one", 0.05, b"two", 0.05, b"three"]))


async def test_a_lease_is_held_until_the_last_byte_was_read(way: Way, streaming: Server) -> None:
    async with way.client() as client:
        response = await way.open(client, streaming.url)
        assert in_flight(client, streaming.url) == 1
        chunks = way.chunks(response)
        got = [await way.next(chunks) for _ in range(4)]
        assert got == [b"one", b"two", b"three", None]
        assert at_rest(client, streaming.url)


async def test_a_lease_ends_with_a_close_however_often_that_comes(way: Way, streaming: Server) -> None:
    async with way.client(connections=1) as client:
        for read in (0, 1, 2):
            response = await way.open(client, streaming.url)
            chunks = way.chunks(response)
            for _ in range(read):
                await way.next(chunks)
            for _ in range(3):
                await way.close(response)
                assert at_rest(client, streaming.url)


async def test_an_answer_that_is_held_needs_no_close(way: Way, loopback: Server) -> None:
    loopback.script(Reply(body="short"))
    async with way.client(connections=1) as client:
        for _ in range(3):
            response = await way.open(client, loopback.url)
            assert at_rest(client, loopback.url)
            del response
    assert loopback.connections == 1


async def test_a_forgotten_answer_gives_its_lease_back(way: Way, streaming: Server) -> None:
    async with way.client() as client:
        response = await way.open(client, streaming.url)
        assert in_flight(client, streaming.url) == 1
        del response
        assert await comes_back(client, streaming.url)


async def test_an_answer_that_is_half_read_and_forgotten_gives_its_lease_back(way: Way, streaming: Server) -> None:
    async with way.client() as client:
        response = await way.open(client, streaming.url)
        chunks = way.chunks(response)
        await way.next(chunks)
        del response, chunks
        assert await comes_back(client, streaming.url)


async def test_the_collector_ends_a_forgotten_answer_without_a_complaint(unblocking: Way, streaming: Server) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    async with unblocking.client() as client:
        for read in (0, 1):
            response = await unblocking.open(client, streaming.url)
            chunks = unblocking.chunks(response)
            for _ in range(read):
                await anext(chunks)
            del response, chunks
            assert await comes_back(client, streaming.url)
            await asyncio.sleep(0.05)
            gc.collect()
    assert told == []


async def test_a_client_that_is_closed_before_its_answers_takes_them_along(way: Way, loopback: Server) -> None:
    loopback.script(Stream([b"one"], ends="hang"))
    async with way.client() as client:
        responses = [await way.open(client, loopback.url) for _ in range(3)]
        began = time.monotonic()
    assert time.monotonic() - began < 2
    for response in responses:
        await way.close(response)
    assert in_flight(client, loopback.url) == 0
    await asyncio.to_thread(loopback.wait_until_idle)


async def test_an_answer_can_be_read_and_closed_elsewhere(way: Way, streaming: Server) -> None:
    """Blocking calls of this file run in a thread each; async ones get a task each here."""

    async def elsewhere(coroutine: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.create_task(coroutine)

    async with way.client() as client:
        response = await elsewhere(way.open(client, streaming.url))
        chunks = way.chunks(response)
        assert [await elsewhere(way.next(chunks)) for _ in range(2)] == [b"one", b"two"]
        async with deadline(60):
            await elsewhere(way.close(response))
        assert at_rest(client, streaming.url)


async def test_an_answer_that_is_closed_while_another_reads_it_ends_for_both(way: Way, loopback: Server) -> None:
    loopback.script(Stream([b"one"], ends="hang"))
    async with way.client(attempt_timeout=2.0) as client:
        response = await way.open(client, loopback.url)
        chunks = way.chunks(response)
        assert await way.next(chunks) == b"one"
        reader = asyncio.create_task(way.next(chunks))
        await asyncio.sleep(0.1)
        await way.close(response)  # must not raise for the reader's sake
        began = time.monotonic()
        with suppress(way.library.HTTPError, way.library.StreamError):
            assert await reader is None
        assert (
            time.monotonic() - began < 1.5 or way.blocking
        )  # a blocking read of a closed socket goes on, as without us
        assert await soon(lambda: at_rest(client, loopback.url))


async def test_many_answers_at_once_hold_a_lease_each(way: Way, streaming: Server) -> None:
    async with way.client() as client:
        responses = await asyncio.gather(*(way.open(client, streaming.url) for _ in range(5)))
        assert in_flight(client, streaming.url) == 5
        for left, response in zip(reversed(range(5)), responses, strict=True):
            await way.close(response)
            assert in_flight(client, streaming.url) == left


async def test_whatever_happened_nothing_is_held_at_the_end(way: Way, loopback: Server) -> None:
    loopback.script(
        Reset(), Reply(404, body="x"), Cut("half"), Reply(204), Reply(503), Stream([b"a"]), Stream([b"a"], "close"),
        Reply(301, {"Location": "/"}), Reply(body="x" * 5000), Stream([b"why"], status=404), Reply(503),
    )  # fmt: skip
    async with way.client(hold_body=1000, max_attempts=2) as client:
        for _ in range(12):
            with suppress(way.library.HTTPError):
                await way.do(client.get, loopback.url)
            assert at_rest(client, loopback.url)


async def test_a_trial_of_the_breaker_ends_with_the_body(way: Way, loopback: Server) -> None:
    breaker = CircuitBreaker(1, recovery_time=0.05)
    service = Upstream("service", breaker=breaker, adaptive=False)
    async with way.client(upstream=service, max_attempts=1) as client:
        for ends in ("read", "close", "forget"):
            loopback.script(Reset(), Stream([b"one", b"two"]))
            with pytest.raises(way.library.TransportError):
                await way.do(client.get, loopback.url)
            with pytest.raises(way.ours.CircuitOpenError) as caught:
                await way.do(client.get, loopback.url)
            assert isinstance(caught.value, way.library.TransportError)
            await asyncio.sleep(0.2)
            response = await way.open(client, loopback.url)
            if ends == "read":
                await way.do(response.read if way.blocking else response.aread)
            elif ends == "close":
                await way.close(response)
            del response
            assert await comes_back(client, loopback.url)
            assert service.snapshot().breaker.trials == 0  # type: ignore[union-attr]
            assert breaker.state == "closed" or ends == "forget"  # which says nothing, or that what came was good
            breaker.reset()


# ---- the pool --------------------------------------------------------------------------------------------------------


async def test_a_wait_for_the_pool_says_nothing_about_the_server(way: Way, loopback: Server) -> None:
    loopback.script(Stream([b"one"], ends="hang"))
    service = Upstream("service", breaker=CircuitBreaker(1))
    async with way.client(connections=1, upstream=service, max_attempts=2) as client:
        response = await way.open(client, loopback.url)
        limit = service.snapshot().concurrency_limit
        for _ in range(3):
            with pytest.raises(RetriesExhausted) as caught:
                timeout = way.library.Timeout(30.0, pool=0.05)
                await way.do(client.post, loopback.url, timeout=timeout)
            error = caught.value.last_error
            assert isinstance(error, way.library.PoolTimeout)
            failure = classify(error)
            assert (failure.transient, failure.executed, str(failure.kind)) == (True, "no", "pool full")
        assert service.snapshot().breaker.state == "closed"  # type: ignore[union-attr]
        assert service.snapshot().concurrency_limit == limit
        await way.close(response)
    assert len(loopback.requests) == 1


# ---- time limits -----------------------------------------------------------------------------------------------------


def dripping(server: Server) -> Server:
    """Answers for far longer than anyone waits here, without a length."""
    return server.script(Stream(list(itertools.chain.from_iterable((b".", 0.05) for _ in range(200)))))


async def read_all(way: Way, response: Any) -> None:
    await way.do(response.read if way.blocking else response.aread)


@pytest.mark.parametrize("how", ["option", "block"])
async def test_a_deadline_covers_the_body(way: Way, loopback: Server, how: str) -> None:
    dripping(loopback)
    async with way.client(deadline=0.5 if how == "option" else 60, attempt_timeout=10) as client:
        began = time.monotonic()
        with pytest.raises(way.library.TimeoutException) as caught:
            if how == "option":
                await read_all(way, await way.open(client, loopback.url))
            elif way.blocking:
                with deadline(0.5):
                    await read_all(way, await way.open(client, loopback.url))
            else:
                async with deadline(0.5):
                    await read_all(way, await way.open(client, loopback.url))
        assert 0.45 <= time.monotonic() - began < 3
        assert isinstance(caught.value, DeadlineExceeded)
        assert isinstance(caught.value, way.ours.DeadlineExceeded)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.attempts == 1
        assert await soon(lambda: at_rest(client, loopback.url))


async def test_a_silent_body_ends_at_the_deadline_too(way: Way, loopback: Server) -> None:
    loopback.script(Stream([b"one"], ends="hang"))
    async with way.client(deadline=0.4, attempt_timeout=10) as client:
        began = time.monotonic()
        with pytest.raises(way.ours.DeadlineExceeded):
            await way.do(client.get, loopback.url)
        assert 0.35 <= time.monotonic() - began < 3
        assert at_rest(client, loopback.url)


async def test_a_silent_body_ends_before_it_with_the_librarys_timeout(way: Way, loopback: Server) -> None:
    loopback.script(Stream([b"one"], ends="hang"))
    async with way.client(deadline=20, attempt_timeout=0.3) as client:
        began = time.monotonic()
        with pytest.raises(way.library.ReadTimeout) as caught:
            await way.do(client.get, loopback.url)
        assert 0.25 <= time.monotonic() - began < 3
        assert not isinstance(caught.value, DeadlineExceeded)
        assert at_rest(client, loopback.url)


async def test_a_deadline_that_is_over_sends_nothing(way: Way, loopback: Server) -> None:
    async with way.client() as client:
        async with deadline(30):
            assert (await way.do(client.get, loopback.url)).status_code == 200
        with pytest.raises(way.ours.DeadlineExceeded), deadline(0.001):
            time.sleep(0.01)
            if way.blocking:
                client.get(loopback.url)
            else:
                await client.get(loopback.url)
    assert len(loopback.requests) == 1


async def test_a_reader_that_takes_its_time_loses_nothing(way: Way, loopback: Server) -> None:
    """The clocks of an attempt stand still while nobody waits for the next chunk."""
    loopback.script(Stream([b"one", b"two", 0.05, b"three"]))
    async with way.client(attempt_timeout=0.3) as client:
        response = await way.open(client, loopback.url)
        chunks, got = way.chunks(response), b""
        await asyncio.sleep(0.5)
        while got != b"onetwothree":
            got += await way.next(chunks)
            await asyncio.sleep(0.4)
        await way.close(response)
        assert at_rest(client, loopback.url)


# ---- cancellation ----------------------------------------------------------------------------------------------------


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


def by_path(request: Request) -> Any:
    """/held: two failures, and then a short answer. /long: one of which the rest comes late."""
    if request.path == "/held":
        return {"0": Reply(503, body="later"), "1": Cut("half")}.get(
            request.header("x-again") or "", Reply(body="well")
        )
    if request.path == "/long":
        return Reply(503) if request.header("x-again") == "0" else Stream([b"one", 0.01, b"two", 0.01, b"three"])
    return Reply(body="plain")


async def held(client: Any, url: str) -> None:
    assert (await client.post(f"{url}/held", content=b"x" * 200_000)).text == "well"


async def read_to_the_end(client: Any, url: str) -> None:
    async with client.stream("GET", f"{url}/long") as response:
        assert b"".join([chunk async for chunk in response.aiter_raw()]) == b"onetwothree"


async def left_early(client: Any, url: str) -> None:
    async with client.stream("GET", f"{url}/long") as response:
        async for _ in response.aiter_raw():
            break


def guarded_client(way: Way) -> tuple[Any, Upstream]:
    service = Upstream(
        "service", requests_per_minute=60_000, max_concurrency=1, breaker=CircuitBreaker(50), adaptive=False
    )
    return way.make(connections=1, upstream=service, attempt_header="x-again", idempotent=True), service


def held_timers() -> int:
    wheel = getattr(asyncio.get_running_loop(), "_forbear_wheel", None)
    return 0 if wheel is None else sum(len(slot.cuts) for slot in wheel.slots.values())


class Closing:
    """Whether the library closes an answer just now, or takes a lock of its own. A cancellation that meets it there
    leaves a connection of its pool busy for ever, with us or without: its shields hold against cancel scopes, not
    against `task.cancel()`.
    """

    def __init__(self, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
        core = "httpcore" if way.library.__name__ == "httpx" else "httpcore2"
        self.now = 0
        for module, kind, method in (
            ("_async.connection_pool", "PoolByteStream", "aclose"),
            ("_async.http11", "HTTP11ConnectionByteStream", "aclose"),
            ("_synchronization", "AsyncLock", "__aenter__"),
        ):
            self._watch(getattr(import_module(f"{core}.{module}"), kind), method, monkeypatch)

    def _watch(self, kind: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
        real = getattr(kind, method)

        async def watched(thing: Any) -> Any:
            self.now += 1
            try:
                return await real(thing)
            finally:
                self.now -= 1

        monkeypatch.setattr(kind, method, watched)


@pytest.mark.parametrize("soon_after", [False, True], ids=["at once", "a step later"])
@pytest.mark.parametrize("scenario", [held, read_to_the_end, left_early])
async def test_a_cancellation_leaves_wherever_it_meets_the_call(
    unblocking: Way, loopback: Server, scenario: Any, soon_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loopback.script(Choose(by_path))
    closing = Closing(unblocking, monkeypatch)
    places, tasks = 0, list[asyncio.Task[None]]()
    for number in itertools.count(1):
        met: list[int] = []
        after: list[int] = []
        client, service = guarded_client(unblocking)

        def interrupt(met: list[int] = met) -> None:
            met.append(closing.now)
            if soon_after:
                asyncio.get_running_loop().call_soon(tasks[-1].cancel)
            else:
                tasks[-1].cancel()

        async def main(
            client: Any = client, number: int = number, interrupt: Any = interrupt, after: list[int] = after
        ) -> None:
            try:
                await interrupted(scenario(client, loopback.url), number, interrupt)
            except asyncio.CancelledError:
                after.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]
                raise

        async with client:
            tasks.append(task := asyncio.create_task(main()))
            await asyncio.wait([task])
            assert held_timers() == 0
            snapshot = service.snapshot()
            assert (snapshot.in_flight, snapshot.waiting, snapshot.breaker.trials) == (0, 0, 0), number  # type: ignore[union-attr]
            assert await soon(lambda: asyncio.all_tasks() == {asyncio.current_task()})
            if not any(met):
                assert at_rest(client, loopback.url), number
                assert (await client.get(loopback.url)).text == "plain"
            if not met:
                await task
                break
            if task.cancelled():
                assert after == [1], "one request to end, taken back by nobody"
            else:
                assert soon_after, number  # it came when all was done
                await task
            places += 1
    assert places >= 5
    await asyncio.to_thread(loopback.wait_until_idle)


# Generators of the library's own that it leaves to the collector, with us or without.
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("scenario", [held, read_to_the_end, left_early])
@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_under_trio_too(name: str, scenario: Any) -> None:
    way = Way(name, blocking=False)
    places = 0

    async def main(server: Server) -> None:
        nonlocal places
        for number in itertools.count(1):
            client, _ = guarded_client(way)
            async with client:
                met: list[int] = []
                with trio.CancelScope() as scope:

                    def interrupt(met: list[int] = met, scope: trio.CancelScope = scope) -> None:
                        met.append(1)
                        scope.cancel()

                    await interrupted(scenario(client, server.url), number, interrupt)
                assert at_rest(client, server.url), number
                if not met:
                    return
                places += 1
                assert (await client.get(server.url)).text == "plain"

    with Server(Choose(by_path)) as server:
        trio.run(main, server)
        server.wait_until_idle()
    assert places >= 5


@pytest.mark.parametrize("step", [Hang(), Stream([b"one"], ends="hang"), Reply(503, {"Retry-After": "5"})], ids=repr)
async def test_a_timeout_of_the_callers_own_is_the_callers_own(unblocking: Way, loopback: Server, step: Any) -> None:
    """In an attempt, in a body, in the wait between two attempts."""
    loopback.script(step)
    async with unblocking.client() as client:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.1):
                await client.get(loopback.url)
        assert type(caught.value) is TimeoutError
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        assert await soon(lambda: at_rest(client, loopback.url))


async def test_a_group_of_calls_that_is_cancelled_leaves_nothing(unblocking: Way, loopback: Server) -> None:
    loopback.script(Hang())
    async with unblocking.client(connections=3) as client:
        tasks = [asyncio.create_task(client.get(loopback.url)) for _ in range(10)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert await soon(lambda: at_rest(client, loopback.url))
        loopback.script(Reply(body="well"))
        assert (await client.get(loopback.url)).text == "well"


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_collector() -> Any:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


class Big:
    """Something in a caller's frame."""


def fails(way: Way, client: Any, url: str) -> weakref.ref[Big]:
    """A call that fails in a frame which holds something."""
    big = Big()
    try:
        client.get(url)
    except way.library.HTTPError:
        return weakref.ref(big)
    raise AssertionError


async def fails_async(way: Way, client: Any, url: str) -> weakref.ref[Big]:
    big = Big()
    try:
        await client.get(url)
    except way.library.HTTPError:
        return weakref.ref(big)
    raise AssertionError


FAILURES: dict[str, Any] = {"status": Reply(503)}
if sys.version_info < (3, 12):  # from there on the errors that httpx itself raises are in a cycle of their own
    FAILURES |= {
        "reset": Reset(), "cut": Cut("half"), "broken body": Stream([b"a"], ends="close"),
        "silent body": Stream([b"a"], ends="hang"), "hang": Hang(),
    }  # fmt: skip


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("what", FAILURES)
def test_the_frames_of_an_error_die_with_it(blocking: Way, loopback: Server, what: str) -> None:
    loopback.script(FAILURES[what])
    with blocking.make(max_attempts=2, attempt_timeout=0.15) as client:
        assert fails(blocking, client, loopback.url)() is None


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("what", FAILURES)
async def test_the_frames_of_an_async_error_die_with_it(unblocking: Way, loopback: Server, what: str) -> None:
    loopback.script(FAILURES[what])
    async with unblocking.make(max_attempts=2, attempt_timeout=0.15) as client:
        found = await fails_async(unblocking, client, loopback.url)
        await asyncio.sleep(0)
        assert found() is None


def ours_among(found: list[Any]) -> list[str]:
    """What of all that the collector found is ours."""
    kinds = [f"{type(one).__module__}.{type(one).__qualname__}" for one in found]
    code = [getattr(one, "gi_code", None) or getattr(one, "ag_code", None) for one in found]
    return [kind for kind in kinds if "forbear" in kind] + [
        one.co_qualname for one in code if one is not None and "forbear" in one.co_filename
    ]


async def answer_of(way: Way, transport: Any, url: str) -> weakref.ref[Any]:
    """One call of the transport alone: a client's own answers are in a cycle of its own."""
    request = way.library.Request("GET", url)
    if way.blocking:
        response = transport.handle_request(request)
        assert response.read() == b"body"
        response.close()
    else:
        response = await transport.handle_async_request(request)
        assert await response.aread() == b"body"
        await response.aclose()
    return weakref.ref(response)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_plain_call_leaves_nothing_for_the_collector(
    way: Way, loopback: Server, status: int, chunked: bool
) -> None:
    loopback.script(Stream([b"body"], status=status) if chunked else Reply(status, body="body"))
    async with way.client(upstream=None) as client:
        await answer_of(way, client._transport, loopback.url)
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            answer = await answer_of(way, client._transport, loopback.url)
            assert answer() is None
            gc.collect()
            assert ours_among(gc.garbage) == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()


@pytest.mark.usefixtures("no_collector")
def test_what_a_closed_client_read_from_dies_with_it(blocking: Way, loopback: Server) -> None:
    """Each read of a connection is made in time by something of ours, which must not hold the connection."""
    transport = blocking.make()._transport
    response = transport.handle_request(blocking.library.Request("GET", loopback.url))
    response.close()
    (connection,) = transport.inner._pool.connections
    stream = weakref.ref(connection._connection._network_stream)
    assert "read" in vars(stream())
    transport.close()
    del transport, connection, response
    assert stream() is None
    loopback.wait_until_idle()


def test_a_call_in_a_thread_that_ends_leaves_nothing(blocking: Way, loopback: Server) -> None:
    loopback.script(Stream([b"one"], ends="hang"))
    with blocking.make() as client:
        kept: list[Any] = []

        def work() -> None:
            kept.append(client.send(client.build_request("GET", loopback.url), stream=True))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert in_flight(client, loopback.url) == 1
        kept.clear()
        gc.collect()
        assert in_flight(client, loopback.url) == 0
