"""R002: a total that begins to count only after the first attempt is no total."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import DeadlineExceeded, deadline
from forbear.testing import FakeTime, Flaky, Hang

Form = Callable[..., Any]


@pytest.mark.parametrize("outcome", [ConnectionError(), "late"])
async def test_the_first_attempt_is_cut_at_the_total(async_form: Form, outcome: Any) -> None:
    fn = Flaky(then=Hang(5.0, outcome))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded) as caught:
            await async_form(fn.asynchronous, deadline=2.0, attempt_timeout=None)
        assert clock.now == pytest.approx(2.0)
    assert (fn.calls, caught.value.elapsed) == (1, pytest.approx(2.0))


def test_a_blocking_first_attempt_beyond_the_total_is_the_only_one(blocking_form: Form) -> None:
    fn = Flaky(then=Hang(5.0, ConnectionError()))
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded):
            blocking_form(fn, deadline=2.0, backoff=[0.0])
        assert clock.now == pytest.approx(5.0)
    assert fn.calls == 1


@pytest.mark.parametrize("ambient", [False, True])
def test_what_the_first_attempt_took_is_missing_from_the_rest(form: Form, ambient: bool) -> None:
    fn = Flaky(Hang(1.5, ConnectionError()), then=ConnectionError())
    with FakeTime() as clock:
        with pytest.raises(DeadlineExceeded), deadline(2.0 if ambient else None):
            form(fn, deadline=None if ambient else 2.0, backoff=[0.3])
        assert fn.started_at == pytest.approx([0.0, 1.8])
        assert clock.now == pytest.approx(1.8)


async def test_the_clock_of_a_coroutine_starts_when_it_does(async_form: Form) -> None:
    with FakeTime() as clock:
        call = async_form(Flaky(Hang(1.0, "done")).asynchronous, deadline=2.0)
        clock.advance(100.0)  # nobody has awaited it yet
        assert await call == "done"
