"""The calls: two contenders, each with an httpx client of its own, making the same calls at the same instants.

Decided here: what each contender may do, and how a call is measured. Both clients have the same timeouts and pools, and
both contenders wait equally long, on average, before their first retry. The naive loop is written as people write it,
and is not weakened: it retries every error of the client, and its waits double. Calls arrive whether or not earlier
ones have been answered, as they do in a service.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx

from forbear import retry

PROMISE = 6.0  # seconds; what whoever waits for a call was promised
TIMEOUT = 1.5  # seconds; for one attempt; longer than any answer that comes in one piece
FIRST_WAIT = 0.2  # seconds; before the first retry, on average
NAIVE_ATTEMPTS = 5
FORBEAR_ATTEMPTS = 8  # more are affordable where a deadline bounds them all
BASE = 2 * FIRST_WAIT  # seconds; full jitter waits half of it on average
CAP = 2.0  # seconds

ARRIVE_OVER = 9.0  # seconds
CUT_AFTER = 25.0  # seconds after the first call; who still waits then is counted as failed, so that the demo ends

Call = Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]]


async def naive(client: httpx.AsyncClient, path: str) -> httpx.Response:
    """The loop that people write."""
    for attempt in range(NAIVE_ATTEMPTS):
        try:
            response = await client.get(path)
            response.raise_for_status()
            return response
        except httpx.HTTPError:
            if attempt == NAIVE_ATTEMPTS - 1:
                raise
            await asyncio.sleep(FIRST_WAIT * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def patient(seed: int) -> Call:
    """The same call with forbear. `seed` is for the jitter, so that a run can be repeated."""

    @retry(
        max_attempts=FORBEAR_ATTEMPTS,
        attempt_timeout=TIMEOUT,
        deadline=PROMISE,
        base=BASE,
        cap=CAP,
        rng=random.Random(seed).random,
    )
    async def call(client: httpx.AsyncClient, path: str) -> httpx.Response:
        response = await client.get(path)
        response.raise_for_status()
        return response

    return call


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Who makes the calls, and what it is allowed, in words."""

    name: str
    call: Call
    allowed: str


def contenders(seed: int) -> tuple[Contender, Contender]:
    """The naive loop and forbear, in the order in which they are shown."""
    return (
        Contender(
            name="naive loop",
            call=naive,
            allowed=f"{NAIVE_ATTEMPTS} attempts, httpx timeout {TIMEOUT:g} s, "
            f"waits {FIRST_WAIT:g} s doubling, no deadline, Retry-After not read",
        ),
        Contender(
            name="forbear",
            call=patient(seed),
            allowed=f"{FORBEAR_ATTEMPTS} attempts, httpx timeout and attempt_timeout {TIMEOUT:g} s, "
            f"base {BASE:g} s, cap {CAP:g} s, full jitter, deadline {PROMISE:g} s",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One call as its caller saw it: the seconds it took, and the class of its error, None where it got a 200."""

    elapsed: float
    error: str | None


@dataclass(slots=True)
class Tally:
    """All outcomes of one contender so far."""

    contender: Contender
    calls: int
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    @property
    def succeeded(self) -> int:
        """How many calls have got a 200."""
        return sum(outcome.error is None for outcome in self.outcomes)

    async def measure(self, client: httpx.AsyncClient, path: str) -> None:
        """Makes one call and notes how it ended, in whatever way it ends."""
        began_at = time.perf_counter()
        error: str | None = "cut off by the end of the demo"
        try:
            answer = await self.contender.call(client, path)
            error = None if answer.status_code == 200 else f"status {answer.status_code}"
        except Exception as failure:
            error = type(failure).__name__
        finally:
            self.outcomes.append(Outcome(elapsed=time.perf_counter() - began_at, error=error))


def client_for(address: str) -> httpx.AsyncClient:
    """A client as most people make it; but no proxy of the environment is asked for this machine itself."""
    return httpx.AsyncClient(base_url=address, timeout=TIMEOUT, trust_env=False)


async def make_calls(tallies: list[Tally], clients: list[httpx.AsyncClient]) -> None:
    """Makes every contender's calls, evenly spread over the time of arrival; returns when all have ended."""
    tasks: list[asyncio.Task[None]] = []
    calls = tallies[0].calls
    began_at = time.monotonic()
    try:
        for number in range(calls):
            await asyncio.sleep(max(0.0, began_at + ARRIVE_OVER * number / calls - time.monotonic()))
            for tally, client in zip(tallies, clients, strict=True):
                tasks.append(asyncio.create_task(tally.measure(client, f"/items/{number}")))
        await asyncio.wait(tasks, timeout=max(0.0, began_at + CUT_AFTER - time.monotonic()))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Lateness:
    """How late this process's own timers were: what a busy machine adds to every figure."""

    worst: float = 0.0

    async def watch(self) -> None:
        """Measures until cancelled."""
        while True:
            due = time.monotonic() + 0.05
            await asyncio.sleep(0.05)
            self.worst = max(self.worst, time.monotonic() - due)
