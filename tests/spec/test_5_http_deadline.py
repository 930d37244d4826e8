"""The cases of HTTP client calls under one deadline, through real clients of httpx: waits, time, what is retried."""

from __future__ import annotations

import asyncio
import time as real_time
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from forbear import (
    DeadlineExceeded,
    NestedRetriesWarning,
    Policy,
    RetriesExhausted,
    RetryError,
    classify,
    constant,
    deadline,
    retry,
    retry_sync,
)
from forbear.integrations import httpx as ours
from forbear.integrations import sole_owner
from forbear.integrations.http import httpx_like
from forbear.testing import FakeTime
from loopback.server import Server
from loopback.steps import Reply

POLICY = Policy(max_attempts=3, base=0.2, cap=2.0, attempt_timeout=1.0, deadline=None, retry_after="add")
WINDOWS = (0.2, 0.4, 0.8, 1.6, 2.0, 2.0)  # min(cap, base · 2^i): i is 0 for the first retry
URL = "https://api.example/items"
DRAWS = 500

Handler = Callable[[httpx.Request], Any]


class Client:
    """A client of either kind, used by one kind of test: `await client.get(URL)`."""

    def __init__(self, kind: str, inner: Any, timeout: Any = 1.0, **options: Any) -> None:
        self.blocking = kind == "blocking"
        given: Any = {"policy": POLICY, "upstream": None, **options}
        known: Any = {"timeout": timeout, "trust_env": False}
        self.http: Any = (
            httpx.Client(transport=ours.Transport(inner, **given), **known)
            if self.blocking
            else httpx.AsyncClient(transport=ours.AsyncTransport(inner, **given), **known)
        )

    async def request(self, method: str, url: str = URL, **options: Any) -> httpx.Response:
        response = self.http.request(method, url, **options)
        return response if self.blocking else await response  # type: ignore[no-any-return]

    async def get(self, url: str = URL, **options: Any) -> httpx.Response:
        return await self.request("GET", url, **options)

    async def close(self) -> None:
        if self.blocking:
            self.http.close()
        else:
            await self.http.aclose()


@pytest.fixture(params=["blocking", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def mocked(handler: Handler) -> httpx.MockTransport:
    return httpx.MockTransport(handler)


class Service:
    """Answers by script, the last answer for ever: statuses, responses, or errors; remembers when what came."""

    def __init__(self, *answers: Any, clock: FakeTime | None = None, takes: float = 0.0) -> None:
        self.answers = answers
        self.clock = clock
        self.takes = takes
        self.requests: list[httpx.Request] = []
        self.at: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.clock is not None:
            self.at.append(self.clock.now)
            self.clock.advance(self.takes)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer.with_traceback(None)
        if isinstance(answer, int):
            return httpx.Response(answer, text=f"answer {len(self.requests)}")
        status, headers = answer
        return httpx.Response(status, headers=headers, text=f"answer {len(self.requests)}")

    @property
    def timeouts(self) -> list[dict[str, float]]:
        return [request.extensions["timeout"] for request in self.requests]


def too_slow(clock: FakeTime, seen: list[dict[str, float]] | None = None) -> Handler:
    """Takes the whole of each attempt's own timeout, and then no answer has come."""

    def handler(request: httpx.Request) -> Any:
        timeouts = request.extensions["timeout"]
        if seen is not None:
            seen.append(timeouts)
        clock.advance(timeouts["read"])
        raise httpx.ReadTimeout("no answer", request=request)

    return handler


# ---- the case that must hold, and must fail when broken ----------------------------------------------------------

DEADLINES = (0.5, 1.0, 3.0, 10.0)
SEEDS = range(8)


async def late_by(kind: str, seconds: float, seed: int, **options: Any) -> float:
    """How long after the deadline a call of a service that is always too slow has ended; negative if before."""
    with FakeTime(seed=seed) as clock:
        client = Client(kind, mocked(too_slow(clock)), deadline=seconds, **options)
        with pytest.raises(RetryError):
            await client.get()
        await client.close()
        return clock.now - seconds


@pytest.mark.parametrize("seconds", DEADLINES)
async def test_the_clock_never_ends_after_the_deadline(kind: str, seconds: float) -> None:
    for seed in SEEDS:
        assert await late_by(kind, seconds, seed) <= 0
        assert await late_by(kind, seconds, seed, upstream="per origin") <= 0
        assert await late_by(kind, seconds, seed, max_attempts=None) <= 0
        assert await late_by(kind, seconds, seed, max_attempts=None, timeout=5.0) <= 0


@pytest.mark.parametrize("seconds", DEADLINES)
async def test_the_same_fails_if_the_timeout_is_not_clipped_to_the_time_left(
    kind: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httpx_like, "least", lambda given, left: given)
    with pytest.raises(AssertionError):
        await test_the_clock_never_ends_after_the_deadline(kind, seconds)


@pytest.mark.parametrize("seconds", [0.5, 3.0])
async def test_it_fails_even_where_the_clients_timeout_is_no_longer_than_the_attempts(
    kind: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httpx_like, "least", lambda given, left: given)
    assert max([await late_by(kind, seconds, seed) for seed in SEEDS]) > 0.1


# ---- waits -------------------------------------------------------------------------------------------------------


async def test_500_draws_of_each_row_stay_inside_the_window_and_reach_into_its_top_tenth(kind: str) -> None:
    drawn: list[list[float]] = [[] for _ in WINDOWS]
    with FakeTime(seed=5) as clock:
        service = Service(503, clock=clock)
        client = Client(kind, mocked(service), max_attempts=len(WINDOWS) + 1)
        for _ in range(DRAWS):
            service.at.clear()
            with pytest.raises(RetriesExhausted):
                await client.get()
            for row, (before, after) in zip(drawn, zip(service.at, service.at[1:], strict=False), strict=True):
                row.append(after - before)
        await client.close()
    for window, row in zip(WINDOWS, drawn, strict=True):
        assert len(row) == DRAWS
        assert 0 <= min(row) < window * 0.1
        assert window * 0.9 < max(row) <= window + 1e-6
        assert window * 0.45 < sum(row) / DRAWS < window * 0.55


async def test_three_attempts_are_the_first_and_two_retries(kind: str) -> None:
    with FakeTime(rng=lambda: 1.0) as clock:
        service = Service(503, clock=clock)
        with pytest.raises(RetriesExhausted):
            await Client(kind, mocked(service)).get()
        assert service.at == [0.0, 0.2, 0.6]
        assert clock.sleeps == pytest.approx(WINDOWS[:2])


async def test_there_is_no_wait_after_the_last_attempt(kind: str) -> None:
    with FakeTime() as clock:
        service = Service(503, clock=clock, takes=0.125)
        with pytest.raises(RetriesExhausted):
            await Client(kind, mocked(service)).get()
        assert clock.now == pytest.approx(service.at[-1] + 0.125)
        assert len(clock.sleeps) == len(service.at) - 1 == 2


async def test_a_success_is_not_waited_for_either(kind: str) -> None:
    with FakeTime() as clock:
        service = Service(503, 200, clock=clock)
        assert (await Client(kind, mocked(service)).get()).text == "answer 2"
        assert (len(service.requests), clock.now) == (2, service.at[-1])


# ---- time --------------------------------------------------------------------------------------------------------


async def test_one_budget_of_time_is_for_all_attempts_and_waits(kind: str) -> None:
    with FakeTime(rng=lambda: 1.0) as clock:
        service = Service(503, clock=clock, takes=0.7)
        with pytest.raises(DeadlineExceeded) as caught:
            await Client(kind, mocked(service), deadline=2.0, max_attempts=10).get()
        assert service.at == pytest.approx([0.0, 0.9])  # a third would begin at 2.0
        assert caught.value.attempts == 2


async def test_the_clock_can_be_given(kind: str) -> None:
    clock = FakeTime(start=1_000.0, rng=lambda: 1.0)
    service = Service(503, clock=clock)
    with pytest.raises(RetriesExhausted):
        await Client(kind, mocked(service), clock=clock).get()
    assert service.at == [1_000.0, 1_000.2, 1_000.6]


async def test_what_remains_is_never_negative(kind: str) -> None:
    with FakeTime() as clock:
        async with deadline(1.0) as limit:
            assert limit.remaining() == 1.0
            clock.advance(7.0)
            assert limit.remaining() == 0.0
            service = Service(200, clock=clock)
            with pytest.raises(DeadlineExceeded) as caught:
                await Client(kind, mocked(service)).get()
        assert (service.requests, caught.value.attempts) == ([], 0)


async def test_each_timeout_is_the_lesser_of_the_attempts_and_what_is_left(kind: str) -> None:
    with FakeTime(rng=lambda: 1.0) as clock:
        seen: list[dict[str, float]] = []
        with pytest.raises(DeadlineExceeded):
            await Client(kind, mocked(too_slow(clock, seen)), deadline=3.0).get()
        assert len(seen) == 3
        for timeouts, most in zip(seen, (1.0, 1.0, 0.4), strict=True):
            assert timeouts.keys() == {"connect", "read", "write", "pool"}
            assert list(timeouts.values()) == pytest.approx([most] * 4)
        assert clock.now == 3.0


async def test_a_tighter_timeout_of_the_client_stays(kind: str) -> None:
    with FakeTime():
        service = Service(200)
        client = Client(kind, mocked(service), timeout=httpx.Timeout(9.0, connect=0.25, pool=None), deadline=0.5)
        await client.get()
        await client.get(timeout=0.125)
        assert service.timeouts[0] == {"connect": 0.25, "read": 0.5, "write": 0.5, "pool": 0.5}
        assert set(service.timeouts[1].values()) == {0.125}


async def test_without_any_limit_the_clients_own_timeouts_hold(kind: str) -> None:
    with FakeTime():
        service = Service(200)
        await Client(kind, mocked(service), timeout=httpx.Timeout(9.0, pool=None), attempt_timeout=None).get()
        assert service.timeouts == [{"connect": 9.0, "read": 9.0, "write": 9.0, "pool": None}]


async def test_an_async_attempt_is_cut_although_its_transport_does_not_listen() -> None:
    async def deaf(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(100)
        return httpx.Response(200)

    with FakeTime(rng=lambda: 1.0) as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            await Client("async", mocked(deaf), deadline=3.0).get()
        assert (clock.now, caught.value.attempts) == (3.0, 3)
        assert isinstance(caught.value.last_error, TimeoutError)


@pytest.mark.parametrize(("takes", "waits"), [(0.3, 0), (0.31, 0), (0.29, 1)])
async def test_a_wait_that_would_reach_the_deadline_is_never_started(kind: str, takes: float, waits: int) -> None:
    with FakeTime(rng=lambda: 1.0) as clock:
        service = Service(503, clock=clock, takes=takes)
        with pytest.raises(DeadlineExceeded):
            await Client(kind, mocked(service), deadline=0.5).get()
        assert (len(clock.sleeps), len(service.at)) == (waits, waits + 1)
        assert clock.now == pytest.approx(takes) or waits


def test_the_worst_case_of_the_policy_is_told() -> None:
    assert POLICY.worst_case() == pytest.approx(3.6)
    assert POLICY.schedule() == pytest.approx(WINDOWS[:2])


async def test_the_worst_case_is_what_it_takes(kind: str) -> None:
    with FakeTime(rng=lambda: 1.0) as clock:
        with pytest.raises(RetriesExhausted):
            await Client(kind, mocked(too_slow(clock))).get()
        assert clock.now == pytest.approx(POLICY.worst_case())


async def test_of_503_with_a_wait_beyond_the_deadline_the_end_comes_at_once(kind: str) -> None:
    with FakeTime() as clock:
        service = Service((503, {"Retry-After": "30"}), clock=clock)
        with pytest.raises(DeadlineExceeded) as caught:
            await Client(kind, mocked(service), deadline=5.0).get()
        assert (clock.now, clock.sleeps, len(service.at)) == (0.0, [], 1)
        assert (caught.value.hint, caught.value.attempts) == (30.0, 1)


# ---- what is retried ---------------------------------------------------------------------------------------------

PASSING: list[Any] = [
    httpx.ConnectTimeout, httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout, httpx.ConnectError,
    httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError,
    408, 409, 425, 429, 500, 502, 503, 504, 507, 520, 522, 524, 529, 599,
]  # fmt: skip
RETURNED = [
    200,
    201,
    204,
    206,
    300,
    302,
    304,
    400,
    401,
    402,
    403,
    404,
    405,
    406,
    410,
    413,
    418,
    422,
    431,
    451,
    501,
    505,
]
# Errors of httpx's transports which no attempt can mend: the request itself is wrong, or the proxy wants a password.
HOPELESS = [httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.ProxyError]


def made(failure: Any) -> Any:
    return failure("it broke") if isinstance(failure, type) else failure


@pytest.mark.parametrize("failure", PASSING, ids=lambda one: getattr(one, "__name__", str(one)))
async def test_it_is_retried(kind: str, failure: Any) -> None:
    with FakeTime():
        service = Service(made(failure), made(failure), 200)
        assert (await Client(kind, mocked(service)).get()).text == "answer 3"
        service = Service(made(failure))
        with pytest.raises(RetriesExhausted) as caught:
            await Client(kind, mocked(service)).get()
        assert len(service.requests) == 3
        last = caught.value.last_error
        if isinstance(failure, int):
            assert isinstance(last, httpx.HTTPStatusError)
            assert (last.response.status_code, last.response.text) == (failure, "answer 3")
        else:
            assert last is service.answers[0]


@pytest.mark.parametrize("status", RETURNED)
async def test_any_other_response_is_returned(kind: str, status: int) -> None:
    with FakeTime() as clock:
        hint = {} if status == 403 else {"Retry-After": "1"}  # some refuse for the rate with a 403 that has one
        service = Service((status, hint))
        response = await Client(kind, mocked(service)).get()
        assert (response.status_code, response.text) == (status, "answer 1")
        assert (len(service.requests), clock.now) == (1, 0.0)


@pytest.mark.parametrize("error", HOPELESS)
async def test_an_error_that_no_attempt_can_mend_leaves_as_it_is(kind: str, error: type[httpx.TransportError]) -> None:
    with FakeTime() as clock:
        service = Service(error("never"))
        with pytest.raises(error) as caught:
            await Client(kind, mocked(service)).get()
        assert (caught.value, len(service.requests), clock.now) == (service.answers[0], 1, 0.0)


def test_no_class_of_transport_error_is_forgotten_here() -> None:
    def leaves(one: type) -> Iterator[type]:
        below = [kind for kind in one.__subclasses__() if kind.__module__ == "httpx"]
        for kind in below:
            yield from leaves(kind)
        if not below:
            yield one

    named = {one for one in [*PASSING, *HOPELESS] if isinstance(one, type)}
    assert set(leaves(httpx.TransportError)) == named
    assert all(classify(one("it broke")).transient for one in named - set(HOPELESS))


# ---- Retry-After -------------------------------------------------------------------------------------------------


def dated(seconds: float, now: float = 1.7e9) -> dict[str, str]:
    return {"Date": formatdate(now, usegmt=True), "Retry-After": formatdate(now + seconds, usegmt=True)}


@pytest.mark.parametrize("headers", [{"Retry-After": "3"}, dated(3)], ids=["seconds", "date"])
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_a_floor_with_the_jitter_on_top(kind: str, status: int, headers: dict[str, str]) -> None:
    waits: list[float] = []
    with FakeTime(seed=3) as clock:
        service = Service((status, headers))
        client = Client(kind, mocked(service), max_attempts=2)
        for _ in range(DRAWS):
            with pytest.raises(RetriesExhausted):
                await client.get()
        waits = clock.sleeps
    assert len(waits) == DRAWS
    assert 3.0 <= min(waits) < 3.02
    assert 3.18 < max(waits) <= 3.2


async def test_a_date_is_read_by_the_wall_clock_where_the_server_names_none(kind: str) -> None:
    with FakeTime(rng=lambda: 0.0) as clock:
        service = Service((503, {"Retry-After": formatdate(real_time.time() + 40, usegmt=True)}), 200)
        await Client(kind, mocked(service)).get()
        assert 30 < clock.sleeps[0] <= 40


async def test_a_date_that_has_passed_leaves_the_backoff(kind: str) -> None:
    with FakeTime(rng=lambda: 1.0) as clock:
        await Client(kind, mocked(Service((503, dated(-60)), 200))).get()
        assert clock.sleeps == pytest.approx([0.2])


# ---- the two errors ----------------------------------------------------------------------------------------------


async def test_attempts_used_up_and_time_gone_are_two_errors(kind: str) -> None:
    with FakeTime() as clock:
        with pytest.raises(RetriesExhausted) as used_up:
            await Client(kind, mocked(Service(503))).get()
        with pytest.raises(DeadlineExceeded) as gone:
            await Client(kind, mocked(too_slow(clock)), deadline=1.0).get()
    assert not isinstance(used_up.value, DeadlineExceeded | TimeoutError)
    assert not isinstance(gone.value, RetriesExhausted)
    assert (used_up.value.reason, gone.value.reason) == ("max_attempts", "deadline")
    assert used_up.value.__cause__ is used_up.value.last_error
    assert [one.status for one in used_up.value.history] == [503] * 3


async def test_both_are_errors_of_httpx_for_handlers_that_are_there(kind: str) -> None:
    with FakeTime() as clock:
        with pytest.raises(httpx.TransportError) as used_up:
            await Client(kind, mocked(Service(503))).get()
        with pytest.raises(httpx.TimeoutException) as gone:
            await Client(kind, mocked(too_slow(clock)), deadline=1.0).get()
    assert type(used_up.value) is ours.RetriesExhausted
    assert type(gone.value) is ours.DeadlineExceeded
    assert isinstance(gone.value, TimeoutError)
    assert str(used_up.value.request.url) == str(gone.value.request.url) == URL  # as httpx's own errors have it


# ---- which requests are safe -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"])
async def test_a_method_that_may_be_repeated_is(kind: str, method: str) -> None:
    with FakeTime():
        for failure in (503, httpx.ReadTimeout("no answer")):
            service = Service(failure)
            with pytest.raises(RetriesExhausted):
                await Client(kind, mocked(service)).request(method)
            assert [request.method for request in service.requests] == [method] * 3


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_another_is_only_with_a_key_or_where_nothing_was_done(kind: str, method: str) -> None:
    with FakeTime():
        for failure in (503, 500, httpx.ReadTimeout("no answer"), httpx.ReadError("reset")):
            service = Service(failure, 200)
            if isinstance(failure, int):
                assert (await Client(kind, mocked(service)).request(method)).status_code == failure
            else:
                with pytest.raises(type(failure)):
                    await Client(kind, mocked(service)).request(method)
            assert len(service.requests) == 1
        for failure in (429, (503, {"Retry-After": "1"}), httpx.ConnectError("refused"), httpx.ConnectTimeout("")):
            service = Service(failure, 200)
            assert (await Client(kind, mocked(service)).request(method)).status_code == 200
            assert len(service.requests) == 2


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_the_key_is_made_once_for_each_call_and_sent_with_every_attempt(kind: str, method: str) -> None:
    with FakeTime():
        service = Service(503, httpx.ReadTimeout("no answer"), 200)
        client = Client(kind, mocked(service), idempotency_key=True)
        assert (await client.request(method)).status_code == 200
        assert (await client.request(method)).status_code == 200
    keys = [request.headers["idempotency-key"] for request in service.requests]
    assert len(keys) == 4
    assert keys[0] == keys[1] == keys[2] != keys[3]


# ---- one retry owner ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reraise", [False, True])
@pytest.mark.parametrize("raises_for_status", [False, True])
async def test_three_layers_of_three_attempts_make_three_requests(
    kind: str, reraise: bool, raises_for_status: bool
) -> None:
    with FakeTime():
        for failure in (503, httpx.ReadTimeout("no answer")):
            service = Service(failure)
            client = Client(kind, mocked(service), reraise=reraise)
            returns = reraise and not raises_for_status and isinstance(failure, int)
            if client.blocking:

                @retry_sync(max_attempts=3)
                @retry_sync(max_attempts=3)
                def fetch_blocking(http: Any = client.http) -> httpx.Response:
                    response = http.get(URL)
                    return response.raise_for_status() if raises_for_status else response

                call: Any = fetch_blocking
            else:

                @retry(max_attempts=3)
                @retry(max_attempts=3)
                async def fetch(http: Any = client.http) -> httpx.Response:
                    response = await http.get(URL)
                    return response.raise_for_status() if raises_for_status else response

                call = fetch
            if returns:
                response = call() if client.blocking else await call()
                assert response.status_code == 503
            else:
                with pytest.raises((RetriesExhausted, httpx.HTTPStatusError, httpx.ReadTimeout)) as caught:
                    await call() if not client.blocking else call()
                assert isinstance(caught.value, RetriesExhausted) is not reraise
            assert len(service.requests) == 3


async def test_without_the_mark_of_the_response_they_would_multiply(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forbear.integrations.http.exchange.mark_of", lambda error: None)
    with FakeTime():
        service = Service(503)
        client = Client(kind, mocked(service), reraise=True)

        async def fetch() -> httpx.Response:
            return (await client.get()).raise_for_status()

        with pytest.raises(RetriesExhausted):
            await retry(fetch, max_attempts=3)
        assert len(service.requests) == 9


# ---- one client for all ------------------------------------------------------------------------------------------


async def test_the_pool_is_used(kind: str, server: Server) -> None:
    server.script(*[Reply(503, body="not now"), Reply(429, body="x" * 10_000), Reply(200, body="done")] * 4)
    inner = httpx.HTTPTransport(trust_env=False) if kind == "blocking" else httpx.AsyncHTTPTransport(trust_env=False)
    with FakeTime(patience=5.0):
        client = Client(kind, inner, backoff=constant(0.0), timeout=None)
        for _ in range(4):
            assert (await client.get(server.url)).text == "done"
        await client.close()
    assert (len(server.requests), server.connections) == (12, 1)


async def test_async_code_is_never_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(seconds: float) -> None:
        raise AssertionError(f"async code was blocked for {seconds:g} s")

    monkeypatch.setattr("time.sleep", forbidden)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.05)
            turns += 1

    with FakeTime(rng=lambda: 1.0) as clock:
        ticking = asyncio.create_task(others())
        with pytest.raises(RetriesExhausted):
            await Client("async", mocked(Service(503))).get()
        ticking.cancel()
        assert clock.now == pytest.approx(0.6)
        assert turns >= 10


async def test_many_calls_of_one_client_wait_at_the_same_time() -> None:
    with FakeTime(rng=lambda: 1.0) as clock:
        client = Client("async", mocked(Service(503)))
        outcomes = await asyncio.gather(*(client.get() for _ in range(20)), return_exceptions=True)
        assert all(isinstance(outcome, RetriesExhausted) for outcome in outcomes)
        assert clock.now == pytest.approx(0.6)


# ---- one owner of retries --------------------------------------------------------------------------------------------


def test_layers_multiply_and_the_helper_shows_and_removes_the_retries_of_the_one_below() -> None:
    sdk = pytest.importorskip("openai")
    asked: list[float] = []

    def server(request: Any) -> Any:
        asked.append(clock.now)
        return httpx2.Response(500, request=request)

    httpx2 = pytest.importorskip("httpx2")
    client = sdk.OpenAI(api_key="key", max_retries=2, http_client=httpx2.Client(transport=httpx2.MockTransport(server)))
    client._calculate_retry_timeout = lambda *_: 0.0

    def requests_of(ask: Callable[[], Any]) -> int:
        before = len(asked)
        with pytest.raises((sdk.APIStatusError, RetryError)):
            ask()
        return len(asked) - before

    def naive(layers: int, own: Any) -> Any:
        ask = own.models.list if layers == 1 else lambda: naive(layers - 1, own)
        with suppress(sdk.APIStatusError):
            return ask()
        with suppress(sdk.APIStatusError):
            return ask()
        return ask()

    with FakeTime() as clock:
        requests = requests_of(lambda: naive(2, client))
        assert (requests, 4 * requests) == (27, 108)  # for each call; each second, at four calls a second
        with pytest.warns(NestedRetriesWarning, match="made 3 requests in one attempt, so 3 attempts make up to 9"):
            assert requests_of(lambda: retry_sync(client.models.list, max_attempts=3)) == 9
        owned = sole_owner(client, max_attempts=3)
        inner = retry_sync(max_attempts=3)(lambda: owned.models.list())  # noqa: PLW0108  # a method can't be decorated
        assert requests_of(lambda: retry_sync(inner, max_attempts=3)) == 3
