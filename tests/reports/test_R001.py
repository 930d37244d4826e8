"""R001: a time limit that is compared before the wait, and not after it, lets an attempt start beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import DeadlineExceeded, deadline, exponential, linear
from forbear.testing import FakeTime, Flaky, Hang

Form = Callable[..., Any]


CASES: list[tuple[dict[str, Any], float, list[float]]] = [
    ({"base": 1.0}, 5.0, [0.0, 1.0, 3.0]),
    ({"base": 1.0}, 7.0, [0.0, 1.0, 3.0]),
    ({"base": 1.0}, 7.01, [0.0, 1.0, 3.0, 7.0]),
    ({"base": 1.0, "cap": 1.5}, 5.0, [0.0, 1.0, 2.5, 4.0]),
    ({"backoff": exponential(1.0, factor=3.0)}, 5.0, [0.0, 1.0, 4.0]),
    ({"backoff": linear(1.0, 1.0)}, 5.0, [0.0, 1.0, 3.0]),
    ({"backoff": [2.0]}, 5.0, [0.0, 2.0, 4.0]),
    ({"backoff": lambda attempt: 4.9 / attempt}, 5.0, [0.0, 4.9]),
]


@pytest.mark.parametrize("ambient", [False, True])
def test_nothing_starts_and_nothing_sleeps_beyond_the_limit(form: Form, ambient: bool) -> None:
    for options, limit, starts in CASES:
        fn = Flaky(then=ConnectionError())
        with FakeTime() as clock:
            with pytest.raises(DeadlineExceeded) as caught, deadline(limit if ambient else None):
                form(fn, deadline=None if ambient else limit, jitter="none", max_attempts=99, **options)
            assert clock.now == pytest.approx(starts[-1])
        assert fn.started_at == pytest.approx(starts)
        assert (caught.value.attempts, caught.value.elapsed) == (len(starts), pytest.approx(starts[-1]))


def test_the_time_of_the_attempts_counts_as_well(form: Form) -> None:
    fn = Flaky(then=Hang(1.0, ConnectionError()))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            form(fn, base=1.0, jitter="none", max_attempts=None, deadline=5.0)
        assert fn.started_at == pytest.approx([0.0, 2.0])
        assert clock.now == pytest.approx(3.0)
