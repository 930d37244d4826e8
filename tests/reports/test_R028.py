"""R028: a client that moves to a successor of its HTTP package, with the same class names, must stay recognised."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear import Classifier, Kind, RetriesExhausted, Rule, classify, retry_sync
from forbear.testing import FakeTime, Flaky
from foreign import chained, foreign

Form = Callable[..., Any]

BOTH = ["httpx", "httpx2", "httpcore", "httpcore2"]
MEANINGS: dict[str, tuple[Kind, str]] = {
    "ConnectError": (Kind.CONNECTION_REFUSED, "no"),
    "ConnectTimeout": (Kind.TIMEOUT, "no"),
    "PoolTimeout": (Kind.POOL_FULL, "no"),
    "TimeoutException": (Kind.TIMEOUT, "maybe"),
    "NetworkError": (Kind.CONNECTION_LOST, "maybe"),
    "RemoteProtocolError": (Kind.CONNECTION_LOST, "maybe"),
}


def look_alike(name: str, package: str) -> Exception:
    return foreign(name, f"{package}._exceptions")()  # type: ignore[no-any-return]


@pytest.mark.parametrize("package", BOTH)
def test_the_look_alikes_of_all_packages_mean_the_same(package: str) -> None:
    for name, meaning in MEANINGS.items():
        failure = classify(look_alike(name, package))
        assert (failure.kind, failure.executed) == meaning
        assert failure.transient


@pytest.mark.parametrize("package", BOTH)
def test_an_sdk_that_wraps_them_is_retried_with_either(form: Form, package: str) -> None:
    for name in MEANINGS:
        error = chained(foreign("APIConnectionError", "openai")(), look_alike(name, package))
        fn = Flaky(then=error)
        with FakeTime(), pytest.raises(RetriesExhausted):
            form(fn, max_attempts=2)
        assert fn.calls == 2


def test_classes_made_here_and_real_ones_mean_the_same() -> None:
    for real in (
        httpx.ConnectError(""),
        httpx.ConnectTimeout(""),
        httpx.PoolTimeout(""),
        httpx.RemoteProtocolError(""),
    ):
        mine = classify(look_alike(type(real).__name__, "httpx2"))
        found = classify(real)
        assert (found.kind, found.executed, found.transient) == (mine.kind, mine.executed, mine.transient)


def test_what_is_not_installed_is_not_imported() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('httpx', 'httpx2', 'httpcore', 'httpcore2', 'openai')))\n"
        "from forbear import classify\n"
        "kind = type('ConnectError', (Exception,), {'__module__': 'httpx2'})\n"
        "print(classify(kind()).transient, sys.modules['httpx2'])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True None"


OLD: Any = foreign("ReadTimeout", "kitchen_web._exceptions", foreign("TimeoutException", "kitchen_web._exceptions"))
NEW: Any = foreign("ReadTimeout", "kitchen_web2._exceptions", foreign("TimeoutException", "kitchen_web2._exceptions"))
SDK: Any = foreign("APIConnectionError", "openai")


def naming(*names: str) -> Rule:
    return Rule(kind=Kind.TIMEOUT, source="ours", classes=frozenset(names))


def test_a_rule_for_the_old_package_is_told_when_errors_of_the_new_one_come(form: Form) -> None:
    """As where the SDK has moved on: the rule matches nothing any more, and nothing else would say so."""
    ours = Classifier([naming("kitchen_web.ReadTimeout")])
    fn = Flaky(chained(SDK(), NEW()), "done")
    with FakeTime(), pytest.warns(UserWarning, match="kitchen_web2.ReadTimeout: if both are meant, name both") as told:
        assert form(fn, retryable=ours) == "done"
    assert len(told) == 1
    with FakeTime(), warnings.catch_warnings():
        warnings.simplefilter("error")
        form(Flaky(chained(SDK(), NEW()), "done"), retryable=ours)


def test_a_rule_that_names_both_is_not(form: Form) -> None:
    ours = Classifier([naming("kitchen_web.ReadTimeout", "kitchen_web2.ReadTimeout")])
    with FakeTime(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for error in (OLD(), NEW(), chained(SDK(), NEW())):
            assert form(Flaky(error, "done"), retryable=ours) == "done"


def test_a_rule_on_a_class_that_does_not_exist_is_told_at_once_where_it_is_a_slip_of_the_pen() -> None:
    for name, meant in (("httpx.ReadTimout", "httpx.ReadTimeout"), ("asyncio.TimeoutError", "builtins.TimeoutError")):
        with pytest.warns(UserWarning, match=f"{name}, which does not exist .{meant} does"):
            Classifier([naming(name)])


@pytest.mark.parametrize("name", ["kitchen_late.ReadTimout", "kitchen_late.Busy"])
def test_else_when_the_first_error_of_the_package_comes(name: str) -> None:
    ours = Classifier([naming(name)])
    late: Any = foreign("ReadTime", "kitchen_late._exceptions")
    fn = Flaky(then=late())
    with FakeTime(), pytest.warns(UserWarning, match=f"{name}, which does not exist"), pytest.raises(late):
        retry_sync(fn, retryable=ours)
    assert fn.calls == 1


@pytest.mark.parametrize("name", ["ReadTimeout", "httpx._exceptions.ReadTimeout"])
def test_a_name_that_no_class_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="write the package and the class alone"):
        naming(name)


def test_to_find_that_out_nothing_is_imported() -> None:
    code = (
        "import sys, warnings; warnings.simplefilter('error')\n"
        "from forbear import Classifier, Kind, Rule\n"
        "names = frozenset({'httpx.ReadTimout', 'openai.Nothing', 'not_installed.Error'})\n"
        "ours = Classifier([Rule(kind=Kind.TIMEOUT, source='ours', classes=names)])\n"
        "ours(ConnectionError())\n"
        "print({'httpx', 'openai', 'not_installed'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_same_names_in_any_other_package_mean_nothing() -> None:
    for name in MEANINGS:
        assert classify(look_alike(name, "httpx3")).kind is Kind.UNKNOWN
