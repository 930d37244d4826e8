"""Hedging: the published figures, with what forbear's own core makes of the same calls.

`hedge-trigger`: after which percentile a second copy is sent, and what that costs ("The Tail at Scale", Dean and
Barroso, 2013). `fan-out`: an answer that needs a hundred leaves. `correlated`: stalls that the copy meets again.
`slowdown`: a service all of whose answers become ten times slower for a while. `hedge-stack`: the same calls through
`forbear.hedge` on the event loop, which has to give what the core gives.

Hundreds of thousands of calls are played without an event loop: the rules are those of forbear's core, and only who
asks it when is written here. The references know the true percentile, send every copy and have no budget.
"""
# ruff: noqa: PLC0415  # forbear is imported where it is used: it may be missing

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import virtual
from measures import quantile
from peers import Peer, ask
from traces import Figure, Result, Scale, Trace, dice

Pair = tuple[float, float]  # how long the first copy and the second would take, each from its own beginning
Slower = Callable[[float], float]  # how many times longer it takes what begins at this instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Answers around `median`, a `share` of which stalls for `least` to `most` seconds more.

    repeats: the share of stalls that the second copy meets again, for as long as it happens to take then.
    """

    median: float
    share: float
    least: float
    most: float
    repeats: float = 0.0
    sigma: float = 0.35

    def pair(self, rng: Random) -> Pair:
        # As many dice for each pair, whatever they show: what repeats must not shift the calls that follow.
        stalls, repeats, by_itself = rng.random() < self.share, rng.random() < self.repeats, rng.random() < self.share
        return self._answer(rng, stalls=stalls), self._answer(rng, stalls=by_itself or (stalls and repeats))

    def _answer(self, rng: Random, *, stalls: bool) -> float:
        return rng.lognormvariate(math.log(self.median), self.sigma) + stalls * rng.uniform(self.least, self.most)


@dataclass(slots=True)
class Played:
    """How long each call took, in their order, and the instants at which copies were sent."""

    durations: list[float] = field(default_factory=list)
    copies: list[float] = field(default_factory=list)


def as_usual(instant: float) -> float:
    return 1.0


def by_core(settings: Any, comes: Sequence[float], pairs: Sequence[Pair], slower: Slower = as_usual) -> Played:
    """Calls that are hedged by forbear's core, which is asked in the order in which things happen."""
    from forbear.core.hedge import Hedging

    core, played = Hedging(settings, 0.0), Played(durations=[0.0] * len(comes))
    # What happens next to a call: its number, and either the copy that is due or how long its copies have taken.
    events: list[tuple[float, int, float, tuple[float, ...]]] = []

    def happens(until: float) -> None:
        while events and events[0][0] <= until:
            now, number, delay, took = heapq.heappop(events)
            if took:
                core.record(took[0], now)
                core.succeeded()
                for loser in took[1:]:
                    core.record(loser, now)
            else:
                due(now, number, delay)

    def due(now: float, number: int, delay: float) -> None:
        began, pair = comes[number], pairs[number]
        first = pair[0] * slower(began)
        if not core.take():
            wait_for(began, first, now + delay, number, delay)
            return
        played.copies.append(now)
        second = pair[1] * slower(now)
        if now + second < began + first:
            end(now + second, number, (second, now + second - began))
        else:
            end(began + first, number, (first, began + first - now))

    def wait_for(began: float, first: float, next_due: float, number: int, delay: float) -> None:
        if next_due < began + first:
            heapq.heappush(events, (next_due, number, delay, ()))
        else:
            end(began + first, number, (first,))

    def end(instant: float, number: int, took: tuple[float, ...]) -> None:
        played.durations[number] = instant - comes[number]
        heapq.heappush(events, (instant, number, 0.0, took))

    for number, began in enumerate(comes):
        happens(began)
        delay = core.delay(began)
        first = pairs[number][0] * slower(began)
        wait_for(began, first, math.inf if delay is None else began + delay, number, delay or 0.0)
    happens(math.inf)
    return played


def by_reference(delay: float, comes: Sequence[float], pairs: Sequence[Pair], slower: Slower = as_usual) -> Played:
    """Calls that are hedged after this delay, all of them."""
    played = Played()
    for began, (first, second) in zip(comes, pairs, strict=True):
        took = first * slower(began)
        if took > delay:
            played.copies.append(began + delay)
            took = min(took, delay + second * slower(began + delay))
        played.durations.append(took)
    return played


def poisson(count: int, rate: float, rng: Random) -> list[float]:
    """The instants of so many arrivals."""
    found, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        found.append(now)
    return found


def calls_of(tail: Tail, count: int, seed: int) -> list[Pair]:
    """The same calls for every competitor."""
    rng = dice(seed, "calls")
    return [tail.pair(rng) for _ in range(count)]


def percentile(pairs: Sequence[Pair], share: float) -> float:
    """How long calls take without a hedge."""
    return quantile((first for first, _ in pairs), share)


Client = Callable[[Sequence[float], Sequence[Pair], Slower], Played]


def core(delay: float | None = None, load: float = 0.05) -> Client:
    def client(comes: Sequence[float], pairs: Sequence[Pair], slower: Slower) -> Played:
        from forbear.core.hedge import HedgeSettings

        return by_core(HedgeSettings(delay=delay, max_extra_load=load), comes, pairs, slower)

    return client


def after(delay: float) -> Client:
    return lambda comes, pairs, slower: by_reference(delay, comes, pairs, slower)


def after_percentile(share: float) -> Client:
    return lambda comes, pairs, slower: by_reference(percentile(pairs, share), comes, pairs, slower)


NO_HEDGE, AT_P95, BY_DEFAULT = "reference: no hedge", "reference: hedge at p95", "forbear, 5 % learned"
AFTER_10_MS, FORBEAR_10_MS = "reference: hedge after 10 ms", "forbear, delay 10 ms"
FORBEAR_200_MS, LEARNED_FEW = "forbear, delay 200 ms", "forbear, 0.2 % learned"
TRIGGERS: dict[str, Client] = {
    NO_HEDGE: after(math.inf),
    "reference: hedge at p50": after_percentile(0.5),
    "forbear, 50 % learned": core(load=0.5),
    "reference: hedge at p90": after_percentile(0.9),
    "forbear, 10 % learned": core(load=0.1),
    AT_P95: after_percentile(0.95),
    BY_DEFAULT: core(),
    "reference: hedge at p99": after_percentile(0.99),
    "forbear, 1 % learned": core(load=0.01),
}
CLIENTS = TRIGGERS | {
    AFTER_10_MS: after(0.010),
    FORBEAR_10_MS: core(0.010),
    FORBEAR_200_MS: core(0.200),
    LEARNED_FEW: core(load=0.002),
}


def of_forbear(names: Iterable[str]) -> dict[str, str]:
    return {name: "forbear" for name in names if not name.startswith("reference")}


def trigger(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    count = scale["calls"]
    pairs = calls_of(STALLS, count, seed)
    played = CLIENTS[peer.name](poisson(count, scale["rate"], dice(seed, "arrivals")), pairs, as_usual)
    figures = {
        "p50": quantile(played.durations, 0.5),
        "p99": quantile(played.durations, 0.99),
        "p999": (p999 := quantile(played.durations, 0.999)),
        "divided": percentile(pairs, 0.999) / p999,
        "extra": len(played.copies) / count,
    }
    return trace.result(peer, seed, scale, figures)


def fan_out(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    """All leaves of a root are asked at once, and the root takes as long as the slowest of them."""
    leaves, roots = scale["leaves"], scale["roots"]
    pairs = calls_of(LEAF, roots * leaves, seed)
    comes = [began for began in poisson(roots, scale["rate"], dice(seed, "arrivals")) for _ in range(leaves)]
    played = CLIENTS[peer.name](comes, pairs, as_usual)
    ended = slowest(played.durations, leaves)
    figures = {
        "p50": quantile(ended, 0.5),
        "p99": quantile(ended, 0.99),
        "p999": (p999 := quantile(ended, 0.999)),
        "divided": quantile(slowest([first for first, _ in pairs], leaves), 0.999) / p999,
        "extra": len(played.copies) / len(pairs),
    }
    return trace.result(peer, seed, scale, figures)


def slowest(durations: Sequence[float], leaves: int) -> list[float]:
    return [max(durations[first : first + leaves]) for first in range(0, len(durations), leaves)]


def correlated(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    count, figures = scale["calls"], {}
    comes = poisson(count, scale["rate"], dice(seed, "arrivals"))
    for share in REPEATS:
        pairs = calls_of(Tail(median=0.1, share=0.01, least=1.0, most=3.0, repeats=share), count, seed)
        played = CLIENTS[peer.name](comes, pairs, as_usual)
        figures[f"p999 {share:g}"] = p999 = quantile(played.durations, 0.999)
        figures[f"worse {share:g}"] = p999 / percentile(pairs, 0.999)
        figures[f"extra {share:g}"] = len(played.copies) / count
    return trace.result(peer, seed, scale, figures)


def slowdown(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    """Before, during and after the slow minute, by when a call began or a copy was sent."""
    begins, ends, until, rate = scale["begins"], scale["ends"], scale["until"], scale["rate"]
    comes = poisson(round(rate * until), rate, dice(seed, "arrivals"))
    pairs = calls_of(STALLS, len(comes), seed)

    def slower(instant: float) -> float:
        return 10.0 if begins <= instant < ends else 1.0

    played = CLIENTS[peer.name](comes, pairs, slower)
    base = CLIENTS[NO_HEDGE](comes, pairs, slower)

    def p99(some: Played, begin: float, end: float) -> float:
        return quantile(between(comes, some.durations, begin, end), 0.99)

    def extra(begin: float, end: float) -> float:
        return sum(begin <= sent < end for sent in played.copies) / sum(begin <= came < end for came in comes)

    figures = {
        "extra before": extra(0, begins),
        "extra at first": extra(begins, begins + 10),
        "extra": extra(begins, ends),
        "beyond": max(0.0, (extra(begins, ends) - 0.05) * sum(begins <= came < ends for came in comes)),
        "extra after": extra(ends, until),
        "p99 before": p99(played, 0, begins),
        "p99": p99(played, begins, ends),
        "worse": p99(played, begins, ends) / p99(base, begins, ends),
        "p99 next": p99(played, ends, ends + 60),
        "p99 after": p99(played, ends + 60, until),
    }
    return trace.result(peer, seed, scale, figures)


def between(comes: Sequence[float], durations: Iterable[float], begin: float, end: float) -> list[float]:
    return [took for came, took in zip(comes, durations, strict=True) if begin <= came < end]


def stack(trace: Trace, peer: Peer, seed: int, scale: Scale) -> Result:
    """The same calls through the core alone and through all of forbear."""
    count = scale["calls"]
    comes, pairs = poisson(count, scale["rate"], dice(seed, "arrivals")), calls_of(STALLS, count, seed)
    alone = CLIENTS[BY_DEFAULT](comes, pairs, as_usual)
    durations, copies = virtual.run(lambda: through(peer.name, comes, pairs), seed)
    figures = {
        "p999": quantile(durations, 0.999),
        "core p999": quantile(alone.durations, 0.999),
        "extra": copies / count,
        "core extra": len(alone.copies) / count,
        "differs": max(abs(mine - its) for mine, its in zip(durations, alone.durations, strict=True)),
        "copies": float(abs(copies - len(alone.copies))),
    }
    return trace.result(peer, seed, scale, figures)


async def through(name: str, comes: Sequence[float], pairs: Sequence[Pair]) -> tuple[list[float], int]:
    """How long the calls took through `hedge` on this event loop, and how many copies were sent."""
    import forbear

    options: dict[str, Any] = {"deadline": 60.0, "attempt_timeout": 30.0}
    call = STACKS[name](forbear)(**options)(ask)
    durations, sent = [0.0] * len(comes), [0] * len(comes)

    async def one(number: int) -> None:
        async def request() -> None:
            sent[number] += 1
            await asyncio.sleep(pairs[number][sent[number] - 1])

        began = virtual.elapsed()
        await call(request)
        durations[number] = virtual.elapsed() - began

    tasks = []
    for number, instant in enumerate(comes):
        await asyncio.sleep(instant - virtual.elapsed())
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.gather(*tasks)
    return durations, sum(sent) - len(comes)


STACKS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "forbear.hedge()": lambda forbear: forbear.hedge,
    "Upstream.hedge()": lambda forbear: forbear.Upstream("bench").hedge,
}

STALLS = Tail(median=0.1, share=0.01, least=1.0, most=3.0)
LEAF = Tail(median=0.003, share=0.001, least=0.1, most=2.0)
REPEATS = (0.0, 0.5, 1.0)
MODEL = "Poisson arrivals, 100/s; answers lognormal (median 100 ms, sigma 0.35), 1 % stall for 1 to 3 s more"

# p99, p99.9 and extra requests.
PUBLISHED_TRIGGER = {
    NO_HEDGE: (0.411, 2.904, 0.0),
    "reference: hedge at p50": (0.212, 0.268, 0.5),
    "reference: hedge at p90": (0.246, 0.320, 0.1),
    AT_P95: (0.262, 0.346, 0.05),
    "reference: hedge at p99": (0.411, 0.570, 0.01),
}

TRACES = (
    Trace(
        name="hedge-trigger",
        title="When to hedge (The Tail at Scale): a second copy after the 50th, 90th, 95th and 99th percentile",
        model=f"400,000 calls; {MODEL}",
        figures=(
            Figure("p50", "p50", "millis"),
            Figure("p99", "p99", "millis"),
            Figure("p999", "p99.9", "millis"),
            Figure("divided", "p99.9 divided by", "ratio", ">=", 6.0),
            Figure("extra", "extra requests", "fine", "<=", 0.05),
        ),
        play=trigger,
        scale={"calls": 400_000, "rate": 100.0},
        quick={"calls": 20_000, "rate": 100.0},
        around=({"calls": 400_000, "rate": 20.0}, {"calls": 400_000, "rate": 100.0}, {"calls": 400_000, "rate": 500.0}),
        peers=lambda peer: False,
        subjects=(BY_DEFAULT,),
        references=tuple(TRIGGERS),
        packages=of_forbear(TRIGGERS),
        published={
            name: dict(zip(("p99", "p999", "extra"), values, strict=True)) for name, values in PUBLISHED_TRIGGER.items()
        },
    ),
    Trace(
        name="fan-out",
        title="Fan-out: an answer that needs all of 100 leaves, of which 0.1 % stall for 100 to 2,000 ms",
        model="5,000 answers, 10/s; leaves lognormal (median 3 ms, sigma 0.35); percentiles of whole answers",
        figures=(
            Figure("p50", "p50", "millis"),
            Figure("p99", "p99", "millis"),
            Figure("p999", "p99.9", "millis"),
            Figure("divided", "p99.9 divided by", "ratio", ">=", 20.0),
            Figure("extra", "extra requests", "fine", "<=", 0.0015),
        ),
        play=fan_out,
        scale={"roots": 5_000, "leaves": 100, "rate": 10.0},
        quick={"roots": 200, "leaves": 100, "rate": 10.0},
        around=tuple({"roots": 5_000, "leaves": 100, "rate": rate} for rate in (2.0, 10.0, 50.0)),
        peers=lambda peer: False,
        subjects=(FORBEAR_10_MS,),
        references=(NO_HEDGE, AFTER_10_MS, FORBEAR_10_MS, LEARNED_FEW, BY_DEFAULT),
        packages=of_forbear((FORBEAR_10_MS, LEARNED_FEW, BY_DEFAULT)),
        published={NO_HEDGE: {"p999": 1.988}, AFTER_10_MS: {"p999": 0.017, "extra": 0.0013}},
    ),
    Trace(
        name="correlated",
        title="Correlated stalls: none, half or all of the stalls meet the copy again",
        model=f"400,000 calls; {MODEL}",
        figures=(
            *(Figure(f"p999 {share:g}", f"p99.9, again {100 * share:g} %", "millis") for share in REPEATS),
            *(Figure(f"worse {share:g}", f"of the base, {100 * share:g} %", "ratio", "<=", 1.0) for share in REPEATS),
            *(Figure(f"extra {share:g}", f"extra, {100 * share:g} %", "fine", "<=", 0.05) for share in REPEATS),
        ),
        play=correlated,
        scale={"calls": 400_000, "rate": 100.0},
        quick={"calls": 20_000, "rate": 100.0},
        peers=lambda peer: False,
        subjects=(BY_DEFAULT,),
        references=(NO_HEDGE, AT_P95, BY_DEFAULT),
        packages=of_forbear([BY_DEFAULT]),
        published={AT_P95: {"p999 0": 0.346, "p999 0.5": 2.299, "p999 1": 2.581}},
    ),
    Trace(
        name="slowdown",
        title="Slowdown: from 60 to 120 s all answers take ten times as long",
        model=f"300 s; {MODEL}",
        figures=(
            Figure("extra before", "extra before", "fine"),
            Figure("extra at first", "first 10 s of it", "fine"),
            Figure("extra", "extra while slow", "fine"),
            Figure("beyond", "copies beyond 5 %", "count", "<=", 30),
            Figure("extra after", "extra after", "fine"),
            Figure("p99 before", "p99 before", "millis"),
            Figure("p99", "p99 while slow", "millis"),
            Figure("worse", "of the base", "ratio", "<=", 1.0),
            Figure("p99 next", "p99, minute after", "millis"),
            Figure("p99 after", "p99 later", "millis"),
        ),
        play=slowdown,
        scale={"begins": 60.0, "ends": 120.0, "until": 300.0, "rate": 100.0},
        quick={"begins": 60.0, "ends": 120.0, "until": 240.0, "rate": 20.0},
        around=tuple({"begins": 60.0, "ends": 120.0, "until": 300.0, "rate": rate} for rate in (20.0, 100.0, 500.0)),
        peers=lambda peer: False,
        subjects=(BY_DEFAULT,),
        references=(NO_HEDGE, AT_P95, BY_DEFAULT, FORBEAR_200_MS),
        packages=of_forbear((BY_DEFAULT, FORBEAR_200_MS)),
    ),
    Trace(
        name="hedge-stack",
        title="The same calls through forbear's core alone and through all of forbear on the event loop",
        model=f"5,000 calls; {MODEL}",
        figures=(
            Figure("p999", "p99.9", "millis"),
            Figure("core p999", "p99.9 of the core", "millis"),
            Figure("extra", "extra requests", "fine"),
            Figure("core extra", "extra of the core", "fine"),
            Figure("differs", "a call differs by", "micros", "<=", 1e-6),
            Figure("copies", "copies differ by", "count", "<=", 0),
        ),
        play=stack,
        scale={"calls": 5_000, "rate": 100.0},
        quick={"calls": 1_000, "rate": 100.0},
        peers=lambda peer: False,
        subjects=tuple(STACKS),
        references=tuple(STACKS),
        packages=of_forbear(STACKS),
    ),
)
