"""May the next attempt go to the service now, and if not, when?"""

from __future__ import annotations

import math
from typing import Any

import pytest

from forbear.core.concurrency import SHORTEST_PAUSE, Concurrency
from forbear.core.failure import PERMITS, Failure, Kind
from forbear.core.learned_rate import CALM, SLOWEST, LearnedRate
from forbear.core.rate import ONE, Cost, Limit, Rates, RateSettings
from forbear.core.room import LONGEST_PAUSE, Room


def room(*, most: float = math.inf, adaptive: bool = True, **limits: Any) -> Room:
    """All guards; rates where limits are given."""
    rates = Rates(RateSettings(**limits), 0.0) if limits else None
    return Room(rates, Concurrency(most, adaptive=adaptive), LearnedRate())


def failure(kind: Kind, retry_after: float | None = None) -> Failure:
    return Failure(transient=PERMITS[kind].transient, kind=kind, retry_after=retry_after)


def state(of: Room, now: float) -> tuple[Any, ...]:
    """All that decides about the next one."""
    rates, learned, concurrency = of.rates, of.learned, of.concurrency
    return (
        None if rates is None or rates.requests is None else rates.requests.left(now),
        None if rates is None or rates.tokens is None else rates.tokens.left(now),
        None if learned is None else (learned.rate, max(now, learned.next_at)),
        None if concurrency is None else (concurrency.limit, concurrency.under_way, concurrency.wave),
    )


# ---- going -------------------------------------------------------------------------------------------------------


def test_a_room_without_guards_is_always_open() -> None:
    empty = Room(None, None, None)
    place = empty.take(ONE, 0.0)
    assert (empty.wait(ONE, 0.0), empty.predicted(Cost(1e9, 1e9), ONE, 0.0)) == (0.0, 0.0)
    empty.correct([Limit(resource="requests", remaining=5)], 0.0)
    empty.succeeded(place, 100.0, 0.0)
    empty.failed(place, failure(Kind.RATE_LIMITED, 5.0), 0.0, 0.0)
    empty.cancelled(place, 0.0)
    empty.untake(place, 0.0)
    assert empty.wait(ONE, 0.0) == 0.0


def test_an_attempt_takes_its_place_in_all_guards() -> None:
    held = room(most=5.0, requests_per_minute=60, tokens_per_minute=600)
    held.take(Cost(1.0, 100.0), 0.0)
    assert state(held, 0.0)[:2] == (59.0, 500.0)
    assert held.concurrency is not None
    assert held.concurrency.under_way == 1


def test_the_slowest_guard_decides() -> None:
    held = room(most=2.0, requests_per_minute=60, burst=1)
    assert held.wait(ONE, 0.0) == 0.0
    place = held.take(ONE, 0.0)
    assert held.wait(ONE, 0.0) == 1.0
    held.cool_until = 3.0
    assert held.wait(ONE, 0.0) == 3.0
    assert held.learned is not None
    held.learned.rate, held.learned.next_at = 1.0, 4.0
    assert held.wait(ONE, 0.0) == 4.0
    held.take(ONE, 1.0)
    assert held.wait(ONE, 1.0) == math.inf
    held.cancelled(place, 1.0)
    assert held.wait(ONE, 10.0) == 0.0


def test_what_holds_an_attempt_back_is_said_in_words_and_what_lasts_no_longer_is_not_said() -> None:
    held = room(most=1.0, requests_per_minute=60, burst=1)
    assert held.learned is not None
    held.take(ONE, 0.0)
    held.cool_until, held.learned.rate, held.learned.next_at = 0.5, 1.0, 2.0
    assert [held.why(ONE, now) for now in (0.0, 0.5, 1.0, 2.0)] == [
        "it has asked for a pause",
        "its limit of requests or tokens",
        "it refuses more requests a second",
        "it is full, or overloaded",
    ]
    assert held.learned.held_at == -math.inf  # to ask is not to be held back
    assert Room(None, None, None).why(ONE, 0.0) == "it is full, or overloaded"


@pytest.mark.parametrize("later", [0.0, 0.125])
@pytest.mark.parametrize("settings", [{}, {"burst": 2}, {"strict_window": 10.0}])
def test_what_has_not_gone_is_there_again_in_every_guard(settings: dict[str, float], later: float) -> None:
    held = room(most=5.0, requests_per_minute=30, tokens_per_minute=600, **settings)
    untouched = room(most=5.0, requests_per_minute=30, tokens_per_minute=600, **settings)
    for one in (held, untouched):
        assert one.learned is not None
        one.learned.rate, one.learned.searching = 8.0, False
        one.take(Cost(1.0, 7.0), 0.0)
    places = [held.take(Cost(1.0, tokens), 0.0) for tokens in (5.0, 2.0, 2.0)]
    for place in places:
        held.untake(place, later)
    assert held.concurrency is not None
    now = later + 0.5
    assert state(held, now) == state(untouched, now)
    assert held.wait(Cost(1.0, 93.0), now) == pytest.approx(untouched.wait(Cost(1.0, 93.0), now))


@pytest.mark.parametrize("now", [0.0, 1e6, 3.1e7, 1e9])
def test_a_wait_too_short_for_the_clock_is_none_so_that_a_clock_that_jumps_comes_to_an_end(now: float) -> None:
    for per_minute in (100.0, 333.3, 600.0, 777.7, 1e9):
        held = Room(Rates(RateSettings(requests_per_minute=per_minute, burst=1), now), None, None)
        for step in range(50):
            instant = now + step * 0.0137
            while (wait := held.wait(ONE, instant)) > 0:
                assert instant + wait > instant
                instant += wait
            held.take(ONE, instant)
            now = max(now, instant - step * 0.0137)


# ---- the answer of the service -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("used", "left"), [(None, 500.0), (100.0, 500.0), (30.0, 570.0), (0.0, 600.0), (350.0, 250.0)])
def test_the_tokens_that_were_really_used_count(used: float | None, left: float) -> None:
    held = room(requests_per_minute=60, tokens_per_minute=600)
    held.succeeded(held.take(Cost(1.0, 100.0), 0.0), used, 0.0)
    assert state(held, 0.0)[:2] == (59.0, left)


def test_a_success_is_told_to_the_guards_that_learn() -> None:
    held = room()
    held.succeeded(held.take(ONE, 0.0), 50.0, 0.0)
    assert held.concurrency is not None
    assert held.learned is not None
    assert (held.concurrency.succeeded, held.concurrency.under_way, held.learned.accepted) == (1.0, 0, 1.0)


# What a failed attempt of one request and 100 tokens leaves of 60 and 600.
PAID = {
    Kind.CONNECTION_REFUSED: (60.0, 600.0),
    Kind.POOL_FULL: (60.0, 600.0),
    Kind.RATE_LIMITED: (59.0, 600.0),
    Kind.OVERLOADED: (59.0, 600.0),
    Kind.QUOTA_SPENT: (59.0, 600.0),
}
SAYS = {
    "rejected": {Kind.OVERLOADED},
    "failed": {
        Kind.SERVER_ERROR, Kind.TIMEOUT, Kind.CONNECTION_REFUSED, Kind.CONNECTION_LOST, Kind.BAD_ANSWER
    },
    "succeeded": {
        Kind.INVALID_REQUEST, Kind.TOO_LONG, Kind.CONTENT_REFUSED, Kind.AUTH, Kind.NOT_FOUND, Kind.CONFLICT,
        Kind.REJECTED_RESULT,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", Kind)
def test_what_a_failure_costs_and_what_it_says_about_the_load_depends_on_its_kind(kind: Kind) -> None:
    held = room(requests_per_minute=60, tokens_per_minute=600)
    held.failed(held.take(Cost(1.0, 100.0), 0.0), failure(kind), 0.0, 0.0)
    assert state(held, 0.0)[:2] == PAID.get(kind, (59.0, 500.0))
    assert held.concurrency is not None
    assert held.concurrency.under_way == 0
    for verdict, kinds in SAYS.items():
        assert getattr(held.concurrency, verdict) == float(kind in kinds)


def test_an_attempt_that_nobody_wants_any_more_leaves_its_place_and_stays_paid_for() -> None:
    held = room(requests_per_minute=60, tokens_per_minute=600)
    held.cancelled(held.take(Cost(1.0, 100.0), 0.0), 0.0)
    assert state(held, 0.0)[:2] == (59.0, 500.0)
    assert held.concurrency is not None
    assert (held.concurrency.under_way, held.concurrency.failed) == (0, 0.0)


def test_the_dice_spread_the_probes() -> None:
    held = room(most=1.0)
    held.failed(held.take(ONE, 0.0), failure(Kind.TIMEOUT), 0.0, 0.5)
    assert held.wait(ONE, 0.0) == pytest.approx(SHORTEST_PAUSE * 0.875)


# ---- pauses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "retry_after", "wait"),
    [
        (Kind.RATE_LIMITED, 5.0, 5.0),
        (Kind.OVERLOADED, 5.0, 5.0),
        (Kind.OVERLOADED, 0.0, 0.0),
        (Kind.OVERLOADED, None, 0.0),
        (Kind.RATE_LIMITED, None, 0.0),
        (Kind.SERVER_ERROR, 5.0, 0.0),  # it may be this request's own
        (Kind.CONFLICT, 5.0, 0.0),
        (Kind.QUOTA_SPENT, 5.0, 0.0),  # no seconds help
    ],
)
def test_a_pause_that_the_service_asks_for_holds_everyone_back(
    kind: Kind, retry_after: float | None, wait: float
) -> None:
    held = room()
    held.failed(held.take(ONE, 10.0), failure(kind, retry_after), 10.0, 0.0)
    assert held.wait(ONE, 10.0) == wait
    assert held.predicted(ONE, ONE, 10.0) == wait


def test_a_later_pause_never_shortens_an_earlier_one() -> None:
    held = room()
    for retry_after in (5.0, 2.0):
        held.failed(held.take(ONE, 0.0), failure(Kind.OVERLOADED, retry_after), 0.0, 0.0)
    assert held.wait(ONE, 0.0) == 5.0
    assert held.wait(ONE, 5.0) == 0.0


def test_one_hint_holds_everyone_back_for_a_while_and_not_for_days() -> None:
    for kind in (Kind.RATE_LIMITED, Kind.OVERLOADED):
        held = room()
        held.failed(held.take(ONE, 0.0), failure(kind, 1e6), 0.0, 0.0)
        assert held.wait(ONE, 0.0) == LONGEST_PAUSE
        assert held.wait(ONE, LONGEST_PAUSE) == 0.0


def test_begun_anew_it_has_forgotten_what_refusals_have_taught() -> None:
    for held in (room(most=5.0), Room(None, None, None)):
        for kind in (Kind.RATE_LIMITED, Kind.OVERLOADED):
            held.failed(held.take(ONE, 0.0), failure(kind, 60.0), 0.0, 0.0)
        held.reset()
        assert held.wait(ONE, 0.0) == 0.0
        assert held.cool_until == -math.inf
        if held.learned is not None:
            assert held.learned.rate == math.inf


@pytest.mark.parametrize("kind", Kind)
def test_whatever_was_sent_counts_as_let_through_unless_the_rate_was_refused(kind: Kind) -> None:
    held = room()
    held.failed(held.take(ONE, 0.0), failure(kind), 0.0, 0.0)
    assert held.learned is not None
    assert held.learned.accepted == float(kind is not Kind.RATE_LIMITED)


@pytest.mark.parametrize("kind", Kind)
def test_an_answer_that_the_question_was_wrong_is_an_answer_and_forgets_a_rate_that_limits_nobody(kind: Kind) -> None:
    held = room()
    assert held.learned is not None
    held.learned.rate, held.learned.refused_at = 8.0, 0.0
    held.failed(held.take(ONE, CALM + 1), failure(kind), CALM + 1, 0.0)
    assert (held.learned.rate == math.inf) == (kind in SAYS["succeeded"])


# What else holds a second attempt back, where the learned rate does so for one second.
@pytest.mark.parametrize(
    ("limits", "cool", "most", "wait", "binds"),
    [
        ({}, 0.0, math.inf, 1.0, True),
        ({"requests_per_minute": 120, "burst": 1}, 0.0, math.inf, 1.0, True),
        ({"requests_per_minute": 60, "burst": 1}, 0.0, math.inf, 1.0, False),  # it would not have gone any earlier
        ({"requests_per_minute": 30, "burst": 1}, 0.0, math.inf, 2.0, False),
        ({"tokens_per_minute": 60, "burst": 1}, 0.0, math.inf, 2.0, False),
        ({"requests_per_minute": 2, "strict_window": 60.0}, 0.0, math.inf, 1.0, True),
        ({"requests_per_minute": 1, "strict_window": 60.0}, 0.0, math.inf, 60.0, False),
        ({}, 0.5, math.inf, 1.0, True),
        ({}, 5.0, math.inf, 5.0, False),
        ({}, 0.0, 1.0, math.inf, False),
    ],
)
def test_the_learned_rate_counts_as_used_only_where_no_other_guard_binds(
    limits: dict[str, Any], cool: float, most: float, wait: float, binds: bool
) -> None:
    held = room(most=most, adaptive=False, **limits)
    assert held.learned is not None
    held.learned.rate, held.learned.searching = 1.0, False
    cost = Cost(1.0, 2.0)
    held.take(cost, 0.0)
    held.cool_until = cool
    assert held.wait(cost, 0.0) == pytest.approx(wait)
    assert (held.learned.held_at == 0.0) == binds


@pytest.mark.parametrize("searching", [True, False])
@pytest.mark.parametrize(
    ("limits", "grows"),
    [
        ({}, True),
        ({"requests_per_minute": 60_000}, True),
        ({"requests_per_minute": 120, "burst": 1}, False),
        ({"tokens_per_minute": 120, "burst": 1}, False),
    ],
)
def test_where_a_limit_that_is_configured_binds_the_learned_rate_does_not_grow(
    limits: dict[str, Any], grows: bool, searching: bool
) -> None:
    held, now = room(adaptive=False, **limits), 0.0
    assert held.learned is not None
    held.learned.rate, held.learned.searching = 4.0, searching
    cost = Cost(1.0, 1.0)
    while now < 5.0:
        now += held.wait(cost, now)
        held.take(cost, now)
    assert (held.learned.rate > 4.4) == grows
    assert (held.learned.rate == 4.0) == (not grows)


@pytest.mark.parametrize("idle", [10.0, 600.0, 1e6])
def test_an_idle_time_does_not_let_the_learned_rate_grow(idle: float) -> None:
    held = room()
    assert held.learned is not None
    held.learned.rate, held.learned.searching = 4.0, False
    for step in range(10):
        now = step * idle
        assert held.wait(ONE, now) == 0.0
        held.cancelled(held.take(ONE, now), now)
    assert held.learned.rate == 4.0


def test_many_that_are_refused_leave_a_rate_of_what_was_let_through() -> None:
    held = room()
    assert held.learned is not None
    places = [held.take(ONE, 0.0) for _ in range(600)]
    for number, place in enumerate(places[:540]):
        held.failed(place, failure(Kind.RATE_LIMITED), number / 1000, 0.0)
    assert held.learned.rate == 60.0
    assert held.learned.searching


def test_a_refusal_teaches_a_rate_once_per_wave() -> None:
    held = room()
    places = [held.take(ONE, 0.0) for _ in range(10)]
    assert held.learned is not None
    for place in places:
        held.failed(place, failure(Kind.RATE_LIMITED), 0.0, 0.0)
    assert held.learned.rate == SLOWEST
    assert held.learned.searching
    held.take(ONE, 0.0)
    assert held.wait(ONE, 0.0) == 1 / SLOWEST


# ---- what its headers say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "wait"),
    [
        (Limit(resource="tokens", remaining=0, reset=7.0), 7.0),
        (Limit(resource="requests", remaining=-2, reset=7.0), 7.0),
        (Limit(resource="requests", limit=14, remaining=0, reset=7.0), 0.5),
        (Limit(resource="requests", limit=0.5, remaining=0, reset=7.0), 7.0),
        (Limit(resource="tokens", remaining=0, reset=86_400.0), 60.0),
        (Limit(resource="tokens", limit=1000.0, remaining=0, reset=86_400.0), 60.0),
        (Limit(resource="requests", remaining=1, reset=7.0), 0.0),
        (Limit(resource="requests", remaining=0), 0.0),
        (Limit(resource="requests", reset=7.0), 0.0),
        (Limit(resource="connections", remaining=0, reset=7.0), 0.0),
        (Limit(resource="requests", remaining=0, reset=0.0), 0.0),
        (Limit(resource="requests", remaining=0, reset=-7.0), 0.0),
        (Limit(resource="requests", remaining=0, reset=math.nan), 0.0),
    ],
)
def test_where_nothing_is_left_the_next_one_waits_for_its_share_of_the_time_until_the_limit_is_full(
    limit: Limit, wait: float
) -> None:
    held = room()
    held.correct([limit, Limit(resource="requests", remaining=0, reset=-50.0)], 10.0)
    assert held.wait(ONE, 10.0) == wait


def test_what_the_headers_say_is_left_corrects_the_rates() -> None:
    held = room(requests_per_minute=60, tokens_per_minute=600)
    held.correct([Limit(resource="requests", remaining=3), Limit(resource="tokens", remaining=40)], 0.0)
    assert state(held, 0.0)[:2] == (3.0, 40.0)
    held.correct([], 0.0)
    assert held.wait(ONE, 0.0) == 0.0


# ---- the last of many --------------------------------------------------------------------------------------------


def test_the_wait_of_the_last_of_many_is_at_least_that_of_each_guard_that_knows() -> None:
    held = room(most=1.0, requests_per_minute=60, burst=1)
    assert held.predicted(Cost(6.0), ONE, 0.0) == 5.0
    held.cool_until = 9.0
    assert held.predicted(Cost(6.0), ONE, 0.0) == 9.0
    assert held.learned is not None
    held.learned.rate, held.learned.searching = 0.5, False
    assert held.predicted(Cost(6.0), ONE, 0.0) == pytest.approx(held.learned.predicted(6.0, 0.0))
