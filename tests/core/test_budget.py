"""How many retries the successes of a service have earned."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from forbear.core.budget import COSTS, FIRST_PACE, SLOWEST_PACE, Budget, BudgetSettings
from forbear.core.failure import Kind


def budget(**settings: Any) -> Budget:
    return Budget(BudgetSettings(**settings), 0.0)


# ---- traces: what happens, and what is left after it. A second passes before each. ------------------------------

# "ok": a first attempt has succeeded; "retry": a retry goes, after a failure of that cost, and fails too; "retry ok":
# it succeeds; "refused": it finds no place; "unsent": it was paid for and not sent; "pause": 61 s pass.
TRACES: dict[str, tuple[dict[str, float], list[tuple[str, float, float]]]] = {
    "each retry costs, each success earns a tenth": (
        {},
        [("retry", 1, 9.0), ("retry", 1, 8.0), ("ok", 0, 8.1), ("ok", 0, 8.2), ("retry", 1, 7.2)],
    ),
    "a timeout costs two, a refusal half": (
        {},
        [("retry", 2, 8.0), ("retry", 2, 6.0), ("retry", 0.5, 5.5), ("retry", 0.5, 5.0)],
    ),
    "a retry that succeeds earns its cost back": (
        {},
        [("retry", 1, 9.0), ("retry ok", 1, 9.1), ("retry ok", 1, 9.2), ("retry ok", 0.5, 9.3)],
    ),
    "where retries wait it earns one more while little is left": (
        {"when_empty": "wait"},
        [("retry", 1, 9.0), ("retry ok", 1, 9.1 + 1.0), ("retry ok", 1, 10.1 + 0.1 + 0.9), ("retry ok", 1, 11.2)],
    ),
    "so it does after a timeout": (
        {"when_empty": "wait"},
        [("retry", 2, 8.0), ("retry ok", 2, 9.1), ("retry ok", 2, 10.2), ("retry ok", 2, 12.1 - 0.8)],
    ),
    "what was not sent is given back": ({}, [("unsent", 1, 10.0), ("retry", 2, 8.0), ("unsent", 2, 8.0)]),
    "with nothing left no retry goes": (
        {"initial": 2.5},
        [("retry", 1, 1.5), ("retry", 1, 0.5), ("refused", 1, 0.5), ("retry", 0.5, 0.0), ("refused", 0.5, 0.0)],
    ),
    "ten successes pay for one retry": (
        {"initial": 0},
        [("refused", 1, 0.0)] + [("ok", 0, n / 10) for n in range(1, 11)] + [("retry", 1, 0.0), ("refused", 1, 0.0)],
    ),
    "no more than the capacity is saved up": (
        {"initial": 1, "capacity": 1.25},
        [("ok", 0, 1.1), ("ok", 0, 1.2), ("ok", 0, 1.25), ("ok", 0, 1.25), ("retry ok", 1, 1.25)],
    ),
    "what was saved up is worth nothing after a long pause": (
        {"initial": 1, "earned": 1},
        [("ok", 0, 2.0), ("ok", 0, 3.0), ("pause", 0, 1.0), ("retry", 1, 0.0), ("pause", 0, 0.0), ("ok", 0, 1.0)],
    ),
    "a first success after the pause adds to what is left of it": (
        {"initial": 1, "earned": 1},
        [("ok", 0, 2.0), ("ok", 0, 3.0), ("late ok", 0, 2.0)],
    ),
    "without a beginning, an end or earnings nothing is ever there": (
        {"initial": 0, "capacity": 0, "earned": 0},
        [("ok", 0, 0.0), ("refused", 1, 0.0), ("retry", 0, 0.0)],
    ),
    "what costs nothing always goes": ({"initial": 0}, [("retry", 0, 0.0), ("retry ok", 0, 0.1)]),
}


@pytest.mark.parametrize("name", TRACES)
def test_trace(name: str) -> None:
    settings, trace = TRACES[name]
    held, now = budget(**settings), 0.0
    for number, (what, cost, left) in enumerate(trace):
        now += {"pause": 61.0, "late ok": 61.0}.get(what, 1.0)
        if what in {"retry", "retry ok", "unsent"}:
            assert held.covers(cost, now), number
            paid = held.take(cost, now)
            assert paid == pytest.approx(cost)
            if what == "retry ok":
                held.succeeded(paid, now)
            elif what == "unsent":
                held.give_back(paid)
        elif what in {"ok", "late ok"}:
            held.succeeded(0.0, now)
        elif what == "refused":
            assert not held.covers(cost, now), number
        assert held.left(now) == pytest.approx(left), number


def test_what_is_left_is_never_below_zero_by_the_rest_of_a_sum() -> None:
    held = budget(initial=0)
    for _ in range(10):
        held.succeeded(0.0, 0.0)
    before = held.left(0.0)
    assert before < 1.0
    paid = held.take(1.0, 0.0)
    assert held.left(0.0) == 0.0
    held.give_back(paid)
    assert held.left(0.0) == before


def test_what_is_given_back_is_never_more_than_the_capacity() -> None:
    held = budget(initial=5, capacity=5)
    paid = held.take(2.0, 0.0)
    for _ in range(30):
        held.succeeded(0.0, 0.0)
    held.give_back(paid)
    assert held.left(0.0) == 5.0


def test_what_was_saved_up_lasts_for_so_long_and_not_longer() -> None:
    held = budget(initial=1, earned=1, fresh_for=10)
    held.succeeded(0.0, 0.0)
    assert [held.left(now) for now in (0.0, 10.0, 10.001)] == [2.0, 2.0, 1.0]
    endless = budget(initial=1, earned=1, fresh_for=math.inf)
    endless.succeeded(0.0, 0.0)
    assert endless.left(1e9) == 2.0


# ---- a line that waits -------------------------------------------------------------------------------------------


def test_an_empty_budget_lets_a_few_through_at_growing_distances() -> None:
    held, now, gone = budget(initial=0), 0.0, list[float]()
    while now < 200.0:
        assert held.take(1.0, now) == 0.0
        gone.append(now)
        now += held.wait(1.0, now)
    assert gone == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0, 121.0, 151.0, 181.0]
    assert held.pace == SLOWEST_PACE


def test_a_paced_retry_pays_nothing() -> None:
    held = budget(initial=0.5)
    assert held.take(1.0, 0.0) == 0.0
    assert held.left(0.0) == 0.5


def test_after_a_paid_retry_the_first_unpaid_one_keeps_its_distance() -> None:
    held = budget(initial=1)
    assert held.wait(1.0, 5.0) == 0.0
    assert held.take(1.0, 5.0) == 1.0
    assert held.wait(1.0, 5.0) == FIRST_PACE
    assert held.wait(1.0, 5.25) == 0.75
    assert held.wait(1.0, 7.0) == 0.0
    assert held.wait(0.0, 5.0) == 0.0


def test_a_paid_retry_never_brings_an_unpaid_one_forward() -> None:
    held = budget(initial=0.5)
    held.take(1.0, 0.0)
    held.take(1.0, 1.0)
    assert held.wait(1.0, 1.0) == 2.0
    held.take(0.5, 1.0)
    assert held.wait(1.0, 1.0) == 2.0


def test_a_success_opens_the_way_for_the_next_one_and_the_distances_begin_anew() -> None:
    held = budget(initial=0)
    for now in (0.0, 1.0, 3.0):
        held.take(1.0, now)
    held.succeeded(0.0, 4.0)
    assert held.wait(1.0, 4.0) == 0.0
    held.take(1.0, 4.0)
    assert held.wait(1.0, 4.0) == FIRST_PACE


def test_where_little_was_there_each_retry_that_succeeds_lets_two_go() -> None:
    held = budget(initial=10, when_empty="wait")
    for _ in range(10):
        held.take(1.0, 0.0)
    going = 1
    for now in (1.0, 2.0, 3.0):
        for _ in range(going):
            held.succeeded(1.0, now)
        able = 0
        while held.covers(1.0, now):
            held.take(1.0, now)
            able += 1
        assert able == 2 * going
        going = able


def test_no_retry_is_refused_for_what_those_ahead_of_it_cost() -> None:
    assert budget(initial=0).predicted(1e9, 1.0, 0.0) == 0.0


def test_time_may_stand_still_or_jump() -> None:
    held = budget(initial=0)
    for _ in range(100):
        held.take(1.0, 5.0)
    assert held.wait(1.0, 5.0) == SLOWEST_PACE
    assert held.wait(1.0, 1e12) == 0.0
    held.succeeded(1.0, 1e12)
    assert held.left(1e12) == pytest.approx(1.1)


# ---- settings ----------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_that_are_documented() -> None:
    settings = BudgetSettings()
    assert (settings.initial, settings.capacity, settings.earned, settings.fresh_for) == (10.0, 100.0, 0.1, 60.0)
    assert settings.when_empty == "stop"
    assert {kind: settings.cost(kind) for kind in Kind if settings.cost(kind) != 1.0} == {
        Kind.TIMEOUT: 2.0,
        Kind.RATE_LIMITED: 0.5,
        Kind.REJECTED_RESULT: 0.0,
        Kind.POOL_FULL: 0.0,
    }


def test_costs_may_be_chosen_for_each_kind_of_failure() -> None:
    settings = BudgetSettings(costs={**COSTS, Kind.OVERLOADED: 5.0})
    assert [settings.cost(kind) for kind in (Kind.OVERLOADED, Kind.TIMEOUT, Kind.SERVER_ERROR)] == [5.0, 2.0, 1.0]


@pytest.mark.parametrize("name", ["initial", "capacity", "earned"])
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (-0.5, "is -0.5: it must be finite and not negative$"),
        (math.inf, "is inf: it must be finite"),
        (math.nan, "must be a number, not NaN$"),
        ("1", "must be a number, not str$"),
        (False, "must be a number, not bool$"),
    ],
)
def test_a_bad_amount_is_refused_by_its_name(name: str, bad: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} {said}"):
        BudgetSettings(**{name: bad})


def test_it_can_not_begin_with_more_than_it_holds() -> None:
    with pytest.raises(ValueError, match=r"^initial is 10, more than capacity=5 lets a budget hold$"):
        BudgetSettings(capacity=5)
    assert BudgetSettings(initial=5, capacity=5).initial == 5.0


@pytest.mark.parametrize("bad", [0, -1, math.nan, "60", True])
def test_a_bad_freshness_is_refused_by_its_name(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^fresh_for "):
        BudgetSettings(fresh_for=bad)


def test_the_advice_for_a_freshness_of_zero_can_be_followed() -> None:
    with pytest.raises(ValueError, match=r"^fresh_for is 0.*pass None for no limit$"):
        BudgetSettings(fresh_for=0)
    no_limit: Any = None
    assert BudgetSettings(fresh_for=no_limit).fresh_for == math.inf


def test_numbers_become_floats_and_a_timedelta_seconds() -> None:
    minute: Any = timedelta(minutes=1)
    settings = BudgetSettings(initial=1, capacity=2, earned=1, fresh_for=minute)
    assert [type(getattr(settings, name)) for name in ("initial", "capacity", "earned", "fresh_for")] == [float] * 4
    assert settings.fresh_for == 60.0


@pytest.mark.parametrize("bad", ["Stop", "", None, 1])
def test_an_unknown_mode_is_answered_with_the_known_ones(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^when_empty must be 'stop' or 'wait', not "):
        BudgetSettings(when_empty=bad)
    assert BudgetSettings(when_empty="wait").when_empty == "wait"


def test_settings_are_a_frozen_value() -> None:
    assert BudgetSettings(initial=1) == BudgetSettings(initial=1.0)
    with pytest.raises(FrozenInstanceError):
        BudgetSettings().initial = 3.0  # type: ignore[misc]
