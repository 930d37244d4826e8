"""Laws of the bounded policy: it answers as the one decision does, and as its rules say, word for word.

The reference below was written from the text of the rules in whole numbers and fractions, and shares nothing with
the code it is compared to. Milliseconds are whole, or halves, and dice multiples of 2^-20, for which floats are exact;
the time left is often drawn from around what is needed, where one millisecond decides.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.core.backoff import Backoff, Jitter
from forbear.core.bounded import decide_retry
from forbear.core.decision import Retry, Stop, decide
from forbear.core.failure import Failure
from forbear.core.growth import Exponential
from forbear.core.policy import Policy

law = settings(max_examples=200, deadline=None)
thorough = settings(max_examples=300, deadline=None)

Question = tuple[dict[str, Any], int, float, float, dict[str, Any]]

FAR = 10**400
counts = st.one_of(st.integers(1, 8), st.sampled_from([10**9, FAR]))
whole = st.integers(0, 100_000)
halves = st.one_of(whole, whole.map(lambda n: n / 2))
dice = st.integers(0, 2**20 - 1).map(lambda n: n / 2**20)
any_milliseconds = st.one_of(whole, st.floats(0, 1e9))
any_dice = st.floats(0, 1, exclude_max=True)


def the_bounded_policy(
    failure: dict[str, Any], completed: int, remaining: float, random: float, policy: dict[str, Any]
) -> dict[str, Any]:
    """The rules, one after the other, for valid input."""
    if not failure["safe_to_retry"]:
        return {"retry": False, "reason": "unsafe"}
    if not failure["transient"]:
        return {"retry": False, "reason": "permanent"}
    if completed >= policy["max_attempts"]:
        return {"retry": False, "reason": "attempts"}
    ceiling, most, doubled = Fraction(policy["base_delay_ms"]), Fraction(policy["max_delay_ms"]), 1
    while 0 < ceiling < most and doubled < completed:
        ceiling, doubled = ceiling * 2, doubled + 1
    delay = Fraction(math.floor(Fraction(random) * min(most, ceiling)))
    if failure.get("retry_after_ms") is not None:
        delay = max(delay, Fraction(failure["retry_after_ms"]))
    if delay + Fraction(policy["minimum_attempt_ms"]) > Fraction(remaining):
        return {"retry": False, "reason": "deadline"}
    return {"retry": True, "delay_ms": delay}


@st.composite
def questions(
    draw: st.DrawFn, milliseconds: st.SearchStrategy[float], throws: st.SearchStrategy[float], *, passing: bool = False
) -> Question:
    """Valid input, most of it near what decides: a first bound below the last, attempts and time just enough or not."""
    flags = st.just(True) if passing else st.sampled_from([True] * 7 + [False])
    failure: dict[str, Any] = {"transient": draw(flags), "safe_to_retry": draw(flags)}
    match draw(st.sampled_from(["missing", "none", "given"])):
        case "given":
            failure["retry_after_ms"] = draw(milliseconds)
        case "none":
            failure["retry_after_ms"] = None
    completed, random = draw(counts), draw(throws)
    policy = {
        "max_attempts": completed + 1 if passing else max(1, completed + draw(st.integers(-1, 8))),
        "base_delay_ms": draw(milliseconds) / draw(st.sampled_from([1, 16, 256])),
        "max_delay_ms": draw(milliseconds),
        "minimum_attempt_ms": draw(milliseconds.filter(bool)),
    }
    answer = the_bounded_policy(failure, completed, 10**12, random, policy)
    needed = float(answer.get("delay_ms", 0) + Fraction(policy["minimum_attempt_ms"]))
    just_enough_or_not = st.sampled_from([-1, -0.5, 0, 0, 0.5, 1]).map(lambda more: max(0.0, needed + more))
    return failure, completed, draw(st.one_of(milliseconds, just_enough_or_not, st.just(10**9))), random, policy


def same_in_types(failure: dict[str, Any], policy: dict[str, Any], jitter: Jitter) -> tuple[Policy, Failure]:
    """The same question to the one decision, with milliseconds as its unit."""
    waits = Backoff(
        growth=Exponential(float(policy["base_delay_ms"]), 2.0), cap=float(policy["max_delay_ms"]), jitter=jitter
    )
    return (
        Policy(max_attempts=policy["max_attempts"], backoff=waits, minimum_attempt=policy["minimum_attempt_ms"]),
        Failure(
            transient=failure["transient"],
            safe_to_retry=failure["safe_to_retry"],
            retry_after=failure.get("retry_after_ms"),
        ),
    )


def in_dictionaries(answer: Retry | Stop) -> dict[str, Any]:
    if isinstance(answer, Retry):
        return {"retry": True, "delay_ms": answer.delay}
    return {"retry": False, "reason": answer.reason.replace("max_attempts", "attempts")}


# ---- the rules ---------------------------------------------------------------------------------------------------


@thorough
@given(questions(halves, dice))
def test_it_answers_as_its_rules_say(question: Question) -> None:
    assert decide_retry(*question) == the_bounded_policy(*question)


@law
@given(questions(halves, dice))
def test_an_answer_has_exactly_its_two_keys(question: Question) -> None:
    answer = decide_retry(*question)
    assert answer.keys() == ({"retry", "delay_ms"} if answer["retry"] is True else {"retry", "reason"})
    assert answer["retry"] in {True, False}
    assert answer.get("reason", "unsafe") in {"unsafe", "permanent", "attempts", "deadline"}


@law
@given(questions(whole, dice, passing=True))
def test_whole_milliseconds_give_whole_milliseconds(question: Question) -> None:
    answer = decide_retry(*question)
    if answer["retry"]:
        assert type(answer["delay_ms"]) is int


@law
@given(questions(halves, dice))
def test_a_question_is_never_changed(question: Question) -> None:
    failure, _, _, _, policy = question
    before = dict(failure), dict(policy)
    decide_retry(*question)
    assert (failure, policy) == before


NO_MILLISECONDS: list[object] = [-1, -0.5, math.nan, math.inf, -math.inf, True, False, "5", FAR]
NO_COUNT: list[object] = [0, -1, 1.0, True, "1", None]
JUNK: dict[str, list[object]] = {
    "transient": [0, 1, None, "yes"],
    "safe_to_retry": [0, 1, None, "yes"],
    "retry_after_ms": NO_MILLISECONDS,
    "completed_attempts": NO_COUNT,
    "remaining_ms": [*NO_MILLISECONDS, None],
    "random_value": [-0.5, 1, 1.0, math.nan, math.inf, True, "0.5", None],
    "max_attempts": NO_COUNT,
    "base_delay_ms": [*NO_MILLISECONDS, None],
    "max_delay_ms": [*NO_MILLISECONDS, None],
    "minimum_attempt_ms": [*NO_MILLISECONDS, None, 0, 0.0],
}


@thorough
@given(questions(halves, dice), st.data())
def test_one_bad_value_is_refused_by_its_name_whatever_the_others_are(question: Question, data: st.DataObject) -> None:
    failure, completed, remaining, random, policy = question
    facts: dict[str, Any] = {"completed_attempts": completed, "remaining_ms": remaining, "random_value": random}
    name = data.draw(st.sampled_from(sorted(JUNK)))
    home = next(one for one in (failure, policy, facts) if name in one or (name == "retry_after_ms" and one is failure))
    home[name] = data.draw(st.sampled_from(JUNK[name]))
    with pytest.raises(ValueError, match=rf"^{name} "):
        decide_retry(failure, facts["completed_attempts"], facts["remaining_ms"], facts["random_value"], policy)


@law
@given(questions(halves, dice), st.data())
def test_a_missing_value_is_refused_by_its_name(question: Question, data: st.DataObject) -> None:
    failure, completed, remaining, random, policy = question
    failure.pop("retry_after_ms", None)
    name = data.draw(st.sampled_from(sorted(failure | policy)))
    (failure if name in failure else policy).pop(name)
    with pytest.raises(ValueError, match=rf"^{name} is missing$"):
        decide_retry(failure, completed, remaining, random, policy)


# ---- the one decision --------------------------------------------------------------------------------------------


@thorough
@given(questions(any_milliseconds, any_dice))
def test_it_answers_as_the_one_decision_does_with_whole_waits(question: Question) -> None:
    failure, completed, remaining, random, policy = question
    typed_policy, typed_failure = same_in_types(failure, policy, Jitter("whole"))
    answer = decide(
        typed_policy, typed_failure, completed_attempts=completed, remaining=float(remaining), random=random
    )
    assert decide_retry(*question) == in_dictionaries(answer)


@thorough
@given(questions(any_milliseconds, any_dice))
def test_beside_full_jitter_only_the_rounding_down_makes_a_difference(question: Question) -> None:
    failure, completed, remaining, random, policy = question
    typed_policy, typed_failure = same_in_types(failure, policy, Jitter("full"))
    full = in_dictionaries(
        decide(typed_policy, typed_failure, completed_attempts=completed, remaining=float(remaining), random=random)
    )
    drawn, hint = typed_policy.waits.delay(completed, random), failure.get("retry_after_ms") or 0.0
    rounded = max(float(math.floor(drawn)), hint)
    answer = decide_retry(*question)
    if full["retry"]:
        assert full["delay_ms"] == max(drawn, hint)
        assert answer == {"retry": True, "delay_ms": rounded}
    elif answer["retry"]:  # the part of a millisecond that was cut off is just what was missing
        assert full == {"retry": False, "reason": "deadline"}
        assert answer == {"retry": True, "delay_ms": rounded}
        assert rounded + policy["minimum_attempt_ms"] <= remaining < max(drawn, hint) + policy["minimum_attempt_ms"]
    else:
        assert answer == full


@law
@given(st.integers(1, 1000), st.integers(1, 2**20 - 1).map(lambda n: n / 2**20), st.integers(1, 100))
def test_the_part_of_a_millisecond_that_is_cut_off_can_decide(bound: int, random: float, minimum: int) -> None:
    policy = {"max_attempts": 2, "base_delay_ms": bound, "max_delay_ms": bound, "minimum_attempt_ms": minimum}
    failure = {"transient": True, "safe_to_retry": True}
    drawn = bound * random
    remaining = math.floor(drawn) + minimum
    assert decide_retry(failure, 1, remaining, random, policy) == {"retry": True, "delay_ms": math.floor(drawn)}
    typed_policy, typed_failure = same_in_types(failure, policy, Jitter("full"))
    answer = decide(typed_policy, typed_failure, completed_attempts=1, remaining=float(remaining), random=random)
    assert answer == (Retry(drawn, "backoff") if drawn.is_integer() else Stop("deadline"))
