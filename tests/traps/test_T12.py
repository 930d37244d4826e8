"""T12: backoff that grows by powers or products must not overflow, however many attempts there were."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from forbear import (
    Backoff,
    DeadlineExceeded,
    Failure,
    Policy,
    RetriesExhausted,
    Retry,
    Stop,
    backoff_delay,
    constant,
    decide,
    decorrelated,
    exponential,
    from_list,
    linear,
    proportional,
    retry_sync,
)
from forbear.testing import FakeTime, Flaky

ATTEMPTS = [1, 2, 63, 64, 1023, 1024, 1025, 1100, 10_000, 2**31, 10**9, 10**18]
JITTERS: list[Any] = ["full", "equal", "none", proportional(0.1), proportional(1.0)]
CAPPED: list[Backoff] = [
    *(exponential(0.5, factor=factor, cap=5.0, jitter=kind) for factor in (1.0, 2.0, 1e300) for kind in JITTERS),
    *(linear(1.0, step, cap=5.0, jitter=kind) for step in (0.0, 1.0, 1e300) for kind in JITTERS),
    decorrelated(0.5, cap=5.0),
    decorrelated(1e300, cap=5.0),
    exponential(0.0, cap=5.0),
    exponential(5e-324, cap=5.0),
    exponential(0.5, cap=0.0),
]  # fmt: skip
FAILURE = Failure(transient=True)


@pytest.mark.parametrize("backoff", CAPPED, ids=repr)
def test_no_wait_overflows_or_exceeds_its_cap(backoff: Backoff) -> None:
    for attempt in ATTEMPTS:
        assert 0.0 <= backoff.bound(attempt) <= backoff.cap
        for random, previous in itertools.product((0.0, 0.5, 1.0), (None, 0.0, backoff.cap)):
            assert 0.0 <= backoff.delay(attempt, random, previous) <= backoff.cap


@pytest.mark.parametrize("attempt", [10**9, 10**18])
@pytest.mark.parametrize("jitter", JITTERS, ids=repr)
def test_the_bound_stays_at_the_cap_for_ever(jitter: Any, attempt: int) -> None:
    assert exponential(0.5, cap=5.0, jitter=jitter).bound(attempt) == 5.0
    assert linear(0.5, 0.5, cap=5.0, jitter=jitter).bound(attempt) == 5.0
    assert decorrelated(0.5, cap=5.0).bound(attempt) == 5.0
    assert Policy(base=0.5, cap=5.0, jitter=jitter).bound(attempt) == 5.0


@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("backoff", [constant(2.0), from_list([7.0, 2.0, 2.0])], ids=repr)
def test_listed_waits_repeat_the_last_one(backoff: Backoff, attempt: int) -> None:
    assert backoff.delay(attempt, 0.5) == (7.0 if backoff.growth(1) == 7.0 and attempt == 1 else 2.0)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_single_wait_and_the_decision_hold_as_well(attempt: int) -> None:
    assert 0.0 <= backoff_delay(attempt) < 30.0
    answer = decide(
        Policy(max_attempts=None), FAILURE, completed_attempts=attempt, remaining=math.inf, random=0.5
    )  # fmt: skip
    assert isinstance(answer, Retry)
    assert 0.0 < answer.delay <= 30.0


@pytest.mark.parametrize(
    "options", [{}, {"jitter": "equal"}, {"jitter": "decorrelated"}, {"backoff": linear(0.5, cap=5.0)}], ids=repr
)
def test_a_call_outlives_the_attempt_at_which_floats_overflow(form: Callable[..., Any], options: Any) -> None:
    fn = Flaky(*[ConnectionError()] * 1100, then="done")
    cap = {} if "backoff" in options else {"cap": 5.0}
    with FakeTime() as clock:
        assert form(fn, max_attempts=2000, deadline=None, **cap, **options) == "done"
        assert len(clock.sleeps) == 1100
        assert max(clock.sleeps) <= 5.0
        assert sum(clock.sleeps[-100:]) > 50.0


def test_a_call_without_a_count_ends_at_its_deadline() -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime(), pytest.raises(TimeoutError):
        retry_sync(fn, max_attempts=None, cap=1.0, deadline=2000.0)
    assert fn.calls > 1100


def test_the_last_of_many_attempts_is_the_last() -> None:
    fn = Flaky(then=ConnectionError())
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        retry_sync(fn, max_attempts=1500, deadline=None, cap=1.0)
    assert fn.calls == caught.value.attempts == 1500
    assert len(caught.value.history) <= 10


@pytest.mark.parametrize("seconds", [1e9, 1e300, 1e307, sys.float_info.max])
async def test_a_huge_limit_is_no_limit(async_form: Callable[..., Any], seconds: float) -> None:
    assert await async_form(Flaky("done").asynchronous, attempt_timeout=seconds, deadline=None) == "done"
    assert await async_form(Flaky("done").asynchronous, attempt_timeout=None, deadline=seconds) == "done"


@pytest.mark.parametrize("jitter", ["full", "equal", "none", None])
def test_an_infinite_wait_ends_the_call_and_is_never_nan(jitter: Any) -> None:
    policy = Policy(backoff=lambda _: math.inf, jitter=jitter)
    for random in (0.0, 0.5, 1.0):
        assert decide(policy, FAILURE, completed_attempts=1, remaining=60.0, random=random) == Stop("deadline")
    with FakeTime(), pytest.raises(DeadlineExceeded):
        retry_sync(Flaky(then=ConnectionError()), policy=policy)


@pytest.mark.parametrize("policy", [Policy(max_attempts=10**9, backoff=[1.0]), Policy(max_attempts=10**9, base=0.0)])
def test_the_worst_case_of_very_many_attempts_is_known_at_once(policy: Policy) -> None:
    began = time.process_time()
    assert policy.worst_case() >= 10**10
    assert time.process_time() - began < 2.0
