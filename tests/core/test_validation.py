"""What a duration, a count, a share and a flag may be, and what a message says about anything else."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from enum import IntEnum

import pytest

from forbear.core.validation import count, flag, number, optional_seconds, refuse_unknown, seconds, share


class Size(IntEnum):
    SMALL = 2


class Length:
    """Something that knows its length, but is no timedelta."""

    def __init__(self, length: object) -> None:
        self.length = length

    def total_seconds(self) -> object:
        return self.length


class Labelled:
    total_seconds = 5.0


@pytest.mark.parametrize("value", [0, 3, -2.5, math.inf, -math.inf, Size.SMALL])
def test_a_number_becomes_a_float(value: float) -> None:
    result = number("x", value)
    assert result == value
    assert type(result) is float


@pytest.mark.parametrize(
    ("value", "type_name"), [(True, "bool"), ("5", "str"), (None, "NoneType"), (Decimal(5), "Decimal"), (b"5", "bytes")]
)
def test_what_is_no_number_is_refused_by_the_name_of_its_type(value: object, type_name: str) -> None:
    with pytest.raises(ValueError, match=rf"^x must be a number, not {type_name}$"):
        number("x", value)


def test_nan_is_no_number() -> None:
    with pytest.raises(ValueError, match=r"^x must be a number, not NaN$"):
        number("x", math.nan)


def test_an_integer_too_large_for_a_float_is_refused_without_its_digits() -> None:
    with pytest.raises(ValueError, match=r"^x is too large$") as caught:
        number("x", 10**400)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("value", [1.5, timedelta(milliseconds=1500), Length(1.5)])
def test_a_duration_is_a_number_or_knows_its_seconds(value: object) -> None:
    assert seconds("x", value) == 1.5


def test_a_number_of_seconds_may_be_zero_and_endless_unless_that_is_ruled_out() -> None:
    assert seconds("x", 0) == 0.0
    assert seconds("x", math.inf) == math.inf
    with pytest.raises(ValueError, match=r"^x is 0, which leaves no time at all; pass None for no limit$"):
        seconds("x", 0, zero=False)
    with pytest.raises(ValueError, match=r"^x must be finite"):
        seconds("x", math.inf, endless=False)
    assert seconds("x", 1e-9, zero=False) == 1e-9
    assert seconds("x", 1e300, endless=False) == 1e300


@pytest.mark.parametrize("value", [-1, -1e-9, -math.inf, timedelta(seconds=-1)])
def test_a_negative_duration_is_refused_with_the_correction(value: object) -> None:
    with pytest.raises(ValueError, match=r"^x is -.*pass max\(0, rest\)$"):
        seconds("x", value)


@pytest.mark.parametrize("value", [Length("soon"), Length(math.nan), Length(True), Labelled(), "5"])
def test_a_length_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^x must be a number, not "):
        seconds("x", value)


def test_none_and_infinity_both_mean_no_limit() -> None:
    assert optional_seconds("x", None) is None
    assert optional_seconds("x", math.inf) is None
    assert optional_seconds("x", timedelta(minutes=1)) == 60.0


def test_an_optional_duration_is_checked_like_any_other() -> None:
    assert optional_seconds("x", 0) == 0.0
    with pytest.raises(ValueError, match=r"^x is 0"):
        optional_seconds("x", 0, zero=False)
    with pytest.raises(ValueError, match=r"^x is -1"):
        optional_seconds("x", -1)


@pytest.mark.parametrize("value", [1, 2, 10**400, Size.SMALL])
def test_a_count_is_an_integer_of_at_least_one(value: int) -> None:
    assert count("n", value) == value


@pytest.mark.parametrize(("value", "type_name"), [(True, "bool"), (1.0, "float"), ("1", "str"), (None, "NoneType")])
def test_a_count_is_never_anything_but_an_integer(value: object, type_name: str) -> None:
    with pytest.raises(ValueError, match=rf"^n must be a whole number, not {type_name}$"):
        count("n", value)


@pytest.mark.parametrize("value", [0, -1])
def test_a_count_below_one_is_refused_with_the_reason(value: int) -> None:
    with pytest.raises(ValueError, match=rf"^n is {value}: it counts attempts, the first included"):
        count("n", value)


@pytest.mark.parametrize("value", [0, 0.5, 1, 1.0])
def test_a_share_includes_both_ends(value: float) -> None:
    assert share("p", value) == value


@pytest.mark.parametrize("value", [-0.001, 1.001, math.inf, -math.inf])
def test_a_share_outside_zero_and_one_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"^p is .*; it must lie between 0 and 1$"):
        share("p", value)


def test_a_share_is_a_number() -> None:
    with pytest.raises(ValueError, match=r"^p must be a number, not bool$"):
        share("p", True)


@pytest.mark.parametrize("value", [True, False])
def test_a_flag_is_a_real_bool(value: bool) -> None:
    assert flag("f", value) is value


@pytest.mark.parametrize(("value", "type_name"), [(1, "int"), (0, "int"), ("yes", "str"), (None, "NoneType")])
def test_a_truthy_value_is_no_flag(value: object, type_name: str) -> None:
    with pytest.raises(ValueError, match=rf"^f must be True or False, not {type_name}$"):
        flag("f", value)


def test_an_option_that_does_not_exist_is_answered_with_the_one_that_is_meant() -> None:
    refuse_unknown("Upstream", {}, {})
    with pytest.raises(TypeError, match=r"^Upstream has no option rpm=; use requests_per_minute$"):
        refuse_unknown("Upstream", {"rpm": 5}, {"rpm": "requests_per_minute"})
    with pytest.raises(TypeError, match=r"^Upstream has no option colour=$"):
        refuse_unknown("Upstream", {"colour": 5}, {"rpm": "requests_per_minute"})
