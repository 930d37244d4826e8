"""The traces: a server that misbehaves, clients that need it, and the figures that tell how it went.

A trace is a function of the competitor, a seed and some numbers (its scale) to a frozen result. The names and the
targets of its figures stand beside it, so that tables, targets and ranges are made from the same data.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import virtual
from measures import Calls, count_between, quantile, rates, recovery
from peers import Call, Job, Peer, Request
from reference import arrivals
from servers import Hanging, Limited, Outage, Queued, Refusing, Server, SlowTail, Trouble

Scale = Mapping[str, Any]
Shape = Literal["share", "fine", "ratio", "seconds", "millis", "micros", "count", "instant"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One column. `target` is what forbear must reach, `sense` whether it must be at most or at least that."""

    key: str
    title: str
    shape: Shape
    sense: Literal["<=", ">=", ""] = ""
    target: float = math.nan

    def met(self, value: float) -> bool:
        return value <= self.target + 1e-9 if self.sense == "<=" else value >= self.target - 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one competitor came to, once. `series` are events per second in bins of `width` seconds, for pictures."""

    trace: str
    competitor: str
    seed: int
    scale: Scale
    figures: Mapping[str, float]
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    width: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """`scale` is the point of the claim, `quick` a small one, `around` the points of a range around it.

    `references` are competitors that only this trace knows, some of which need `packages`; `reference_seeds` is how
    often at least they run, to be compared with what was `published`. `subjects` must reach the targets.
    """

    name: str
    title: str
    model: str
    figures: tuple[Figure, ...]
    play: Callable[[Trace, Peer, int, Scale], Result]
    scale: Scale = field(default_factory=dict)
    quick: Scale = field(default_factory=dict)
    around: tuple[Scale, ...] = ()
    peers: Callable[[Peer], bool] = lambda peer: peer.only is None
    subjects: tuple[str, ...] = ("forbear",)
    references: tuple[str, ...] = ()
    reference_seeds: int = 1
    packages: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def result(self, peer: Peer, seed: int, scale: Scale, figures: Mapping[str, float], **series: Any) -> Result:
        return Result(trace=self.name, competitor=peer.name, seed=seed, scale=dict(scale), figures=figures, **series)


def takes_part(name: str) -> Callable[[Peer], bool]:
    return lambda peer: peer.only is None or name in peer.only


def dice(seed: int, *names: object) -> Random:
    """Dice of their own for each part of a run, so that none shifts another's."""
    return Random(f"{seed} {names}")


async def open_loop(times: Iterable[float], call: Call, request: Request) -> Calls:
    """A call at each of these instants, whatever has become of those before it."""
    calls, tasks = Calls(), []
    for instant in times:
        wait = instant - virtual.elapsed()
        if wait > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(calls.make(call, request)))
    await asyncio.gather(*tasks)
    return calls


def played(
    peer: Peer, seed: int, job: Job, server: Server, clients: Callable[[Call, Request], Any]
) -> tuple[Calls, Server]:
    """One run: the competitor's shared state is made inside the loop, as it would be in a service."""

    async def main() -> Calls:
        return await clients(peer.make(job, dice(seed, "client")), server.request)

    return virtual.run(main, seed), server


def at_times(times: Iterable[float]) -> Callable[[Call, Request], Any]:
    return lambda call, request: open_loop(times, call, request)


def outage(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    count = scale["calls"]
    server = Outage(dice(seed, "server"), lasts=scale["lasts"], capacity=scale["capacity"])
    job = Job(deadline=60.0, max_attempts=scale.get("attempts"))
    calls, _ = played(peer, seed, job, server, at_times([0.1 * i / count for i in range(count)]))
    done = max(calls.ended)
    figures = {
        "succeeded": calls.share_good,
        "requests": len(server.arrived) / count,
        "done": done,
        "late": done - scale["lasts"] - count / scale["capacity"],
        "peak": max(rates([t for t in server.arrived if t > 0.5], done + 1, 0.1), default=0.0),
    }
    series = {"requests": rates(server.arrived, 15, 0.25), "answered": rates(server.served, 15, 0.25)}
    return trace.result(peer, seed, scale, figures, series=series, width=0.25)


def hangs(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    count, deadline = scale["calls"], scale["deadline"]
    server = Hanging(dice(seed, "server"), share=scale["share"])
    job = Job(attempt_timeout=1.0, deadline=deadline, max_attempts=scale.get("attempts"))
    calls, _ = played(peer, seed, job, server, at_times([5.0 * i / count for i in range(count)]))
    figures = {
        "succeeded": calls.share_good,
        "overrun": calls.overrun(deadline),
        "p99": quantile(calls.durations, 0.99),
        "requests": len(server.arrived) / count,
    }
    return trace.result(peer, seed, scale, figures)


async def workers(calls: Calls, jobs: int, at_once: int, call: Call, request: Request) -> Calls:
    left = iter(range(jobs))

    async def work() -> None:
        for _ in left:
            await calls.make(call, request)

    await asyncio.gather(*(work() for _ in range(at_once)))
    return calls


def limited(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    jobs, rate, at_once = scale["jobs"], scale["rate"], scale["workers"]
    server = Limited(dice(seed, "server"), rate=rate)
    job = Job(
        deadline=60.0,
        max_attempts=scale.get("attempts"),
        limit=rate if scale["known"] else None,
        at_once=at_once,
    )
    calls, _ = played(peer, seed, job, server, lambda *them: workers(Calls(), jobs, at_once, *them))
    ideal = (jobs - rate) / rate  # the first second's worth is there at once
    figures = {
        "failed": 1 - calls.share_good,
        "rejected": len(server.rejected) / jobs,
        "later": sum(instant > 0.5 for instant in server.rejected) / jobs,
        "time": max(calls.ended) / ideal,
        "requests": len(server.arrived) / jobs,
    }
    series = {"accepted": rates(server.served, ideal * 1.6, 1.0), "rejected": rates(server.rejected, ideal * 1.6, 1.0)}
    return trace.result(peer, seed, scale, figures, series=series)


def overload(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    load, capacity, until, deadline = scale["load"], scale["capacity"], scale["until"], scale["deadline"]
    trouble = Trouble(20.0, 20.0 + scale["lasts"], scale["speed"])
    server = Queued(dice(seed, "server"), capacity=capacity, trouble=trouble)
    comes = arrivals(load, until, dice(seed, "arrivals"))
    job = Job(attempt_timeout=1.0, deadline=deadline, max_attempts=scale.get("attempts"))
    calls, _ = played(peer, seed, job, server, at_times(comes))
    good = calls.succeeded_at
    figures = {
        "goodput": count_between(good, until - 30, until) / (30 * load),
        "recovery": recovery(good, load=load, after=trouble.ends, until=until) - trouble.ends,
        "succeeded": calls.share_good,
        "requests": len(server.arrived) / len(comes),
        "overrun": calls.overrun(deadline),
        "at_once": float(server.most_in_flight),
    }
    series = {"goodput": rates(good, until, 1.0), "requests": rates(server.arrived, until, 1.0)}
    return trace.result(peer, seed, scale, figures, series=series)


def quota(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    count = scale["calls"]
    server = Refusing(dice(seed, "server"), 429, "insufficient_quota")
    job = Job(deadline=60.0, max_attempts=6)
    calls, _ = played(peer, seed, job, server, at_times([100.0 * i for i in range(count)]))
    figures = {"requests": len(server.arrived) / count, "wasted": sum(calls.durations) / count}
    return trace.result(peer, seed, scale, figures)


def nesting(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    server = Refusing(dice(seed, "server"), 503)
    job = Job(deadline=600.0, attempt_timeout=600.0, max_attempts=3)

    async def main() -> None:
        inner, middle, outer = (peer.make(job, dice(seed, layer)) for layer in range(3))
        await Calls().make(outer, lambda: middle(lambda: inner(server.request)))

    virtual.run(main, seed)
    return trace.result(peer, seed, scale, {"requests": float(len(server.arrived))})


def slow_tail(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    durations, extra = _tail(peer, seed, scale["calls"], scale["share"])
    figures = {
        "p50": quantile(durations, 0.5),
        "p95": quantile(durations, 0.95),
        "p99": quantile(durations, 0.99),
        "p999": quantile(durations, 0.999),
        "extra": extra,
    }
    return trace.result(peer, seed, scale, figures)


def tail_shares(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    """All shares of slow answers, one after another; the figures of a share are keyed by it."""
    figures = {}
    for share in scale["shares"]:
        durations, figures[f"extra {share:g}"] = _tail(peer, seed, scale["calls"], share)
        figures[f"p99 {share:g}"] = quantile(durations, 0.99)
    return trace.result(peer, seed, scale, figures)


def _tail(peer: Peer, seed: int, count: int, share: float) -> tuple[list[float], float]:
    """How long the calls took, 200 a second, and how many requests there were beyond them, as a share."""
    server = SlowTail(dice(seed, "server"), share=share, slow=2.0)
    calls, _ = played(peer, seed, Job(deadline=60.0), server, at_times([i / 200 for i in range(count)]))
    return calls.durations, len(server.arrived) / count - 1


def grid(point: Scale, **axes: tuple[Any, ...]) -> tuple[Scale, ...]:
    """Points around `point`: all combinations of two or more axes."""
    return tuple({**point, **dict(zip(axes, values, strict=True))} for values in itertools.product(*axes.values()))


OUTAGE = {"calls": 1_000, "lasts": 3.0, "capacity": 500.0}
HANGS = {"calls": 1_000, "share": 0.2, "deadline": 5.0}
LIMIT = {"jobs": 600, "workers": 60, "rate": 10.0}
OVERLOAD = {"load": 80.0, "capacity": 100.0, "until": 120.0, "lasts": 5.0, "speed": 0.1, "deadline": 30.0}
TAIL = {"calls": 20_000, "share": 0.05}
SHARES = (0.01, 0.02, 0.05, 0.1)

TRACES = (
    Trace(
        name="outage",
        title="Outage: 1,000 calls in 0.1 s; 503 for 3 s, then room for 500 requests/s",
        model="deadline 60 s; 10-50 ms a refusal, then 20 ms an answer; bursts of 0.1 s; ideal: done after 5 s",
        figures=(
            Figure("succeeded", "succeeded", "share", ">=", 1.0),
            Figure("requests", "requests/call", "ratio", "<=", 1.3),
            Figure("done", "done after", "seconds"),
            Figure("late", "past the ideal", "seconds", "<=", 1.5),
            Figure("peak", "peak requests/s", "count"),
        ),
        play=outage,
        scale=OUTAGE,
        quick={"calls": 200, "lasts": 3.0, "capacity": 100.0},
        around=grid(OUTAGE, calls=(500, 1_000, 2_000), lasts=(1.0, 3.0, 6.0)) + grid(OUTAGE, capacity=(250.0, 1_000.0)),
        peers=takes_part("outage"),
    ),
    Trace(
        name="hangs",
        title="Hangs: 20 % of attempts are never answered",
        model="1,000 calls in 5 s; 50 ms an answer; attempt timeout 1 s, deadline 5 s",
        figures=(
            Figure("succeeded", "succeeded", "share", ">=", 0.99),
            Figure("overrun", "deadline passed by", "seconds", "<=", 0.05),
            Figure("p99", "p99", "seconds"),
            Figure("requests", "requests/call", "ratio"),
        ),
        play=hangs,
        scale=HANGS,
        quick={"calls": 200, "share": 0.2, "deadline": 5.0},
        around=grid(HANGS, share=(0.05, 0.1, 0.2), deadline=(5.0, 10.0)) + grid(HANGS, share=(0.3,), deadline=(10.0,)),
    ),
    Trace(
        name="limit-known",
        title="Rate limit, told to the client: 600 jobs, 60 workers, 10 requests/s",
        model="429 with Retry-After in whole seconds; 50 ms an answer; ideal time 59 s; only libraries with a limiter",
        figures=(
            Figure("failed", "failed", "share", "<=", 0.0),
            Figure("rejected", "rejected/job", "share", "<=", 0.01),
            Figure("time", "time/ideal", "ratio", "<=", 1.03),
            Figure("requests", "requests/job", "ratio"),
        ),
        play=limited,
        scale=LIMIT | {"known": True},
        quick={"jobs": 120, "workers": 30, "rate": 10.0, "known": True},
        around=grid(LIMIT | {"known": True}, workers=(20, 60, 200), rate=(5.0, 10.0, 20.0)),
        peers=lambda peer: peer.limiter and peer.only is None,
    ),
    Trace(
        name="limit-unknown",
        title="Rate limit, unknown to the client: 600 jobs, 60 workers, 10 requests/s",
        model="429 with Retry-After in whole seconds; 50 ms an answer; ideal time 59 s; deadline 60 s a job",
        figures=(
            Figure("failed", "failed", "share", "<=", 0.0),
            Figure("rejected", "rejected/job", "share", "<=", 0.11),
            Figure("later", "later than 0.5 s/job", "share"),
            Figure("time", "time/ideal", "ratio", "<=", 1.1),
            Figure("requests", "requests/job", "ratio"),
        ),
        play=limited,
        scale=LIMIT | {"known": False},
        quick={"jobs": 120, "workers": 30, "rate": 10.0, "known": False},
        around=grid(LIMIT | {"known": False}, workers=(20, 40, 60), rate=(5.0, 10.0, 20.0)),
        peers=takes_part("limit-unknown"),
    ),
    Trace(
        name="overload",
        title="Overload: 80 requests/s on a server of 100/s, ten times slower from 20 to 25 s",
        model="Poisson arrivals for 120 s; one queue, abandoned work is done too; attempt timeout 1 s, deadline 30 s",
        figures=(
            Figure("goodput", "goodput at the end/load", "share", ">=", 0.95),
            Figure("recovery", "recovered after", "instant", "<=", 30.0),
            Figure("succeeded", "succeeded", "share", ">=", 0.97),
            Figure("requests", "requests/call", "ratio", "<=", 1.1),
            Figure("overrun", "deadline passed by", "seconds"),
            Figure("at_once", "most at once", "count"),
        ),
        play=overload,
        scale=OVERLOAD,
        quick=OVERLOAD | {"until": 60.0, "load": 40.0, "capacity": 50.0},
        around=grid(OVERLOAD, load=(60.0, 70.0, 80.0, 90.0), deadline=(10.0, 30.0))
        + grid(OVERLOAD, speed=(0.0, 0.5))
        + grid(OVERLOAD, lasts=(2.0, 10.0)),
        peers=takes_part("overload"),
        subjects=("forbear", "forbear + hedge"),
    ),
    Trace(
        name="quota",
        title="Quota: a 429 that says insufficient_quota",
        model="no Retry-After; at most 6 attempts; 20 calls, one after another",
        figures=(
            Figure("requests", "requests/call", "ratio", "<=", 1.0),
            Figure("wasted", "seconds/call", "seconds"),
        ),
        play=quota,
        scale={"calls": 20},
        quick={"calls": 5},
    ),
    Trace(
        name="nesting",
        title="Nesting: three layers of three attempts, all of which fail",
        model="503 each time; one call",
        figures=(Figure("requests", "requests", "count", "<=", 3),),
        play=nesting,
    ),
    Trace(
        name="slow-tail",
        title="Slow tail: 5 % of answers take 2 s, the others 50 ms",
        model="20,000 calls, 200/s; deadline 60 s; nopanic is told to hedge after 0.1 s, forbear learns when",
        figures=(
            Figure("p50", "p50", "seconds"),
            Figure("p95", "p95", "seconds"),
            Figure("p99", "p99", "seconds", "<=", 0.2),
            Figure("p999", "p99.9", "seconds"),
            Figure("extra", "extra requests", "fine", "<=", 0.06),
        ),
        play=slow_tail,
        scale=TAIL,
        quick={"calls": 1_000, "share": 0.05},
        around=grid(TAIL, share=(0.01, 0.02, 0.05)),
        peers=takes_part("slow-tail"),
        subjects=("forbear + hedge",),
    ),
    Trace(
        name="tail-shares",
        title="Slow tail: 1 to 10 % of answers take 2 s, the others 50 ms",
        model="10,000 calls for each share, 200/s; forbear's hedge may add 6 % and 30 copies, or what its name says",
        figures=tuple(
            Figure(f"p99 {share:g}", f"p99, {100 * share:g} %", "seconds", *(("<=", 0.2) if share < 0.1 else ()))
            for share in SHARES
        )
        + tuple(Figure(f"extra {share:g}", f"extra, {100 * share:g} %", "fine", "<=", 0.063) for share in SHARES),
        play=tail_shares,
        scale={"shares": SHARES, "calls": 10_000},
        quick={"shares": (0.02,), "calls": 1_000},
        peers=lambda peer: peer.only is not None and "tail-shares" in peer.only,
        subjects=("forbear + hedge",),
    ),
)
