"""R058: the results of a batch line up with what was asked, and only what failed is sent again.

A batch is `asyncio.gather` over calls that are retried each for itself: there is nothing that could mix them up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear import ApiError, RetriesExhausted, Upstream, retry
from forbear.integrations.httpx import AsyncTransport
from forbear.testing import FakeTime

ITEMS = ["A", "B", "C", "D"]
GOOD_ON_TRY = {"A": 1, "B": 2, "C": 99, "D": 1}  # which attempt at an item succeeds
ATTEMPTS = 3


class Service:
    """Answers each item when its turn to succeed has come; remembers what was sent."""

    def __init__(self, good_on_try: dict[str, int] = GOOD_ON_TRY) -> None:
        self.good_on_try = good_on_try
        self.sent: list[str] = []

    async def answer(self, item: str) -> str:
        self.sent.append(item)
        await asyncio.sleep(0.1 * (5 - len(self.sent) % 5))  # the answers come in another order than the questions
        if self.sent.count(item) < self.good_on_try[item]:
            raise ApiError(503, f"not yet, {item}")
        return item.lower()

    async def respond(self, request: httpx.Request) -> httpx.Response:
        """The same as an HTTP server."""
        try:
            return httpx.Response(200, text=await self.answer(request.url.path[1:]))
        except ApiError as error:
            return httpx.Response(error.status, text=error.message)


def called(service: Service) -> list[Any]:
    return [retry(lambda item=item: service.answer(item), max_attempts=ATTEMPTS) for item in ITEMS]


def decorated(service: Service) -> list[Any]:
    answer = retry(max_attempts=ATTEMPTS)(service.answer)
    return [answer(item) for item in ITEMS]


def of_an_upstream(service: Service) -> list[Any]:
    answer = Upstream("one at a time", max_concurrency=1).retry(max_attempts=ATTEMPTS)(service.answer)
    return [answer(item) for item in ITEMS]


def by_http(service: Service) -> list[Any]:
    transport = AsyncTransport(httpx.MockTransport(service.respond), max_attempts=ATTEMPTS)
    client = httpx.AsyncClient(transport=transport, base_url="https://api.example", trust_env=False)

    async def fetch(item: str) -> str:
        return (await client.get(item)).text

    return [fetch(item) for item in ITEMS]


@pytest.mark.parametrize("batch", [called, decorated, of_an_upstream, by_http])
async def test_results_line_up_and_only_what_failed_is_sent_again(batch: Callable[[Service], list[Any]]) -> None:
    service = Service()
    with FakeTime():
        a, b, c, d = await asyncio.gather(*batch(service), return_exceptions=True)
    assert (a, b, d) == ("a", "b", "d")
    assert isinstance(c, RetriesExhausted)  # its own error, in its own place
    assert "not yet, C" in (str(c.last_error) if batch is not by_http else c.last_error.response.text)  # type: ignore[union-attr]
    assert {item: service.sent.count(item) for item in ITEMS} == {"A": 1, "B": 2, "C": ATTEMPTS, "D": 1}


@pytest.mark.parametrize("batch", [called, decorated, of_an_upstream, by_http])
async def test_late_successes_are_in_their_places_too(batch: Callable[[Service], list[Any]]) -> None:
    service = Service({"A": 3, "B": 1, "C": 2, "D": 3})
    with FakeTime():
        assert await asyncio.gather(*batch(service)) == ["a", "b", "c", "d"]
    assert {item: service.sent.count(item) for item in ITEMS} == {"A": 3, "B": 1, "C": 2, "D": 3}


@pytest.mark.parametrize("batch", [called, decorated, by_http])
async def test_one_that_waits_holds_up_no_other(batch: Callable[[Service], list[Any]]) -> None:
    service = Service()
    done: dict[str, float] = {}
    with FakeTime(rng=lambda: 1.0) as clock:

        async def timed(item: str, call: Any) -> None:
            try:
                await call
            finally:
                done[item] = clock.now

        calls = [timed(item, call) for item, call in zip(ITEMS, batch(service), strict=True)]
        await asyncio.gather(*calls, return_exceptions=True)
    assert max(done["A"], done["D"]) < 0.5 < done["B"] < done["C"]
