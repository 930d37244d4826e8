"""Laws of the guards as one: a place in all or in none, whatever is given back, refused, cancelled or corrected."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forbear.core.concurrency import Concurrency
from forbear.core.failure import PERMITS, Failure, Kind
from forbear.core.learned_rate import SLOWEST, LearnedRate
from forbear.core.meters import NEGLIGIBLE
from forbear.core.rate import Cost, Limit, Rates, RateSettings
from forbear.core.room import Place, Room

law = settings(max_examples=150, deadline=None)

shapes: st.SearchStrategy[dict[str, Any]] = st.sampled_from([
    {}, {"burst": 1}, {"burst": 10}, {"strict_window": 10.0}, {"strict_window": 60.0}
])  # fmt: skip
rate_settings = st.one_of(
    st.none(),
    st.builds(
        lambda requests, tokens, shape: RateSettings(
            requests_per_minute=requests if requests or tokens else 6, tokens_per_minute=tokens, **shape
        ),
        st.none() | st.integers(6, 6000),
        st.none() | st.integers(60, 100_000),
        shapes,
    ),
)
pauses = st.one_of(st.floats(0, 5), st.sampled_from([0.0, 0.1, 1.0, 60.0, 1e4]))
hints = st.none() | st.floats(0, 60)


def cost_of(made: RateSettings | None, share: float) -> Cost:
    """A request of that share of the largest one."""
    most = 1000.0 if made is None else (made.tokens_per_minute or 1000.0) * (made.strict_window or 60.0) / 60.0
    return Cost(1.0, share * most)


def looked_at(room: Room, now: float) -> dict[str, float]:
    """All that decides about the next one, as numbers."""
    held = copy.deepcopy(room)
    facts = {"cool": max(0.0, held.cool_until - now)}
    if held.rates is not None:
        for name in ("requests", "tokens"):
            meter = getattr(held.rates, name)
            if meter is not None:
                facts[name] = meter.left(now)
    if held.learned is not None:
        facts["learned"] = held.learned.wait(now)
        facts["wave"] = held.learned.wave
    if held.concurrency is not None:
        facts["limit"], facts["under way"] = held.concurrency.limit, held.concurrency.under_way
    return facts


class Calls(RuleBasedStateMachine):
    """Attempts that go when they may and end in any way and any order."""

    @initialize(
        made=rate_settings,
        most=st.sampled_from([None, 1.0, 3.0, math.inf]),
        learning=st.booleans(),
        begin=st.sampled_from([0.0, 1e5, 1e9]),
    )
    def make(self, made: RateSettings | None, most: float | None, learning: bool, begin: float) -> None:
        self.made, self.now = made, begin
        self.room = Room(
            None if made is None else Rates(made, begin),
            None if most is None else Concurrency(most),
            LearnedRate() if learning else None,
        )
        self.places: list[Place] = []

    @rule(seconds=pauses)
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    def parts(self, cost: Cost) -> list[float]:
        room, now = copy.deepcopy(self.room), self.now
        waits = [room.cool_until - now, 0.0]
        if room.rates is not None:
            waits.append(room.rates.wait(cost, now))
        if room.learned is not None:
            waits.append(room.learned.wait(now))
        if room.concurrency is not None:
            waits.append(room.concurrency.wait(now))
        return waits

    @rule(share=st.floats(0, 1), patient=st.booleans())
    def one_goes_when_it_may(self, share: float, patient: bool) -> None:
        cost = cost_of(self.made, share)
        longest = max(self.parts(cost))
        wait = self.room.wait(cost, self.now)
        assert wait == longest or (wait == 0.0 and longest <= max(NEGLIGIBLE, math.ulp(self.now)))
        looks = 0
        while patient and 0 < self.room.wait(cost, self.now) < math.inf:
            self.now += self.room.wait(cost, self.now)
            looks += 1
            assert looks < 5
        if self.room.wait(cost, self.now) == 0.0:
            before = looked_at(self.room, self.now)
            place = self.room.take(cost, self.now)
            after = looked_at(self.room, self.now)
            for name, amount in (("requests", cost.requests), ("tokens", cost.tokens), ("under way", -1)):
                if name in before:
                    assert after[name] == pytest.approx(before[name] - amount, rel=1e-9, abs=1e-6)
            self.places.append(place)

    @rule(share=st.floats(0, 1))
    def one_has_its_place_and_does_not_go(self, share: float) -> None:
        cost = cost_of(self.made, share)
        if self.room.wait(cost, self.now) == 0.0:
            before = looked_at(self.room, self.now)
            self.room.untake(self.room.take(cost, self.now), self.now)
            assert looked_at(self.room, self.now) == pytest.approx(before, rel=1e-9, abs=1e-6)

    def one(self, which: int) -> Place:
        return self.places.pop(which % len(self.places))

    @precondition(lambda self: self.places)
    @rule(which=st.integers(0, 100), kind=st.sampled_from(list(Kind)), hint=hints, dice=st.floats(0, 0.999))
    def one_fails(self, which: int, kind: Kind, hint: float | None, dice: float) -> None:
        failure = Failure(transient=PERMITS[kind].transient, kind=kind, retry_after=hint)
        self.room.failed(self.one(which), failure, self.now, dice)
        refused = kind in (Kind.RATE_LIMITED, Kind.OVERLOADED)
        if refused and hint is not None and self.room.learned is not None:
            assert self.room.wait(cost_of(self.made, 0.0), self.now) >= hint - max(1e-9, 2 * math.ulp(self.now))

    @precondition(lambda self: self.places)
    @rule(which=st.integers(0, 100), used=st.none() | st.floats(0, 1e5))
    def one_succeeds(self, which: int, used: float | None) -> None:
        self.room.succeeded(self.one(which), used, self.now)

    @precondition(lambda self: self.places)
    @rule(which=st.integers(0, 100), gone=st.booleans())
    def one_is_cancelled(self, which: int, gone: bool) -> None:
        (self.room.cancelled if gone else self.room.untake)(self.one(which), self.now)

    @rule(
        resource=st.sampled_from(["requests", "tokens", ""]),
        remaining=st.none() | st.sampled_from([0.0, -5.0, 1.0, 1e9]),
        reset=hints,
    )
    def the_service_says_what_is_left(self, resource: str, remaining: float | None, reset: float | None) -> None:
        self.room.correct([Limit(resource=resource, remaining=remaining, reset=reset)], self.now)

    @invariant()
    def every_number_makes_sense(self) -> None:
        if not hasattr(self, "room"):
            return
        facts = looked_at(self.room, self.now)
        assert not any(math.isnan(fact) for fact in facts.values())
        assert facts.get("under way", len(self.places)) == len(self.places)
        if self.room.learned is not None:
            assert self.room.learned.rate >= SLOWEST
        if self.room.rates is not None:
            for name in ("requests", "tokens"):
                meter = getattr(self.room.rates, name)
                assert meter is None or facts[name] <= (getattr(meter, "limit", None) or meter.capacity) * (1 + 1e-9)


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


# ---- several together --------------------------------------------------------------------------------------------


@law
@given(
    rate_settings,
    st.none() | st.floats(SLOWEST, 1000),
    st.booleans(),
    st.floats(0, 100),
    st.lists(st.floats(0, 1), max_size=6),
    pauses,
    st.integers(1, 60),
    st.floats(0, 1),
)
def test_the_last_of_many_alike_never_goes_before_what_is_predicted(
    made: RateSettings | None,
    rate: float | None,
    searching: bool,
    cooling: float,
    before: list[float],
    pause: float,
    many: int,
    share: float,
) -> None:
    room = Room(None if made is None else Rates(made, 0.0), Concurrency(), LearnedRate())
    assert room.learned is not None
    if rate is not None:
        room.learned.rate, room.learned.searching, room.learned.next_at = rate, searching, 0.0
    now = 0.0
    for one in before:
        cost = cost_of(made, one)
        now += room.wait(cost, now)
        room.take(cost, now)
    now = begin = now + pause
    room.cool_until = now + cooling
    cost = cost_of(made, share)
    predicted = room.predicted(Cost(float(many), many * cost.tokens), cost, now)
    for _ in range(many):
        while (wait := room.wait(cost, now)) > 0:
            now += wait
        room.take(cost, now)
    assert predicted <= now - begin + 1e-6 * (1 + now)


@law
@given(
    st.floats(SLOWEST, 1e5), st.booleans(), st.lists(st.tuples(pauses, st.sampled_from("thaur"), hints), max_size=60)
)
def test_a_learned_rate_lets_no_more_begin_than_it_says_and_nobody_before_the_end_of_a_pause(
    rate: float, searching: bool, events: list[tuple[float, str, float | None]]
) -> None:
    learned, now, cool_until, wave = LearnedRate(), 0.0, 0.0, 0
    learned.rate, learned.searching, learned.next_at = rate, searching, 0.0
    for pause, event, hint in events:
        now += pause
        if event in "th":  # one that waits for this rate, or for something else
            wait, before = learned.wait(now), learned.rate
            if event == "h" and wait > 0:
                learned.hold(now)
            now += wait
            assert now >= cool_until - 1e-6 or learned.rate == math.inf
            wave = learned.take(now)
            assert learned.rate >= before
            assert learned.rate == before or learned.held_at > -math.inf  # what holds nobody back does not grow
            assert learned.rate == math.inf or learned.wait(now) == pytest.approx(1 / learned.rate, abs=1e-6)
        elif event == "u" and learned.wait(now) == 0.0:
            before = max(now, learned.next_at)
            learned.untake(learned.take(now))
            assert max(now, learned.next_at) == pytest.approx(before)
        elif event == "a":
            learned.accept(now)
        elif event == "r":
            current, otherwise = learned.wave, copy.deepcopy(learned)
            otherwise.take(now)
            learned.refuse(wave, now + (hint or 0.0), now)
            assert learned.rate >= SLOWEST
            assert learned.rate <= otherwise.rate  # it is never raised
            assert learned.wave - current == int(wave == current)
            if wave == current:
                cool_until = max(cool_until, now + (hint or 0.0))
                assert learned.rate < math.inf
        assert learned.rate >= SLOWEST
        if learned.rate == math.inf:
            cool_until = 0.0
