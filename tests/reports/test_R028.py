"""R028: a client that moves to a successor of its HTTP package, with the same class names, must stay recognised."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear import Kind, RetriesExhausted, classify
from forbear.testing import FakeTime, Flaky
from foreign import chained, foreign

Form = Callable[..., Any]

BOTH = ["httpx", "httpx2", "httpcore", "httpcore2"]
MEANINGS: dict[str, tuple[Kind, str]] = {
    "ConnectError": (Kind.CONNECTION_REFUSED, "no"),
    "ConnectTimeout": (Kind.TIMEOUT, "no"),
    "PoolTimeout": (Kind.TIMEOUT, "no"),
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


def test_the_same_names_in_any_other_package_mean_nothing() -> None:
    for name in MEANINGS:
        assert classify(look_alike(name, "httpx3")).kind is Kind.UNKNOWN
