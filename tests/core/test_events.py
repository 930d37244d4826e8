"""What is told about a call while it runs: frozen values that never print what may hold a secret."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import get_args

import pytest

from forbear.core.events import AttemptEnded, CallEnded, EndReason, Event, FellBack, Outcome, RetryState
from forbear.core.failure import Kind
from forbear.errors import SummaryError

SECRET = "sk-very-secret"

STATE = RetryState(
    call="ask",
    attempt=1,
    max_attempts=3,
    delay=0.25,
    source="backoff",
    elapsed=0.5,
    remaining=59.5,
    kind=Kind.OVERLOADED,
    status=503,
    error_type="ApiError",
    error=None,
)
ENDED = AttemptEnded(call="ask", attempt=1, max_attempts=None, outcome="success", elapsed=0.5, remaining=59.5)
OVER = CallEnded(call="ask", reason="success", attempts=1, elapsed=0.5, waited=0.0)
INSTEAD = FellBack(call="ask", fallback="ask_elsewhere", error_type="forbear.errors.RetriesExhausted")


def test_the_repr_of_a_retry_state_shows_neither_the_error_nor_the_result() -> None:
    state = replace(STATE, error=RuntimeError(SECRET), result={"key": SECRET})
    assert state.error is not None
    assert SECRET not in repr(state)
    assert "error_type='ApiError'" in repr(state)
    assert "result" not in repr(state)


def test_the_repr_of_an_ended_attempt_does_not_show_the_error() -> None:
    ended = replace(ENDED, outcome="failure", error=RuntimeError(SECRET), error_type="RuntimeError")
    assert SECRET not in repr(ended)
    assert "error_type='RuntimeError'" in repr(ended)


def test_what_is_not_always_there_may_be_left_out() -> None:
    assert STATE.result is None
    assert (ENDED.error, ENDED.error_type) == (None, None)
    assert OVER.error_type is None


@pytest.mark.parametrize("event", [STATE, ENDED, OVER, INSTEAD])
def test_an_event_is_a_value(event: Event) -> None:
    for other in (copy.copy(event), pickle.loads(pickle.dumps(event))):
        assert other == event
        assert hash(other) == hash(event)
    with pytest.raises(FrozenInstanceError):
        event.call = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        type(event)("ask")  # type: ignore[call-arg]


def test_the_kinds_of_events_and_ends_are_closed_sets() -> None:
    assert set(get_args(Event)) == {RetryState, AttemptEnded, CallEnded, FellBack}
    assert set(get_args(Outcome)) == {"success", "failure", "cancelled"}
    assert set(get_args(EndReason)) == {
        "success", "permanent", "unsafe", "max_attempts", "deadline", "budget", "circuit", "cancelled",
        "interrupted", "closed",
    }  # fmt: skip


def test_what_fell_back_tells_the_type_of_the_error_and_no_more_of_it() -> None:
    assert (INSTEAD.call, INSTEAD.fallback, INSTEAD.error_type) == (
        "ask", "ask_elsewhere", "forbear.errors.RetriesExhausted",
    )  # fmt: skip
    assert not hasattr(INSTEAD, "error")


class Unloadable(Exception):
    """Is written without complaint and fails only when it is loaded."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def test_an_event_whose_error_cannot_be_pickled_is_pickled_with_a_summary() -> None:
    ended = AttemptEnded(
        call="f", attempt=1, max_attempts=3, outcome="failure", elapsed=0.1, remaining=2.0, error=Unloadable("a", "b")
    )
    loaded = pickle.loads(pickle.dumps(ended))
    assert isinstance(loaded.error, SummaryError)
    assert (loaded.call, loaded.attempt, loaded.outcome) == ("f", 1, "failure")
