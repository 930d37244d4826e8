"""Laws of the limit on attempts under way: in any order of ends, and in front of a server that is well, ill or dead."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forbear.core.concurrency import LONGEST_PAUSE, Concurrency, Verdict

VERDICTS: tuple[Verdict, ...] = ("success", "rejected", "failed", "neutral")


class Attempts(RuleBasedStateMachine):
    """Attempts that begin when they may, and end in any order, however late."""

    @initialize(most=st.sampled_from([1.0, 2.0, 7.0, 100.0, math.inf]), adaptive=st.booleans())
    def make(self, most: float, adaptive: bool) -> None:
        self.limit = Concurrency(most, adaptive=adaptive)
        self.now = 0.0
        self.under_way: list[tuple[int, int]] = []
        self.has_failed = False

    @rule(seconds=st.one_of(st.floats(0, 10), st.sampled_from([0.0, 61.0, 1e9])))
    def time_goes_on(self, seconds: float) -> None:
        self.now = min(1e12, self.now + seconds)

    @rule(many=st.sampled_from([1, 2, 5, 30]))
    def some_begin(self, many: int) -> None:
        for _ in range(many):
            if self.limit.wait(self.now) > 0:
                return
            self.under_way.append((self.limit.take(self.now), self.limit.wave))

    @precondition(lambda self: self.under_way)
    @rule(
        which=st.integers(0, 10**6),
        many=st.sampled_from([1, 2, 5, 30]),
        verdict=st.sampled_from(VERDICTS),
        dice=st.sampled_from([0.0, 0.5, math.nextafter(1.0, 0.0)]),
    )
    def some_end(self, which: int, many: int, verdict: Verdict, dice: float) -> None:
        for _ in range(min(many, len(self.under_way))):
            attempt, wave = self.under_way.pop(which % len(self.under_way))
            before, limit = self.limit.wave, self.limit.limit
            self.limit.leave(attempt, verdict, self.now, dice)
            self.has_failed |= verdict in ("rejected", "failed")
            # One decrease per wave: who belongs to an older one lowers nothing.
            assert self.limit.wave - before <= int(wave == before and verdict in ("rejected", "failed"))
            if self.limit.wave == before:
                assert self.limit.limit >= limit
            else:
                assert self.limit.limit <= limit

    @precondition(lambda self: self.under_way)
    @rule()
    def all_end(self) -> None:
        while self.under_way:
            self.limit.leave(self.under_way.pop()[0], "neutral", self.now, 0.0)
        assert self.limit.under_way == 0
        assert self.limit.wait(self.now) <= LONGEST_PAUSE

    @invariant()
    def the_limit_is_at_least_one_and_at_most_the_users_own(self) -> None:
        if not hasattr(self, "limit"):
            return
        assert 1.0 <= self.limit.limit <= self.limit.most
        assert self.limit.under_way == len(self.under_way)
        assert 0.0 <= self.limit.pause <= LONGEST_PAUSE
        assert self.limit.probe_at - self.now <= LONGEST_PAUSE
        if not self.has_failed or not self.limit.adaptive:
            assert self.limit.limit == self.limit.most
        if self.limit.wait(self.now) == 0.0:
            assert self.limit.under_way + 1 <= self.limit.limit


TestAttempts = Attempts.TestCase
TestAttempts.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


# ---- workers in front of a server --------------------------------------------------------------------------------

Server = Callable[[float, int, random.Random], tuple[Verdict, float]]  # (now, under way, dice): the end, the seconds


@dataclass
class Seen:
    """What became of it: the limit after each end, and how many were under way."""

    limits: list[tuple[float, float]] = field(default_factory=list)
    decreases: int = 0
    ended: dict[Verdict, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))

    def mean(self, most: float, since: float = 0.0) -> float:
        kept = [min(limit, most) for now, limit in self.limits if now >= since]
        return sum(kept) / len(kept)

    def lowest(self, since: float = 0.0) -> float:
        return min(limit for now, limit in self.limits if now >= since)


def work(workers: int, seconds: float, server: Server, seed: int = 1, *, at_once: bool = True) -> Seen:
    """So many workers who begin the next attempt as soon as they may; not `at_once`: they come one by one."""
    dice, limit, seen, now = random.Random(seed), Concurrency(), Seen(), 0.0
    under_way: list[tuple[float, int, int, Verdict]] = []
    number, hired = 0, workers if at_once else 1
    idle = hired
    while now < seconds:
        while idle and limit.wait(now) == 0.0:
            verdict, lasts = server(now, len(under_way), dice)
            number, idle = number + 1, idle - 1
            heapq.heappush(under_way, (now + lasts, number, limit.take(now), verdict))
        wait = limit.wait(now) if idle else math.inf
        if under_way and under_way[0][0] <= now + wait:
            now, _, attempt, verdict = heapq.heappop(under_way)
            before = limit.wave
            limit.leave(attempt, verdict, now, dice.random())
            idle, hired = idle + 1 + int(hired < workers), min(hired + 1, workers)
            seen.decreases += limit.wave - before
            seen.ended[verdict] += 1
            seen.limits.append((now, limit.limit))
        else:
            now += wait
    return seen


def chance(share: float, verdict: str, lasts: float = 0.1) -> Server:
    """Each attempt ends so with that probability, after that time; else well, after a tenth of a second or so."""

    def server(now: float, under_way: int, dice: random.Random) -> tuple[Verdict, float]:
        if dice.random() < share:
            return cast("Verdict", verdict), lasts
        return "success", dice.uniform(0.05, 0.15)

    return server


def outage(until: float, begin: float = 0.0, verdict: Verdict = "failed") -> Server:
    """Nothing succeeds for a time."""

    def server(now: float, under_way: int, dice: random.Random) -> tuple[Verdict, float]:
        return (verdict, 0.05) if begin <= now < until else ("success", 0.1)

    return server


@pytest.mark.parametrize("workers", [1, 2, 5, 20, 100, 500])
def test_without_failures_there_is_no_limit(workers: int) -> None:
    assert work(workers, 20.0, chance(0.0, "failed")).lowest() == math.inf


@pytest.mark.parametrize("lasts", [0.05, 0.1, 2.0])
@pytest.mark.parametrize("workers", [1, 2, 5, 20, 100])
def test_one_failure_in_twenty_never_lowers_the_limit(workers: int, lasts: float) -> None:
    for seed in range(3):
        seen = work(workers, 5_000.0 / workers, chance(0.05, "failed", lasts), seed, at_once=False)
        assert seen.lowest() == math.inf


@pytest.mark.parametrize("workers", [50, 100, 500])
def test_one_timeout_in_five_never_lowers_the_limit_where_many_are_under_way(workers: int) -> None:
    for seed in range(3):
        seen = work(workers, 20_000.0 / workers, chance(0.2, "failed", 2.0), seed, at_once=workers > 50)
        assert seen.lowest() == math.inf


@pytest.mark.parametrize("workers", [2, 3, 5, 10, 20])
def test_one_timeout_in_five_costs_few_workers_hardly_anything(workers: int) -> None:
    for seed in range(3):
        seen = work(workers, 20_000.0 / workers, chance(0.2, "failed", 2.0), seed)
        assert seen.mean(workers) >= 0.9 * workers


@pytest.mark.parametrize("lasts", [0.01, 0.1])
@pytest.mark.parametrize("workers", [2, 5, 10, 20, 50, 100])
def test_one_rejection_in_twenty_does_not_bring_it_down(workers: int, lasts: float) -> None:
    for seed in range(2):
        seen = work(workers, 60.0, chance(0.05, "rejected", lasts), seed, at_once=False)
        assert seen.mean(workers) >= 0.8 * workers
        assert seen.mean(workers, since=30.0) >= 0.8 * workers
        assert seen.ended["success"] >= 10 * seen.ended["rejected"]


@pytest.mark.parametrize("verdict", ["failed", "rejected"])
def test_where_all_begin_at_once_and_the_few_that_fail_end_first_they_are_soon_made_up_for(verdict: str) -> None:
    for seed in range(2):
        seen = work(200, 60.0, chance(0.05, verdict, 0.01), seed)
        assert seen.lowest() < 100.0
        assert seen.mean(200.0, since=40.0) >= 150.0


@pytest.mark.parametrize("verdict", ["failed", "rejected"])
@pytest.mark.parametrize("workers", [2, 5, 20, 100, 1000])
def test_a_total_outage_brings_the_limit_to_one_after_little_more_than_what_was_under_way(
    workers: int, verdict: Verdict
) -> None:
    seen = work(workers, 60.0, outage(math.inf, verdict=verdict))
    reached = next(number for number, (_, limit) in enumerate(seen.limits) if limit == 1.0)
    assert reached <= workers * 1.5 + 10
    assert seen.limits[reached][0] < 1.0
    assert len(seen.limits) - reached <= 60.0 / (0.75 * LONGEST_PAUSE) + 15  # the probes of a minute


@pytest.mark.parametrize("workers", [5, 20, 100])
def test_an_outage_after_a_good_time_does_so_too(workers: int) -> None:
    seen = work(workers, 80.0, outage(60.0, begin=30.0))
    assert seen.lowest() == 1.0
    assert seen.lowest(since=31.5) == 1.0
    first = next(now for now, limit in seen.limits if limit == 1.0)
    assert first < 31.5


@pytest.mark.parametrize("workers", [2, 5, 20, 100])
def test_when_the_service_is_back_the_limit_doubles_first_and_then_grows_until_it_binds_nobody(workers: int) -> None:
    seen = work(workers, 120.0, outage(10.0))
    back = next(now for now, limit in seen.limits if now >= 10.0 and limit > 1.0)
    assert back <= 10.0 + LONGEST_PAUSE + 0.2
    full = next(now for now, limit in seen.limits if now > back and limit >= workers)
    assert full - back <= 0.1 * (workers + 10)  # one more in the time of one attempt, at the least
    assert all(limit >= workers for now, limit in seen.limits if now > full)
    limits = [limit for now, limit in seen.limits if now >= back]
    assert limits == sorted(limits)


@pytest.mark.parametrize("capacity", [5, 20, 80])
def test_in_front_of_a_server_that_rejects_what_is_too_much_most_is_served(capacity: int) -> None:
    def server(now: float, under_way: int, dice: random.Random) -> tuple[Verdict, float]:
        return ("success", dice.uniform(0.08, 0.12)) if under_way < capacity else ("rejected", 0.01)

    seen = work(4 * capacity, 120.0, server)
    assert seen.mean(4.0 * capacity, since=20.0) == pytest.approx(capacity, rel=0.4)
    assert seen.ended["success"] >= 0.6 * capacity * 120.0 / 0.1
    assert seen.ended["rejected"] <= 0.35 * seen.ended["success"]
