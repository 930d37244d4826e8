"""How each library is used: as its documentation recommends for the job, in a few lines.

Everyone is told the same: which errors may pass (the statuses that all of them name, and timeouts), how long an attempt
and the whole call may take, and how many attempts there may be, where the trace sets a number. What the server asks for
with Retry-After is handed to each by the means that it has for it. An attempt is cut as a client library's own timeout
would cut it, where the library has no timeout of its own. `only` names the traces that call for a part of a library
(a breaker, a budget) which it does not use by itself.
"""
# ruff: noqa: PLC0415  # a library is imported where it is used: it may be missing

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import virtual
from servers import ServerError

Request = Callable[[], Awaitable[Any]]
Call = Callable[[Request], Awaitable[Any]]

RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
UNLIMITED = 1_000_000  # for a library that wants a number
BASE, CAP = 0.5, 30.0  # first and last bound of an exponential backoff with full jitter


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a trace wants of a call, in seconds. `limit` is the server's rate per second, where the client knows it."""

    attempt_timeout: float = 10.0
    deadline: float = 60.0
    max_attempts: int | None = None
    limit: float | None = None
    at_once: int = 20_000  # calls that may be in flight, for a library that must be told


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A competitor. `make` builds what its calls share, once per run, inside the event loop."""

    name: str
    make: Callable[[Job, Random], Call]
    package: str | None = None
    limiter: bool = False
    only: frozenset[str] | None = None

    @property
    def missing(self) -> bool:
        return self.package is not None and importlib.util.find_spec(self.package.replace("-", "_")) is None

    @property
    def version(self) -> str:
        return "" if self.package is None or self.missing else importlib.metadata.version(self.package)


def passes(error: BaseException) -> bool:
    """Whether the next attempt may succeed: what the documentations' examples look at."""
    return isinstance(error, TimeoutError) or (isinstance(error, ServerError) and error.status in RETRIED)


def told(error: BaseException | None) -> float | None:
    """The seconds of a Retry-After header."""
    value = error.response.headers.get("retry-after") if isinstance(error, ServerError) else None
    return None if value is None else float(value)


async def ask(request: Request) -> Any:
    return await request()


def cut(job: Job) -> Call:
    """One attempt, under the timeout of a client library."""

    async def attempt(request: Request) -> Any:
        async with asyncio.timeout(job.attempt_timeout):
            return await request()

    return attempt


def no_retry(job: Job, rng: Random) -> Call:
    return cut(job)


def by_hand(job: Job, rng: Random) -> Call:
    attempt, allowed = cut(job), min(job.max_attempts or 5, 5)

    async def call(request: Request) -> Any:
        for number in range(allowed):
            try:
                return await attempt(request)
            except Exception as error:
                if not passes(error) or number + 1 == allowed:
                    raise
                wait = rng.uniform(0, min(CAP, BASE * 2**number))
                await asyncio.sleep(max(wait, told(error) or 0))
        raise AssertionError

    return call


def sdk(job: Job, rng: Random) -> Call:
    """What the clients of openai and anthropic do by themselves: `max_retries=2`."""
    attempt, retries = cut(job), 2

    async def call(request: Request) -> Any:
        for number in range(retries + 1):
            try:
                return await attempt(request)
            except Exception as error:
                if not passes(error) or number == retries:
                    raise
                hint = told(error)
                wait = min(0.5 * 2**number, 8.0) * (1 - 0.25 * rng.random())
                await asyncio.sleep(hint if hint is not None and 0 < hint <= 60 else wait)
        raise AssertionError

    return call


def with_tenacity(job: Job, rng: Random) -> Call:
    import tenacity as t

    backoff = t.wait_random_exponential(multiplier=BASE, max=CAP)
    hinted = t.wait_exception(lambda error: told(error) or 0.0) + t.wait_random(0, 1)
    stop: Any = t.stop_before_delay(job.deadline)
    if job.max_attempts:
        stop |= t.stop_after_attempt(job.max_attempts)
    return t.retry(
        retry=t.retry_if_exception(passes),
        wait=lambda state: (hinted if told(state.outcome.exception()) is not None else backoff)(state),
        stop=stop,
        reraise=True,
    )(cut(job))


def with_stamina(job: Job, rng: Random) -> Call:
    import stamina

    stamina.instrumentation.set_on_retry_hooks([])

    def on(error: Exception) -> bool | float:
        hint = told(error)
        return passes(error) if hint is None else hint

    return stamina.retry(on=on, attempts=job.max_attempts, timeout=job.deadline)(cut(job))


def with_backoff(job: Job, rng: Random) -> Call:
    import backoff

    # It reads the time of day from a class that is written in C, whose methods can't be replaced.
    backoff._async.datetime = SimpleNamespace(datetime=virtual.Datetime)
    limits = {"max_tries": job.max_attempts, "max_time": job.deadline}
    hinted = backoff.on_exception(
        backoff.runtime, ServerError, value=told, giveup=lambda e: told(e) is None, jitter=None, **limits
    )
    others = backoff.on_exception(
        backoff.expo, Exception, giveup=lambda e: not passes(e), factor=BASE, max_value=CAP, **limits
    )
    return others(hinted(cut(job)))


def with_retryhop(job: Job, rng: Random, **more: Any) -> Call:
    import retryhop

    attempt = cut(job)
    if job.limit:
        attempt = retryhop.RateLimiter(requests_per_minute=job.limit * 60).limit()(attempt)
    return retryhop.llm_retry(attempts=job.max_attempts or UNLIMITED, deadline=job.deadline, **more)(attempt)


def with_retryhop_breaker(job: Job, rng: Random) -> Call:
    import retryhop

    return with_retryhop(job, rng, circuit=retryhop.CircuitBreaker(failure_threshold=5, recovery_time=30))


def with_nopanic(job: Job, rng: Random, *inner: Any, on: Any = passes, **more: Any) -> Call:
    import nopanic as n

    limiter = [n.rate_limit(job.limit, per=1.0)] if job.limit else []
    waits = n.backoff.full_jitter(base=BASE, cap=CAP)
    return n.compose(
        n.deadline(job.deadline),
        n.retry(attempts=job.max_attempts or UNLIMITED, on=on, backoff=waits, **more),
        *limiter,
        *inner,
        n.timeout(job.attempt_timeout),
    )(ask)


def with_nopanic_budget(job: Job, rng: Random) -> Call:
    import nopanic as n

    return with_nopanic(job, rng, budget=n.RetryBudget(ratio=0.1))


def with_nopanic_breaker(job: Job, rng: Random) -> Call:
    import nopanic as n

    breaker = n.circuit_breaker(failure_threshold=0.5, min_calls=10, window=30.0, reset_timeout=15.0)
    return with_nopanic(job, rng, breaker, on=lambda e: passes(e) or isinstance(e, n.CircuitOpen))


def with_nopanic_adaptive(job: Job, rng: Random) -> Call:
    import nopanic as n

    return with_nopanic(job, rng, n.adaptive_rate_limit(50, per=1.0, min_rate=5))


def with_nopanic_hedge(job: Job, rng: Random) -> Call:
    import nopanic as n

    return with_nopanic(job, rng, n.hedge(delay=0.1, on=passes))


def with_async_batch_llm(job: Job, rng: Random) -> Call:
    import async_batch_llm as a

    requests: dict[str, Request] = {}

    async def invoke(prompt: str, **_: Any) -> Any:
        return a.CallOutcome(await requests[prompt]())

    pool = a.LLMCallPool(
        a.CallableStrategy(invoke, identity=a.ArtifactIdentity(provider="bench", model="bench")),
        config=a.ProcessorConfig(
            concurrency=job.at_once,
            attempt_timeout=job.attempt_timeout,
            guardrails=a.GuardrailConfig(total_timeout_per_item=job.deadline),
            retry=a.RetryConfig(max_attempts=job.max_attempts or UNLIMITED, initial_wait=BASE, max_wait=CAP),
            # The default, 300 s, is for batches that take hours; the documentation asks services to tune it.
            rate_limit=a.RateLimitConfig(cooldown_seconds=1.0),
            max_requests_per_minute=job.limit and job.limit * 60,
            quota_burst_seconds=1.0 if job.limit else None,
        ),
    )

    async def call(request: Request) -> Any:
        name = f"{len(requests)}"
        requests[name] = request
        return await pool.submit(name)

    return call


def forbear_alone(job: Job, rng: Random, **more: Any) -> Call:
    import forbear

    return forbear.retry(
        attempt_timeout=job.attempt_timeout,
        deadline=job.deadline,
        max_attempts=job.max_attempts,
        rng=rng.random,
        **more,
    )(ask)


def forbear_herd(job: Job, rng: Random) -> Call:
    """Each client for itself, told to spread out by 5 % of what the server asks for."""
    return forbear_alone(job, rng, retry_after_jitter=3.0)


def with_forbear(job: Job, rng: Random) -> Call:
    import forbear

    limit = {"requests_per_minute": job.limit * 60} if job.limit else {}
    return forbear_alone(job, rng, upstream=forbear.Upstream("bench", **limit))


def with_forbear_hedge(job: Job, rng: Random, load: float = 0.06, copies: int = 2) -> Call:
    """The delay is learned; all that is told is how many more requests there may be."""
    import forbear

    hedge = forbear.Hedge(max_extra_load=load, max_copies=copies)
    return forbear_alone(job, rng, upstream=forbear.Upstream("bench"), hedge=hedge)


def forbear_hedge_5(job: Job, rng: Random) -> Call:
    return with_forbear_hedge(job, rng, load=0.05)


def forbear_hedge_12(job: Job, rng: Random) -> Call:
    return with_forbear_hedge(job, rng, load=0.12)


def forbear_hedge_3(job: Job, rng: Random) -> Call:
    return with_forbear_hedge(job, rng, load=0.12, copies=3)


def has_upstream() -> bool:
    import forbear

    return hasattr(forbear, "Upstream")


OVERLOADS = frozenset({"outage", "overload"})
TAILS = frozenset({"slow-tail", "tail-shares"})
HEDGES = TAILS | {"overload"}
PEERS = (
    Peer(name="no retry", make=no_retry),
    Peer(name="loop by hand", make=by_hand),
    Peer(name="SDK built-in", make=sdk),
    Peer(name="tenacity", package="tenacity", make=with_tenacity),
    Peer(name="stamina", package="stamina", make=with_stamina),
    Peer(name="backoff", package="backoff", make=with_backoff),
    Peer(name="retryhop", package="retryhop", make=with_retryhop, limiter=True),
    Peer(name="retryhop + breaker", package="retryhop", make=with_retryhop_breaker, only=OVERLOADS),
    Peer(name="nopanic", package="nopanic", make=with_nopanic, limiter=True),
    Peer(name="nopanic + budget", package="nopanic", make=with_nopanic_budget, only=OVERLOADS),
    Peer(name="nopanic + breaker", package="nopanic", make=with_nopanic_breaker, only=OVERLOADS),
    Peer(name="nopanic + adaptive", package="nopanic", make=with_nopanic_adaptive, only=frozenset({"limit-unknown"})),
    Peer(name="nopanic + hedge", package="nopanic", make=with_nopanic_hedge, only=HEDGES),
    Peer(name="async-batch-llm", package="async-batch-llm", make=with_async_batch_llm, limiter=True),
    Peer(name="forbear, spread", package="forbear", make=forbear_herd, only=frozenset({"herd"})),
    Peer(name="forbear, no Upstream", package="forbear", make=forbear_alone),
    Peer(name="forbear", package="forbear", make=with_forbear, limiter=True),
    Peer(name="forbear + hedge", package="forbear", make=with_forbear_hedge, only=HEDGES),
    Peer(name="forbear + hedge, 5 %", package="forbear", make=forbear_hedge_5, only=TAILS),
    Peer(name="forbear + hedge, 12 %", package="forbear", make=forbear_hedge_12, only=TAILS),
    Peer(name="forbear + hedge, 12 %, 3 copies", package="forbear", make=forbear_hedge_3, only=TAILS),
)


def quiet() -> None:
    """The libraries' own logs would be longer than the tables."""
    logging.disable(logging.CRITICAL)


def notes() -> list[str]:
    """What the tables leave out, and why."""
    left_out = [f"{peer.name} is left out: {peer.package} is not installed." for peer in PEERS if peer.missing]
    if not has_upstream():
        left_out.append("forbear with an Upstream is left out: this version has none.")
    return left_out


def present() -> list[Peer]:
    return [peer for peer in PEERS if not peer.missing and (peer.make is not with_forbear or has_upstream())]
