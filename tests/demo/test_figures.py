from dataclasses import replace

import pytest

from forbear.demo.figures import ROWS, Figures, figures_of, percentile, verdict
from forbear.demo.load import PROMISE, Outcome

STATE = {"requests": 8, "too_early": 3, "answers": {"ok": 3, "503": 5, "no answer": 0}}


def outcome(elapsed: float, error: str | None = None) -> Outcome:
    return Outcome(elapsed=elapsed, error=error)


def measured() -> Figures:
    outcomes = [outcome(0.1), outcome(PROMISE + 0.01), outcome(PROMISE + 2), outcome(PROMISE + 1, "ReadTimeout")]
    return figures_of(outcomes, STATE)


def test_only_a_200_succeeds_and_only_before_the_deadline_in_time():
    assert (measured().calls, measured().succeeded, measured().in_time) == (4, 3, 2)


def test_requests_are_the_servers_own_count():
    assert (measured().requests, measured().requests_per_call, measured().too_early) == (8, 2.0, 3)


def test_time_over_the_deadline_is_counted_from_the_deadline_and_failed_calls_count():
    assert measured().over == pytest.approx(3.01)
    assert measured().worst_over == pytest.approx(2.0)


def test_a_call_is_late_only_beyond_the_grace():
    assert measured().late == 2


def test_errors_and_answers_are_listed_where_there_were_any():
    assert measured().errors == {"ReadTimeout": 1}
    assert measured().answers == {"ok": 3, "503": 5}


def test_a_percentile_is_a_value_that_was_measured():
    values = [float(number) for number in range(1, 201)]
    assert (percentile(values, 50), percentile(values, 99)) == (100.0, 198.0)
    assert percentile([0.3], 99) == 0.3


def test_the_sentence_names_every_figure_that_counts():
    counting = [row.label for row in ROWS if row.score is not None]
    sentence = verdict(measured(), replace(measured(), succeeded=4))
    assert all(label in sentence for label in counting)
    assert sentence.endswith(".")


def test_the_sentence_says_where_the_naive_loop_won():
    sentence = verdict(naive=replace(measured(), requests_per_call=1.5), ours=replace(measured(), late=0))
    assert "forbear did better on calls over the deadline (0 against 2)" in sentence
    assert "the naive loop did better on requests sent per call (1.50 against 2.00)" in sentence


def test_what_is_shown_as_equal_is_called_equal():
    sentence = verdict(naive=replace(measured(), p50=0.5012), ours=replace(measured(), p50=0.5009))
    assert "did better" not in sentence
    assert "they were level on" in sentence
    assert "p50 (0.50 s)" in sentence
