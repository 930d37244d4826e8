"""One service and all that its callers share: limits, waits, cool-downs, and whole capacity when all is over."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx
import pytest
import trio

from forbear import (
    ApiError,
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    Kind,
    RateLimiter,
    RetriesExhausted,
    RetryBudget,
    Upstream,
    attempts,
    current_attempt,
    deadline,
    read_limits,
    retry,
)
from forbear.testing import FakeTime, Flaky, Hang
from forbear.upstream.service import MOST_SCOPES
from forms import form as form
from loopback import Reply, Server
from loopback.fixtures import loopback as loopback

Form = Callable[..., Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
NO_LIMIT: dict[str, Any] = {"deadline": None, "attempt_timeout": None}


def at_rest(upstream: Upstream) -> bool:
    """Whether nothing of its capacity is taken."""
    snapshot = upstream.snapshot()
    trials = 0 if snapshot.breaker is None else snapshot.breaker.trials
    return (snapshot.in_flight, snapshot.waiting, snapshot.waiting_retries, trials) == (0, 0, 0, 0)


@pytest.fixture
def make() -> Iterator[Callable[..., Upstream]]:
    """Makes upstreams, which must be at rest when the test is over."""
    made: list[Upstream] = []

    def upstream(**options: Any) -> Upstream:
        made.append(Upstream("service", **options))
        return made[-1]

    yield upstream
    assert all(at_rest(one) for one in made)


# ---- what it is made of ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"requests_per_minute": 0},
        {"tokens_per_minute": -1},
        {"max_concurrency": 0},
        {"burst": 5},
        {"strict_window": 10},
        {"adaptive": "yes"},
        {"observe_only": 1},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Upstream("service", **options)


def test_it_needs_a_name_and_brings_its_own_guards() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        Upstream("")
    with pytest.raises(ValueError, match="budget= beside upstream="):
        retry(upstream=Upstream("a"), budget=RetryBudget())
    with pytest.raises(TypeError, match="upstream= is 'a' already"):
        Upstream("a").retry(upstream=Upstream("b"))
    with pytest.raises(ValueError, match="upstream must be an Upstream"):
        retry(upstream="openai")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not type"):
        retry(upstream=Upstream)  # type: ignore[arg-type]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_the_settings_and_a_state_of_its_own(copied: Callable[[Upstream], Upstream]) -> None:
    options: dict[str, Any] = {
        "requests_per_minute": 60,
        "tokens_per_minute": 600,
        "burst": 2,
        "max_concurrency": 3,
        "budget": RetryBudget(initial=3),
        "breaker": CircuitBreaker(1),
        "adaptive": False,
        "observe_only": True,
    }
    upstream = Upstream("service", **options)
    with FakeTime():
        with pytest.raises(ConnectionError):
            upstream.retry_sync(Flaky(then=ConnectionError()), max_attempts=1, reraise=True)
        twin = copied(upstream)
        assert (twin.name, twin.rates, twin.max_concurrency) == ("service", upstream.rates, 3)
        assert (twin.adaptive, twin.observe_only) == (False, True)
        assert twin.snapshot().breaker != upstream.snapshot().breaker
        assert (twin.snapshot().requests_left, twin.snapshot().failures) == (2.0, {})
        assert twin.budget is not upstream.budget
        assert repr(twin) == "<Upstream 'service'>"


def test_a_snapshot_is_a_value_that_can_be_kept() -> None:
    upstream = Upstream("service", requests_per_minute=60, breaker=CircuitBreaker())
    with FakeTime():
        with pytest.raises(RetriesExhausted):
            upstream.retry_sync(Flaky(then=ConnectionError()), max_attempts=1)
        before = upstream.snapshot()
        assert pickle.loads(pickle.dumps(before)) == before == copy.deepcopy(before)
        assert dataclasses.asdict(before)["failures"] == {Kind.CONNECTION_LOST: 1}
        upstream.retry_sync(lambda: None)
        assert before.successes == 0


# ---- every form --------------------------------------------------------------------------------------------------


def test_every_form_passes_the_guards_once_for_each_attempt(form: Form, make: Callable[..., Upstream]) -> None:
    upstream = make(requests_per_minute=6000, burst=100, max_concurrency=5)
    with FakeTime():
        assert form(Flaky(ConnectionError(), ConnectionError(), then="done"), upstream=upstream, base=0) == "done"
        snapshot = upstream.snapshot()
        assert snapshot.requests_left == pytest.approx(97)
        assert (snapshot.successes, snapshot.failures) == (1, {Kind.CONNECTION_LOST: 2})
        with pytest.raises(ApiError):
            form(Flaky(then=ApiError(400)), upstream=upstream)
        with pytest.raises(RetriesExhausted):
            form(Flaky(then=ConnectionError()), upstream=upstream, max_attempts=2, base=0)


async def test_its_own_methods_are_the_same_forms(make: Callable[..., Upstream]) -> None:
    upstream = make(requests_per_minute=600, burst=100)

    @upstream.retry(base=0)
    def decorated() -> int:
        return number()

    @upstream.retry(base=0)
    async def decorated_async() -> int:
        return number()

    @upstream.retry_sync(base=0)
    def blocking() -> int:
        return number()

    def number() -> int:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number < 2:
            raise ConnectionError
        return attempt.number

    async def later() -> int:
        return number()

    with FakeTime():
        answers = [
            decorated(),
            await decorated_async(),
            blocking(),
            await upstream.retry(later, base=0),
            upstream.retry_sync(number, base=0),
            upstream.retry_call(number, retry_options={"base": 0}),
            await upstream.retry_call(later, retry_options={"base": 0}),
        ]
        for attempt in upstream.attempts(base=0):
            with attempt:
                answers.append(number())
        async for attempt in upstream.attempts(base=0):
            async with attempt:
                answers.append(number())
        assert answers == [2] * 9
        assert upstream.snapshot().requests_left == pytest.approx(100 - 18)


async def test_its_first_call_stops_no_loop_that_has_to_free_its_place(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=1)

    async def answer() -> str:
        await asyncio.sleep(0.01)
        return "done"

    asks = [upstream.retry()(lambda: answer()) for _ in range(3)]  # noqa: PLW0108
    first = asyncio.create_task(upstream.retry(answer))
    await asyncio.sleep(0)
    assert await asyncio.wait_for(asyncio.gather(*[ask() for ask in asks]), 5) == ["done"] * 3
    assert await first == "done"


async def test_a_function_that_turns_out_to_return_a_coroutine_pays_once(make: Callable[..., Upstream]) -> None:
    upstream = make(requests_per_minute=60, burst=1, max_concurrency=1)

    async def answer() -> str:
        return "done"

    ask = upstream.retry()(lambda: answer())  # noqa: PLW0108  # nothing tells that it is async
    with FakeTime() as clock:
        for second in range(4):
            assert await ask() == "done"
            assert clock.now == second


async def test_its_coroutine_is_closed_where_it_is_not_let_through(make: Callable[..., Upstream]) -> None:
    upstream = make(requests_per_minute=1)

    async def answer() -> str:
        return "done"

    ask = upstream.retry(deadline=5.0)(lambda: answer())  # noqa: PLW0108
    with FakeTime():
        assert await ask() == "done"
        with pytest.raises(DeadlineExceeded):
            await ask()
        patient = upstream.retry(deadline=None)(lambda: answer())  # noqa: PLW0108
        task = asyncio.create_task(patient())  # type: ignore[arg-type]
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_under_trio_it_waits_holds_and_lets_go(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=2)
    most: list[int] = []
    running: list[int] = []

    async def fn() -> None:
        running.append(1)
        most.append(len(running))
        await trio.sleep(0.01)
        running.pop()
        if len(most) % 3 == 0:
            raise ConnectionError

    async def call() -> None:
        await upstream.retry(fn, base=0, max_attempts=9)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(call)
        with trio.move_on_after(0.05):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(lambda: upstream.retry(lambda: trio.sleep(60)))

    trio.run(main)
    assert max(most) == 2


# ---- waiting, deadlines, timeouts --------------------------------------------------------------------------------


async def test_no_attempt_timeout_runs_while_one_waits(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=1)
    with FakeTime() as clock:
        seen: list[tuple[float, float | None]] = []

        async def fn() -> None:
            attempt = current_attempt()
            assert attempt is not None
            seen.append((clock.now, attempt.timeout))
            await asyncio.sleep(0.9)

        await asyncio.gather(*[upstream.retry(fn, attempt_timeout=1.0, max_attempts=1) for _ in range(5)])
    assert seen == [(pytest.approx(n * 0.9, abs=0.05), pytest.approx(1.0)) for n in range(5)]


def test_a_wait_that_can_not_fit_fails_at_once_and_says_when(form: Form, make: Callable[..., Upstream]) -> None:
    upstream = make(requests_per_minute=60)
    with FakeTime() as clock:
        form(Flaky(then="done"), upstream=upstream)
        for scope in (deadline(0.9), deadline(None)):
            fn = Flaky(then="done")
            with scope, pytest.raises(DeadlineExceeded) as caught:
                form(fn, upstream=upstream, deadline=0.9)
            assert (fn.calls, caught.value.attempts, caught.value.hint, clock.now) == (0, 0, 1.0, 0.0)
        assert upstream.snapshot().too_late == 2


async def test_one_that_turns_out_too_long_ends_at_the_deadline(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=1)
    with FakeTime() as clock:
        task = asyncio.create_task(upstream.retry(lambda: asyncio.sleep(60), **NO_LIMIT))
        await asyncio.sleep(0)
        with pytest.raises(DeadlineExceeded) as caught:
            await upstream.retry(lambda: asyncio.sleep(0), deadline=5.0)
        assert clock.now == pytest.approx(5.0, abs=0.02)
        assert caught.value.attempts == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_place_that_comes_together_with_the_deadline_is_given_back(make: Callable[..., Upstream]) -> None:
    upstream = make(requests_per_minute=60, adaptive=False)
    with FakeTime() as clock:
        fn = Flaky(then="done")
        await upstream.retry(fn.asynchronous)
        task = asyncio.create_task(upstream.retry(fn.asynchronous, deadline=1.5))
        await asyncio.sleep(0.1)
        clock.advance(9.0)  # everything stood still, as in a stopped process
        with pytest.raises(DeadlineExceeded):
            await task
        assert fn.calls == 1
        assert upstream.snapshot().requests_left == 1.0


async def test_a_block_that_turns_its_cancellation_into_another_error_leaves_nothing(
    make: Callable[..., Upstream],
) -> None:
    upstream = make(max_concurrency=1, breaker=CircuitBreaker(9))

    async def work() -> None:
        async for attempt in upstream.attempts():
            async with attempt:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    raise ConnectionError from None

    task = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert upstream.snapshot().in_flight == 0


def test_a_thread_that_waits_ends_at_its_deadline_too(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=1)
    go_on = threading.Event()
    thread = threading.Thread(target=upstream.retry_sync, args=(go_on.wait,))
    thread.start()
    with pytest.raises(DeadlineExceeded):
        upstream.retry_sync(lambda: None, deadline=0.1)
    go_on.set()
    thread.join()


async def test_max_concurrency_holds_whatever_happens(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=3, adaptive=False)
    running, most = [0], [0]

    async def fn(number: int) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        try:
            await asyncio.sleep(number % 4 / 10)
            if number % 3 == 0:
                raise ConnectionError
        finally:
            running[0] -= 1

    with FakeTime():
        calls = [
            upstream.retry(lambda number=number: fn(number), max_attempts=2, attempt_timeout=0.25, deadline=60.0)
            for number in range(60)
        ]
        await asyncio.gather(*calls, return_exceptions=True)
    assert most[0] == 3


# ---- cool-downs --------------------------------------------------------------------------------------------------


async def test_a_hint_holds_those_in_line_and_fails_those_who_can_not_outlast_it(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=1)
    with FakeTime() as clock:
        ends: dict[str, float] = {}

        async def call(name: str, limit: float, fn: Callable[[], Any]) -> None:
            try:
                await upstream.retry(fn, deadline=limit, attempt_timeout=None, max_attempts=2, base=0)
            finally:
                ends[name] = clock.now

        refused = Flaky(Hang(1.0, ApiError(429, retry_after=10.0)), then="done")
        quick = Flaky(then="done")
        calls = [
            call("refused", 60.0, refused.asynchronous),
            call("patient", 60.0, quick.asynchronous),
            call("hurried", 8.0, quick.asynchronous),
            call("very patient", 60.0, quick.asynchronous),
        ]
        ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ended] == [type(None), type(None), DeadlineExceeded, type(None)]
    assert ends["hurried"] == pytest.approx(1.0)
    assert ended[2].hint == pytest.approx(10.0)  # type: ignore[union-attr]
    assert min(ends["patient"], ends["very patient"], ends["refused"]) >= 11.0


async def test_an_answer_that_says_that_nothing_is_left_holds_the_next_until_the_limit_has_refilled(
    make: Callable[..., Upstream],
) -> None:
    upstream = make(requests_per_minute=60, burst=60, max_concurrency=1)

    class Answer:
        def __init__(self) -> None:
            self.headers = {
                "x-ratelimit-limit-requests": "60",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "60s",
            }

    async def ask() -> Answer:
        await asyncio.sleep(1.0)
        return Answer()

    with FakeTime() as clock:
        first = asyncio.create_task(upstream.retry(ask))
        await asyncio.sleep(0)
        ended = await asyncio.gather(
            upstream.retry(ask, deadline=60.0), upstream.retry(ask, deadline=2.5), return_exceptions=True
        )
        await first
        assert isinstance(ended[0], Answer)
        assert isinstance(ended[1], DeadlineExceeded)
        assert ended[1].attempts == 0
        assert clock.now == pytest.approx(3.0, abs=0.1)


def test_without_adapting_a_hint_holds_only_its_own_call(make: Callable[..., Upstream]) -> None:
    upstream = make(adaptive=False, requests_per_minute=6000, burst=100)
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            upstream.retry_sync(Flaky(then=ApiError(429, retry_after=10.0)), deadline=5.0)
        upstream.retry_sync(lambda: None)
        assert clock.now == 0.0
        assert (upstream.snapshot().concurrency_limit, upstream.snapshot().learned_rate) == (None, None)


# ---- settling with real answers ----------------------------------------------------------------------------------


def test_headers_of_real_answers_correct_the_limits(loopback: Server, make: Callable[..., Upstream]) -> None:
    upstream = make(requests_per_minute=600, tokens_per_minute=60_000, burst=600)
    loopback.script(
        Reply(
            headers={
                "x-ratelimit-limit-requests": "600",
                "x-ratelimit-remaining-requests": "17",
                "x-ratelimit-reset-requests": "6s",
                "x-ratelimit-limit-tokens": "60000",
                "x-ratelimit-remaining-tokens": "1234",
                "x-ratelimit-reset-tokens": "1m0s",
            },
            body={"usage": {"total_tokens": 5}},
        )
    )
    with httpx.Client() as client:
        response = upstream.retry_sync(lambda: client.get(loopback.url), tokens=100)
    snapshot = upstream.snapshot()
    assert response.status_code == 200
    assert snapshot.requests_left == pytest.approx(17, abs=3)
    assert snapshot.tokens_left == pytest.approx(1234, abs=300)


async def test_a_real_refusal_holds_the_others_back(loopback: Server, make: Callable[..., Upstream]) -> None:
    upstream = make()
    loopback.script(Reply(429, {"retry-after": "30"}), Reply())

    async def get(client: httpx.AsyncClient) -> int:
        response = await client.get(loopback.url)
        return response.raise_for_status().status_code

    async with httpx.AsyncClient() as client:
        with pytest.raises(DeadlineExceeded) as caught:
            await upstream.retry(lambda: get(client), deadline=20.0)
        assert isinstance(caught.value.__cause__, httpx.HTTPStatusError)
        with pytest.raises(DeadlineExceeded) as held:
            await upstream.retry(lambda: get(client), deadline=20.0)
        assert held.value.attempts == 0
        assert held.value.hint == pytest.approx(30.0, abs=3.0)
        assert len(loopback.requests) == 1


def test_limits_can_be_told_by_hand(make: Callable[..., Upstream]) -> None:
    upstream = make(requests_per_minute=60, burst=60)
    headers = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "3"}
    with FakeTime():
        upstream.correct(read_limits(headers))
        assert upstream.snapshot().requests_left == 3
        upstream.correct([])
        upstream.correct(read_limits({"x-ratelimit-remaining-requests": "50", "x-ratelimit-limit-requests": "60"}))
        assert upstream.snapshot().requests_left == 3


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (ApiError(500), 900),  # it may have done the work
        (ApiError(429), 1000),
        (ConnectionRefusedError(), 1000),
        (KeyboardInterrupt(), 900),
    ],
)
def test_tokens_of_failed_attempts_are_settled(end: BaseException, left: float, make: Callable[..., Upstream]) -> None:
    upstream = make(tokens_per_minute=1000, burst=1000)
    with FakeTime():
        with pytest.raises(type(end)):
            upstream.retry_sync(Flaky(then=end), tokens=100, max_attempts=1, reraise=True)
        assert upstream.snapshot().tokens_left == left


# ---- nested calls ------------------------------------------------------------------------------------------------


async def test_a_call_inside_an_attempt_of_the_same_service_does_not_wait_for_it(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=1, breaker=CircuitBreaker(1))

    async def inner() -> str:
        return "done"

    async def outer() -> str:
        return await upstream.retry(inner, deadline=None)

    assert await asyncio.wait_for(upstream.retry(outer, deadline=None), 5) == "done"
    assert upstream.retry_call(lambda: upstream.retry_call(lambda: "done")) == "done"
    many = await asyncio.wait_for(asyncio.gather(*[upstream.retry(outer) for _ in range(5)]), 5)
    assert many == ["done"] * 5


def test_one_in_a_thread_without_its_context_ends_at_its_deadline(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=1)
    ended: list[BaseException] = []

    def inner() -> None:
        try:
            upstream.retry_sync(lambda: None, deadline=0.1)
        except DeadlineExceeded as error:
            ended.append(error)

    def outer() -> None:
        thread = threading.Thread(target=inner)
        thread.start()
        thread.join()

    upstream.retry_sync(outer)
    assert len(ended) == 1


# ---- scopes ------------------------------------------------------------------------------------------------------


def test_each_key_has_a_state_of_its_own_and_the_same_key_the_same() -> None:
    service = Upstream("service", requests_per_minute=60, budget=RetryBudget(initial=1), breaker=CircuitBreaker(1))
    with FakeTime():
        a, b = service.for_("a"), service.for_("b")
        assert service.for_("a") is a
        assert (a.name, b.name) == ("service['a']", "service['b']")
        with pytest.raises(CircuitOpenError):
            a.retry_sync(Flaky(then=ConnectionError()))
        assert (a.snapshot().breaker.state, b.snapshot().breaker.state) == ("open", "closed")  # type: ignore[union-attr]
        assert (a.snapshot().requests_left, b.snapshot().requests_left, service.snapshot().requests_left) == (0, 1, 1)


def test_keys_are_bounded_and_the_oldest_is_forgotten() -> None:
    service = Upstream("service")
    first = service.for_(0)
    for key in range(1, MOST_SCOPES):
        service.for_(key)
    assert service.for_(0) is first
    service.for_("one too many")
    assert len(service._scopes) == MOST_SCOPES
    assert service.for_(0) is first
    assert 1 not in service._scopes


def test_threads_that_ask_for_the_same_key_get_the_same_object() -> None:
    service = Upstream("service")
    got: list[Upstream] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait(10)
        got.extend(service.for_(key) for key in range(50))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in got}) == 50


# ---- only watching -----------------------------------------------------------------------------------------------


def watching() -> Upstream:
    return Upstream(
        "service",
        requests_per_minute=60,
        max_concurrency=1,
        budget=RetryBudget(initial=0),
        breaker=CircuitBreaker(3),
        observe_only=True,
    )


def test_observe_only_holds_and_refuses_nothing(form: Form) -> None:
    upstream = watching()
    with FakeTime() as clock:
        for _ in range(4):
            fn = Flaky(then=ConnectionError())
            with pytest.raises(RetriesExhausted):
                form(fn, upstream=upstream, max_attempts=2, base=0, deadline=1.0)
            assert fn.calls == 2
        assert clock.now == 0.0
        assert upstream.snapshot().failures == {Kind.CONNECTION_LOST: 8}
        assert at_rest(upstream)


def test_it_counts_what_would_have_been() -> None:
    upstream = watching()
    with FakeTime():
        for _ in range(4):
            with pytest.raises(RetriesExhausted):
                upstream.retry_sync(Flaky(then=ConnectionError()), max_attempts=2, base=0)
        snapshot = upstream.snapshot()
    assert (snapshot.held, snapshot.unpaid, snapshot.shut_out, snapshot.too_late) == (7, 4, 5, 0)


async def test_it_holds_no_task_back_either() -> None:
    upstream = watching()
    with FakeTime() as clock:
        await asyncio.gather(*[upstream.retry(lambda: asyncio.sleep(1.0)) for _ in range(10)])
        assert clock.now == 1.0
        assert upstream.snapshot().held == 9
        assert at_rest(upstream)


# ---- loops, threads ----------------------------------------------------------------------------------------------


def test_one_object_in_three_loops_and_two_threads(run: Run, make: Callable[..., Upstream]) -> None:
    upstream = make(requests_per_minute=60_000, max_concurrency=4, breaker=CircuitBreaker(100), adaptive=False)
    answers: list[str] = []

    async def several() -> None:
        fns = [Flaky(ConnectionError(), then="done") for _ in range(10)]
        answers.extend(await asyncio.gather(*[upstream.retry(fn.asynchronous, base=0.001) for fn in fns]))

    for _ in range(3):
        run(several())
    threads = [threading.Thread(target=run, args=(several(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == ["done"] * 50
    assert upstream.snapshot().successes == 50


def test_counts_are_exact_however_many_threads_fail() -> None:
    upstream = Upstream("service", budget=None, adaptive=False)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work() -> None:
        for _ in range(500):
            with pytest.raises(RetriesExhausted):
                upstream.retry_sync(Flaky(then=ConnectionError()), max_attempts=1)
            upstream.retry_sync(lambda: None)

    threads = [threading.Thread(target=work) for _ in range(6)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    snapshot = upstream.snapshot()
    assert (snapshot.successes, snapshot.failures) == (3000, {Kind.CONNECTION_LOST: 3000})


async def test_blocks_that_are_broken_off_leave_nothing(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=1, breaker=CircuitBreaker(9))
    for attempt in upstream.attempts():
        with attempt:
            break
    async for attempt in upstream.attempts():
        async with attempt:
            break
    with pytest.raises(ZeroDivisionError):
        async for attempt in upstream.attempts():
            async with attempt:
                raise ZeroDivisionError

    async def stream() -> Any:
        async for attempt in upstream.attempts():
            async with attempt:
                yield 1

    source = stream()
    await anext(source)
    assert upstream.snapshot().in_flight == 1
    await source.aclose()


def test_blocks_under_trio_say_what_they_need_and_take_nothing(make: Callable[..., Upstream]) -> None:
    upstream = make(max_concurrency=1)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="needs asyncio"):
            async for attempt in attempts(upstream=upstream):
                async with attempt:
                    pass

    trio.run(main)


def test_a_limiter_and_an_upstream_do_not_stand_beside_each_other() -> None:
    with pytest.raises(ValueError, match="limiter= beside upstream="):
        retry(upstream=Upstream("a"), limiter=RateLimiter(60))
