"""How many attempts may be under way at once."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from forbear.core.concurrency import (
    CALM,
    COLLAPSE,
    LONGER,
    LONGEST_PAUSE,
    PATIENCE,
    SHORTEST_PAUSE,
    Concurrency,
    Verdict,
)

OUTCOMES: dict[str, Verdict] = {"+": "success", "-": "failed", "!": "rejected", "0": "neutral"}


def begun(many: int, limit: Concurrency | None = None, **settings: Any) -> tuple[Concurrency, list[int]]:
    limit = Concurrency(**settings) if limit is None else limit
    return limit, [limit.take(0.0) for _ in range(many)]


def end(limit: Concurrency, waves: list[int], outcomes: str, now: float = 0.0, dice: float = 0.0) -> None:
    """The first of those under way end, one for each letter."""
    for outcome in outcomes:
        limit.leave(waves.pop(0), OUTCOMES[outcome], now, dice)


def collapsed(now: float = 0.0) -> Concurrency:
    """After the total failure of 100 at once, and of all that was tried then."""
    limit, waves = begun(100)
    end(limit, waves, "-" * 100, now)
    while limit.limit > 1:
        _, waves = begun(int(limit.limit), limit)
        end(limit, waves, "-" * len(waves), now)
    return limit


# ---- how many may go ---------------------------------------------------------------------------------------------


def test_before_the_first_sign_of_overload_there_is_no_limit() -> None:
    limit, _ = begun(100_000)
    assert limit.limit == math.inf
    assert limit.wait(0.0) == 0.0


def test_beyond_the_users_own_limit_one_must_end_before_the_next_begins() -> None:
    limit, waves = begun(2, most=3.0)
    assert limit.wait(0.0) == 0.0
    waves.append(limit.take(0.0))
    assert limit.wait(0.0) == math.inf
    end(limit, waves, "0")
    assert limit.wait(0.0) == 0.0


def test_who_is_under_way_is_counted_whatever_the_end_was() -> None:
    limit, waves = begun(4)
    end(limit, waves, "+-!0")
    assert limit.under_way == 0


# ---- a trace: so many are under way, these end, in this order; then this is the limit ----------------------------

DECREASES: list[tuple[str, int, str, float]] = [
    # Nothing is concluded from little.
    ("one failure", 10, "-", math.inf),
    ("three failures", 10, "---", math.inf),
    ("failures without an overload", 10, "-0-0-", math.inf),
    ("one who fails alone, again and again", 1, "-", math.inf),
    # Nothing succeeds: an eighth of those under way.
    ("four failures in a row", 16, "----", 13 / COLLAPSE),
    ("four rejections in a row", 16, "!!!!", 13 / COLLAPSE),
    ("both, of two", 2, "--", math.inf),
    # Some succeed: half of those under way.
    ("four of six", 16, "++----", 11 / 2),
    ("a few rejections among many successes", 40, "+" * 20 + "!" * 4, 17 / 2),
    # Chance.
    ("a quarter of failures", 40, "++-+" * 10, math.inf),
    ("one rejection in twelve", 60, ("+" * 11 + "!") * 5, math.inf),
]


@pytest.mark.parametrize(("name", "many", "outcomes", "limit"), DECREASES)
def test_the_limit_falls_by_what_was_under_way(name: str, many: int, outcomes: str, limit: float) -> None:
    held, waves = begun(many)
    end(held, waves, outcomes)
    assert held.limit == limit
    assert held.under_way == many - len(outcomes)


def test_what_fails_one_after_the_other_is_each_ones_own_matter() -> None:
    limit = Concurrency()
    for now in range(100):
        limit.leave(limit.take(0.0), "failed", float(now), 0.0)
    assert limit.limit == math.inf


def test_two_that_keep_failing_are_an_overload_too() -> None:
    limit, waves = begun(2)
    for now in range(10):
        end(limit, waves, "-", float(now))
        waves.append(limit.take(0.0))
    assert limit.limit == 1.0


def test_rejections_count_sooner_than_failures() -> None:
    for outcome, limit in (("-", math.inf), ("!", 20.0)):
        held, waves = begun(60)
        end(held, waves, ("+++" + outcome) * 5)
        assert held.limit == pytest.approx(limit, abs=5.0)


def test_one_wave_of_failures_is_one_decrease() -> None:
    limit, waves = begun(1000)
    end(limit, waves, "-" * 1000)
    assert limit.limit == 997 / COLLAPSE
    assert limit.wave == 1
    assert limit.under_way == 0


def test_the_next_wave_is_judged_for_itself() -> None:
    limit, old = begun(1000)
    end(limit, old, "-" * 900)
    assert limit.wait(0.0) == 0.0
    _, waves = begun(20, limit)
    end(limit, old, "+" * 100)  # late: they tell nothing new
    assert limit.limit == 997 / COLLAPSE
    end(limit, waves, "-" * 4)
    assert limit.limit == 17 / COLLAPSE
    assert limit.wave == 2


def test_a_total_outage_brings_the_limit_to_one_within_three_waves() -> None:
    limit = collapsed()
    assert limit.limit == 1.0
    assert limit.wave == 3
    assert limit.under_way == 0


def test_the_limit_falls_from_itself_where_more_is_still_under_way() -> None:
    limit, old = begun(1000)
    end(limit, old, "-" * 4)
    _, waves = begun(4, limit)
    end(limit, waves, "-" * 4)
    assert limit.limit == 997 / COLLAPSE**2


# ---- probes ------------------------------------------------------------------------------------------------------


def test_at_the_limit_of_one_the_pauses_between_probes_grow_up_to_the_longest() -> None:
    limit, now, pauses = collapsed(), 0.0, list[float]()
    for _ in range(15):
        now += limit.wait(now)
        wave = limit.take(now)
        assert limit.wait(now) == pytest.approx(PATIENCE)  # by then it would count as taken
        limit.leave(wave, "failed", now, 0.0)
        pauses.append(limit.wait(now))
    assert pauses[:3] == pytest.approx([SHORTEST_PAUSE * LONGER**n for n in range(1, 4)])
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE)


def test_probes_of_many_clients_are_spread() -> None:
    for dice, share in ((0.0, 1.0), (0.5, 0.875), (1.0 - 2.0**-53, 0.75)):
        limit = Concurrency(1.0)
        limit.leave(limit.take(0.0), "failed", 0.0, dice)
        assert limit.wait(0.0) == pytest.approx(SHORTEST_PAUSE * share)


def test_a_probe_of_which_nothing_is_known_changes_nothing() -> None:
    limit = collapsed()
    pause, due = limit.pause, limit.probe_at
    limit.leave(limit.take(0.0), "neutral", 50.0, 0.0)
    assert (limit.pause, limit.probe_at, limit.limit) == (pause, due, 1.0)


def test_one_at_a_time_is_paused_after_failures_in_a_row_and_not_after_a_success() -> None:
    limit, pauses = Concurrency(1.0), list[float]()
    for now, outcome in enumerate("--+-+"):
        end(limit, [limit.take(0.0)], outcome, float(now * 60))
        pauses.append(limit.wait(now * 60.0))
    assert pauses == pytest.approx([SHORTEST_PAUSE, SHORTEST_PAUSE * LONGER, 0.0, SHORTEST_PAUSE, 0.0])
    assert limit.limit == 1.0


# ---- growth ------------------------------------------------------------------------------------------------------


def grown(limit: Concurrency, rounds: int, now: float = 1000.0) -> list[float]:
    """The limit after each round in which as many succeed as are allowed."""
    limits = list[float]()
    for _ in range(rounds):
        _, waves = begun(int(limit.limit), limit)
        while waves:
            end(limit, waves, "+", now)
        limits.append(limit.limit)
    return limits


def used(limit: Concurrency, successes: int, now: float = 1000.0) -> float:
    """The limit after so many successes while all places are taken."""
    for _ in range(successes):
        waves = [limit.take(0.0) for _ in range(int(limit.limit) - limit.under_way)]
        limit.leave(waves[-1], "success", now, 0.0)
    return limit.limit


def test_after_an_outage_the_limit_doubles_up_to_half_of_what_failed_and_grows_by_one_from_there() -> None:
    limit = collapsed()
    limit.threshold = 8.0
    assert [used(limit, 1) for _ in range(9)] == pytest.approx(
        [2, 3, 4, 5, 6, 7, 8, 8 + 1 / 8, 8 + 1 / 8 + 1 / (8 + 1 / 8)]
    )


def test_the_limit_grows_fast_up_to_half_of_what_was_allowed_and_under_way_when_it_fell() -> None:
    limit, old = begun(1000)
    end(limit, old, "-" * 4)
    assert limit.threshold == 997 / 2
    _, waves = begun(4, limit)
    end(limit, waves, "-" * 4)
    assert limit.threshold == 997 / COLLAPSE / 2
    few, waves = begun(20, Concurrency(50.0))
    end(few, waves, "-" * 4)
    assert few.threshold == 17 / 2


def test_one_who_fails_alone_at_a_limit_of_two_is_no_probe() -> None:
    limit = collapsed()
    limit.leave(limit.take(0.0), "success", 0.0, 0.0)
    wave = limit.wave
    limit.leave(limit.take(0.0), "failed", 0.0, 0.0)
    assert (limit.limit, limit.wave, limit.wait(0.0)) == (2.0, wave, 0.0)


def test_the_first_success_ends_the_pauses() -> None:
    limit = collapsed()
    limit.leave(limit.take(0.0), "success", 0.0, 0.0)
    assert limit.limit == 2.0
    assert limit.wait(0.0) == 0.0
    assert limit.pause == 0.0


def test_a_large_limit_grows_by_a_share_of_itself() -> None:
    limit = collapsed()
    limit.limit, limit.threshold = 1000.0, 25.0
    assert used(limit, 1) == pytest.approx(1000.01)
    limit.limit, limit.running = 50.0, {}
    assert used(limit, 1) == pytest.approx(50.02)


def test_it_never_grows_beyond_the_users_own_limit() -> None:
    limit, waves = begun(10, most=10.0)
    end(limit, waves, "-" * 10)
    assert limit.limit == 1.0
    assert used(limit, 500) == 10.0


def test_little_use_says_nothing_about_a_higher_limit() -> None:
    limit = collapsed()
    limit.limit = 10.0
    for now in range(50):
        _, waves = begun(4, limit)
        end(limit, waves, "++++", float(now))
    assert limit.limit == 10.0
    _, waves = begun(5, limit)
    end(limit, waves, "+", 50.0)
    assert limit.limit > 10.0


def test_a_limit_that_binds_nobody_is_forgotten_after_a_calm_time() -> None:
    limit = collapsed(now=100.0)
    limit.limit = 10.0
    for now, expected in ((100.0 + CALM, 10.0), (100.01 + CALM, math.inf)):
        limit.leave(limit.take(0.0), "success", now, 0.0)
        assert limit.limit == expected
    assert limit.threshold == math.inf
    limit, waves = begun(20, limit)
    end(limit, waves, "-" * 20, 500.0)
    assert limit.limit == 17 / 2


def test_a_failure_begins_the_calm_time_anew() -> None:
    limit = collapsed(now=100.0)
    limit.limit = 10.0
    limit.leave(limit.take(0.0), "failed", 150.0, 0.0)
    limit.leave(limit.take(0.0), "success", 150.0 + CALM, 0.0)
    assert limit.limit == 10.0


# ---- late ones, and those without adaption -----------------------------------------------------------------------


def test_who_ends_long_after_its_wave_is_counted_off_and_tells_nothing() -> None:
    limit, old = begun(50)
    end(limit, old, "-" * 4)
    before = (limit.limit, limit.wave, limit.pause, limit.succeeded, limit.failed)
    end(limit, old, "-+!0" * 11, now=1e9)
    assert (limit.limit, limit.wave, limit.pause, limit.succeeded, limit.failed) == before
    assert limit.under_way == 2


def test_who_began_before_a_limit_was_forgotten_may_end_after_it() -> None:
    limit = collapsed(now=0.0)
    limit.limit = 10.0
    early = limit.take(0.0)
    limit.leave(limit.take(0.0), "success", 100.0, 0.0)
    assert limit.limit == math.inf
    limit.leave(early, "failed", 101.0, 0.0)
    assert limit.under_way == 0
    assert limit.limit == math.inf


def test_without_adaption_only_the_users_own_limit_counts() -> None:
    limit, waves = begun(8, most=8.0, adaptive=False)
    end(limit, waves, "-!-!-!-!")
    assert (limit.limit, limit.under_way, limit.wait(0.0)) == (8.0, 0, 0.0)


def test_a_clock_that_stands_still_does_no_harm() -> None:
    limit = collapsed()
    for _ in range(1000):
        end(limit, [limit.take(0.0)], "-")
    assert limit.wait(0.0) == pytest.approx(LONGEST_PAUSE)
    assert limit.wait(1e9) == 0.0


# ---- answers that take minutes -------------------------------------------------------------------------------------


def refused_while_others_run(refused: int, running: int, seconds: float = 0.05) -> Concurrency:
    """So many are refused after some seconds while others, begun with them, still run."""
    limit, attempts = begun(refused + running)
    for attempt in attempts[:refused]:
        limit.leave(attempt, "rejected", seconds, 0.0)
    return limit


def test_what_has_run_for_twice_as_long_as_a_refusal_takes_counts_as_going_well() -> None:
    limit = Concurrency()
    for _ in range(60):
        limit.take(0.0)
    late = [limit.take(10.0) for _ in range(6)]
    for attempt in late:
        limit.leave(attempt, "rejected", 10.1, 0.0)
    assert limit.limit == math.inf


def test_what_was_not_refused_in_time_has_been_taken_and_lifts_the_limit_to_where_it_is() -> None:
    limit = refused_while_others_run(20, 80)
    assert limit.limit < 20
    assert 0 < limit.wait(0.5) <= PATIENCE
    assert 0 < limit.wait(PATIENCE) <= PATIENCE
    assert limit.limit == 80.0


def test_it_grows_the_faster_the_longer_nothing_was_refused() -> None:
    limit = refused_while_others_run(4, 4)
    limits = []
    for second in range(1, 31):
        while limit.wait(float(second)) == 0.0:
            limit.take(float(second))
        limits.append(limit.under_way)
    assert limits[:2] == [4, 4]  # what was refused is too fresh
    steps = [after - before for before, after in pairwise(limits[2:])]
    assert steps[:3] == [1, 2, 2]
    assert steps[-1] >= 8
    assert sorted(steps) == pytest.approx(steps, abs=1)


def test_what_is_hardly_used_does_not_grow_by_time() -> None:
    limit = refused_while_others_run(80, 20)
    limit.limit = 60.0
    for second in range(1, 30):
        limit.wait(float(second))
    assert limit.limit == 60.0


def test_the_patience_is_twice_what_the_slowest_refusal_took() -> None:
    limit = refused_while_others_run(20, 2, seconds=3.0)
    assert limit.patience == 6.0
    assert limit.wait(5.9) == pytest.approx(0.1)
    limit.wait(6.0)
    assert len(limit.accepted) == 2


def test_who_leaves_before_it_was_taken_is_no_longer_waited_for() -> None:
    limit, attempts = begun(24)
    for attempt in attempts[:20]:
        limit.leave(attempt, "rejected", 0.05, 0.0)
    limit.leave(attempts[20], "neutral", 0.1, 0.0)
    limit.leave(attempts[22], "neutral", 0.1, 0.0)
    assert [attempt for attempt, _ in limit.young] == attempts[21:]
    limit.wait(PATIENCE)
    assert limit.accepted == {attempts[21], attempts[23]}
    limit.leave(attempts[21], "success", 60.0, 0.0)
    assert limit.accepted == {attempts[23]}


def test_what_it_has_learned_can_be_forgotten() -> None:
    limit, attempts = begun(10)
    end(limit, attempts, "-" * 5)
    assert limit.limit == 1.0
    limit.forget()
    assert (limit.limit, limit.under_way, limit.wait(0.0)) == (math.inf, 5, 0.0)
    end(limit, attempts, "-" * 5)  # of before: it tells nothing any more
    assert limit.limit == math.inf


def test_in_another_process_only_its_own_attempts_are_under_way() -> None:
    limit = refused_while_others_run(10, 5)
    limit.wait(PATIENCE)
    kept = next(iter(limit.running))
    limit.take(PATIENCE)
    limit.keep({kept})
    assert (limit.under_way, [attempt for attempt, _ in limit.young], limit.accepted) == (1, [kept], {kept})


def test_what_is_taken_lifts_the_limit_no_further_than_the_users_own() -> None:
    limit, attempts = begun(8, most=4.0)  # four of them inside others, which may not wait
    end(limit, attempts, "!" * 4, 0.05)
    assert limit.limit < 4.0
    limit.wait(PATIENCE)
    assert limit.limit == 4.0
    assert limit.wait(100.0) == math.inf
