"""A rate limit that nobody has told us, learned from being refused."""

from __future__ import annotations

import math

import pytest

from forbear.core.learned_rate import (
    BELOW_REFUSED,
    BINDING,
    CALM,
    DOUBLING,
    ENDLESS,
    GROWTH,
    SLOWEST,
    SPAN,
    LearnedRate,
)


def refused(*, accepted: int = 0, during: float = 1.0, cool_until: float = 0.0, now: float = 1.0) -> LearnedRate:
    """A rate after its first refusal; as many others have begun and are not refused."""
    learned = LearnedRate()
    waves = [learned.take(now - during) for _ in range(accepted + 1)]
    learned.refuse(waves[0], cool_until, now)
    return learned


def bounded(rate: float, now: float = 0.0) -> LearnedRate:
    """A rate that has been refused more than once."""
    learned = LearnedRate()
    learned.take(now)
    learned.rate, learned.searching, learned.grows_at, learned.next_at = rate, False, now, now
    return learned


def used(learned: LearnedRate, now: float) -> float:
    """The rate after it has been in use until now."""
    learned.hold(now)
    learned.take(now)
    return learned.rate


def sent(learned: LearnedRate, begin: float, end: float) -> list[float]:
    """The instants at which attempts begin where there is always one that waits, and for nothing else."""
    now, gone = begin, list[float]()
    while True:
        if (wait := learned.wait(now)) > 0:
            learned.hold(now)
        now += wait
        if now >= end:
            return gone
        learned.take(now)
        gone.append(now)


# ---- the first refusal -------------------------------------------------------------------------------------------


def test_until_the_first_refusal_there_is_no_limit() -> None:
    learned = LearnedRate()
    assert [learned.wait(0.0) or learned.take(0.0) for _ in range(100)] == [1] * 100
    assert learned.rate == math.inf
    assert learned.predicted(1e9, 0.0) == 0.0


@pytest.mark.parametrize(
    ("accepted", "during", "cool_until", "rate"),
    [
        (0, 1.0, 0.0, SLOWEST),
        (10, 1.0, 0.0, 10.0),
        (10, 0.25, 0.0, 10.0),  # of less than a second nothing faster is concluded
        (10, 4.0, 0.0, 2.5),
        (10, 4.0, -2.0, 2.5),  # a pause that is over lengthens and shortens nothing
        (10, 1.0, 5.0, 2.0),  # what has begun lasts until the end of the pause
        (1, 9.0, 0.0, SLOWEST),
    ],
)
def test_the_first_rate_is_what_has_begun_lately_and_was_not_refused(
    accepted: int, during: float, cool_until: float, rate: float
) -> None:
    learned = refused(accepted=accepted, during=during, cool_until=cool_until)
    assert learned.rate == rate
    assert learned.searching


def test_what_has_begun_is_counted_over_the_last_span_and_the_one_before() -> None:
    learned = LearnedRate()
    for second in range(100):
        waves = [learned.take(float(second)) for _ in range(3)]
    learned.refuse(waves[0], 0.0, 99.0)
    assert learned.rate == pytest.approx(3.0, rel=0.1)
    assert 99.0 - learned.since <= 2 * SPAN


@pytest.mark.parametrize(("pause", "rate"), [(SPAN - 1, 30 / 9), (SPAN, 3.0), (2 * SPAN - 1, 30 / 19), (2 * SPAN, 0.5)])
def test_what_has_begun_too_long_ago_says_nothing(pause: float, rate: float) -> None:
    assert refused(accepted=30, during=pause, now=pause).rate == pytest.approx(rate)


@pytest.mark.parametrize("answered", [True, False])
def test_an_attempt_counts_when_it_begins_and_not_when_its_answer_comes(answered: bool) -> None:
    learned = LearnedRate()
    wave = learned.take(0.0)
    for _ in range(30):
        learned.take(2.5 * SPAN)
    for _ in range(25 * answered):
        learned.accept(2.5 * SPAN + 1.0)
    learned.refuse(learned.take(2.5 * SPAN + 2.0), 0.0, 2.5 * SPAN + 2.0)
    assert learned.rate == 15.0
    assert learned.wave == wave + 1


@pytest.mark.parametrize("lasts", [0.1, 1.0, 20.0, 600.0])
def test_answers_that_take_long_do_not_make_the_first_rate_collapse(lasts: float) -> None:
    learned, gone = LearnedRate(), list[tuple[float, int]]()
    begun, end = 30 * 65, 65.0
    for number in range(begun):
        now = number / 30
        gone.append((now, learned.take(now)))
        if now >= lasts:
            learned.accept(now)
    for number, (_, wave) in enumerate(gone[-6:]):
        learned.refuse(wave, 0.0, end + number * 0.04)
    assert learned.rate == pytest.approx(30.0, rel=0.05)
    assert learned.searching


# ---- the first wave ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent_at", "lasts", "cool", "rate"),
    [
        (0.0, 0.5, 0.0, 60.0),
        (0.0, 0.5, 4.5, 60 / 5.0),  # what was let through lasts until the end of the pause
        (0.0, 2.0, 0.0, 60 / 2.0),
        (0.0, SPAN + 2.0, 0.0, 60 / (SPAN + 2.0)),  # they began in the span before
        (SPAN - 0.1, 0.2, 0.0, 60 / (SPAN + 0.1)),
    ],
)
def test_of_many_that_are_sent_at_once_the_refused_ones_lower_the_first_rate_to_what_was_let_through(
    sent_at: float, lasts: float, cool: float, rate: float
) -> None:
    learned = LearnedRate()
    learned.untake(learned.take(0.0))
    waves = [learned.take(sent_at) for _ in range(600)]
    rates = list[float]()
    for number, wave in enumerate(waves[:540], start=1):
        now = sent_at + lasts * number / 540
        learned.refuse(wave, now + cool, now)
        rates.append(learned.rate)
    assert rates == sorted(rates, reverse=True)
    assert learned.rate == pytest.approx(rate)
    assert (learned.searching, learned.wave) == (True, waves[0] + 1)


def test_what_is_refused_of_the_first_wave_lowers_also_a_rate_that_has_grown_and_never_raises_it() -> None:
    learned = LearnedRate()
    waves = [learned.take(0.0) for _ in range(20)]
    learned.refuse(waves[0], 0.0, 0.0)
    assert learned.rate == 19.0
    assert used(learned, DOUBLING) == pytest.approx(38.0)
    learned.refuse(waves[1], 0.0, DOUBLING)
    assert learned.rate == pytest.approx(19 / DOUBLING)  # one more has begun, and one fewer has not been refused
    assert used(learned, 2 * DOUBLING) == pytest.approx(2 * 19 / DOUBLING)  # it goes on from there
    learned.hold(3 * DOUBLING)
    learned.refuse(waves[2], 0.0, 3 * DOUBLING)
    lowered = learned.rate
    assert lowered == pytest.approx(19 / (3 * DOUBLING))
    learned.take(3 * DOUBLING)
    assert learned.rate == lowered  # what it had grown before is over
    low = refused(accepted=10, cool_until=101.0)
    low.refuse(low.first, 2.0, 2.0)
    assert low.rate == SLOWEST


def test_once_the_rate_is_bounded_the_first_wave_lowers_it_no_more() -> None:
    learned = LearnedRate()
    waves = [learned.take(0.0) for _ in range(101)]
    learned.refuse(waves[0], 0.0, 0.0)
    learned.hold(0.0)
    learned.refuse(learned.take(0.0), 0.0, 0.0)
    assert learned.rate == pytest.approx(100.0 * BELOW_REFUSED)
    for wave in waves[1:]:
        learned.refuse(wave, 0.0, 0.0)
    assert learned.rate == pytest.approx(100.0 * BELOW_REFUSED)
    assert learned.wave == waves[0] + 2


# ---- how it goes on ----------------------------------------------------------------------------------------------


def test_while_it_is_searched_for_the_rate_doubles_again_and_again() -> None:
    learned = refused(accepted=1, now=0.0)
    assert [learned.rate] == [1.0]
    for now in (1.0, 2.0, 3.0, 3.5):
        assert used(learned, now) == pytest.approx(2.0 ** (now / DOUBLING))


def test_a_second_refusal_bounds_it_and_from_there_it_grows_slowly() -> None:
    learned = refused(accepted=10, now=1.0)
    then = 1.0 + DOUBLING
    learned.hold(then)
    learned.refuse(learned.take(then), then, then)
    assert learned.rate == pytest.approx(20.0 * BELOW_REFUSED)
    assert not learned.searching
    assert used(learned, then + 10.0) == pytest.approx(20.0 * BELOW_REFUSED * (1 + GROWTH) ** 10)


def test_one_wave_of_refusals_is_one_decrease() -> None:
    learned = bounded(100.0)
    learned.hold(0.0)
    early = [learned.take(0.0) for _ in range(60)]
    for wave in early:
        learned.refuse(wave, 0.0, 0.0)
    assert learned.rate == pytest.approx(100.0 * BELOW_REFUSED)
    learned.refuse(learned.take(0.0), 0.0, 0.0)
    assert learned.rate == pytest.approx(100.0 * BELOW_REFUSED**2)


def test_the_rate_never_falls_below_the_slowest() -> None:
    learned = bounded(1.0)
    for _ in range(20):
        learned.refuse(learned.take(0.0), 0.0, 0.0)
    assert learned.rate == SLOWEST
    assert refused(accepted=0).rate == SLOWEST


def test_attempts_begin_evenly_at_the_rate() -> None:
    gone = sent(bounded(10.0), 0.0, 1.0)
    assert gone == pytest.approx([n / 10 for n in range(len(gone))], abs=0.01)
    assert len(gone) in (10, 11)


def test_a_pause_saves_nothing_up() -> None:
    learned = bounded(10.0)
    learned.take(0.0)
    assert learned.wait(20.0) == 0.0
    learned.take(20.0)
    assert learned.wait(20.0) == pytest.approx(0.1)


def test_to_ask_how_long_to_wait_changes_nothing() -> None:
    learned = bounded(10.0)
    learned.take(0.0)
    before = [getattr(learned, name) for name in learned.__slots__]
    assert [learned.wait(now) for now in (0.0, 0.05, 50.0, 0.0)] == pytest.approx([0.1, 0.05, 0.0, 0.1])
    assert [getattr(learned, name) for name in learned.__slots__] == before


# ---- a rate that is in use ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("searching", [True, False])
@pytest.mark.parametrize(
    ("held_at", "now", "grown"),  # seconds; the rate is known since 0
    [
        (None, 1e9, 0.0),  # it has held nobody back
        (-5.0, 50.0, 0.0),
        (0.0, 0.5, 0.5),
        (0.0, BINDING, BINDING),
        (0.0, 50.0, BINDING),
        (3.0, 3.5, 3.5),
        (3.0, 1e9, 3.0 + BINDING),
    ],
)
def test_the_rate_grows_only_for_the_time_in_which_it_is_in_use(
    held_at: float | None, now: float, grown: float, searching: bool
) -> None:
    learned = bounded(10.0)
    learned.searching = searching
    if held_at is not None:
        learned.hold(held_at)
    learned.take(now)
    assert learned.rate == pytest.approx(10.0 * (2.0 ** (grown / DOUBLING) if searching else (1 + GROWTH) ** grown))


def test_after_an_idle_time_it_grows_from_where_it_is_used_again() -> None:
    learned = bounded(10.0)
    learned.take(1000.0)
    assert used(learned, 1002.0) == pytest.approx(10.0 * (1 + GROWTH) ** 2)


@pytest.mark.parametrize("rate", [SLOWEST, 0.75, 1.0, 10.0])
@pytest.mark.parametrize("searching", [True, False])
def test_a_rate_that_always_holds_somebody_back_grows_all_the_time(rate: float, searching: bool) -> None:
    learned = bounded(rate)
    learned.searching = searching
    learned.take(0.0)
    last = sent(learned, 0.0, 12.0)[-1]
    grown = 2.0 ** (last / DOUBLING) if searching else (1 + GROWTH) ** last
    assert learned.rate == pytest.approx(rate * grown)


@pytest.mark.parametrize("idle", [0.0, BINDING, BINDING + 0.125, 600.0])
@pytest.mark.parametrize(("accepted", "lately"), [(0, SLOWEST), (4, 4.0), (9, 9.0), (500, 500.0)])
def test_a_refused_rate_that_was_not_in_use_falls_from_what_was_accepted_lately(
    idle: float, accepted: int, lately: float
) -> None:
    learned = bounded(10.0, now=1000.0)
    learned.hold(1000.0)
    now = 1000.0 + idle
    learned.grows_at = now  # whatever it has grown is in the rate
    learned.accepted, learned.since, learned.accepted_before = float(accepted), now, 0.0
    learned.refuse(learned.take(now), now, now)
    refused_rate = 10.0 if idle <= BINDING else min(10.0, lately)
    assert learned.rate == pytest.approx(max(SLOWEST, refused_rate * BELOW_REFUSED))
    assert not learned.searching


# ---- what the service asks for -----------------------------------------------------------------------------------


def test_nobody_begins_before_the_end_of_the_pause_and_growth_begins_with_it() -> None:
    learned = refused(accepted=10, cool_until=5.0, now=0.0)
    assert learned.wait(0.0) == 5.0
    assert sent(learned, 0.0, 5.9)[0] == 5.0
    assert learned.rate < 4.1


def test_a_late_refusal_of_an_older_wave_lengthens_the_pause_and_lowers_nothing() -> None:
    learned = bounded(100.0)
    learned.hold(0.0)
    wave = learned.take(0.0)
    learned.refuse(wave, 0.0, 0.0)
    learned.refuse(wave, 7.0, 1.0)
    assert learned.wait(1.0) == 6.0
    assert learned.rate == pytest.approx(100.0 * BELOW_REFUSED)
    learned.refuse(wave, 3.0, 1.0)
    assert learned.wait(1.0) == 6.0


def test_a_refusal_from_before_it_was_forgotten_limits_nobody() -> None:
    learned = bounded(100.0)
    wave = learned.take(0.0)
    learned.forget()
    learned.refuse(wave, 50.0, 1.0)
    assert learned.rate == math.inf
    assert learned.wait(1.0) == 0.0
    learned.refuse(learned.take(2.0), 2.0, 2.0)
    assert learned.rate == SLOWEST


# ---- what has not begun ------------------------------------------------------------------------------------------


def test_what_has_not_begun_leaves_no_trace() -> None:
    learned = bounded(10.0)
    learned.take(0.0)
    before = learned.wait(0.0)
    learned.untake(learned.take(0.0))
    assert learned.wait(0.0) == pytest.approx(before)
    free = LearnedRate()
    free.untake(free.take(0.0))
    assert free.wait(0.0) == 0.0
    assert (free.accepted, free.accepted_before) == (0.0, 0.0)


def test_what_has_not_begun_or_was_refused_is_not_counted_in_whichever_span_it_was_taken() -> None:
    learned = LearnedRate()
    waves = [learned.take(0.0) for _ in range(3)]
    waves.append(learned.take(SPAN))
    counts = list[tuple[float, float]]()
    for wave in (*waves, waves[0]):
        counts.append((learned.accepted, learned.accepted_before))
        learned.untake(wave)
    assert counts == [(1.0, 3.0), (0.0, 3.0), (0.0, 2.0), (0.0, 1.0), (0.0, 0.0)]
    assert (learned.accepted, learned.accepted_before) == (0.0, 0.0)


def test_what_began_before_a_refusal_and_has_not_gone_brings_nobody_forward() -> None:
    learned = LearnedRate()
    early, refusal = learned.take(0.0), learned.take(0.0)
    learned.refuse(refusal, 5.0, 0.0)
    learned.untake(early)
    assert learned.wait(0.0) == 5.0


# ---- a rate that limits nobody -----------------------------------------------------------------------------------


def test_a_rate_that_held_nobody_back_is_forgotten_after_a_calm_time() -> None:
    learned = bounded(10.0)
    learned.refused_at = 0.0
    wave = learned.wave
    learned.accept(CALM)
    assert learned.rate < math.inf
    learned.accept(CALM + 0.01)
    assert learned.rate == math.inf
    assert learned.wave == wave + 1
    learned.accept(CALM + 0.02)
    assert learned.rate == math.inf


def test_a_refusal_begins_the_calm_time() -> None:
    learned = refused(now=100.0)
    learned.accept(100.0 + CALM)
    assert learned.rate < math.inf
    learned.accept(100.1 + CALM)
    assert learned.rate == math.inf


def test_whoever_was_held_back_begins_the_calm_time_anew() -> None:
    learned = bounded(10.0)
    learned.refused_at = 0.0
    learned.hold(30.0)
    learned.accept(CALM + 20.0)
    assert learned.rate < math.inf
    learned.accept(CALM + 30.01)
    assert learned.rate == math.inf


@pytest.mark.parametrize("searching", [True, False])
@pytest.mark.parametrize("idle", [CALM + 1, 1100.0, 36_000.0, 1e9])
def test_an_idle_time_lets_no_rate_grow_and_the_next_answer_forgets_it(idle: float, searching: bool) -> None:
    learned = bounded(10.0)
    learned.searching, learned.refused_at = searching, 0.0
    learned.take(idle)
    assert learned.rate == 10.0
    assert learned.wait(idle) == pytest.approx(0.1)
    learned.accept(idle)
    assert learned.rate == math.inf
    assert learned.wait(idle) == 0.0
    waves = [learned.take(idle) for _ in range(8)]
    learned.refuse(waves[0], idle, idle + 1)
    assert learned.rate == 7.0
    assert learned.searching


@pytest.mark.parametrize("idle", [1100.0, 36_000.0, 1e9])
def test_a_refusal_after_a_long_idle_time_says_that_the_service_allows_hardly_anything(idle: float) -> None:
    learned = bounded(10.0)
    learned.refuse(learned.wave, 0.0, idle)
    assert learned.rate == SLOWEST
    assert not learned.searching


@pytest.mark.parametrize(("searching", "step"), [(True, 0.25), (False, 5.0)])
def test_a_rate_that_is_used_grows_to_no_absurd_number_and_can_be_learned_anew(searching: bool, step: float) -> None:
    learned, now = bounded(10.0), 0.0
    learned.searching = searching
    for _ in range(200):
        now += step
        used(learned, now)
        assert learned.rate < ENDLESS or learned.rate == math.inf
    assert learned.rate == math.inf
    assert learned.wait(now) == 0.0
    now += 2 * SPAN
    waves = [learned.take(now) for _ in range(8)]
    for wave in waves[:3]:
        learned.refuse(wave, 0.0, now + 1)
    assert learned.rate == 5.0
    assert learned.searching


def test_time_may_stand_still_or_be_read_late() -> None:
    learned = bounded(10.0, now=100.0)
    for now in (100.0, 100.0, 99.0):
        learned.take(now)
    assert learned.rate == 10.0
    assert learned.wait(100.0) == pytest.approx(0.3)


# ---- several together --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "many"), [(SLOWEST, 1), (SLOWEST, 50), (10.0, 2), (10.0, 1000), (10.0, 20_000)])
def test_the_last_of_many_does_not_begin_before_what_is_predicted_and_hardly_later(rate: float, many: int) -> None:
    learned = bounded(rate)
    predicted = learned.predicted(many, 0.0)
    last = sent(learned, 0.0, math.inf if many == 1 else predicted * 1.1 + 10.0)[:many][-1] if many > 1 else 0.0
    assert predicted <= last <= predicted * 1.05 + 3.0


def test_the_prediction_knows_what_has_grown_in_the_meantime() -> None:
    learned = bounded(10.0)
    now = bounded(10.0 * (1 + GROWTH) ** 100)
    assert learned.predicted(1000, 100.0) == learned.predicted(1000, 0.0)
    learned.hold(100.0)
    assert learned.predicted(1000, 100.0) == pytest.approx(now.predicted(1000, 0.0))
    learned.hold(1e9)
    assert learned.predicted(1000, 1e9) == 0.0


def test_nothing_is_predicted_while_the_rate_is_searched_for() -> None:
    assert refused().predicted(1e6, 0.0) == 0.0
