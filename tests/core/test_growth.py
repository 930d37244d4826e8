"""Waits grow as they are told to, whatever the number of the attempt."""

from __future__ import annotations

import math

import pytest

from forbear.core.growth import Custom, Exponential, Linear, Listed


def test_an_exponential_growth_doubles_exactly() -> None:
    assert [Exponential(0.5, 2.0)(n) for n in (1, 2, 3, 10)] == [0.5, 1.0, 2.0, 256.0]


@pytest.mark.parametrize("growth", [Exponential(0.0, 2.0), Exponential(0.5, 1.0), Linear(0.5, 0.0)])
def test_what_does_not_grow_stays_what_it_is(growth: Exponential | Linear) -> None:
    assert {growth(n) for n in (1, 1025, 10**9, 10**400)} == {growth(1)}


def test_a_power_that_overflows_may_be_small_again_beside_a_tiny_base() -> None:
    assert Exponential(2.0**-1000, 2.0)(1101) == 2.0**100
    assert Exponential(2.0**-1000, 2.0)(10**9) == math.inf
    assert Exponential(0.5, 2.0)(10**400) == math.inf


def test_a_linear_growth_adds_the_same_each_time() -> None:
    assert [Linear(1.0, 2.0)(n) for n in (1, 2, 5)] == [1.0, 3.0, 9.0]
    assert Linear(1.0, 2.0)(10**400) == math.inf


def test_a_list_ends_with_its_last_delay_for_ever() -> None:
    assert [Listed((1.0, 5.0))(n) for n in (1, 2, 3, 10**400)] == [1.0, 5.0, 5.0, 5.0]


def test_a_function_is_asked_and_checked() -> None:
    def tenths(attempt: int) -> float:
        return attempt / 10

    assert Custom(tenths)(3) == 0.3
    with pytest.raises(ValueError, match=r"backoff function .*<lambda> returned for attempt 2"):
        Custom(lambda _: -1.0)(2)

    class Callable:
        def __call__(self, attempt: int) -> float:
            return math.nan

    with pytest.raises(ValueError, match="backoff function Callable"):
        Custom(Callable())(1)
