"""The servers that the libraries are tried on: one model for each trace, the same for all of them.

A server knows nothing about its clients. It counts what reaches it, in seconds since the run began.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, NoReturn

from virtual import elapsed

Headers = dict[str, str]


class Response(NamedTuple):
    status_code: int
    headers: Headers


class ServerError(Exception):
    """A failed answer, with all the attributes by which libraries know status, hint and body."""

    def __init__(self, status: int, *, retry_after: float | None = None, code: str | None = None) -> None:
        super().__init__(f"the server answered with status {status}")
        self.status = self.status_code = status
        self.retry_after = retry_after
        self.headers: Headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
        self.response = Response(status, self.headers)
        self.body: Any = None if code is None else {"error": {"code": code}}


class Bucket:
    """A token bucket: `rate` tokens a second, at most `burst` kept, full at first."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = 0.0

    def take(self, now: float) -> bool:
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        # A client that waited exactly as long as it was told is not refused for a rounding error.
        if self._tokens < 1 - 1e-9:
            return False
        self._tokens -= 1
        return True

    def next_in(self) -> float:
        """Seconds until there is a token, after one has been refused."""
        return (1 - self._tokens) / self.rate


@dataclass(frozen=True, slots=True)
class Trouble:
    """From `begins` to `ends` the server works at `speed`; 1 is as usual, 0 not at all."""

    begins: float
    ends: float
    speed: float


class Fifo:
    """One worker behind one queue; every request is the same amount of work.

    A request's end is known when it comes, for nothing ever leaves the queue: work whose client has gone is done too.
    """

    def __init__(self, service: float, trouble: Trouble) -> None:
        self.service = service
        self.trouble = trouble
        self.free_at = 0.0

    def admit(self, now: float) -> float:
        """The instant when the request that comes now is done."""
        self.free_at = self._end_of(max(now, self.free_at))
        return self.free_at

    def _end_of(self, start: float) -> float:
        work, trouble = self.service, self.trouble
        if start < trouble.begins:
            if start + work <= trouble.begins:
                return start + work
            work -= trouble.begins - start
            start = trouble.begins
        if start < trouble.ends:
            possible = (trouble.ends - start) * trouble.speed
            if work <= possible:
                return start + work / trouble.speed
            work -= possible
            start = trouble.ends
        return start + work


class Server:
    """Counts. A kind of server says in `answer` what becomes of a request."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.arrived: list[float] = []
        self.rejected: list[float] = []
        self.served: list[float] = []
        self.in_flight = 0
        self.most_in_flight = 0

    async def request(self) -> None:
        now = elapsed()
        self.arrived.append(now)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.answer(now)
        finally:
            self.in_flight -= 1
        self.served.append(elapsed())

    async def answer(self, now: float) -> None:
        raise NotImplementedError

    def refuse(self, now: float, status: int, **facts: Any) -> NoReturn:
        self.rejected.append(now)
        raise ServerError(status, **facts)


class Outage(Server):
    """Answers nothing but 503 at first; then it has room for so many requests a second, and 503 for the rest."""

    def __init__(self, rng: Random, *, lasts: float, capacity: float) -> None:
        super().__init__(rng)
        self.lasts = lasts
        self.bucket = Bucket(capacity, capacity / 10)

    async def answer(self, now: float) -> None:
        if now < self.lasts:
            await asyncio.sleep(self.rng.uniform(0.010, 0.050))
            self.refuse(now, 503)
        room = self.bucket.take(now)
        await asyncio.sleep(0.020)
        if not room:
            self.refuse(now, 503)


class Hanging(Server):
    """Some requests are never answered."""

    def __init__(self, rng: Random, *, share: float) -> None:
        super().__init__(rng)
        self.share = share

    async def answer(self, now: float) -> None:
        if self.rng.random() < self.share:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0.050)


class Limited(Server):
    """So many requests a second; 429 for the rest, with the whole seconds after which there is room for one."""

    def __init__(self, rng: Random, *, rate: float) -> None:
        super().__init__(rng)
        self.bucket = Bucket(rate, rate)

    async def answer(self, now: float) -> None:
        room = self.bucket.take(now)
        hint = 0.0 if room else max(1, math.ceil(self.bucket.next_in()))
        await asyncio.sleep(0.050)
        if not room:
            self.refuse(now, 429, retry_after=hint)


class Queued(Server):
    """A queue before one worker, which for a while is slow. It goes on with what its clients have given up."""

    def __init__(self, rng: Random, *, capacity: float, trouble: Trouble) -> None:
        super().__init__(rng)
        self.queue = Fifo(1 / capacity, trouble)

    async def answer(self, now: float) -> None:
        await asyncio.sleep(self.queue.admit(now) - now)


class Refusing(Server):
    """The same refusal for everyone."""

    def __init__(self, rng: Random, status: int, code: str | None = None) -> None:
        super().__init__(rng)
        self.status = status
        self.code = code

    async def answer(self, now: float) -> None:
        await asyncio.sleep(0.050)
        self.refuse(now, self.status, code=self.code)


class SlowTail(Server):
    """A few answers take long, for no fault of the request."""

    def __init__(self, rng: Random, *, share: float, slow: float) -> None:
        super().__init__(rng)
        self.share = share
        self.slow = slow

    async def answer(self, now: float) -> None:
        await asyncio.sleep(self.slow if self.rng.random() < self.share else 0.050)


class Closed(Server):
    """Until `opens` it answers 429 and says how long that is; then it serves everyone."""

    def __init__(self, rng: Random, *, opens: float) -> None:
        super().__init__(rng)
        self.opens = opens

    async def answer(self, now: float) -> None:
        if now < self.opens:
            self.refuse(now, 429, retry_after=self.opens - now)
        await asyncio.sleep(0.020)


class Shards(Server):
    """Several shards, of which the first is dead."""

    def __init__(self, rng: Random, count: int) -> None:
        super().__init__(rng)
        self.count = count
        self.at_dead = 0

    async def ask(self, shard: int) -> None:
        self.arrived.append(elapsed())
        await asyncio.sleep(0.010)
        if shard == 0:
            self.at_dead += 1
            raise ServerError(500)
