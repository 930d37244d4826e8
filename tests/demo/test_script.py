import pytest

from forbear.demo.script import PHASES, TAKES, Kind, Script, phase_at

OUTAGE, RATE_LIMIT = 3.0, 6.0  # seconds into the run


def kinds(script: Script, elapsed: float, calls: int = 400) -> list[Kind]:
    return [script.answer(f"/items/{number}", elapsed).kind for number in range(calls)]


def test_phases_follow_each_other_and_the_last_has_no_end():
    ends = [phase.until for phase in PHASES]
    assert ends == sorted(ends)
    assert phase_at(1e9) is PHASES[-1]


def test_a_phase_begins_at_the_very_instant_at_which_the_one_before_it_ends():
    assert phase_at(PHASES[0].until) is PHASES[1]


def test_the_same_seed_makes_the_same_trouble():
    assert kinds(Script(7, 20), 0.0) == kinds(Script(7, 20), 0.0)
    assert kinds(Script(7, 20), 0.0) != kinds(Script(8, 20), 0.0)


def test_the_luck_of_a_call_does_not_hang_on_the_requests_of_other_calls():
    alone, crowded = Script(7, 20), Script(7, 20)
    kinds(crowded, 0.0)
    assert alone.answer("/items/1000", 1.0) == crowded.answer("/items/1000", 1.0)


def test_a_retry_has_a_luck_of_its_own():
    script = Script(7, 20)
    assert len({script.answer("/items/1", 0.0) for _ in range(50)}) > 1


def test_every_kind_of_everyday_trouble_comes_and_most_requests_meet_none():
    seen = kinds(Script(7, 20), 0.0)
    assert set(seen) == {Kind.OK, Kind.SLOW, Kind.DRIP, Kind.HANG, Kind.RESET}
    assert seen.count(Kind.OK) > 0.75 * len(seen)


def test_nothing_succeeds_in_the_outage():
    assert set(kinds(Script(7, 20), OUTAGE)) == {Kind.UNAVAILABLE, Kind.HANG, Kind.RESET}


def test_the_rate_limit_lets_the_quota_in_and_refuses_the_rest_in_both_forms_by_turns():
    seen = kinds(Script(7, 20), RATE_LIMIT, calls=60)
    assert not {Kind.LIMITED_SECONDS, Kind.LIMITED_DATE} & set(seen[:20])
    assert seen[20:] == [Kind.LIMITED_SECONDS, Kind.LIMITED_DATE] * 20


def test_the_quota_is_full_again_when_the_next_second_begins():
    script = Script(7, 1)
    script.answer("/items/1", 5.75)
    refused = script.answer("/items/2", 5.75)
    assert refused.seconds == 0.25
    assert script.answer("/items/2", 5.75 + refused.seconds).kind not in (Kind.LIMITED_SECONDS, Kind.LIMITED_DATE)


@pytest.mark.parametrize("kind", [Kind.OK, Kind.SLOW, Kind.DRIP])
def test_an_answer_takes_as_long_as_its_kind_says(kind: Kind):
    script = Script(7, 20)
    answers = [script.answer(f"/items/{number}", 0.0) for number in range(400)]
    low, high = TAKES[kind]
    assert all(low <= answer.seconds <= high for answer in answers if answer.kind is kind)
