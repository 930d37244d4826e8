"""The errors in an error: the leaves of a group, and what an error was made from."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forbear.classify.groups import MOST, MOST_IN_GROUPS, leaves, made_from, with_origins
from foreign import WebError, caught, chained, foreign

A, B, C, D = ValueError("a"), ValueError("b"), ValueError("c"), ValueError("d")


@pytest.fixture(autouse=True)
def unchained() -> None:
    for error in (A, B, C, D):
        error.__cause__ = error.__context__ = error.__traceback__ = None


def origins(error: BaseException, *, contexts: bool = False) -> list[BaseException]:
    return list(made_from(error, contexts=contexts))


# ---- groups ------------------------------------------------------------------------------------------------------


def test_the_leaves_of_a_group_come_in_their_order() -> None:
    inner = ExceptionGroup("inner", [B, ExceptionGroup("innermost", [C])])
    assert list(leaves(ExceptionGroup("outer", [A, inner, D]))) == [A, B, C, D]


def test_an_error_that_is_in_it_twice_is_seen_once() -> None:
    inner = ExceptionGroup("inner", [A])
    assert list(leaves(ExceptionGroup("outer", [A, inner, inner, A, B]))) == [A, B]


def test_what_must_leave_is_a_leaf_too() -> None:
    leaving = KeyboardInterrupt()
    assert list(leaves(BaseExceptionGroup("outer", [A, leaving]))) == [A, leaving]


def test_a_group_that_holds_itself_has_no_leaves() -> None:
    class Circle(ExceptionGroup[Exception]):
        exceptions = property(lambda self: (self,))  # type: ignore[assignment]

    assert list(leaves(Circle("circle", [A]))) == []


def test_no_more_errors_are_looked_at_than_the_bound() -> None:
    many = ExceptionGroup("many", [ValueError(number) for number in range(10_000)])
    *found, last = leaves(many)
    assert found == list(many.exceptions[: MOST_IN_GROUPS - 1])
    assert "too large" in str(last)
    deep: Exception = A
    for _ in range(10_000):
        deep = ExceptionGroup("deep", [deep])
    assert isinstance(deep, ExceptionGroup)
    assert list(map(str, leaves(deep))) == [str(last)]


# ---- origins -----------------------------------------------------------------------------------------------------


def test_an_error_made_from_nothing_has_no_origins() -> None:
    assert origins(A) == origins(A, contexts=True) == []


def test_causes_are_followed_the_nearest_first() -> None:
    assert origins(chained(A, B, C)) == [B, C]


@pytest.mark.parametrize("name", ["reason", "inner_exception", "original_exception", "os_error"])
def test_an_attribute_may_hold_the_origin(name: str) -> None:
    assert origins(WebError(**{name: chained(A, B)})) == [A, B]
    for noise in (None, "timed out", ValueError, [A]):
        assert origins(WebError(**{name: noise})) == []


def test_the_cause_comes_before_the_attributes() -> None:
    error = WebError(reason=B, os_error=C)
    error.__cause__ = A
    assert origins(error) == [A, B, C]


def test_each_origin_is_followed_to_its_end_before_the_next() -> None:
    error = WebError(reason=C, os_error=B)
    error.__cause__ = chained(A, D)
    assert origins(error) == [A, D, C, B]


@pytest.mark.parametrize("suppressed", [False, True])
def test_what_was_caught_where_an_error_was_raised_is_followed_only_where_it_is_asked_for(suppressed: bool) -> None:
    error = caught(WebError, B, suppressed=suppressed)
    assert error.__context__ is B
    assert origins(error) == []
    assert origins(error, contexts=True) == [B]


def test_what_a_caller_was_handling_further_up_is_not() -> None:
    def call() -> None:
        raise A

    with pytest.raises(ValueError, match="a") as found:
        try:
            raise B
        except ValueError:
            call()
    assert found.value is A
    assert A.__context__ is B
    assert origins(A, contexts=True) == []


def test_an_error_that_was_never_raised_has_no_place_to_compare() -> None:
    A.__context__ = B
    assert origins(A, contexts=True) == []
    A.__traceback__ = caught(WebError, C).__traceback__
    assert origins(A, contexts=True) == []
    A.__traceback__ = None


def test_one_library_loses_the_place_and_is_believed_without_it() -> None:
    error = foreign("APIConnectionError", "litellm.exceptions")()
    error.__context__ = B
    assert origins(error, contexts=True) == [B]
    assert origins(error) == []


def test_an_error_comes_with_all_that_it_was_made_from() -> None:
    assert list(with_origins(chained(A, B))) == [A, B]
    chained(C, D)
    assert list(with_origins(ExceptionGroup("several", [A, ExceptionGroup("inner", [C])]))) == [A, B, C, D]
    handled = caught(WebError, D)
    assert list(with_origins(handled)) == [handled]


def test_an_attribute_that_can_not_be_read_holds_nothing() -> None:
    class Broken(Exception):
        @property
        def reason(self) -> Exception:
            raise RuntimeError

    assert origins(Broken()) == []


def own_cause() -> None:
    A.__cause__ = A


def two_in_a_circle() -> None:
    A.__cause__, B.__cause__ = B, A


def a_context_that_leads_back() -> None:
    A.__cause__, B.__cause__ = B, caught(lambda: C, A)


@pytest.mark.parametrize(
    ("tie", "found"), [(own_cause, []), (two_in_a_circle, [B]), (a_context_that_leads_back, [B, C])]
)
def test_a_circle_is_walked_once(tie: Callable[[], None], found: list[BaseException]) -> None:
    tie()
    assert origins(A, contexts=True) == found


def test_no_more_origins_are_looked_at_than_the_bound() -> None:
    chain = [ValueError(number) for number in range(10_000)]
    chained(*chain)
    assert origins(chain[0]) == chain[1:MOST]
