"""Laws of hedging: copies are earned, no more than the share exceeds the delay, and copies do not wear it down."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forbear.core.hedge import SAVED, HedgeSettings, Hedging
from forbear.core.latencies import Latencies

law = settings(max_examples=200, deadline=None)

all_settings = st.tuples(
    st.one_of(st.none(), st.floats(0, 10)), st.floats(0.001, 1), st.integers(2, 4), st.integers(1, 30)
).map(lambda one: HedgeSettings(delay=one[0], max_extra_load=one[1], max_copies=one[2], min_samples=one[3]))
times = st.one_of(st.floats(0, 1e5), st.sampled_from([0.0, 1e-6, 0.1, 1.0, 60.0]))


class Copies(RuleBasedStateMachine):
    """Copies that are sent, or not sent after all, between successes and failures, at any time."""

    @initialize(options=all_settings)
    def make(self, options: HedgeSettings) -> None:
        self.options, self.state, self.now = options, Hedging(options, 0.0), 0.0
        self.sent = self.successes = self.samples = 0

    @rule(seconds=st.one_of(st.floats(0, 50), st.sampled_from([0.0, 30.0, 600.0, 1200.0, 1e7])))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def a_copy_is_due(self) -> None:
        balance = self.state.balance
        if self.state.take():
            self.sent += 1
            assert balance >= 1 - 1e-9
        else:
            assert balance < 1
            assert self.state.balance == balance

    @precondition(lambda self: self.sent)
    @rule()
    def one_is_not_sent_after_all(self) -> None:
        self.state.give_back()
        self.sent -= 1

    @rule(latency=times)
    def a_call_succeeds(self, latency: float) -> None:
        self.state.record(latency, self.now)
        self.state.succeeded()
        self.successes += 1
        self.samples += 1

    @rule(latency=times)
    def a_copy_fails(self, latency: float) -> None:
        self.state.failed(latency, self.now)
        self.samples += 1

    @rule(latency=times)
    def a_copy_loses(self, latency: float) -> None:
        self.state.record(latency, self.now)
        self.samples += 1

    @invariant()
    def copies_were_earned_and_the_delay_is_known_only_from_enough(self) -> None:
        if not hasattr(self, "state"):
            return
        assert 0.0 <= self.state.balance <= SAVED
        assert self.sent <= SAVED + self.options.max_extra_load * self.successes + 1e-6
        delay = self.state.delay(self.now)
        if self.options.delay is not None:
            assert delay == self.options.delay
        elif delay is not None:
            assert delay >= 0
            assert self.samples >= self.options.min_samples


TestCopies = Copies.TestCase
TestCopies.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


@law
@given(st.lists(times, min_size=1, max_size=300), st.floats(0.001, 1), st.integers(0, 300))
def test_no_more_than_the_share_takes_longer_and_no_bucket_less_would_do(
    seconds: list[float], share: float, cut: int
) -> None:
    one, other = Latencies(), Latencies()
    for number, latency in enumerate(seconds):
        (one if number < cut else other).add(latency)
    delay = one.merged(other).exceeded_by(share)
    allowed = share * len(seconds) + 1e-6
    assert sum(latency > delay * (1 + 1e-6) for latency in seconds) <= allowed
    if delay > 1.1e-5:
        assert sum(latency > delay / 1.021 for latency in seconds) > allowed - 2e-6


@law
@given(st.floats(1e-5, 1e6))
def test_a_latency_is_known_to_two_percent(latency: float) -> None:
    record = Latencies()
    record.add(latency)
    assert latency * (1 - 1e-6) <= record.exceeded_by(0.5) <= latency * 1.02 * (1 + 1e-6)


# ---- a whole service ---------------------------------------------------------------------------------------------


def served(calls: int, *, stalls: float, seed: int, every: float = 0.05) -> tuple[list[float], float, list[float]]:
    """The learned delays on the way, the share of calls that had a copy, and how long each call took.

    Attempts take around 100 ms, but a share of them stalls for one to three seconds.
    """
    dice, state, delays, took = random.Random(seed), Hedging(HedgeSettings(), 0.0), list[float](), list[float]()
    copies = 0

    def latency() -> float:
        return dice.uniform(1, 3) if dice.random() < stalls else dice.lognormvariate(-2.3, 0.35)

    for number in range(calls):
        now, first = number * every, latency()
        delay = state.delay(now)
        if delay is not None and first > delay and state.take():
            copies += 1
            second = latency()
            whole = min(first, delay + second)
            # The loser counts with what it had taken when it was cancelled.
            state.record(min(first, whole), now)
            state.record(min(second, whole - delay), now)
        else:
            whole = first
            state.record(first, now)
        state.succeeded()
        took.append(whole)
        if delay is not None:
            delays.append(delay)
    return delays, copies / calls, took


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stalls", [0.0, 0.01, 0.04])
def test_losers_that_count_with_their_censored_time_do_not_wear_the_delay_down(stalls: float, seed: int) -> None:
    calls = 20_000
    delays, load, _ = served(calls, stalls=stalls, seed=seed)
    dice = random.Random(seed)
    alone = sorted(
        dice.uniform(1, 3) if dice.random() < stalls else dice.lognormvariate(-2.3, 0.35) for _ in range(calls)
    )
    true = alone[int(0.95 * calls)]
    early, late = delays[1_000:4_000], delays[-3_000:]
    assert sum(late) / len(late) == pytest.approx(sum(early) / len(early), rel=0.12)
    assert sum(late) / len(late) == pytest.approx(true, rel=0.2)
    assert min(delays[1_000:]) >= 0.6 * true
    assert load <= 0.05 + SAVED / calls + 1e-9


def test_the_slowest_answers_come_sooner_for_five_percent_more_requests() -> None:
    _, load, took = served(20_000, stalls=0.01, seed=1)
    took = sorted(took[1_000:])
    assert load == pytest.approx(0.05, abs=0.01)
    assert took[int(0.99 * len(took))] < 0.3
    assert took[int(0.999 * len(took))] < 0.7


def test_when_all_answers_become_slow_the_copies_stay_within_what_was_earned() -> None:
    state, sent = Hedging(HedgeSettings(), 0.0), 0
    for number in range(5_000):
        now = number * 0.05
        latency = 0.1 if number < 1_000 else 2.0
        delay = state.delay(now)
        sent += delay is not None and latency > delay and state.take()
        state.record(latency, now)
        state.succeeded()
        assert sent <= SAVED + 0.05 * (number + 1)
    assert 0 < sent <= 120, "until the delay has followed, and not for ever"
