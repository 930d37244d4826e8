"""R027: "the prompt is too long" derives from the general error of its library, and must not be retried like that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forbear import Classifier, Kind, RetriesExhausted, Rule, classify
from forbear.testing import FakeTime, Flaky
from foreign import answer, foreign

Form = Callable[..., Any]

APIError: Any = foreign("APIError", "acme.errors")
PromptTooLong: Any = foreign("PromptTooLong", "acme.errors", APIError)
RETRIED = Rule(kind=Kind.SERVER_ERROR, source="ours", classes=frozenset({"acme.APIError"}))
FINAL = Rule(kind=Kind.TOO_LONG, source="ours", classes=frozenset({"acme.PromptTooLong"}))

TOO_LONG: list[Exception] = [
    answer(400, {}, {"error": {"code": "context_length_exceeded"}}),
    answer(429, {}, {"error": {"code": "context_length_exceeded"}}),
    answer(500, {}, {"error": {"code": "string_above_max_length"}}),
    answer(413),
    answer(413, {}, {"error": {"code": "rate_limit_exceeded"}}),
    answer(429, {}, {"error": {"code": "rate_limit_exceeded", "message": "Request too large for this model"}}),
    foreign("BadRequestError", "anthropic")(
        status_code=400,
        body={"error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens"}},
    ),
    foreign("ContextWindowExceededError", "litellm.exceptions", foreign("BadRequestError", "litellm.exceptions"))(
        status_code=400
    ),
]


def test_it_is_asked_for_once(form: Form) -> None:
    for error in TOO_LONG:
        failure = classify(error)
        assert (failure.kind, failure.transient) == (Kind.TOO_LONG, False), error.__dict__
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(type(error)):
            form(fn)
        assert fn.calls == 1


@pytest.mark.parametrize("rules", [(RETRIED, FINAL), (FINAL, RETRIED)])
def test_a_permanent_class_can_be_listed_below_a_retried_one(form: Form, rules: tuple[Rule, ...]) -> None:
    ours = Classifier(rules)
    fn = Flaky(APIError(), PromptTooLong(), then="never")
    with FakeTime(), pytest.raises(PromptTooLong):
        form(fn, retryable=ours)
    assert fn.calls == 2
    fn = Flaky(then=APIError())
    with FakeTime(), pytest.raises(RetriesExhausted):
        form(fn, retryable=ours, max_attempts=3)
    assert fn.calls == 3


def test_a_rule_on_the_base_class_catches_the_others_that_derive_from_it() -> None:
    ours = Classifier([RETRIED, FINAL])
    assert ours.classify(foreign("Busy", "mine", APIError)()).transient
    assert not ours.classify(foreign("MuchTooLong", "mine", PromptTooLong)()).transient
