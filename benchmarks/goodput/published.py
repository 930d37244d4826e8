"""Traces of the literature, with the figures that were found before beside ours.

`metastable`: HotOS '21, "Metastable Failures in Distributed Systems": a server of 300/s that stops for 10 s.
`shards`: a breaker for a whole service of which one shard is dead (M. Brooker, 2022).
`herd`: many clients that were told the same Retry-After.

The reference clients validate the models: they have to give the figures of the literature, or of the simulations in
`published`, before any library's figure means something.
"""
# ruff: noqa: PLC0415  # a library is imported where it is used: it may be missing

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Any

import virtual
from measures import rates, recovery
from peers import Job, Peer, ask
from reference import BUDGETS, RatioBreaker, arrivals, metastable
from servers import Closed, Fifo, Queued, Shards, Trouble
from traces import Figure, Result, Scale, Trace, at_times, dice, played, takes_part

LOADS = (140.0, 200.0, 250.0, 280.0)
STOP = Trouble(20.0, 30.0, 0.0)
CAPACITY = 300.0


def hotos(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    """All loads, one after another; the figures of a load are keyed by it."""
    figures: dict[str, float] = {}
    series: dict[str, tuple[float, ...]] = {}
    until = scale["until"]
    for load in scale["loads" if peer.name in BUDGETS else "library_loads"]:
        comes = arrivals(load, until, dice(seed, load))
        good, sent = _traffic(peer, seed, comes)
        figures[f"recovery {load:g}"] = recovery(good, load=load, after=STOP.ends, until=until)
        figures[f"sent {load:g}"] = sum(until - 60 <= instant < until for instant in sent) / 60
        series[f"goodput {load:g}"] = rates(good, until, 2.0)
        series[f"sent {load:g}"] = rates(sent, until, 2.0)
    return trace.result(peer, seed, scale, figures, series=series, width=2.0)


def _traffic(peer: Peer, seed: int, comes: list[float]) -> tuple[list[float], list[float]]:
    """When calls succeeded, and when requests were sent."""
    if peer.name in BUDGETS:
        traffic = metastable(Fifo(1 / CAPACITY, STOP), comes, BUDGETS[peer.name]())
        return traffic.succeeded, traffic.sent
    server = Queued(dice(seed, "server"), capacity=CAPACITY, trouble=STOP)
    job = Job(attempt_timeout=1.0, deadline=10.0, max_attempts=2)
    calls, _ = played(peer, seed, job, server, at_times(comes))
    return calls.succeeded_at, server.arrived


def shards(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    figures: dict[str, float] = {}
    reference = peer.name.startswith("reference")
    until = scale["until" if reference else "library_until"]
    for count in scale["shards"]:
        random = dice(seed, "shards", count)
        comes = [(instant, random.randrange(count)) for instant in arrivals(scale["load"], until, random)]
        run = _reference_shards if reference else _library_shards
        healthy, served, at_dead = run(peer, seed, comes, count)
        figures[f"healthy {count}"] = served / healthy
        figures[f"dead {count}"] = at_dead / until
    return trace.result(peer, seed, scale, figures)


Comes = list[tuple[float, int]]  # when a call comes, and for which shard


def _reference_shards(peer: Peer, seed: int, comes: Comes, count: int) -> tuple[int, int, int]:
    """Calls for healthy shards, how many of them were served, and what reached the dead one."""
    one = RatioBreaker()
    breakers = [RatioBreaker() if "per shard" in peer.name else one for _ in range(count)]
    healthy = served = at_dead = 0
    for now, shard in comes:
        dead = shard == 0
        healthy += not dead
        if breakers[shard].admits(now):
            breakers[shard].record(now, dead)
            served += not dead
            at_dead += dead
    return healthy, served, at_dead


def _library_shards(peer: Peer, seed: int, comes: Comes, count: int) -> tuple[int, int, int]:
    server = Shards(dice(seed, "server"), count)
    served = 0

    async def one(ask: Callable[..., Any], shard: int) -> None:
        nonlocal served
        try:
            await ask(lambda: server.ask(shard))
        except Exception:
            return
        served += 1

    async def main() -> None:
        guard = SHARDED[peer.name](dice(seed, "client"))
        asks = [guard(shard) for shard in range(count)]
        tasks, before = set[asyncio.Task[None]](), 0.0
        for now, shard in comes:
            await asyncio.sleep(now - before)
            before = now
            task = asyncio.create_task(one(asks[shard], shard))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    virtual.run(main, seed)
    return sum(shard != 0 for _, shard in comes), served, server.at_dead


# Each gives, for a run's dice, a function of a shard: what a call to that shard goes through.
def nopanic_one(rng: Random) -> Callable[[int], Any]:
    guarded = _nopanic_breaker()(ask)
    return lambda shard: guarded


def nopanic_keyed(rng: Random) -> Callable[[int], Any]:
    import nopanic

    guarded = nopanic.keyed(lambda shard: _nopanic_breaker(), key=lambda request, shard: shard)(_sharded)
    return lambda shard: lambda request: guarded(request, shard)


async def _sharded(request: Callable[[], Any], shard: int) -> Any:
    return await request()


def _nopanic_breaker() -> Any:
    import nopanic

    return nopanic.circuit_breaker(failure_threshold=0.1, min_calls=100, window=30.0, reset_timeout=5.0)


def forbear_one(rng: Random) -> Callable[[int], Any]:
    guarded = _forbear_guard(rng, _forbear_upstream())
    return lambda shard: guarded


def forbear_scoped(rng: Random) -> Callable[[int], Any]:
    upstream = _forbear_upstream()
    return lambda shard: _forbear_guard(rng, upstream.for_(shard))


def _forbear_upstream() -> Any:
    """The published settings: what forbear does by itself (longer and jittered pauses) is switched off."""
    import forbear

    breaker = forbear.CircuitBreaker(
        None, 5.0, failure_rate=0.1, minimum_calls=100, window=30.0, growth=1.0, jitter=0.0, trials=1
    )
    return forbear.Upstream("shards", breaker=breaker, adaptive=False)


def _forbear_guard(rng: Random, upstream: Any) -> Any:
    import forbear

    return forbear.retry(max_attempts=1, upstream=upstream, rng=rng.random)(ask)


SHARDED: dict[str, Callable[[Random], Callable[[int], Any]]] = {
    "nopanic, one breaker": nopanic_one,
    "nopanic, keyed": nopanic_keyed,
    "forbear, one Upstream": forbear_one,
    "forbear, per shard": forbear_scoped,
}


SPREADS = {"reference: exact": 0.0, "reference: +5 %": 0.05, "reference: +10 %": 0.10, "reference: +25 %": 0.25}


def herd(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    count, hint = scale["clients"], scale["hint"]
    if peer.name in SPREADS:
        random = dice(seed, peer.name)
        came = [hint * (1 + random.uniform(0, SPREADS[peer.name])) for _ in range(count)]
        done = max(came)
    else:
        server = Closed(dice(seed, "server"), opens=hint)
        calls, _ = played(peer, seed, Job(deadline=300.0), server, at_times([0.0] * count))
        came, done = [instant for instant in server.arrived if instant > 0], max(calls.ended)
    figures = {
        "peak": max(rates(came, done + 1, 0.1)) * 0.1 if came else math.nan,
        "early": float(sum(instant < hint - 1e-6 for instant in came)),
        "done": done,
    }
    return trace.result(peer, seed, scale, figures)


def by_itself(peer: Peer) -> bool:
    return peer.name in {"no retry", "forbear, no Upstream", "forbear"}


PUBLISHED_HOTOS = {
    "reference: no retry": (37, 47, 74, 154),
    "reference: 1 retry, no budget": (144, math.inf, math.inf, math.inf),
    "reference: request-deposit 20 %": (40, 68, math.inf, math.inf),
    "reference: success-deposit 0.1, cap 100": (38, 48, 76, 160),
}
PUBLISHED_SHARDS = {"reference: one breaker": (0.139, 0.175, 0.996), "reference: per shard": (1.0, 1.0, 1.0)}
PUBLISHED_HERD = {"reference: exact": 1000, "reference: +5 %": 46, "reference: +10 %": 28, "reference: +25 %": 13}

TRACES = (
    Trace(
        name="metastable",
        title="Metastable failure (HotOS '21): a server of 300/s stops from 20 to 30 s; load back at 95 % by (s)",
        model="Poisson arrivals for 300 s; one queue; client timeout 1 s, one retry; the libraries' deadline is 10 s",
        figures=tuple(Figure(f"recovery {load:g}", f"load {load:g}", "instant", "<=", 160.0) for load in LOADS)
        + tuple(Figure(f"sent {load:g}", f"sent/s at {load:g}", "count") for load in LOADS),
        play=hotos,
        scale={"loads": LOADS, "library_loads": (200.0, 280.0), "until": 300.0},
        quick={"loads": (140.0,), "library_loads": (140.0,), "until": 60.0},
        around=({"loads": LOADS, "library_loads": LOADS, "until": 300.0},),
        peers=by_itself,
        references=tuple(BUDGETS),
        reference_seeds=8,
        published={
            name: {f"recovery {load:g}": float(value) for load, value in zip(LOADS, values, strict=True)}
            for name, values in PUBLISHED_HOTOS.items()
        },
    ),
    Trace(
        name="shards",
        title="One dead shard: availability of the healthy ones behind a breaker of 10 % in 30 s, at least 100 calls",
        model="100 requests/s for 20 minutes (libraries: 5), one attempt each; open for 5 s, then one trial; S shards",
        figures=tuple(Figure(f"healthy {count}", f"S={count}", "share", ">=", 0.999) for count in (4, 8, 16))
        + tuple(Figure(f"dead {count}", f"dead/s, S={count}", "ratio") for count in (4, 8, 16)),
        play=shards,
        scale={"shards": (4, 8, 16), "load": 100.0, "until": 1_200.0, "library_until": 300.0},
        quick={"shards": (8,), "load": 100.0, "until": 120.0, "library_until": 60.0},
        peers=lambda peer: False,
        subjects=("forbear, per shard",),
        references=("reference: one breaker", "reference: per shard", *SHARDED),
        packages={name: name.split(",")[0] for name in SHARDED},
        published={
            name: {f"healthy {count}": value for count, value in zip((4, 8, 16), values, strict=True)}
            for name, values in PUBLISHED_SHARDS.items()
        },
    ),
    Trace(
        name="herd",
        title="Retry-After herd: 1,000 clients are told 60 s at once",
        model="from 60 s on everyone is served; deadline 300 s",
        figures=(
            Figure("peak", "most in 0.1 s", "count", "<=", 50),
            Figure("early", "came early", "count", "<=", 0),
            Figure("done", "last done after", "seconds"),
        ),
        play=herd,
        scale={"clients": 1_000, "hint": 60.0},
        quick={"clients": 200, "hint": 60.0},
        peers=takes_part("herd"),
        references=tuple(SPREADS),
        published={name: {"peak": float(value)} for name, value in PUBLISHED_HERD.items()},
    ),
)
