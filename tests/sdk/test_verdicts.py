"""What `classify` says of the real exceptions of real SDKs, raised by a server that misbehaves as real ones do."""

from __future__ import annotations

import pytest

from forbear.classify.failures import classify
from sdk.cases import CASES, CLOCK, Case
from sdk.raising import Missing, raise_case

# Disputed cases where another answer is chosen than the one that the case states; the docs say why.
CHOSEN_OTHERWISE = {"openai.200.bad-json"}


@pytest.mark.parametrize("case", [case for case in CASES if case.id not in CHOSEN_OTHERWISE], ids=str)
def test_the_verdict_on_the_real_exception_is_the_expected_one(case: Case) -> None:
    try:
        error = raise_case(case)
    except Missing as missing:
        pytest.skip(str(missing))
    verdict = classify(error, now=CLOCK)
    assert verdict.transient is case.retryable, verdict
    if case.executed is not None:
        assert verdict.executed == case.executed, verdict
    if case.retryable:
        expected = None if case.wait is None else pytest.approx(case.wait, abs=case.wait_within)
        assert verdict.retry_after == expected, verdict
    assert classify(error, idempotent=False, now=CLOCK).safe_to_retry is (verdict.executed == "no")


@pytest.mark.parametrize("case", [case for case in CASES if case.id in CHOSEN_OTHERWISE], ids=str)
def test_where_another_answer_is_chosen_the_case_is_a_disputed_one(case: Case) -> None:
    assert case.disputed
