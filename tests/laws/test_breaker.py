"""Laws of the circuit breaker, under any interleaving of calls, late results, expired leases and commands.

The reference below keeps no counters and forgets nothing: it works out every answer from the list of all that has
happened. Instants are multiples of 1/64 s, for which floats are exact, so that "just expired" can be said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forbear.core.breaker import Breaker, BreakerSettings, Permit, Refused, Transition
from forbear.core.breaker_settings import VERDICTS, Verdict
from forbear.core.window import Window

GRID = 64
spans = st.integers(1, 40 * GRID).map(lambda n: n / GRID)
jumps = st.one_of(st.integers(0, 5 * GRID).map(lambda n: n / GRID), st.sampled_from([30.0, 60.0, 61.0, 1e6]))
dice = st.integers(0, 16).map(lambda n: n / 16)
verdicts: st.SearchStrategy[Verdict] = st.sampled_from([*VERDICTS, "success", "failure"])
thresholds = st.one_of(st.none(), st.integers(1, 4))
rates = st.sampled_from([None, 0.25, 0.5, 1.0])
all_settings = (
    st.tuples(thresholds, rates, st.integers(1, 6), spans, st.sampled_from([1.0, 2.0]), st.integers(1, 3), spans)
    .filter(lambda one: one[0] is not None or one[1] is not None)
    .map(
        lambda one: BreakerSettings(
            failure_threshold=one[0],
            failure_rate=one[1],
            minimum_calls=one[2],
            window=1e12,  # forgets nothing; what it forgets has a law of its own
            recovery_time=one[3],
            growth=one[4],
            jitter=0.5,
            trials=one[5],
            trial_timeout=one[6],
        )
    )
)


@dataclass
class Era:
    """What has happened since a change of state. `ended` holds the outcomes that count, as (instant, ok)."""

    state: str
    since: float
    opens_until: float = 0.0
    ended: list[tuple[float, bool]] = field(default_factory=list)
    trials: dict[int, float] = field(default_factory=dict)
    proven: int = 0


class Reference:
    """The rules of the breaker, from their text."""

    def __init__(self, options: BreakerSettings) -> None:
        self.options = options
        self.eras = [Era("closed", 0.0)]

    @property
    def era(self) -> Era:
        return self.eras[-1]

    def state(self, now: float) -> str:
        return "half_open" if self.era.state == "open" and self.era.opens_until <= now else self.era.state

    def out(self, now: float) -> int:
        """How many trials are out whose lease has not expired."""
        return len([begun for begun in self.era.trials.values() if begun + self.options.trial_timeout > now])

    def lets_through(self, now: float) -> bool:
        if self.state(now) == "half_open":
            return self.out(now) < self.options.trials
        return self.state(now) in ("closed", "disabled")

    def go(self, state: str, now: float, random: float = 0.0) -> None:
        row = 0
        for era in reversed(self.eras):
            if era.state in ("closed", "forced_open", "disabled"):
                break
            row += era.state == "open"
        length = min(self.options.recovery_time * self.options.growth**row, self.options.max_recovery_time)
        self.eras.append(Era(state, now, now + length * (1 + self.options.jitter * random)))

    def asked(self, now: float) -> int | None:
        """The number of the trial that is let through, None for an ordinary call."""
        if self.state(now) != "half_open":
            return None
        if self.era.state == "open":
            self.go("half_open", now)
        number = len(self.era.trials) + 1
        self.era.trials[number] = now
        return number

    def told(self, era: Era, trial: int | None, verdict: str, now: float, random: float) -> None:
        if era is not self.era:
            return
        if trial is not None:
            self.era.trials[trial] = -1e9  # given back
            if verdict in ("neutral", "permanent"):
                return
            self.era.proven += verdict == "success"
            if verdict == "failure":
                self.go("open", now, random)
            elif self.era.proven == self.options.trials:
                self.go("closed", now)
        elif era.state == "closed" and verdict != "neutral":
            era.ended.append((now, verdict != "failure"))
            if verdict == "failure" and (self.in_a_row() or self.by_rate()):
                self.go("open", now, random)

    def in_a_row(self) -> bool:
        most = self.options.failure_threshold
        return most is not None and len(self.era.ended) >= most and not any(ok for _, ok in self.era.ended[-most:])

    def by_rate(self) -> bool:
        rate, ended = self.options.failure_rate, [ok for _, ok in self.era.ended]
        return rate is not None and len(ended) >= self.options.minimum_calls and ended.count(False) >= rate * len(ended)


Given = tuple[Permit, Era, int | None]


class Calls(RuleBasedStateMachine):
    """Calls that begin and end in any order while time goes on, and an operator who interferes."""

    @initialize(options=all_settings)
    def make(self, options: BreakerSettings) -> None:
        self.options = options
        self.breaker, self.reference = Breaker(options), Reference(options)
        self.now = 0.0
        self.on_their_way: list[Given] = []

    @rule(seconds=jumps)
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.breaker.state(self.now) == "half_open")
    @rule(verdict=verdicts, random=dice)
    def a_trial_is_made_in_no_time(self, verdict: Verdict, random: float) -> None:
        self.calls_begin(1)
        if self.on_their_way:
            self.a_call_ends(0, verdict, random, True)

    @precondition(lambda self: self.reference.era.state == "open")
    @rule(many=st.integers(1, 4))
    def the_trials_begin(self, many: int) -> None:
        self.now = max(self.now, self.reference.era.opens_until)
        self.calls_begin(many)

    @precondition(lambda self: self.reference.out(self.now))
    @rule()
    def time_goes_on_until_a_lease_expires(self) -> None:
        self.now = min(
            ends_at
            for begun in self.reference.era.trials.values()
            if (ends_at := begun + self.options.trial_timeout) > self.now
        )

    @rule(many=st.integers(1, 4))
    def calls_begin(self, many: int) -> None:
        for _ in range(many):
            known, answer = self.breaker.last, self.breaker.ask(self.now)
            if not self.reference.lets_through(self.now):
                assert isinstance(answer, Refused)
                assert answer.retry_in > 0
                assert self.breaker.last is known
                continue
            era = self.reference.era
            trial = self.reference.asked(self.now)
            assert answer == Permit(len(self.reference.eras) - 1, trial)
            assert (self.breaker.last is known) == (self.reference.era is era)
            self.on_their_way.append((answer, self.reference.era, trial))

    @precondition(lambda self: self.on_their_way)
    @rule(which=st.integers(0, 9), verdict=verdicts, random=dice, newest=st.booleans())
    def a_call_ends(self, which: int, verdict: Verdict, random: float, newest: bool) -> None:
        place = -1 - which % len(self.on_their_way) if newest else which % len(self.on_their_way)
        permit, era, trial = self.on_their_way.pop(place)
        late = era is not self.reference.era
        before = self.breaker.snapshot(self.now)
        known = len(self.reference.eras)
        self.reference.told(era, trial, verdict, self.now, random)
        change = self.breaker.record(permit, verdict, self.now, random)
        if late:
            assert self.breaker.snapshot(self.now) == before
        if change is None:
            assert len(self.reference.eras) == known
        else:
            assert change is self.breaker.last
            assert (change.before, change.after) == (era.state, self.reference.era.state)
            if change.open_for is not None:
                assert self.now + change.open_for == self.reference.era.opens_until

    @rule(
        command=st.sampled_from(
            [(Breaker.force_open, "forced_open"), (Breaker.disable, "disabled"), (Breaker.reset, "closed")]
        )
    )
    def an_operator_commands(self, command: tuple[Callable[[Breaker, float], Transition | None], str]) -> None:
        act, after = command
        before = self.reference.state(self.now)
        change = act(self.breaker, self.now)
        assert change is not None or before == after
        self.reference.go(after, self.now)

    @precondition(lambda self: self.reference.era.state in ("forced_open", "disabled"))
    @rule()
    def an_operator_goes_home(self) -> None:
        self.breaker.reset(self.now)
        self.reference.go("closed", self.now)

    @precondition(lambda self: self.reference.era.state == "closed")
    @rule(random=dice)
    def the_service_breaks_down(self, random: float) -> None:
        """As many calls fail as it mostly takes."""
        era = self.reference.era
        for _ in range(8):
            if self.reference.era is not era:
                break
            permit = self.breaker.ask(self.now)
            assert isinstance(permit, Permit)
            self.breaker.record(permit, "failure", self.now, random)
            self.reference.told(era, None, "failure", self.now, random)

    @invariant()
    def it_is_in_the_state_of_the_reference(self) -> None:
        assert self.breaker.state(self.now) == self.reference.state(self.now)
        shot = self.breaker.snapshot(self.now)
        assert shot.generation == len(self.reference.eras) - 1
        assert (shot.retry_in == 0) == self.reference.lets_through(self.now)

    @invariant()
    def never_more_trials_than_allowed_and_no_place_is_lost(self) -> None:
        out = self.breaker.snapshot(self.now).trials
        assert out == self.reference.out(self.now) <= self.options.trials
        if self.breaker.state(self.now) == "half_open":
            last = max(self.now, *self.reference.era.trials.values(), 0.0) + self.options.trial_timeout
            assert self.breaker.retry_in(last) == 0

    def teardown(self) -> None:
        """When all have come back, every place is free."""
        for permit, _, _ in getattr(self, "on_their_way", ()):
            self.breaker.record(permit, "neutral", self.now)
        if hasattr(self, "breaker"):
            assert self.breaker.snapshot(self.now).trials == 0


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


# ---- windows -----------------------------------------------------------------------------------------------------

records = st.lists(st.tuples(st.integers(0, 3 * GRID).map(lambda n: n / GRID), st.booleans()), max_size=60)


@settings(max_examples=200, deadline=None)
@given(records, spans, st.integers(1, 20), jumps)
def test_a_window_is_exact_but_for_the_width_of_one_bucket(
    steps: list[tuple[float, bool]], width: float, buckets: int, after: float
) -> None:
    length, now = width * buckets, 0.0
    window = Window(length, buckets)
    happened: list[tuple[float, bool]] = []
    for step, ok in [*steps, (after, True)]:
        now += step
        for failed_only in (False, True):
            least = sum(at > now - (length - width) for at, good in happened if not (failed_only and good))
            most = sum(at > now - length for at, good in happened if not (failed_only and good))
            calls = window.calls(now)
            assert least <= (round(window.failure_rate(now) * calls) if failed_only else calls) <= most
        window.record(ok, now)
        happened.append((now, ok))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**6), dice, st.sampled_from([1.0, 1.5, 2.0, 1e6]), dice)
def test_an_opening_never_gets_shorter_and_stays_within_its_bounds(
    openings: int, random: float, growth: float, jitter: float
) -> None:
    options = BreakerSettings(recovery_time=10.0, growth=growth, max_recovery_time=200.0, jitter=jitter)
    length = options.open_for(openings, random)
    assert 10.0 <= length <= 200.0 * (1 + jitter)
    assert length <= options.open_for(openings + 1, random)
    assert options.open_for(openings, 0.0) <= length <= options.open_for(openings, 1.0)
