"""R084: a power that overflows near attempt 1025 kills a poller after an hour; with integers it only gets slow."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from forbear import Policy, RetriesExhausted, backoff_delay, decorrelated, exponential, linear, retry_sync
from forbear.testing import FakeTime, Flaky

ATTEMPTS = [1024, 1025, 10_000, 10**9]
POLICIES: dict[str, Policy] = {
    "default": Policy(cap=5.0, max_attempts=None),
    "whole numbers": Policy(base=1, cap=5, max_attempts=None),
    "equal": Policy(cap=5.0, jitter="equal", max_attempts=None),
    "none": Policy(cap=5.0, jitter="none", max_attempts=None),
    "decorrelated": Policy(backoff=decorrelated(0.5, cap=5.0), max_attempts=None),
    "steep": Policy(backoff=exponential(1, factor=1000, cap=5), max_attempts=None),
    "linear": Policy(backoff=linear(1, 1, cap=5), max_attempts=None),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_wait_is_the_cap_and_nothing_else(policy: Policy, attempt: int) -> None:
    assert policy.bound(attempt) == 5.0
    assert policy.bound(1) <= 5.0


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_single_wait_stays_below_its_cap(attempt: int) -> None:
    assert backoff_delay(attempt, cap=5.0, rng=lambda: 1.0) == 5.0
    assert 0.0 <= backoff_delay(attempt, cap=5.0) < 5.0


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_late_wait_costs_no_more_than_an_early_one(policy: Policy) -> None:
    began = time.process_time()
    for _ in range(2000):
        policy.bound(10**9)
        policy.waits.delay(10**9, 0.5, 5.0)
    assert time.process_time() - began < 2.0  # a microsecond each; a loop over the attempts would take minutes


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_poller_outlives_an_outage_of_hours(policy: Policy) -> None:
    fn = Flaky(*[ConnectionError()] * 3000, then="up again")
    with FakeTime(rng=lambda: 1.0) as clock:
        assert retry_sync(fn, policy=policy, deadline=None, max_attempts=10**9) == "up again"
        assert clock.now > 3600.0
        assert set(clock.sleeps[2000:]) == {5.0}


def test_every_form_outlives_it(form: Callable[..., Any]) -> None:
    fn = Flaky(*[ConnectionError()] * 1030, then="up again")
    with FakeTime() as clock:
        assert form(fn, cap=5.0, jitter="none", max_attempts=None, deadline=1e6) == "up again"
        assert clock.sleeps[1023:] == [5.0] * 7


def test_the_record_of_a_call_does_not_grow_with_its_attempts() -> None:
    def fail() -> None:
        raise ConnectionError

    def peak(attempts: int) -> int:
        tracemalloc.start()
        with pytest.raises(RetriesExhausted) as caught:
            retry_sync(fail, max_attempts=attempts, deadline=None, sleep=lambda _: None)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(caught.value.history) == 10
        return top

    peak(50)
    assert peak(4000) < peak(50) + 10_000  # bytes
