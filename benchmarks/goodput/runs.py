"""Which runs are made, and making them: several processes, and results that do not depend on how many."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import hedging
import published
import traces
from peers import Job, Peer, present, quiet
from traces import Result, Scale, Trace
from virtual import real_clock

TRACES = {trace.name: trace for trace in (*traces.TRACES, *published.TRACES, *hedging.TRACES)}


class Unit(NamedTuple):
    """One run, in words that another process understands."""

    trace: str
    competitor: str
    seed: int
    scale: Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for. Empty names mean all."""

    traces: tuple[str, ...] = ()
    competitors: tuple[str, ...] = ()
    seeds: int = 1
    quick: bool = False
    around: bool = False
    attempts: int | None = None

    def scales(self, trace: Trace) -> tuple[Scale, ...]:
        found = trace.around if self.around and trace.around else (trace.quick if self.quick else trace.scale,)
        more = {} if self.attempts is None else {"attempts": self.attempts}
        return tuple({**trace.scale, **scale, **more} for scale in found)

    def seeds_of(self, trace: Trace, peer: Peer) -> range:
        return range(1, 1 + max(self.seeds, 1 if self.quick or not is_reference(peer) else trace.reference_seeds))


def is_reference(peer: Peer) -> bool:
    return peer.name.startswith("reference")


def competitors(trace: Trace) -> list[Peer]:
    """References first, then the libraries. A trace that makes its own calls names what it knows among them."""
    named = [Peer(name=name, make=_unused, package=trace.packages.get(name)) for name in trace.references]
    return [peer for peer in named if not peer.missing] + [peer for peer in present() if trace.peers(peer)]


def _unused(job: Job, rng: Any) -> Any:
    raise AssertionError("this trace makes the calls of its references by itself")


def units(wanted: Wanted) -> list[Unit]:
    return [
        Unit(trace.name, peer.name, seed, scale)
        for trace in TRACES.values()
        if not wanted.traces or trace.name in wanted.traces
        for peer in competitors(trace)
        if not wanted.competitors or peer.name in wanted.competitors
        for scale in wanted.scales(trace)
        for seed in wanted.seeds_of(trace, peer)
    ]


def play(unit: Unit) -> tuple[Result, float]:
    """The result, and the real seconds that it took."""
    quiet()
    trace = TRACES[unit.trace]
    peer = next(peer for peer in competitors(trace) if peer.name == unit.competitor)
    began = real_clock()
    result = trace.play(trace, peer, unit.seed, unit.scale)
    return result, real_clock() - began


def all_played(todo: list[Unit], processes: int) -> Iterator[Result]:
    """In the order of `todo`, with progress on stderr."""
    for number, (result, took) in enumerate(_played(todo, processes), 1):
        print(
            f"[{number}/{len(todo)}] {result.trace}: {result.competitor}, seed {result.seed}: {took:.1f} s",
            file=sys.stderr,
            flush=True,
        )
        yield result


def _played(todo: list[Unit], processes: int) -> Iterator[tuple[Result, float]]:
    """In the order of `todo`. Executors count on a clock that moves; plain pipes do not."""
    if processes == 1 or len(todo) == 1:
        yield from map(play, todo)
        return
    forked = get_context("fork")  # so that the others live in virtual time, too
    left, done = iter(range(len(todo))), dict[int, tuple[Result, float]]()
    pipes = []
    for _ in range(min(processes, len(todo))):
        here, there = forked.Pipe()
        forked.Process(target=_work, args=(there, todo), daemon=True).start()
        there.close()
        here.send(next(left))
        pipes.append(here)
    for number in range(len(todo)):
        while number not in done:
            for pipe in wait(pipes):
                finished, outcome = pipe.recv()
                done[finished] = outcome
                pipe.send(next(left, None))
        yield done.pop(number)


def _work(pipe: Connection, todo: list[Unit]) -> None:
    while (number := pipe.recv()) is not None:
        pipe.send((number, play(todo[number])))
    pipe.recv()  # nothing comes: the end of the parent ends this process
