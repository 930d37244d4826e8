"""The record of one call: its attempts, its waits, and the final error that tells of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from forbear.core.backoff import decorrelated, from_list
from forbear.core.decision import Retry, Stop
from forbear.core.failure import Failure, Kind
from forbear.core.policy import Policy
from forbear.core.run import HISTORY, Pending, Run
from forbear.core.stream import AfterContent, Delivery, Signal, StreamSettings
from forbear.errors import ApiError, AttemptSummary, DeadlineExceeded, ResultRejected, RetriesExhausted

BUSY = Failure(transient=True, kind=Kind.OVERLOADED, status=503)
ERROR = ApiError(503)


def begun(deadline_at: float = 60.0, **settings: object) -> Run:
    policy = Policy(**{"backoff": from_list([1, 2, 4]), **settings})  # type: ignore[arg-type]
    return Run(policy, 0.0, deadline_at)


def fail(run: Run, now: float, failure: Failure = BUSY, error: BaseException = ERROR, dice: float = 1.0) -> Retry:
    """A failed attempt that is retried; the wait takes exactly as long as asked for."""
    answer = run.failed(error, failure, now, dice)
    assert isinstance(answer, Retry)
    run.resumed(Pending(error, answer, failure), now + answer.delay)
    return answer


def test_a_new_run_is_at_its_first_attempt_and_has_waited_for_nothing() -> None:
    run = Run(Policy(), 100.0, 160.0)
    assert (run.number, run.waited, run.hint, run.key) == (1, 0.0, None, None)
    assert (run.started_at, run.attempt_at, run.deadline_at) == (100.0, 100.0, 160.0)
    assert (run.previous_delay, run.previous_error, run.pending, run.stream) == (None, None, None, None)
    assert (run.copies, run.of) == (0, None)
    assert list(run.history) == []


def test_the_time_left_is_never_negative() -> None:
    run = begun(10.0)
    assert [run.left(now) for now in (0.0, 4.0, 10.0, 11.0)] == [10.0, 6.0, 0.0, 0.0]
    assert begun(math.inf).left(1e9) == math.inf


def test_an_attempt_gets_its_timeout_or_what_was_left_when_it_began() -> None:
    run = begun(8.0, attempt_timeout=5.0)
    assert run.limit == 5.0
    run.attempt_at = 6.0
    assert run.limit == 2.0
    run.attempt_at = 9.0
    assert run.limit == 0.0
    assert begun(math.inf, attempt_timeout=None).limit == math.inf


def test_a_retried_attempt_leaves_its_wait_its_number_and_its_error() -> None:
    run, error = begun(), ApiError(503)
    answer = run.failed(error, BUSY, 3.0, 1.0)
    assert answer == Retry(1.0, "backoff")
    assert (run.number, run.waited, run.previous_error) == (1, 0.0, None)
    run.resumed(Pending(error, answer, BUSY), 4.0)
    assert (run.number, run.waited, run.previous_error, run.attempt_at) == (2, 1.0, error, 4.0)


def test_waits_add_up() -> None:
    run = begun()
    assert [fail(run, now).delay for now in (0.0, 5.0, 10.0)] == [1.0, 2.0, 4.0]
    assert run.waited == 7.0
    assert run.number == 4


def test_the_decision_counts_the_attempts_and_the_time_left() -> None:
    run = begun(max_attempts=2)
    fail(run, 0.0)
    assert run.failed(ERROR, BUSY, 2.0, 1.0) == Stop("max_attempts")
    assert begun(10.0).failed(ERROR, BUSY, 9.0, 1.0) == Stop("deadline")
    assert begun().failed(ERROR, Failure(transient=False), 0.0, 1.0) == Stop("permanent")


def test_each_failure_is_summed_up_with_its_duration_and_its_wait() -> None:
    run = begun(max_attempts=2)
    fail(run, 0.5)
    run.failed(TimeoutError(), Failure(transient=True), 4.0, 1.0)
    assert list(run.history) == [
        AttemptSummary(number=1, error_type="forbear.errors.ApiError", status=503, elapsed=0.5, delay=1.0),
        AttemptSummary(number=2, error_type="TimeoutError", status=None, elapsed=2.5, delay=None),
    ]


def test_a_clock_that_runs_backwards_gives_no_negative_durations() -> None:
    run = Run(Policy(), 100.0, 160.0)
    answer = run.failed(ERROR, BUSY, 99.0, 0.0)
    assert isinstance(answer, Retry)
    assert run.history[0].elapsed == 0.0
    assert run.given_up("deadline", ERROR, 99.0, 1).elapsed == 0.0
    assert run.state("ask", Pending(ERROR, answer, BUSY), 99.0).elapsed == 0.0


def test_only_the_last_attempts_are_remembered() -> None:
    run = begun(math.inf, max_attempts=None, backoff=from_list([0]))
    for _ in range(HISTORY + 5):
        fail(run, 0.0)
    assert [summary.number for summary in run.history] == list(range(6, HISTORY + 6))


def test_the_last_hint_is_remembered_and_forgotten_with_the_next_failure() -> None:
    run = begun()
    fail(run, 0.0, Failure(transient=True, retry_after=7.0))
    assert run.hint == 7.0
    fail(run, 10.0)
    assert run.hint is None


def test_a_decorrelated_wait_grows_from_the_last_backoff_but_not_from_a_hint() -> None:
    run = begun(backoff=decorrelated(1.0), max_attempts=None)
    assert fail(run, 0.0).delay == 3.0
    assert run.previous_delay == 3.0
    assert fail(run, 5.0, Failure(transient=True, retry_after=20.0)).delay == 20.0
    assert run.previous_delay == 3.0
    assert fail(run, 30.0).delay == 9.0


SHORTEN = {"backoff": decorrelated(4.0), "late_backoff": "shorten", "minimum_attempt": 1.0}


def test_a_shortened_wait_is_not_what_the_next_one_grows_from() -> None:
    run = begun(5.0, **SHORTEN)
    assert run.failed(ERROR, BUSY, 0.0, 1.0) == Retry(4.0, "shortened backoff")
    assert run.previous_delay is None


def test_a_wait_is_shortened_once_so_that_attempts_do_not_follow_each_other_without_a_wait() -> None:
    run = begun(5.0, **SHORTEN)
    assert fail(run, 0.0).source == "shortened backoff"
    assert run.failed(ERROR, BUSY, 4.0, 1.0) == Stop("deadline")
    assert begun(5.0, **SHORTEN).failed(ERROR, BUSY, 4.0, 1.0) == Retry(0.0, "shortened backoff")


def test_a_wait_that_needs_no_shortening_does_not_use_it_up() -> None:
    run = begun(20.0, **SHORTEN)
    assert fail(run, 0.0).source == "backoff"
    assert fail(run, 0.0, Failure(transient=True, retry_after=16.0), dice=0.0).source == "hint"
    assert fail(run, 12.0).source == "shortened backoff"


def test_the_final_error_tells_what_the_record_knows() -> None:
    run, last = begun(max_attempts=2), ApiError(503, retry_after=2.0)
    fail(run, 0.5)
    run.failed(last, Failure(transient=True, status=503, retry_after=2.0), 4.0, 1.0)
    error = run.given_up("max_attempts", last, 4.0, 2)
    assert type(error) is RetriesExhausted
    assert (error.reason, error.attempts, error.last_error, error.__cause__) == ("max_attempts", 2, last, last)
    assert (error.elapsed, error.waited, error.hint) == (4.0, 1.0, 2.0)
    assert error.history == tuple(run.history)
    assert len(error.history) == 2


def test_a_call_without_an_attempt_ends_without_a_cause() -> None:
    error = begun(0.0).given_up("deadline", None, 0.0, 0)
    assert type(error) is DeadlineExceeded
    assert (error.attempts, error.last_error, error.__cause__, error.history) == (0, None, None, ())


def test_a_hook_is_told_of_the_wait_before_it_begins() -> None:
    run = begun()
    answer = run.failed(ERROR, BUSY, 2.0, 1.0)
    assert isinstance(answer, Retry)
    state = run.state("ask", Pending(ERROR, answer, BUSY), 2.0)
    assert (state.call, state.attempt, state.max_attempts) == ("ask", 1, 5)
    assert (state.delay, state.source, state.elapsed, state.remaining) == (1.0, "backoff", 2.0, 58.0)
    assert (state.kind, state.status, state.error_type) == (Kind.OVERLOADED, 503, "forbear.errors.ApiError")
    assert state.error is ERROR
    assert state.result is None


def test_a_hook_is_told_the_refused_value_instead_of_an_error() -> None:
    run, error = begun(), ResultRejected("pending")
    failure = Failure(transient=True, kind=Kind.REJECTED_RESULT)
    state = run.state("poll", Pending(error, Retry(1.0, "backoff"), failure), 2.0)
    assert state.error is None
    assert state.result == "pending"
    assert state.error_type == "forbear.errors.ResultRejected"


def test_a_run_holds_nothing_beyond_its_record() -> None:
    with pytest.raises(AttributeError):
        begun().anything = 1  # type: ignore[attr-defined]


def test_an_attempt_that_ends_after_the_deadline_was_ended_by_it_also_where_it_was_the_last() -> None:
    for now, reason in ((4.9, "max_attempts"), (5.0, "deadline"), (5.1, "deadline")):
        run = begun(5.0, max_attempts=1)
        assert run.failed(ERROR, BUSY, now, 0.0) == Stop(reason)  # type: ignore[arg-type]
        assert run.history[-1].delay is None


def test_what_no_retry_could_help_is_no_matter_of_time() -> None:
    run = begun(5.0, max_attempts=1)
    assert run.failed(ERROR, Failure(transient=False), 9.0, 0.0) == Stop("permanent")


def test_a_retry_that_the_budget_has_no_place_for_is_none() -> None:
    run = begun(backoff=decorrelated(1.0))
    assert run.failed(ERROR, Failure(transient=True, status=503, retry_after=2.0), 3.0, 1.0, paid=False) == Stop(
        "budget"
    )
    assert run.history[-1] == AttemptSummary(
        number=1, error_type="forbear.errors.ApiError", status=503, elapsed=3.0, delay=None
    )
    assert run.hint == 2.0
    assert run.previous_delay is None
    assert (run.number, run.waited) == (1, 0.0)


def test_an_unpaid_retry_does_not_use_the_shortening_up() -> None:
    run = begun(5.0, **SHORTEN)
    assert run.failed(ERROR, BUSY, 0.0, 1.0, paid=False) == Stop("budget")
    assert run.policy.late_backoff == "shorten"


@pytest.mark.parametrize(
    ("failure", "now", "reason"),
    [
        (Failure(transient=False), 1.0, "permanent"),
        (Failure(transient=True, safe_to_retry=False), 1.0, "unsafe"),
        (Failure(transient=True), 59.5, "deadline"),
        (Failure(transient=True, retry_after=90.0), 1.0, "deadline"),
    ],
)
def test_what_would_not_be_retried_anyway_does_not_fail_for_the_budget(
    failure: Failure, now: float, reason: str
) -> None:
    assert begun().failed(ERROR, failure, now, 1.0, paid=False) == Stop(reason)  # type: ignore[arg-type]
    assert begun(max_attempts=1).failed(ERROR, BUSY, 1.0, 1.0, paid=False) == Stop("max_attempts")


# ---- copies of an attempt ----------------------------------------------------------------------------------------


def test_a_copy_of_an_attempt_has_the_next_number_and_what_the_call_knows() -> None:
    run = begun()
    fail(run, 0.0)
    assert (run.completed, run.of) == (2, None)
    first, second = run.copy(3.0), run.copy(4.0)
    assert [(copy.of, copy.number, copy.attempt_at) for copy in (first, second)] == [(run, 3, 3.0), (run, 4, 4.0)]
    assert (first.policy, first.started_at, first.deadline_at) == (run.policy, run.started_at, run.deadline_at)
    assert (first.waited, first.previous_error) == (1.0, ERROR)
    assert (run.number, run.copies, run.completed) == (2, 2, 4)


def test_copies_count_as_attempts() -> None:
    run = begun(max_attempts=3)
    run.copy(0.5)
    answer = run.failed(ERROR, BUSY, 1.0, 1.0)
    assert answer == Retry(1.0, "backoff")  # two attempts have failed, and they ran at the same time
    assert isinstance(answer, Retry)
    run.resumed(Pending(ERROR, answer, BUSY), 3.0)
    assert (run.number, run.copies, run.completed) == (3, 0, 3)
    run = begun(max_attempts=2)
    run.copy(0.5)
    assert run.refusal(BUSY) == Stop("max_attempts")
    assert run.failed(ERROR, BUSY, 1.0, 1.0) == Stop("max_attempts")


def test_the_backoff_grows_with_the_rounds() -> None:
    run = begun(max_attempts=9)
    for expected in (1.0, 2.0, 4.0):
        run.copy(0.5)
        answer = run.failed(ERROR, BUSY, 1.0, 1.0)
        assert answer == Retry(expected, "backoff")
        assert isinstance(answer, Retry)
        run.resumed(Pending(ERROR, answer, BUSY), 3.0)
    assert (run.rounds, run.number) == (4, 7)


def test_each_copy_that_failed_is_remembered_in_the_order_in_which_they_began() -> None:
    run = begun(max_attempts=2)
    copy, slow = run.copy(2.0), TimeoutError()
    run.remember(copy, slow, Failure(transient=True), 3.5)
    run.failed(ERROR, BUSY, 9.0, 1.0, ended_at=4.0)
    error = run.given_up("max_attempts", ERROR, 9.0, 2)
    assert error.history == (
        AttemptSummary(number=1, error_type="forbear.errors.ApiError", status=503, elapsed=4.0, delay=None),
        AttemptSummary(number=2, error_type="TimeoutError", status=None, elapsed=1.5, delay=None),
    )
    run = begun()
    copy = run.copy(2.0)
    run.failed(ERROR, BUSY, 5.0, 1.0, attempt=copy)
    assert run.history[-1] == AttemptSummary(
        number=2, error_type="forbear.errors.ApiError", status=503, elapsed=3.0, delay=1.0
    )


# ---- streams -----------------------------------------------------------------------------------------------------


def streaming(run: Run, after_content: AfterContent = "raise", *, shown: bool = False, **clocks: Any) -> Delivery:
    """The run, as one of a stream whose attempt has begun; `shown`: and whose consumer has seen content."""
    run.stream = Delivery(StreamSettings(after_content=after_content, **clocks))
    run.stream.begin(run.attempt_at)
    if shown:
        run.stream.received("a", Signal(), run.number, run.attempt_at)
    return run.stream


def test_of_a_stream_the_limit_reaches_to_the_end_of_the_wait_that_is_under_way() -> None:
    run = begun(attempt_timeout=5.0)
    body = streaming(run, first_timeout=10.0, gap_timeout=2.0)
    assert run.limit == math.inf
    body.limit(0.0, run.left(0.0))
    assert run.limit == 10.0  # what is for a whole attempt is not asked
    body.received("a", Signal(), 1, 9.0)
    body.limit(9.0, run.left(9.0))
    assert run.limit == 11.0
    body.received("b", Signal(), 1, 10.5)
    body.limit(30.0, run.left(30.0))
    assert run.limit == 32.0


@pytest.mark.parametrize(
    ("deadline_at", "now", "short"),
    [(4.0, 3.7, True), (4.0, 3.5, False), (4.0, 9.0, True), (10.0, 10.0, False), (20.0, 10.0, False)],
)
def test_an_attempt_was_cut_short_where_the_deadline_left_it_less_than_usual_and_it_used_that_up(
    deadline_at: float, now: float, short: bool
) -> None:
    assert begun(deadline_at, attempt_timeout=10.0).cut_short(10.0, now) is short
    run = begun(deadline_at)
    body = streaming(run, first_timeout=10.0)
    body.limit(0.0, run.left(0.0))
    assert run.cut_short(10.0, now) is short


def test_a_silent_stream_that_had_all_the_time_of_the_call_was_not_cut_short() -> None:
    run = begun(60.0)
    body = streaming(run)
    body.limit(0.0, run.left(0.0))
    assert body.cut_by == "deadline"
    assert not run.cut_short(60.0, 60.0)
    assert run.cut_short(61.0, 60.0)


def test_the_limit_of_a_stream_counts_from_the_beginning_of_its_attempt() -> None:
    run = begun()
    run.attempt_at = 20.0
    body = streaming(run, first_timeout=10.0)
    body.limit(20.0, run.left(20.0))
    assert run.limit == 10.0


def test_a_stream_that_brings_content_is_too_slow_only_where_the_content_stops() -> None:
    cases: list[tuple[dict[str, Any], float, str, bool]] = [
        ({"gap_timeout": 5.0}, 60.0, "gap", False),
        ({"gap_timeout": 5.0}, 4.0, "deadline", True),
        ({"gap_timeout": 5.0, "total_timeout": 4.0}, 60.0, "total", True),
    ]
    for clocks, deadline_at, by, short in cases:
        run = begun(deadline_at)
        body = streaming(run, shown=True, **clocks)
        limit = body.limit(0.0, run.left(0.0))
        assert body.cut_by == by
        assert run.cut_short(10.0, limit) is short
        assert run.cut_short(1.0, limit) is short  # how long an attempt usually may take is of no interest
        assert not run.cut_short(10.0, 0.5 * limit)  # it broke before its time was up


@pytest.mark.parametrize(("mode", "stop"), [
    ("raise", Stop("interrupted")), ("buffer", None), ("restart", None), ("resume", None),
])  # fmt: skip
def test_what_the_consumer_has_seen_is_not_repeated_unless_it_asked_for_that(
    mode: AfterContent, stop: Stop | None
) -> None:
    run = begun()
    streaming(run, mode)
    assert run.refusal(BUSY) is None
    streaming(run, mode, shown=True)
    assert run.refusal(BUSY) == stop
    answer = run.failed(ERROR, BUSY, 1.0, 1.0)
    assert answer == (Retry(1.0, "backoff") if stop is None else stop)
    assert run.history[-1].delay == (1.0 if stop is None else None)
    assert run.previous_delay == (1.0 if stop is None else None)


def test_without_a_stream_a_refusal_is_that_of_the_policy() -> None:
    run = begun(max_attempts=1)
    assert run.refusal(BUSY) == Stop("max_attempts")
    assert begun().refusal(BUSY) is None
    assert begun().refusal(Failure(transient=False)) == Stop("permanent")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Failure(transient=False), "permanent"),
        (Failure(transient=True, safe_to_retry=False), "unsafe"),
    ],
)
def test_of_an_interrupted_stream_too_the_first_thing_to_know_is_that_no_retry_could_help(
    failure: Failure, reason: str
) -> None:
    run = begun()
    streaming(run, shown=True)
    assert run.refusal(failure) == Stop(reason)  # type: ignore[arg-type]
    assert run.failed(ERROR, failure, 1.0, 1.0) == Stop(reason)  # type: ignore[arg-type]


@pytest.mark.parametrize(("settings", "now", "paid"), [
    ({"max_attempts": 1}, 1.0, True), ({}, 59.5, True), ({}, 1.0, False), ({"max_attempts": 1}, 61.0, True),
])  # fmt: skip
def test_whatever_else_stands_against_a_retry_an_interrupted_stream_is_called_so(
    settings: dict[str, Any], now: float, paid: bool
) -> None:
    run = begun(**settings)
    streaming(run, shown=True)
    assert run.failed(ERROR, BUSY, now, 1.0, paid=paid) == Stop("interrupted")


def test_an_interrupted_stream_does_not_use_the_shortening_up() -> None:
    run = begun(5.0, **SHORTEN)
    streaming(run, shown=True)
    assert run.failed(ERROR, BUSY, 0.0, 1.0) == Stop("interrupted")
    assert run.policy.late_backoff == "shorten"
    assert run.previous_delay is None


@pytest.mark.parametrize(("total", "left", "cut"), [(2.0, 50.0, False), (20.0, 3.0, True), (None, 3.0, True)])
def test_a_silent_stream_is_cut_short_by_the_deadline_alone(total: float | None, left: float, cut: bool) -> None:
    run = Run(Policy(deadline=60), 0.0, 60.0)
    run.stream = Delivery(StreamSettings(first_timeout=10, total_timeout=total))
    run.stream.begin(0.0)
    limit = run.stream.limit(0.0, left)
    assert run.cut_short(10.0, limit) is cut


@pytest.mark.parametrize("executed", ["no", "maybe"])
def test_an_attempt_that_forbids_another_is_the_last_whatever_the_failure(executed: Any) -> None:
    run = begun()
    fail(run, 1.0)
    run.forbidden = "its body is gone"
    failure = Failure(transient=True, kind=Kind.OVERLOADED, executed=executed)
    assert run.refusal(failure) == Stop("unsafe")
    assert run.failed(ERROR, failure, 3.0, 1.0) == Stop("unsafe")


def test_what_no_retry_can_help_is_called_so_even_where_another_attempt_is_forbidden() -> None:
    run = begun()
    run.forbidden = "its body is gone"
    assert run.failed(ERROR, Failure(transient=False), 1.0, 1.0) == Stop("permanent")


def test_what_one_attempt_forbids_the_next_does_not() -> None:
    run = begun()
    answer = run.failed(ERROR, BUSY, 1.0, 1.0)
    assert isinstance(answer, Retry)
    run.forbidden = "too late"
    run.resumed(Pending(ERROR, answer, BUSY), 2.0)
    assert run.forbidden is None
    assert isinstance(run.failed(ERROR, BUSY, 3.0, 1.0), Retry)
