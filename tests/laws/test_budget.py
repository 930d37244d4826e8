"""Laws of the retry budget: what is spent was earned, and what fails buys nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forbear.core.budget import COSTS, FIRST_PACE, SLOWER, SLOWEST_PACE, Budget, BudgetSettings
from forbear.core.failure import Kind

law = settings(max_examples=200, deadline=None)

costs = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 7.3])
pauses = st.one_of(st.floats(0, 5), st.sampled_from([0.0, 60.0, 61.0, 1e6]))
all_settings = st.tuples(st.floats(0, 30), st.floats(0, 100), st.floats(0, 2), st.floats(1, 100)).map(
    lambda one: BudgetSettings(initial=one[0], capacity=one[0] + one[1], earned=one[2], fresh_for=one[3])
)


class Retries(RuleBasedStateMachine):
    """Retries that are paid for, sent or not, succeed or fail, in any order and at any time."""

    @initialize(options=all_settings)
    def make(self, options: BudgetSettings) -> None:
        self.options, self.budget, self.now = options, Budget(options, 0.0), 0.0
        self.sent: list[float] = []
        self.spent = 0.0
        self.gained = options.initial
        self.success_at = 0.0

    @rule(seconds=pauses)
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    @rule(cost=costs)
    def a_retry_goes_or_waits(self, cost: float) -> None:
        left = self.budget.left(self.now)
        covered = self.budget.covers(cost, self.now)
        assert covered == (left >= cost * (1 - 1e-9))
        assert (self.budget.wait(cost, self.now) == 0.0) >= covered
        if covered:
            paid = self.budget.take(cost, self.now)
            assert paid == min(cost, left)
            self.sent.append(paid)
            self.spent += paid

    @rule(cost=costs)
    def one_is_let_through_to_see(self, cost: float) -> None:
        left = self.budget.left(self.now)
        if self.budget.covers(cost, self.now) or self.budget.wait(cost, self.now) > 0:
            return
        assert self.budget.take(cost, self.now) == 0.0
        assert self.budget.left(self.now) == left
        assert FIRST_PACE - 1e-6 <= self.budget.wait(cost, self.now) <= SLOWEST_PACE + 1e-6

    @precondition(lambda self: self.sent)
    @rule()
    def one_is_not_sent_after_all(self) -> None:
        paid = self.sent.pop()
        self.budget.give_back(paid)
        self.spent -= paid

    @rule(cost=costs)
    def one_paid_for_and_not_sent_leaves_no_trace(self, cost: float) -> None:
        left = self.budget.left(self.now)
        if self.budget.covers(cost, self.now):
            self.budget.give_back(self.budget.take(cost, self.now))
            assert self.budget.left(self.now) == pytest.approx(left, rel=1e-12, abs=1e-12)

    @precondition(lambda self: self.sent)
    @rule()
    def a_retry_succeeds(self) -> None:
        paid = self.sent.pop()
        self.budget.succeeded(paid, self.now)
        self.gained += self.options.earned + paid + (1.0 if paid else 0.0)
        self.success_at = self.now

    @rule()
    def a_first_attempt_succeeds(self) -> None:
        self.budget.succeeded(0.0, self.now)
        self.gained += self.options.earned
        self.success_at = self.now

    @precondition(lambda self: self.sent)
    @rule()
    def a_retry_fails(self) -> None:
        self.sent.pop()

    @invariant()
    def what_is_left_was_earned_is_not_spent_and_is_fresh(self) -> None:
        if not hasattr(self, "budget"):
            return
        left = self.budget.left(self.now)
        assert 0.0 <= left <= self.options.capacity
        assert self.spent + left <= self.gained + 1e-6
        if self.now - self.success_at > self.options.fresh_for and not self.sent:
            assert left <= self.options.initial or left - self.options.initial < 1e-9


TestRetries = Retries.TestCase
TestRetries.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


# ---- how many retries there can be -------------------------------------------------------------------------------


@law
@given(
    st.floats(0, 20),
    st.floats(0, 1),
    st.lists(st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.lists(st.booleans(), min_size=3, max_size=3)), max_size=80),
)
def test_retries_cost_no_more_than_the_beginning_the_tenths_of_successes_and_what_retries_that_succeed_give_back(
    initial: float, earned: float, calls: list[tuple[float, list[bool]]]
) -> None:
    budget = Budget(BudgetSettings(initial=initial, capacity=1000.0, earned=earned), 0.0)
    spent = successes = refunds = 0.0
    for cost, outcomes in calls:
        paid = 0.0
        for number, ok in enumerate(outcomes):
            if number and not budget.covers(cost, 0.0):
                break
            if number:
                paid = budget.take(cost, 0.0)
                spent += paid
            if ok:
                budget.succeeded(paid, 0.0)
                successes += 1
                refunds += paid + 1.0 if number else 0.0
                break
    assert spent <= initial + earned * successes + refunds + 1e-6


@law
@given(
    st.floats(0, 30),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.floats(0, 2000),
    st.sampled_from([0.01, 0.1, 1.0, 7.0]),
)
def test_where_nothing_succeeds_the_retries_of_any_time_are_the_beginning_and_a_few_at_growing_distances(
    initial: float, cost: float, length: float, step: float
) -> None:
    budget, now, paid, paced = Budget(BudgetSettings(initial=initial), 0.0), 0.0, 0, 0
    while now <= length:
        while budget.wait(cost, now) == 0.0:
            if budget.take(cost, now):
                paid += 1
            else:
                paced += 1
        now += max(step, budget.wait(cost, now))
    assert paid <= initial / cost + 1e-6
    doubling = math.log(SLOWEST_PACE / FIRST_PACE, SLOWER) + 1
    assert paced <= 1 + min(math.log(1 + length / FIRST_PACE, SLOWER) + 1, doubling) + length / SLOWEST_PACE


@law
@given(st.integers(0, 200), st.floats(0, 200), st.floats(1, 100))
def test_what_was_earned_before_a_long_pause_is_worth_nothing_and_what_came_at_the_beginning_is_kept(
    successes: int, pause: float, fresh_for: float
) -> None:
    budget = Budget(BudgetSettings(fresh_for=fresh_for), 0.0)
    for _ in range(successes):
        budget.succeeded(0.0, 0.0)
    earned = 10.0 + 0.1 * successes
    assert budget.left(pause) == pytest.approx(10.0 if pause > fresh_for else earned)


# ---- random failures ---------------------------------------------------------------------------------------------

REQUESTS, RETRIES = 20_000, 2


def served(share: float, kind: Kind) -> tuple[float, float]:
    """The attempts per request and the share of requests that succeed, where so many attempts fail by chance."""
    budget, dice, cost = Budget(BudgetSettings(), 0.0), random.Random(7), COSTS.get(kind, 1.0)
    attempts = successes = 0
    for number in range(REQUESTS):
        now, paid = number / 100, 0.0
        for retry in range(RETRIES + 1):
            attempts += 1
            if dice.random() >= share:
                budget.succeeded(paid, now)
                successes += 1
                break
            if retry == RETRIES or not budget.covers(cost, now):
                break
            paid = budget.take(cost, now)
    return attempts / REQUESTS, successes / REQUESTS


def without_a_budget(share: float) -> tuple[float, float]:
    return 1 + share + share**2, 1 - share**3


@pytest.mark.parametrize("kind", [Kind.SERVER_ERROR, Kind.RATE_LIMITED, Kind.TIMEOUT])
@pytest.mark.parametrize("share", [0.01, 0.10, 0.15, 0.20, 0.25])
def test_while_most_succeeds_a_call_is_retried_as_if_there_were_no_budget(share: float, kind: Kind) -> None:
    if (share, kind) == (0.25, Kind.TIMEOUT):  # a retry after a timeout costs twice as much: the budget binds sooner
        assert served(share, kind) == pytest.approx((1.18, 0.885), abs=0.02)
        return
    assert served(share, kind) == pytest.approx(without_a_budget(share), abs=0.02)


@pytest.mark.parametrize("kind", [Kind.SERVER_ERROR, Kind.RATE_LIMITED, Kind.TIMEOUT])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9])
def test_the_more_fails_the_less_is_retried_and_never_more_than_without_a_budget(share: float, kind: Kind) -> None:
    load, success = served(share, kind)
    most, best = without_a_budget(share)
    assert load <= most + 0.02
    assert 1 - share - 0.01 <= success <= best + 0.01


def test_where_nothing_succeeds_the_load_stays_what_it_is() -> None:
    for kind in (Kind.SERVER_ERROR, Kind.RATE_LIMITED, Kind.TIMEOUT):
        load, success = served(1.0, kind)
        assert load <= 1.0 + 10.0 / COSTS.get(kind, 1.0) / REQUESTS
        assert success == 0.0


def test_where_a_tenth_succeeds_retries_add_a_twentieth_at_most() -> None:
    assert served(0.9, Kind.SERVER_ERROR)[0] <= 1.05


def recovery(served_per_second: int, waiting: int) -> Iterator[int]:
    """How many retries go each second, where all succeed from now on and that many wait for the budget."""
    budget, now, going = Budget(BudgetSettings(when_empty="wait"), 0.0), 0.0, 0
    for _ in range(10):
        budget.take(1.0, 0.0)
    while waiting:
        for _ in range(going):
            budget.succeeded(1.0, now)
        going = 0
        while waiting and going < served_per_second and budget.wait(1.0, now) == 0.0:
            budget.take(1.0, now)
            going += 1
            waiting -= 1
        yield going
        now += 1.0


def test_when_the_service_is_back_those_who_wait_are_served_in_doubling_numbers() -> None:
    rounds = list(recovery(served_per_second=1000, waiting=300))
    assert rounds[:5] == [0, 1, 2, 4, 8]
    assert rounds[:-1] == sorted(rounds[:-1])
    assert len(rounds) < 20
