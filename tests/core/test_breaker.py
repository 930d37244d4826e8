"""When to stop calling a service that fails, and when to try it again."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from itertools import product
from typing import Any

import pytest

from forbear.core.breaker import MEANS, MOVES, STATES, Breaker, BreakerSettings, Permit, Refused, State, Transition
from forbear.core.breaker_settings import VERDICTS, Verdict


def breaker(**options: Any) -> Breaker:
    return Breaker(BreakerSettings(**{"failure_threshold": 2, "recovery_time": 10.0, **options}))


def let_through(one: Breaker, now: float) -> Permit:
    permit = one.ask(now)
    assert isinstance(permit, Permit)
    return permit


def call(one: Breaker, verdict: Verdict, now: float = 0.0, random: float = 0.0) -> Transition | None:
    """A call that ends as it begins."""
    return one.record(let_through(one, now), verdict, now, random)


def opened(now: float = 0.0, **options: Any) -> Breaker:
    """A breaker that opened at `now`."""
    one = breaker(**options)
    call(one, "failure", now)
    call(one, "failure", now)
    assert one.state(now) in ("open", "half_open")
    return one


# ---- closed ------------------------------------------------------------------------------------------------------


def test_it_begins_closed_and_lets_everything_through() -> None:
    one = breaker()
    assert one.state(0.0) == "closed"
    assert one.last is None
    assert one.retry_in(0.0) == 0.0
    assert [let_through(one, 0.0) for _ in range(100)] == [Permit(0)] * 100


def test_it_opens_at_the_threshold_of_failures_in_a_row_and_not_before() -> None:
    one = breaker(failure_threshold=3)
    assert call(one, "failure") is None
    assert call(one, "failure") is None
    assert one.state(0.0) == "closed"
    assert call(one, "failure") == Transition("closed", "open", "tripped", 1, 10.0)
    assert one.state(0.0) == "open"
    assert one.last == Transition("closed", "open", "tripped", 1, 10.0)


@pytest.mark.parametrize("verdict", ["success", "permanent"])
def test_an_answer_of_the_service_begins_the_count_anew(verdict: Verdict) -> None:
    one = breaker()
    for _ in range(5):
        call(one, "failure")
        call(one, verdict)
    assert one.state(0.0) == "closed"
    call(one, "failure")
    assert call(one, "failure") is not None


def test_what_says_nothing_neither_counts_nor_begins_the_count_anew() -> None:
    one = breaker()
    call(one, "failure")
    for _ in range(5):
        assert call(one, "neutral") is None
    assert one.state(0.0) == "closed"
    call(one, "failure")
    assert one.state(0.0) == "open"


def test_calls_that_end_in_another_order_count_as_they_end() -> None:
    one = breaker()
    permits = [let_through(one, 0.0) for _ in range(3)]
    one.record(permits[2], "failure", 1.0)
    one.record(permits[0], "success", 2.0)
    assert one.record(permits[1], "failure", 3.0) is None


# ---- the failure rate --------------------------------------------------------------------------------------------

RATE: dict[str, Any] = {"failure_threshold": None, "failure_rate": 0.5, "minimum_calls": 4, "window": 60.0}


def test_it_opens_when_a_failure_makes_the_share_of_failures_reach_the_rate() -> None:
    one = breaker(**RATE)
    for verdict in ("success", "success", "success", "failure", "failure"):
        assert call(one, verdict) is None
    change = call(one, "failure")
    assert change is not None
    assert change.after == "open"


def test_too_few_calls_are_no_share() -> None:
    one = breaker(**RATE)
    for _ in range(3):
        assert call(one, "failure") is None
    assert call(one, "failure") is not None


def test_a_success_never_opens_it() -> None:
    one = breaker(**RATE)
    for _ in range(3):
        call(one, "failure")
    assert call(one, "success") is None
    assert call(one, "failure") is not None


def test_permanent_errors_are_answers_and_neutral_ones_are_no_calls() -> None:
    one = breaker(**RATE)
    for verdict in ("permanent", "permanent", "permanent", "failure", "neutral", "neutral"):
        call(one, verdict)
    assert one.snapshot(0.0).calls == 4
    assert one.snapshot(0.0).failure_rate == 0.25


def test_what_is_older_than_the_window_is_forgotten() -> None:
    one = breaker(**RATE)
    for _ in range(3):
        call(one, "failure", 0.0)
    assert call(one, "failure", 60.0) is None
    assert one.snapshot(60.0).calls == 1


def test_both_rules_may_hold_at_once() -> None:
    one = breaker(**{**RATE, "failure_threshold": 2, "minimum_calls": 10})
    call(one, "failure")
    assert call(one, "failure") is not None
    one = breaker(**{**RATE, "failure_threshold": 9})
    for verdict in ("failure", "success", "failure"):
        assert call(one, verdict) is None
    assert call(one, "failure") is not None


def test_closed_again_the_old_share_is_forgotten() -> None:
    one = breaker(**RATE)
    for _ in range(4):
        call(one, "failure", 0.0)
    call(one, "success", 10.0)
    assert one.state(10.0) == "closed"
    assert one.snapshot(10.0).calls == 0
    assert call(one, "failure", 10.0) is None


# ---- open --------------------------------------------------------------------------------------------------------


def test_open_it_refuses_and_says_when_to_come_back() -> None:
    one = opened()
    assert one.ask(0.0) == Refused(10.0)
    assert one.ask(9.5) == Refused(0.5)
    assert one.retry_in(4.0) == 6.0
    assert one.state(9.999) == "open"


def test_after_the_recovery_time_it_is_half_open_for_who_looks_and_for_who_asks() -> None:
    one = opened()
    assert one.state(10.0) == "half_open"
    assert one.retry_in(10.0) == 0.0
    assert one.last == Transition("closed", "open", "tripped", 1, 10.0)  # looking changes nothing
    assert one.ask(10.0) == Permit(2, 1)
    assert one.last == Transition("open", "half_open", "cooled", 2)


def test_without_a_recovery_time_the_next_call_is_the_trial() -> None:
    one = opened(recovery_time=0.0)
    assert one.ask(0.0) == Permit(2, 1)
    assert one.ask(0.0) == Refused(60.0)  # the lease; 0 would make the caller ask in circles


def test_openings_in_a_row_grow_and_begin_anew_once_it_was_closed() -> None:
    one = opened(growth=2.0, max_recovery_time=35.0)
    lengths, now = [], 10.0
    for _ in range(4):
        change = call(one, "failure", now)
        assert change is not None
        assert change.open_for is not None
        lengths.append(change.open_for)
        now += change.open_for
    assert lengths == [20.0, 35.0, 35.0, 35.0]
    assert one.snapshot(now).openings == 5
    call(one, "success", now)
    assert one.snapshot(now).openings == 0
    call(one, "failure", now)
    change = call(one, "failure", now)
    assert change is not None
    assert change.open_for == 10.0


def test_dice_spread_the_return() -> None:
    one = breaker(jitter=0.5)
    call(one, "failure")
    change = call(one, "failure", random=0.5)
    assert change is not None
    assert change.open_for == 12.5
    assert one.retry_in(0.0) == 12.5
    again = call(one, "failure", 12.5, random=1.0)
    assert again is not None
    assert again.open_for == 15.0


# ---- half open ---------------------------------------------------------------------------------------------------


def test_one_trial_runs_at_a_time() -> None:
    one = opened()
    assert one.ask(10.0) == Permit(2, 1)
    assert isinstance(one.ask(10.0), Refused)
    assert one.state(10.0) == "half_open"


def test_who_is_refused_by_a_running_trial_is_told_to_come_back_after_a_recovery_time_or_the_lease() -> None:
    one = opened()
    one.ask(10.0)
    assert one.ask(15.0) == Refused(10.0)
    assert one.ask(66.0) == Refused(4.0)
    assert one.retry_in(69.0) == 1.0
    two = opened(trials=2)
    two.ask(10.0)
    two.ask(12.0)
    assert two.ask(68.0) == Refused(2.0)  # the older lease


def test_a_success_closes_it_and_a_failure_opens_it_again() -> None:
    one = opened()
    assert call(one, "success", 10.0) == Transition("half_open", "closed", "proven", 3)
    assert one.state(10.0) == "closed"
    one = opened()
    assert call(one, "failure", 10.0) == Transition("half_open", "open", "tripped", 3, 10.0)
    assert one.ask(19.0) == Refused(1.0)


@pytest.mark.parametrize("verdict", ["permanent", "neutral"])
def test_what_proves_nothing_gives_the_place_back(verdict: Verdict) -> None:
    one = opened()
    for trial in range(1, 5):
        permit = let_through(one, 10.0)
        assert permit == Permit(2, trial)
        assert isinstance(one.ask(10.0), Refused)
        assert one.record(permit, verdict, 10.0) is None
        assert one.state(10.0) == "half_open"
    assert one.snapshot(10.0).trials == 0


def test_as_many_trials_must_succeed_as_may_run() -> None:
    one = opened(trials=3)
    permits = [let_through(one, 10.0) for _ in range(3)]
    assert isinstance(one.ask(10.0), Refused)
    assert one.record(permits[0], "success", 11.0) is None
    assert one.record(permits[1], "neutral", 11.0) is None
    assert one.record(permits[2], "success", 11.0) is None
    assert one.snapshot(11.0).trials == 0
    assert call(one, "success", 12.0) == Transition("half_open", "closed", "proven", 3)


def test_one_failed_trial_of_many_opens_it() -> None:
    one = opened(trials=3)
    permits = [let_through(one, 10.0) for _ in range(3)]
    one.record(permits[0], "success", 10.0)
    one.record(permits[1], "success", 10.0)
    assert one.record(permits[2], "failure", 10.0) is not None
    for trial in range(2):  # what succeeded then proves nothing now
        assert call(one, "success", 20.0) is None, trial
    assert call(one, "success", 20.0) is not None


def test_the_trials_that_are_out_when_it_changes_hold_no_place_any_more() -> None:
    for verdict in ("failure", "success"):
        one = opened(trials=2)
        call(one, "success", 10.0)
        permits = [let_through(one, 10.0) for _ in range(2)]
        one.record(permits[0], verdict, 10.0)  # type: ignore[arg-type]
        assert one.state(10.0) != "half_open"
        assert one.snapshot(10.0).trials == 0
    one = opened(trials=2)
    permits = [let_through(one, 10.0) for _ in range(2)]
    one.record(permits[0], "failure", 10.0)
    assert [let_through(one, 20.0) for _ in range(2)] == [Permit(4, 1), Permit(4, 2)]


# ---- leases ------------------------------------------------------------------------------------------------------


def test_a_place_is_free_again_when_its_lease_has_expired() -> None:
    one = opened(trial_timeout=5.0)
    one.ask(10.0)
    assert one.ask(14.999) != Permit(2, 2)
    assert one.retry_in(15.0) == 0.0
    assert one.snapshot(15.0).trials == 0
    assert one.ask(15.0) == Permit(2, 2)
    assert isinstance(one.ask(15.0), Refused)


@pytest.mark.parametrize(
    ("verdict", "state"),
    [("success", "closed"), ("failure", "open"), ("permanent", "half_open"), ("neutral", "half_open")],
)
@pytest.mark.parametrize("taken", [True, False])
def test_a_trial_that_ends_after_its_lease_has_lost_its_place_and_not_its_word(
    verdict: Verdict, state: str, taken: bool
) -> None:
    one = opened(trial_timeout=5.0)
    late = let_through(one, 10.0)
    newer = let_through(one, 15.0) if taken else None
    one.record(late, verdict, 15.0)
    assert one.state(15.0) == state
    if newer is not None:
        assert isinstance(one.ask(15.0), Refused) == (state != "closed")
        changed = one.record(newer, "success", 15.0)
        assert (changed is None) == (state != "half_open")  # else it is of a generation that is over


def test_an_expired_lease_frees_its_own_place_only() -> None:
    one = opened(trials=2, trial_timeout=5.0)
    first, second = let_through(one, 10.0), let_through(one, 12.0)
    third = let_through(one, 16.0)
    assert isinstance(one.ask(16.0), Refused)
    assert one.record(first, "success", 16.0) is None
    assert one.record(first, "success", 16.0) is None  # a second time: it counts once
    assert one.record(third, "neutral", 16.0) is None
    assert one.record(second, "success", 16.0) is not None


# ---- generations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_call_that_began_before_a_change_changes_nothing(verdict: Verdict) -> None:
    one = breaker()
    old = [let_through(one, 0.0) for _ in range(5)]
    call(one, "failure")
    call(one, "failure")
    assert one.record(old[0], verdict, 1.0) is None  # open
    assert one.state(1.0) == "open"
    trial = let_through(one, 10.0)
    assert one.record(old[1], verdict, 11.0) is None  # half open: neither the state nor the place
    assert one.state(11.0) == "half_open"
    assert isinstance(one.ask(11.0), Refused)
    one.record(trial, "success", 12.0)
    assert one.record(old[2], verdict, 13.0) is None  # closed again
    call(one, "failure", 13.0)
    assert one.record(old[3], verdict, 13.0) is None
    assert one.snapshot(13.0).consecutive_failures == 1


def test_a_permit_counts_once() -> None:
    one = opened(trials=2)
    trial = let_through(one, 10.0)
    assert one.record(trial, "success", 10.0) is None
    assert one.record(trial, "success", 10.0) is None
    assert one.record(trial, "failure", 10.0) is None
    assert one.state(10.0) == "half_open"


# ---- commands ----------------------------------------------------------------------------------------------------


def in_state(state: State) -> tuple[Breaker, Permit | None]:
    """A breaker in this state at 10 s, and a permit of that state."""
    made: dict[State, Callable[[], Breaker]] = {
        "closed": breaker,
        "open": lambda: opened(5.0),
        "half_open": opened,
        "forced_open": breaker,
        "disabled": breaker,
    }
    one = made[state]()
    if state == "forced_open":
        one.force_open(10.0)
    if state == "disabled":
        one.disable(10.0)
    permit = one.ask(10.0)
    assert one.state(10.0) == state
    return one, permit if isinstance(permit, Permit) else None


def test_forced_open_it_refuses_for_ever() -> None:
    one, permit = in_state("forced_open")
    assert permit is None
    for now in (10.0, 1e3, 1e9):
        assert one.ask(now) == Refused(10.0)  # nobody knows: a recovery time
        assert one.state(now) == "forced_open"


def test_disabled_it_lets_everything_through_and_counts_nothing() -> None:
    one, _ = in_state("disabled")
    for verdict in VERDICTS * 5:
        assert call(one, verdict, 10.0) is None
    assert one.state(1e9) == "disabled"
    assert one.snapshot(10.0).consecutive_failures == 0


@pytest.mark.parametrize("state", STATES)
def test_each_command_works_in_every_state_and_tells_only_a_change(state: State) -> None:
    commands: dict[State, Callable[[Breaker, float], Transition | None]] = {
        "forced_open": Breaker.force_open,
        "disabled": Breaker.disable,
        "closed": Breaker.reset,
    }
    for after, command in commands.items():
        one, permit = in_state(state)
        change = command(one, 10.0)
        assert one.state(10.0) == after
        assert (change is None) == (state == after)
        if change is not None:
            assert change[:2] == (state, after)
        if permit is not None:
            assert one.record(permit, "failure", 10.0) is None
            assert one.record(permit, "failure", 10.0) is None
            assert one.state(10.0) == after


def test_reset_forgets_failures_openings_and_calls_on_their_way() -> None:
    one = breaker(growth=2.0)
    call(one, "failure")
    on_its_way = let_through(one, 0.0)
    assert one.reset(0.0) is None
    call(one, "failure")
    assert one.record(on_its_way, "failure", 0.0) is None
    assert one.state(0.0) == "closed"
    one = opened(growth=2.0)
    call(one, "failure", 10.0)
    one.reset(11.0)
    call(one, "failure", 11.0)
    change = call(one, "failure", 11.0)
    assert change is not None
    assert change.open_for == 10.0


# ---- the tables --------------------------------------------------------------------------------------------------


def test_every_verdict_has_a_meaning_in_every_state() -> None:
    assert MEANS.keys() == set(STATES)
    for state, verdict in product(STATES, VERDICTS):
        meaning = MEANS[state][verdict]
        assert (meaning == "nothing") == (state not in ("closed", "half_open") or verdict == "neutral") or (
            state,
            verdict,
        ) == ("half_open", "permanent")


def test_only_what_the_table_names_leads_from_one_state_to_another() -> None:
    assert MOVES["tripped"] == {"closed": "open", "half_open": "open"}
    assert MOVES["cooled"] == {"open": "half_open"}
    assert MOVES["proven"] == {"half_open": "closed"}
    for cause, after in (("forced", "forced_open"), ("disabled", "disabled"), ("reset", "closed")):
        assert MOVES[cause] == dict.fromkeys(STATES, after)  # type: ignore[index]


# ---- what comes out ----------------------------------------------------------------------------------------------


def test_a_snapshot_tells_how_it_stands() -> None:
    one = breaker(failure_threshold=3, failure_rate=1.0)
    call(one, "success")
    call(one, "failure")
    shot = one.snapshot(0.0)
    assert (shot.state, shot.generation, shot.retry_in) == ("closed", 0, 0.0)
    assert (shot.consecutive_failures, shot.calls, shot.failure_rate) == (1, 2, 0.5)
    assert (shot.openings, shot.trials) == (0, 0)
    one = opened(trials=2)
    assert one.snapshot(4.0).retry_in == 6.0
    assert one.snapshot(4.0).openings == 1
    one.ask(10.0)
    assert one.snapshot(10.0).trials == 1
    assert one.snapshot(10.0).retry_in == 0.0
    assert (one.snapshot(10.0).calls, one.snapshot(10.0).failure_rate) == (0, 0.0)


def test_answers_are_values() -> None:
    shot = breaker().snapshot(0.0)
    for answer in (Permit(1, 2), Refused(1.0), Transition("closed", "open", "tripped", 1, 2.0), shot):
        assert pickle.loads(pickle.dumps(answer)) == answer
    with pytest.raises(FrozenInstanceError):
        shot.state = "open"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        breaker().unknown = 1  # type: ignore[attr-defined]
