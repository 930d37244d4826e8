"""What `classify` says of the real exceptions of real SDKs, raised by a server that misbehaves as real ones do."""

from __future__ import annotations

import pytest

from forbear.classify.failures import classify
from forbear.classify.providers.disputed import CHOICES
from sdk.cases import CASES, CLOCK, Case
from sdk.raising import Missing, raise_case

CHOSEN = {choice.case: choice for choice in CHOICES}  # of the disputed cases
CHOSEN_OTHERWISE = {case.id for case in CASES if case.id in CHOSEN and CHOSEN[case.id].retried != case.retryable}


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


@pytest.mark.parametrize("case", [case for case in CASES if case.disputed], ids=str)
def test_a_disputed_case_is_judged_as_the_docs_say(case: Case) -> None:
    try:
        error = raise_case(case)
    except Missing as missing:
        pytest.skip(str(missing))
    verdict, choice = classify(error, now=CLOCK), CHOSEN[case.id]
    assert verdict.transient is choice.retried, verdict
    if choice.retried:
        expected = None if choice.wait is None else pytest.approx(choice.wait, abs=case.wait_within)
        assert verdict.retry_after == expected, verdict
