"""Rules that name a class which no error can have are doubted, once, when that is certain, and nothing is imported."""

from __future__ import annotations

import asyncio
import socket
import warnings
from typing import Any

import httpx
import pytest

from forbear.classify.doubts import Doubts, existing_errors, warn_of
from forbear.classify.facts import Facts
from forbear.classify.rules import Rule
from forbear.core.failure import Kind
from foreign import foreign

assert asyncio.InvalidStateError
assert socket.gaierror
BUSY: Any = foreign("KitchenIsBusy", "dubious.errors")
CLOSED: Any = foreign("KitchenIsClosed", "dubious.errors", BUSY)


def doubts(*names: str) -> Doubts:
    return Doubts([Rule(kind=Kind.OVERLOADED, source="a test", classes=frozenset({name})) for name in names])


def told(*names: str) -> list[str]:
    return list(doubts(*names).at_once())


def test_without_classes_there_is_nothing_to_doubt() -> None:
    nothing = Doubts([Rule(kind=Kind.AUTH, source="a test", codes=frozenset({"a"}))])
    assert not nothing
    assert list(nothing.at_once()) == []
    assert doubts("dubious.KitchenIsBusy")


def test_classes_that_exist_are_not_doubted() -> None:
    names = [
        "httpx.ReadTimeout",
        "httpx.HTTPError",
        "builtins.TimeoutError",
        "socket.gaierror",
        "builtins.ConnectionError",
    ]
    assert told(*names, "dubious.KitchenIsBusy", "dubious.KitchenIsClosed") == []
    assert httpx.ReadTimeout


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("httpx.ReadTimout", "httpx.ReadTimeout"),
        ("httpx.readTimeout", "httpx.ReadTimeout"),
        ("httpx.ReadTimeOut", "httpx.ReadTimeout"),
        ("httpx.TimeoutExceptions", "httpx.TimeoutException"),
        ("asyncio.TimeoutError", "builtins.TimeoutError"),
        ("builtins.TimoutError", "builtins.TimeoutError"),
        ("socket.gaierrors", "socket.gaierror"),
    ],
)
def test_a_slip_of_the_pen_is_told_at_once_with_what_was_meant(name: str, meant: str) -> None:
    open_ones = doubts(name)
    wanted = [f"a rule names {name}, which does not exist ({meant} does): it can never match"]
    assert list(open_ones.at_once()) == wanted
    assert list(open_ones.at_once()) == []
    assert list(open_ones.about(Facts(httpx.ReadError("")))) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("dubious.KitchenBusy", " (dubious.KitchenIsBusy does)"),
        ("dubious.TimeoutError", " (builtins.TimeoutError does)"),
        ("dubious.Xyz", ""),
    ],
)
def test_another_name_may_belong_to_a_part_that_is_not_loaded_yet_and_is_told_later(name: str, meant: str) -> None:
    open_ones = doubts(name)
    assert list(open_ones.at_once()) == []
    assert list(open_ones.about(Facts(TimeoutError()))) == []
    wanted = [f"a rule names {name}, which does not exist{meant}: it can never match"]
    assert list(open_ones.about(Facts(CLOSED()))) == wanted
    assert list(open_ones.about(Facts(CLOSED()))) == []


def test_a_class_that_is_made_after_the_rule_is_not_doubted() -> None:
    open_ones = doubts("dubious.MadeLater")
    assert list(open_ones.at_once()) == []
    later: Any = foreign("MadeLater", "dubious.errors")
    assert later
    assert list(open_ones.about(Facts(BUSY()))) == []


def test_a_package_that_is_not_loaded_is_not_judged_and_not_loaded() -> None:
    assert told("never_loaded.Busy") == []


@pytest.mark.parametrize("package", ["google", "azure", "botocore"])
def test_nor_is_one_of_which_a_part_may_be_missing(package: str) -> None:
    loaded: Any = foreign("ClientError", f"{package}.errors")
    open_ones = doubts(f"{package}.ThrottlingException")
    assert list(open_ones.at_once()) == []
    assert list(open_ones.about(Facts(loaded()))) == []


def test_a_package_that_is_loaded_later_is_judged_when_its_first_error_comes() -> None:
    late = doubts("dubious_late.Busy", "dubious_late.Buzy", "dubious_other.Full")
    assert list(late.at_once()) == []
    busy: Any = foreign("Busy", "dubious_late.errors")
    assert list(late.about(Facts(ValueError()))) == []
    assert list(late.about(Facts(busy()))) == [
        "a rule names dubious_late.Buzy, which does not exist (dubious_late.Busy does): it can never match"
    ]
    assert list(late.about(Facts(busy()))) == []


def test_a_class_of_the_package_that_is_no_error_judges_nothing() -> None:
    class Mixin:
        __module__ = "dubious_mixin"

    mixed = type("Mixed", (Exception, Mixin), {"__module__": "mine"})
    assert list(doubts("dubious_mixin.Busy").about(Facts(mixed()))) == []


@pytest.mark.parametrize(
    ("named", "came"),
    [
        ("dubious_one.Late", "dubious_one2.Late"),
        ("dubious_one2.Late", "dubious_one.Late"),
        ("dubius_two.Late", "dubious_two.Late"),
    ],
)
def test_a_look_alike_of_a_successor_is_doubted_once(named: str, came: str) -> None:
    package, _, name = came.partition(".")
    look_alike = Facts(foreign(name, package)())
    open_ones = doubts(named)
    assert list(open_ones.about(look_alike)) == [
        f"a rule names {named}, but what has come is {came}: if both are meant, name both"
    ]
    assert list(open_ones.about(look_alike)) == []


def test_the_same_name_in_another_library_is_another_class() -> None:
    open_ones = doubts("openai_like.RateLimitError")
    assert list(open_ones.about(Facts(foreign("RateLimitError", "anthropic_like")()))) == []
    assert list(open_ones.about(Facts(foreign("RateLimitErrors", "openai_liker")()))) == []


def test_all_exception_classes_are_known_also_in_circles_and_with_odd_modules() -> None:
    odd = foreign("Odd", "dubious")
    odd.__module__ = None
    both = type("Both", (CLOSED, ConnectionError), {"__module__": "dubious.x"})
    known = existing_errors()
    assert {"KitchenIsBusy", "KitchenIsClosed", "Both"} <= known["dubious"]
    assert "Odd" in known["None"]
    assert {"BaseException", "KeyboardInterrupt"} <= known["builtins"]
    assert both


def test_doubts_are_told_as_warnings_of_whoever_made_the_rules() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of(["one", "two"], level=1)
    assert [(str(one.message), one.category, one.filename) for one in caught] == [
        ("one", UserWarning, __file__), ("two", UserWarning, __file__),
    ]  # fmt: skip
