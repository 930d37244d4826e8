"""Laws of the meters: what may leave in which time, whatever is asked, given back or corrected.

Instants are multiples of 1/64 s and amounts of 1/8, for which floats are exact, so that "just long enough" can be said.
The references keep everything that has ever happened and work out every answer from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forbear.core.meters import NEGLIGIBLE, Bucket, Meter, Window
from forbear.core.rate import Cost, Rates, RateSettings

law = settings(max_examples=150, deadline=None)

instants = st.integers(0, 64 * 30).map(lambda n: n / 64)
steps = st.one_of(st.just(0.0), st.integers(0, 64 * 4).map(lambda n: n / 64), st.sampled_from([10.0, 1e6]))
amounts = st.integers(0, 8 * 12).map(lambda n: n / 8)
limits = st.integers(8, 8 * 12).map(lambda n: n / 8)
lengths = st.integers(16, 64 * 10).map(lambda n: n / 64)


# ---- the window --------------------------------------------------------------------------------------------------


@dataclass
class Taken:
    instant: float
    amount: float


@dataclass
class Everything:
    """All that was ever taken from a window."""

    limit: float
    length: float
    taken: list[Taken] = field(default_factory=list)

    def held(self, now: float) -> float:
        """What the window that ends at `now` holds."""
        return sum(one.amount for one in self.taken if now - self.length < one.instant <= now)

    def wait(self, amount: float, now: float) -> float:
        """The least seconds after which `amount` fits."""
        candidates = [now, *(one.instant + self.length for one in self.taken if one.instant + self.length > now)]
        fits = [instant for instant in candidates if self.held(instant) + amount <= self.limit]
        return min(fits) - now


class Windows(RuleBasedStateMachine):
    """One that goes when it may, gives back, has used more, and is told by the server that others have used some."""

    @initialize(limit=limits, length=lengths)
    def make(self, limit: float, length: float) -> None:
        self.window, self.reference = Window(limit, length), Everything(limit, length)
        self.now = 0.0
        self.own: list[Taken] = []

    @rule(seconds=steps)
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    @rule(amount=amounts, patient=st.booleans())
    def one_goes_when_it_may(self, amount: float, patient: bool) -> None:
        amount = min(amount, self.window.limit)
        wait = self.window.wait(amount, self.now)
        assert wait == self.reference.wait(amount, self.now)  # not a moment too late, and none too early
        if wait > 0 and not patient:
            return
        self.now += wait
        assert self.window.wait(amount, self.now) == 0.0
        self.window.take(amount, self.now)
        self.own.append(Taken(self.now, amount))
        self.reference.taken.append(self.own[-1])
        assert self.reference.held(self.now) <= self.window.limit

    @precondition(lambda self: self.own)
    @rule(which=st.integers(0, 50), share=st.sampled_from([0.0, 0.5, 1.0]))
    def one_gives_back(self, which: int, share: float) -> None:
        one = self.own[which % len(self.own)]
        back = one.amount * share
        self.window.give(back, self.now, one.instant)
        one.amount -= back

    @rule(amount=amounts)
    def one_has_used_more(self, amount: float) -> None:
        self.window.give(-amount, self.now, self.now)
        self.reference.taken.append(Taken(self.now, amount))

    @rule(said=amounts)
    def the_server_says_what_is_left(self, said: float) -> None:
        excess = self.window.limit - self.reference.held(self.now) - said
        self.window.lower(said, self.now)
        if excess > 0:
            self.reference.taken.append(Taken(self.now, excess))

    @invariant()
    def what_is_left_is_known(self) -> None:
        if hasattr(self, "window"):
            assert self.window.left(self.now) == self.window.limit - self.reference.held(self.now)


TestWindows = Windows.TestCase
TestWindows.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@law
@given(limits, lengths, st.lists(st.tuples(steps, amounts), max_size=40))
def test_those_who_book_ahead_never_fill_a_window_twice_and_none_waits_longer_than_it_must(
    limit: float, length: float, bookings: list[tuple[float, float]]
) -> None:
    window, reference, now, last = Window(limit, length), Everything(limit, length), 0.0, 0.0
    for pause, asked in bookings:
        now += pause
        amount = min(asked, limit)
        goes_at = now + window.wait(amount, now)
        window.take(amount, now)
        begin = max(now, last)  # nobody goes before who came before
        if amount:
            assert goes_at == begin + reference.wait(amount, begin)
            last = goes_at
        reference.taken.append(Taken(goes_at, amount))
    assert all(reference.held(one.instant) <= limit for one in reference.taken)


# ---- the bucket --------------------------------------------------------------------------------------------------

Request = tuple[float, float]  # the pause before it, and its amount


@law
@given(st.integers(1, 512).map(lambda n: n / 64), limits, st.lists(st.tuples(steps, amounts), max_size=40))
def test_in_any_time_no_more_leaves_a_bucket_than_it_holds_and_refills_and_what_fits_is_never_refused(
    rate: float, capacity: float, requests: list[Request]
) -> None:
    bucket, level, at, now = Bucket(rate, capacity, 0.0), Fraction(capacity), Fraction(0), 0.0
    gone: list[tuple[Fraction, Fraction]] = []
    for pause, amount in requests:
        now += pause
        level, at = min(Fraction(capacity), level + (Fraction(now) - at) * Fraction(rate)), Fraction(now)
        missing = min(Fraction(amount), Fraction(capacity)) - level
        wait = bucket.wait(amount, now)
        assert wait == pytest.approx(float(max(Fraction(0), missing) / Fraction(rate)), rel=1e-9, abs=1e-6)
        now += wait
        assert bucket.wait(amount, now) <= 1e-6
        bucket.take(amount, now)
        level = min(Fraction(capacity), level + (Fraction(now) - at) * Fraction(rate)) - Fraction(amount)
        at = Fraction(now)
        gone.append((at, Fraction(amount)))
    slack = Fraction(1, 1000)
    for first in range(len(gone)):
        total = Fraction(0)
        for instant, amount in gone[first:]:
            total += amount
            excess = max(Fraction(0), amount - Fraction(capacity))
            assert total <= Fraction(capacity) + Fraction(rate) * (instant - gone[first][0]) + excess + slack


@law
@given(
    st.integers(1, 512).map(lambda n: n / 64),
    limits,
    st.lists(st.tuples(steps, st.sampled_from(["take", "give", "lower"]), amounts), max_size=40),
)
def test_a_bucket_is_never_fuller_than_full_and_a_correction_never_fills_it(
    rate: float, capacity: float, events: list[tuple[float, str, float]]
) -> None:
    bucket, now = Bucket(rate, capacity, 0.0), 0.0
    for pause, event, amount in events:
        now += pause
        before = bucket.left(now)
        if event == "lower":
            bucket.lower(amount - 6.0, now)
            assert bucket.left(now) == min(before, amount - 6.0)
        elif event == "take":
            bucket.take(amount, now)
            assert bucket.left(now) == before - amount
        else:
            bucket.give(amount - 6.0, now, now)
            assert bucket.left(now) == min(capacity, before + amount - 6.0)
        assert bucket.left(now) <= capacity


@law
@given(
    st.floats(1e-6, 1e9),
    st.floats(1e-3, 1.0),
    st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1.0)), min_size=1, max_size=30),
)
def test_whatever_the_numbers_who_waits_as_long_as_it_is_told_goes_after_at_most_one_more_look(
    per_minute: float, share: float, requests: list[Request]
) -> None:
    bucket, now = Bucket(per_minute / 60.0, max(1.0, per_minute * share), 0.0), 0.0
    for pause, part in requests:
        now += pause
        amount = part * per_minute
        for _ in range(2):
            wait = bucket.wait(amount, now)
            assert 0.0 <= wait < math.inf
            now += wait
        assert bucket.wait(amount, now) <= max(1e-9, math.ulp(now))
        bucket.take(amount, now)


# A meter of 50, and what is left in it after a million takes of 0.1, each 0.01 s after the one before.
DRIFT: list[tuple[Callable[[], Meter], float]] = [
    (lambda: Bucket(20.0, 50.0, 0.0), 50.0 - 0.1 + 0.004 * 20.0),
    (lambda: Bucket(10.0 + 5e-3, 50.0, 0.0), 50.0 - 0.1 + 0.004 * 10.005),
    (lambda: Window(50.0, 2.5), 50.0 - 250 * 0.1),
]


@pytest.mark.parametrize(("make", "left"), DRIFT)
def test_a_million_small_takes_do_not_drift(make: Callable[[], Meter], left: float) -> None:
    meter, now = make(), 0.0
    for n in range(1_000_000):
        now = n * 0.01
        meter.take(0.1, now)
    assert meter.left(now + 0.004) == pytest.approx(left, abs=1e-7)
    now += 1000.0
    for _ in range(500):
        assert meter.wait(0.1, now) == 0.0
        meter.take(0.1, now)
    assert meter.left(now) == pytest.approx(0.0, abs=50.0 * NEGLIGIBLE)


# ---- several together --------------------------------------------------------------------------------------------


@law
@given(st.booleans(), limits, limits, steps, st.lists(amounts, max_size=6), st.integers(1, 25), amounts)
def test_the_last_of_many_alike_never_goes_before_what_is_predicted(
    strict: bool, limit: float, other: float, pause: float, before: list[float], many: int, amount: float
) -> None:
    meter: Meter = Window(limit, other) if strict else Bucket(limit / other, limit, 0.0)
    for one in before:
        meter.take(min(one, limit), 0.0)
    amount = min(amount, limit) if strict else amount
    begin = now = pause
    predicted = meter.predicted(many * amount, amount, now)
    for _ in range(many):
        now += meter.wait(amount, now)
        meter.take(amount, now)
    assert predicted <= now - begin + 1e-6
    if not strict and amount:
        assert predicted == pytest.approx(now - begin, abs=1e-6)  # in a bucket it is known exactly


# ---- requests and tokens -----------------------------------------------------------------------------------------

rate_settings = st.builds(
    lambda requests, tokens, shape: RateSettings(
        requests_per_minute=requests if requests or tokens else 6.0, tokens_per_minute=tokens, **shape
    ),
    st.none() | st.integers(6, 6000),
    st.none() | st.integers(6, 100_000),
    st.sampled_from([{}, {"burst": 1}, {"burst": 7}, {"strict_window": 10.0}, {"strict_window": 60.0}]),
)


@law
@given(rate_settings, st.lists(st.tuples(steps, st.floats(0, 1)), max_size=20))
def test_requests_and_tokens_go_together_or_not_at_all(made: RateSettings, requests: list[Request]) -> None:
    rates, now = Rates(made, 0.0), 0.0
    most = (made.tokens_per_minute or 1000.0) * (made.strict_window or 60.0) / 60.0
    for pause, share in requests:
        now += pause
        cost = made.cost(share * most)
        assert rates.wait(cost, now) == max(meter.wait(amount, now) for meter, amount in _parts(rates, cost))
        for _ in range(3):
            now += rates.wait(cost, now)
        before = [meter.left(now) for meter, _ in _parts(rates, cost)]
        rates.take(cost, now)
        for (meter, amount), held in zip(_parts(rates, cost), before, strict=True):
            assert meter.left(now) == pytest.approx(held - amount, abs=1e-6)
        rates.give(cost, now, now)
        for (meter, _), held in zip(_parts(rates, cost), before, strict=True):
            assert meter.left(now) == pytest.approx(held, abs=1e-6)
        rates.take(cost, now)


def _parts(rates: Rates, cost: Cost) -> list[tuple[Meter, float]]:
    both = ((rates.requests, cost.requests), (rates.tokens, cost.tokens))
    return [(meter, amount) for meter, amount in both if meter is not None and amount > 0] or [(Bucket(1, 1, 0), 0.0)]


@law
@given(rate_settings, st.floats(0.0, 3.0), st.lists(st.floats(0, 1), max_size=5))
def test_what_can_never_fit_is_refused_at_once_and_all_else_goes_in_time(
    made: RateSettings, share: float, before: list[float]
) -> None:
    most = (made.tokens_per_minute or 1000.0) * (made.strict_window or 60.0) / 60.0
    assume(abs(share - 1.0) > 1e-6 or share == 1.0)
    if share > 1.0 and made.tokens_per_minute is not None:
        with pytest.raises(ValueError, match="can never fit"):
            made.cost(share * most)
        return
    rates, now = Rates(made, 0.0), 0.0
    for one in (*before, min(share, 1.0)):
        cost = made.cost(one * most)
        for _ in range(3):
            now += rates.wait(cost, now)
        assert rates.wait(cost, now) <= 1e-9
        rates.take(cost, now)
    assert now <= 60.0 * 2 * (len(before) + 1) + 60.0
