"""T38: the HTTP defaults do no harm: no storm without waits, no unsafe method twice without a key, and connection
errors are retried.
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from forbear import RetriesExhausted, RetryError
from forbear.integrations.httpx import AsyncTransport, Transport
from forbear.testing import FakeTime
from loopback.addresses import refused

URL = "https://api.example/items"
KINDS = ["blocking", "async"]
NOON = 1_700_000_000
AT_ONCE: dict[str, dict[str, str]] = {
    "no hint": {},
    "zero": {"Retry-After": "0"},
    "zero milliseconds": {"retry-after-ms": "0"},
    "a date that has passed": {
        "Date": formatdate(NOON, usegmt=True),
        "Retry-After": formatdate(NOON - 5, usegmt=True),
    },
    "nonsense": {"Retry-After": "-1"},
}
FAILURES: list[Any] = [429, 503, httpx.ConnectError, httpx.ReadError]


class Service:
    """Never does anything else than fail; remembers when it was asked to."""

    def __init__(self, clock: FakeTime, failure: Any, headers: dict[str, str] | None = None) -> None:
        self.clock, self.failure, self.headers = clock, failure, headers or {}
        self.at: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.at.append(self.clock.now)
        if isinstance(self.failure, int):
            return httpx.Response(self.failure, headers=self.headers)
        raise self.failure("it broke", request=request)


async def send(kind: str, inner: Any, method: str = "GET", url: str = URL, **options: Any) -> httpx.Response:
    """One request through a client with the defaults of forbear."""
    given: Any = httpx.MockTransport(inner) if isinstance(inner, Service) else inner
    if kind == "blocking":
        with httpx.Client(transport=Transport(given, **options), trust_env=False) as client:
            return client.request(method, url)
    async with httpx.AsyncClient(transport=AsyncTransport(given, **options), trust_env=False) as client:
        return await client.request(method, url)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hint", AT_ONCE)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_asks_for_no_wait_is_not_stormed(kind: str, status: int, hint: str) -> None:
    with FakeTime(rng=lambda: 1.0) as clock:
        service = Service(clock, status, AT_ONCE[hint])
        with pytest.raises(RetriesExhausted):
            await send(kind, service)
        gaps = [after - before for before, after in zip(service.at, service.at[1:], strict=False)]
        assert len(gaps) == 4
        assert all(gap >= bound - 1e-6 for gap, bound in zip(gaps, (0.5, 1.0, 2.0, 4.0), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: getattr(one, "__name__", str(one)))
async def test_the_waits_are_spread_so_that_clients_do_not_meet(kind: str, failure: Any) -> None:
    ends = []
    for seed in range(30):
        with FakeTime(seed=seed) as clock:
            service = Service(clock, failure, {"Retry-After": "0"})
            with pytest.raises(RetryError):
                await send(kind, service)
            assert len(service.at) == 5
            ends.append(service.at[-1])
    assert len(set(ends)) == 30
    assert sum(ends) / 30 > 2.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_an_unsafe_method_is_sent_once_where_it_may_have_been_done(kind: str, method: str) -> None:
    with FakeTime() as clock:
        for failure in (500, 502, 503, 504, httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError):
            service = Service(clock, failure)
            if isinstance(failure, int):
                assert (await send(kind, service, method)).status_code == failure
            else:
                with pytest.raises(failure):
                    await send(kind, service, method)
            assert len(service.at) == 1
        assert clock.now == 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_with_a_key_it_is_sent_again(kind: str, method: str) -> None:
    for failure in (500, httpx.ReadTimeout):
        with FakeTime() as clock:
            service = Service(clock, failure)
            with pytest.raises(RetriesExhausted):
                await send(kind, service, method, idempotency_key=True)
            assert len(service.at) == 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_connection_that_is_refused_is_tried_again(kind: str, method: str) -> None:
    makes: Callable[..., Any] = httpx.HTTPTransport if kind == "blocking" else httpx.AsyncHTTPTransport
    with refused() as host, FakeTime(patience=0.05, rng=lambda: 1.0) as clock:
        with pytest.raises(RetriesExhausted) as caught:
            await send(kind, makes(trust_env=False), method, f"http://{host}", max_attempts=3)
        assert isinstance(caught.value.last_error, httpx.ConnectError)
        assert clock.sleeps == pytest.approx([0.5, 1.0])
