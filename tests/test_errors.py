"""The errors that forbear raises: what they say, what survives pickling, and the mark against double retries."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from forbear.errors import (
    ApiError,
    AttemptSummary,
    BudgetExhausted,
    CircuitOpenError,
    DeadlineExceeded,
    GaveUp,
    GiveUpReason,
    ResultRejected,
    RetriesExhausted,
    RetryError,
    SummaryError,
    UsageError,
    already_retried,
    gave_up,
    given_up_by,
    mark,
    mark_of,
    type_name,
)

SECRET = "sk-very-secret"
REASONS: list[GiveUpReason] = ["max_attempts", "deadline", "budget"]


class Unpicklable(Exception):
    """Fails when it is written."""

    def __reduce__(self) -> Any:
        raise TypeError("holds a socket")


class Unloadable(Exception):
    """Is written without complaint and fails only when it is loaded."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


class Speechless(Unpicklable):
    """Can't even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int = 0


def there_and_back(error: Any) -> Any:
    return pickle.loads(pickle.dumps(error))


# ---- what each error is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("max_attempts", RetriesExhausted), ("deadline", DeadlineExceeded), ("budget", BudgetExhausted)],
)
def test_each_reason_to_give_up_has_its_class(reason: GiveUpReason, kind: type[RetryError]) -> None:
    error = gave_up(reason, 3, ValueError())
    assert type(error) is kind
    assert isinstance(error, RetryError)
    assert error.reason == reason


def test_a_passed_deadline_is_a_timeout_and_the_others_are_not() -> None:
    assert [isinstance(gave_up(reason, 1, None), TimeoutError) for reason in REASONS] == [False, True, False]


def test_the_last_error_is_the_cause() -> None:
    last = ValueError()
    error = gave_up("max_attempts", 3, last)
    assert error.last_error is error.__cause__ is last
    assert gave_up("deadline", 0, None).__cause__ is None


def test_facts_that_are_not_given_are_empty() -> None:
    error = gave_up("max_attempts", 3, ValueError())
    assert (error.attempts, error.elapsed, error.waited, error.hint, error.history) == (3, 0.0, 0.0, None, ())


def test_a_refused_value_is_at_hand() -> None:
    assert gave_up("max_attempts", 3, ResultRejected("pending")).last_result == "pending"
    assert gave_up("max_attempts", 3, ValueError("pending")).last_result is None
    assert gave_up("deadline", 0, None).last_result is None


def test_an_api_error_reads_as_status_and_message() -> None:
    assert str(ApiError(503, "busy")) == "503 busy"
    assert str(ApiError(503)) == "503"
    assert ApiError(429, retry_after=7).retry_after == 7


def test_a_circuit_error_says_when_to_come_back() -> None:
    assert str(CircuitOpenError(1.5)) == "the circuit is open and nothing was sent; try again in 1.50 s"
    assert CircuitOpenError().retry_in == 0.0


def test_the_qualified_name_of_a_type_leaves_out_the_builtins() -> None:
    assert type_name(ValueError()) == "ValueError"
    assert type_name(ApiError(503)) == "forbear.errors.ApiError"
    assert type_name(None) == "NoneType"


# ---- what a message says -----------------------------------------------------------------------------------------


def test_a_message_says_what_happened() -> None:
    error = gave_up("max_attempts", 3, ApiError(503), elapsed=2.5, waited=1.25)
    assert str(error).startswith(
        "gave up after 3 attempts in 2.50 s, 1.25 s of it waiting (max_attempts); "
        "the last failed with forbear.errors.ApiError; "
    )
    assert str(gave_up("budget", 1, TimeoutError())).startswith(
        "gave up after 1 attempt in 0.00 s, 0.00 s of it waiting (budget); the last failed with TimeoutError; "
    )


@pytest.mark.parametrize(
    ("error", "next_step"),
    [
        (
            gave_up("max_attempts", 3, ApiError(429), hint=120.0),
            "; allow more with max_attempts=, or see last_error for what to mend",
        ),
        (
            gave_up("deadline", 3, ApiError(503)),
            "; allow more time with deadline=, or see last_error for what took it",
        ),
        (gave_up("deadline", 3, ApiError(429), hint=120.0), "; the server asked to come back in 120.00 s"),
        (
            gave_up("budget", 3, ApiError(429), hint=120.0),
            "; the service is failing for everyone: come back later",
        ),
    ],
)
def test_a_message_ends_with_what_to_do_next(error: RetryError, next_step: str) -> None:
    assert str(error).endswith(next_step)


def test_a_message_without_a_last_error_says_that_there_was_no_time() -> None:
    assert str(gave_up("deadline", 0, None)) == (
        "gave up before the first attempt (deadline): no time was left; allow more with deadline="
    )
    assert str(gave_up("deadline", 0, None, elapsed=3.0)) == (
        "the block was cut at its deadline after 3.00 s; allow more time with deadline(...)"
    )


@pytest.mark.parametrize("reason", REASONS)
def test_no_text_of_a_foreign_error_gets_into_ours(reason: GiveUpReason) -> None:
    last = ValueError(SECRET)
    summary = AttemptSummary(number=1, error_type=type_name(last))
    error = gave_up(reason, 1, last, hint=1.0, history=(summary,))
    mark(last, fact_of(reason, 1, 0.0, 0.0))
    for text in (str(error), repr(error), repr(error.history), repr(mark_of(last)), *last.__notes__):
        assert SECRET not in text


def test_a_refused_value_is_told_by_its_type_only() -> None:
    assert str(ResultRejected(SECRET)) == "retry_if_result refused a value of type str"
    assert SECRET not in repr(ResultRejected(SECRET))


def test_the_text_of_an_error_that_was_left_behind_is_kept_out_of_the_message() -> None:
    error = SummaryError("acme.Oops", SECRET)
    assert str(error) == "acme.Oops (the original could not be pickled; its text is in .text)"
    assert SECRET not in repr(error)


# ---- pickling ----------------------------------------------------------------------------------------------------


def test_an_error_of_giving_up_survives_with_all_its_facts() -> None:
    summary = AttemptSummary(number=3, error_type="forbear.errors.ApiError", status=503, elapsed=0.5, delay=1.0)
    error = gave_up("deadline", 3, ApiError(503, "busy"), elapsed=2.5, waited=1.5, hint=9.0, history=(summary,))
    other = there_and_back(error)
    assert type(other) is DeadlineExceeded
    assert (other.reason, other.attempts, other.elapsed, other.waited, other.hint) == ("deadline", 3, 2.5, 1.5, 9.0)
    assert other.history == (summary,)
    assert str(other) == str(error)
    assert str(other.last_error) == "503 busy"
    assert other.__cause__ is other.last_error


def test_an_error_of_giving_up_survives_without_a_last_error() -> None:
    assert there_and_back(gave_up("deadline", 0, None)).last_error is None


@pytest.mark.parametrize(
    ("last", "text"), [(Unpicklable("a socket"), "a socket"), (Unloadable("a", "b"), "a b"), (Speechless(), "")]
)
def test_a_last_error_that_cannot_be_pickled_leaves_a_summary(last: Exception, text: str) -> None:
    other = there_and_back(gave_up("max_attempts", 3, last)).last_error
    assert type(other) is SummaryError
    assert other.error_type == type_name(last)
    assert other.text == text


@pytest.mark.parametrize(
    "error",
    [
        ApiError(429, "slow down", retry_after=7.0),
        ResultRejected({"a": 1}),
        SummaryError("acme.Oops", "text"),
        CircuitOpenError(1.5),
    ],
)
def test_every_error_survives_copying_and_pickling(error: Exception) -> None:
    for other in (there_and_back(error), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def test_a_summary_of_an_attempt_is_a_frozen_value() -> None:
    summary = AttemptSummary(number=1, error_type="TimeoutError")
    assert (summary.status, summary.elapsed, summary.delay) == (None, 0.0, None)
    assert there_and_back(summary) == summary
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.number = 2  # type: ignore[misc]


# ---- the mark ----------------------------------------------------------------------------------------------------


def fact_of(reason: GiveUpReason, attempts: int, elapsed: float, waited: float, **more: Any) -> GaveUp:
    return GaveUp(
        reason=reason, attempts=attempts, elapsed=elapsed, waited=waited, within=more.pop("within", ()), **more
    )


def test_an_error_that_was_never_retried_has_no_mark() -> None:
    assert mark_of(ValueError()) is None
    error = ValueError()
    error.__forbear__ = "something else"  # type: ignore[attr-defined]
    assert mark_of(error) is None
    assert not already_retried(error, 0)


def test_a_mark_holds_the_facts_and_a_note_says_them() -> None:
    error = ValueError()
    mark(error, fact_of("deadline", 3, 2.5, 1.25))
    fact = mark_of(error)
    assert fact is not None
    assert (fact.reason, fact.attempts, fact.elapsed, fact.waited) == ("deadline", 3, 2.5, 1.25)
    assert error.__notes__ == ["forbear: gave up after attempt 3 in 2.50 s, 1.25 s of it waiting (deadline)"]


def test_a_new_mark_takes_the_place_of_the_old_one_and_leaves_other_notes_alone() -> None:
    error = ValueError()
    error.add_note("by the user")
    mark(error, fact_of("deadline", 3, 2.5, 1.25))
    mark(error, fact_of("max_attempts", 5, 4.0, 2.0))
    fact = mark_of(error)
    assert fact is not None
    assert fact.attempts == 5
    assert error.__notes__ == [
        "by the user",
        "forbear: gave up after attempt 5 in 4.00 s, 2.00 s of it waiting (max_attempts)",
    ]


def test_an_error_that_refuses_new_attributes_is_marked_all_the_same() -> None:
    error = FrozenError(7)
    mark(error, fact_of("deadline", 1, 0.0, 0.0))
    assert mark_of(error) is not None
    assert len(error.__notes__) == 1


def test_only_the_calls_around_the_one_that_gave_up_take_it_as_already_retried() -> None:
    error, around, elsewhere = ValueError(), object(), object()
    assert not already_retried(error, around)
    mark(error, fact_of("max_attempts", 3, 0.0, 0.0, within=(object(), around)))
    assert already_retried(error, around)
    assert not already_retried(error, elsewhere)


def test_a_call_knows_whether_it_has_given_up_itself() -> None:
    error, plan = ValueError(), object()
    assert not given_up_by(error, plan)
    mark(error, fact_of("max_attempts", 3, 0.0, 0.0, by=plan))
    assert given_up_by(error, plan)
    assert not given_up_by(error, object())
    assert given_up_by(gave_up("max_attempts", 3, ValueError()), plan)
    assert given_up_by(CircuitOpenError(1.0), plan)


def test_a_retry_error_is_always_already_retried() -> None:
    assert already_retried(gave_up("max_attempts", 3, ValueError()), object())


def test_a_copy_keeps_the_very_cause_and_all_facts() -> None:
    class Unpicklable(Exception):
        def __reduce__(self) -> Any:
            raise TypeError

    cause = Unpicklable()
    copied = copy.copy(gave_up("deadline", 3, cause, elapsed=2.0, waited=1.0, hint=5.0))
    assert type(copied) is DeadlineExceeded
    assert copied.last_error is copied.__cause__ is cause
    assert (copied.attempts, copied.elapsed, copied.waited, copied.hint) == (3, 2.0, 1.0, 5.0)


def test_a_wrong_use_is_a_type_error() -> None:
    assert issubclass(UsageError, TypeError)


def test_a_mark_from_another_process_counts_whoever_asks() -> None:
    error = ValueError()
    mark(error, fact_of("max_attempts", 3, 2.5, 1.25))
    other = there_and_back(error)
    fact = mark_of(other)
    assert fact == GaveUp(reason="max_attempts", attempts=3, elapsed=2.5, waited=1.25)
    assert already_retried(other, object())


# ---- no place in time ------------------------------------------------------------------------------------------------


def test_who_got_no_place_in_time_is_told_by_whom_and_when_to_come_back() -> None:
    error = gave_up("deadline", 0, None, elapsed=1.5, hint=20.0, held_by="Upstream 'x' (it has asked for a pause)")
    assert str(error) == (
        "gave up before the first attempt, 1.50 s after the call began: no place in time at Upstream 'x' (it has asked "
        "for a pause); come back in 20.00 s; allow more time with deadline="
    )
    assert error.held_by == "Upstream 'x' (it has asked for a pause)"


def test_after_an_attempt_its_error_is_named_too() -> None:
    for attempts, made in ((1, "1 attempt"), (3, "3 attempts")):
        error = gave_up("deadline", attempts, TimeoutError(), elapsed=6.0, held_by="Upstream 'x' (it is full)")
        assert str(error) == (
            f"gave up after {made}, 6.00 s after the call began: no place in time at Upstream 'x' (it is full); "
            "the last failed with TimeoutError; allow more time with deadline="
        )


def test_who_held_a_call_back_survives_pickling_and_copying() -> None:
    error = gave_up("deadline", 1, TimeoutError(), held_by="the limiter")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert again.held_by == "the limiter"
        assert str(again) == str(error)


def test_an_open_circuit_names_itself() -> None:
    error = CircuitOpenError(3.0, "openai/gpt")
    assert str(error) == "the circuit of 'openai/gpt' is open and nothing was sent; try again in 3.00 s"
    again = pickle.loads(pickle.dumps(error))
    assert (again.retry_in, again.name, str(again)) == (3.0, "openai/gpt", str(error))
