"""A rate limit that nobody has told us, learned from being refused."""

from __future__ import annotations

import math

import pytest

from forbear.core.learned_rate import BELOW_REFUSED, CALM, DOUBLING, ENDLESS, GROWTH, SLOWEST, SPAN, LearnedRate


def refused(*, accepted: int = 0, during: float = 1.0, cool_until: float = 0.0, now: float = 1.0) -> LearnedRate:
    """A rate after its first refusal."""
    learned = LearnedRate()
    wave = learned.take(now - during)
    for _ in range(accepted):
        learned.accept(now - during)
    learned.refuse(wave, cool_until, now)
    return learned


def bounded(rate: float, now: float = 0.0) -> LearnedRate:
    """A rate that has been refused more than once."""
    learned = LearnedRate()
    learned.take(now)
    learned.rate, learned.searching, learned.grows_at, learned.next_at = rate, False, now, now
    return learned


def sent(learned: LearnedRate, begin: float, end: float) -> list[float]:
    """The instants at which attempts begin where there is always one that waits."""
    now, gone = begin, list[float]()
    while True:
        now += learned.wait(now)
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
        (10, 1.0, 5.0, 2.0),  # what was accepted lasts until the end of the pause
        (1, 9.0, 0.0, SLOWEST),
    ],
)
def test_the_first_rate_is_what_the_service_has_accepted_lately(
    accepted: int, during: float, cool_until: float, rate: float
) -> None:
    learned = refused(accepted=accepted, during=during, cool_until=cool_until)
    assert learned.rate == rate
    assert learned.searching


def test_what_was_accepted_is_counted_over_the_last_span_and_the_one_before() -> None:
    learned = LearnedRate()
    for second in range(100):
        wave = learned.take(float(second))
        for _ in range(3):
            learned.accept(float(second))
    learned.refuse(wave, 0.0, 99.0)
    assert learned.rate == pytest.approx(3.0, rel=0.1)
    assert 99.0 - learned.since <= 2 * SPAN


@pytest.mark.parametrize(("pause", "rate"), [(SPAN - 1, 30 / 9), (SPAN, 3.0), (2 * SPAN - 1, 30 / 19), (2 * SPAN, 0.5)])
def test_what_was_accepted_too_long_ago_says_nothing(pause: float, rate: float) -> None:
    learned = LearnedRate()
    wave = learned.take(0.0)
    for _ in range(30):
        learned.accept(0.0)
    learned.refuse(wave, 0.0, pause)
    assert learned.rate == pytest.approx(rate)


def test_an_answer_counts_when_it_comes_and_not_when_it_was_asked_for() -> None:
    learned = LearnedRate()
    wave = learned.take(0.0)
    for _ in range(30):
        learned.accept(2.5 * SPAN)
    learned.refuse(wave, 0.0, 2.5 * SPAN + 2.0)
    assert learned.rate == 15.0


# ---- how it goes on ----------------------------------------------------------------------------------------------


def test_while_it_is_searched_for_the_rate_doubles_again_and_again() -> None:
    learned = refused(accepted=1, now=0.0)
    assert [learned.rate] == [1.0]
    for now in (1.0, 2.0, 3.0, 3.5):
        learned.take(now)
        assert learned.rate == pytest.approx(2.0 ** (now / DOUBLING))


def test_a_second_refusal_bounds_it_and_from_there_it_grows_slowly() -> None:
    learned = refused(accepted=10, now=1.0)
    then = 1.0 + DOUBLING
    learned.refuse(learned.take(then), then, then)
    assert learned.rate == pytest.approx(20.0 * BELOW_REFUSED)
    learned.take(then + 10.0)
    assert learned.rate == pytest.approx(20.0 * BELOW_REFUSED * (1 + GROWTH) ** 10)


def test_one_wave_of_refusals_is_one_decrease() -> None:
    learned = bounded(100.0)
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
    assert learned.wait(20.0) == pytest.approx(0.1 / (1 + GROWTH) ** 20)


# ---- what the service asks for -----------------------------------------------------------------------------------


def test_nobody_begins_before_the_end_of_the_pause_and_growth_begins_with_it() -> None:
    learned = refused(accepted=10, cool_until=5.0, now=0.0)
    assert learned.wait(0.0) == 5.0
    assert sent(learned, 0.0, 5.9)[0] == 5.0
    assert learned.rate < 4.1


def test_a_late_refusal_of_an_older_wave_lengthens_the_pause_and_lowers_nothing() -> None:
    learned = bounded(100.0)
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
    learned.next_at = 31.0
    assert learned.wait(30.0) == 1.0
    learned.accept(CALM + 20.0)
    assert learned.rate < math.inf
    learned.accept(CALM + 30.01)
    assert learned.rate == math.inf


@pytest.mark.parametrize("searching", [True, False])
@pytest.mark.parametrize("idle", [600.0, 1100.0, 36_000.0, 1e9])
def test_after_a_long_idle_time_the_rate_is_no_limit_and_can_be_learned_anew(idle: float, searching: bool) -> None:
    learned = bounded(10.0)
    learned.searching = searching
    wave = learned.take(idle)
    assert learned.rate == math.inf
    assert learned.wait(idle) == 0.0
    for _ in range(7):
        learned.accept(idle)
    learned.refuse(wave, idle, idle + 1)
    assert learned.rate == 7.0
    assert learned.searching


@pytest.mark.parametrize("idle", [1100.0, 36_000.0, 1e9])
def test_a_refusal_after_a_long_idle_time_is_like_a_first_one(idle: float) -> None:
    learned = bounded(10.0)
    learned.refuse(learned.wave, 0.0, idle)
    assert learned.rate == SLOWEST
    assert learned.searching


def test_a_rate_that_is_used_grows_to_no_absurd_number() -> None:
    learned, now = refused(accepted=1, now=0.0), 0.0
    for _ in range(200):
        now += 0.25
        learned.take(now)
        assert learned.rate < ENDLESS or learned.rate == math.inf
    assert learned.rate == math.inf


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
    assert learned.predicted(1000, 100.0) == pytest.approx(now.predicted(1000, 0.0))
    assert learned.predicted(1000, 1e9) == 0.0


def test_nothing_is_predicted_while_the_rate_is_searched_for() -> None:
    assert refused().predicted(1e6, 0.0) == 0.0
