"""T46: an error that cannot be pickled turns, in a pool of workers, into another and useless one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear import (
    ApiError,
    AttemptSummary,
    BudgetExhausted,
    CircuitOpenError,
    DeadlineExceeded,
    ResultRejected,
    RetriesExhausted,
    RetryError,
    SummaryError,
)
from forbear.testing import FakeTime, Flaky

HISTORY = (
    AttemptSummary(number=1, error_type="ConnectionError", elapsed=0.5, delay=1.0),
    AttemptSummary(number=2, error_type="forbear.errors.ApiError", status=503),
)


class KeywordOnly(Exception):
    """Can be pickled but not loaded."""

    def __init__(self, *, code: int) -> None:
        super().__init__("keyword only")
        self.code = code


class Unpicklable(Exception):
    """Holds what can't be pickled."""

    def __init__(self) -> None:
        super().__init__("unpicklable")
        self.function = lambda: None


REQUEST = httpx.Request("GET", "https://example.org")
CAUSES: list[BaseException | None] = [
    None, ConnectionError("down"), ApiError(503, "busy", 2.0), KeywordOnly(code=7), Unpicklable(),
    httpx.HTTPStatusError("503", request=REQUEST, response=httpx.Response(503, request=REQUEST)),
    httpx.ReadTimeout("late", request=REQUEST), ExceptionGroup("two", [ConnectionError(), ValueError("x")]),
    ExceptionGroup("two", [KeywordOnly(code=1), ValueError("x")]), ResultRejected([1, 2]), ResultRejected(lambda: None),
    CircuitOpenError(3.0), RetriesExhausted("max_attempts", 2, KeywordOnly(code=7)),
]  # fmt: skip
WAYS: dict[str, Callable[[Any], Any]] = {
    # Without fix_imports the old protocols make an OSError of every ConnectionError, as they do everywhere.
    f"pickle {protocol}": lambda error, protocol=protocol: pickle.loads(
        pickle.dumps(error, protocol, fix_imports=False)
    )
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
} | {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return WAYS[request.param]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (RetriesExhausted, "max_attempts"),
        (DeadlineExceeded, "deadline"),
        (BudgetExhausted, "budget"),
        (RetryError, "deadline"),
    ],
)
def test_a_final_error_keeps_its_facts(way: Callable[[Any], Any], kind: type[RetryError], reason: Any) -> None:
    for cause in CAUSES:
        error = kind(reason, 2, cause, elapsed=3.5, waited=1.25, hint=9.0, history=HISTORY)
        twin = way(error)
        assert type(twin) is kind
        assert str(twin).partition("last failed")[0] == str(error).partition("last failed")[0]
        for fact in ("reason", "attempts", "elapsed", "waited", "hint", "history"):
            assert getattr(twin, fact) == getattr(error, fact), cause
        assert twin.__cause__ is twin.last_error
        assert type(twin.last_error) in (type(cause), SummaryError)
        assert (twin.last_error is None) == (cause is None)


@pytest.mark.parametrize(
    "cause", [KeywordOnly(code=7), Unpicklable(), CAUSES[5]], ids=lambda cause: type(cause).__name__
)
def test_a_cause_that_does_not_survive_is_summed_up(cause: Exception) -> None:
    twin = pickle.loads(pickle.dumps(RetriesExhausted("max_attempts", 2, cause)))
    assert isinstance(twin.last_error, SummaryError)
    assert twin.last_error.error_type.endswith(type(cause).__name__)
    assert twin.last_error.text == str(cause)


@pytest.mark.parametrize(
    "error",
    [
        ApiError(429, "slow", 2.5), ApiError(503), ResultRejected({"a": 1}), ResultRejected(), CircuitOpenError(4.5),
        CircuitOpenError(), SummaryError("pkg.Error", "its text"), DeadlineExceeded("deadline", 0, None, elapsed=2.0),
    ],
    ids=repr,
)  # fmt: skip
def test_every_other_error_keeps_type_text_and_facts(way: Callable[[Any], Any], error: Exception) -> None:
    twin = way(error)
    assert type(twin) is type(error)
    assert (str(twin), repr(twin), twin.args) == (str(error), repr(error), error.args)
    assert {k: v for k, v in vars(twin).items() if k != "__notes__"} == vars(error)


@pytest.mark.parametrize("cause", CAUSES[1:5], ids=lambda cause: type(cause).__name__)
def test_an_error_that_a_call_raised_survives(form: Callable[..., Any], cause: Exception) -> None:
    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        form(Flaky(then=cause), max_attempts=3, retryable=Exception)
    twin = pickle.loads(pickle.dumps(caught.value))
    assert (twin.attempts, twin.waited, twin.history) == (3, caught.value.waited, caught.value.history)


def test_an_error_raised_by_choice_as_itself_survives_with_its_note(form: Callable[..., Any]) -> None:
    with FakeTime(), pytest.raises(ApiError) as caught:
        form(Flaky(then=ApiError(503, "busy")), max_attempts=3, reraise=True)
    twin = pickle.loads(pickle.dumps(caught.value))
    assert (twin.status, twin.message, twin.__notes__) == (503, "busy", caught.value.__notes__)


def test_a_marked_error_from_elsewhere_is_not_retried_again(form: Callable[..., Any]) -> None:
    with FakeTime(), pytest.raises(ApiError) as caught:
        form(Flaky(then=ApiError(503)), max_attempts=3, reraise=True)
    fn = Flaky(then=pickle.loads(pickle.dumps(caught.value)))
    with FakeTime(), pytest.raises(ApiError):
        form(fn, max_attempts=3)
    assert fn.calls == 1


def test_a_chain_of_final_errors_is_pickled_in_reasonable_time() -> None:
    error: BaseException = ConnectionError()
    for _ in range(8):
        error = RetriesExhausted("max_attempts", 1, error)
    depth = 0
    twin: Any = pickle.loads(pickle.dumps(error))
    while isinstance(twin, RetryError):
        depth, twin = depth + 1, twin.last_error
    assert (depth, type(twin)) == (8, ConnectionError)
