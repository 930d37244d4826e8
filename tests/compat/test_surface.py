"""The names, parameters and defaults are those of the library itself."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forbear.compat import retryhop as ours

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
SUBMODULES = ("backoff", "circuit", "core", "llm", "ratelimit")
NAMES = {
    "CircuitBreaker", "CircuitOpenError", "RETRYABLE_STATUS", "RateLimiter", "RetryError", "RetryState", "__version__",
    "constant", "describe", "exponential", "is_transient", "linear", "llm_retry", "retry", "retry_after_of",
    "retry_call", "status_code_of",
}  # fmt: skip
EMPTY = inspect.Parameter.empty


def parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def same_parameters(theirs: Any, mine: Any) -> None:
    """All of theirs, in their order; what is added has a default."""
    wanted, found = parameters(theirs), parameters(mine)
    assert [(one.name, one.kind) for one in wanted] == [(one.name, one.kind) for one in found[: len(wanted)]]
    for one, other in zip(wanted, found, strict=False):
        assert one.default in (EMPTY, other.default), one
    assert all(one.default is not EMPTY for one in found[len(wanted) :])


def test_the_names_are_all_there(hop: Any) -> None:
    assert set(hop.__all__) == NAMES
    assert all(hasattr(hop, name) for name in NAMES)
    assert hop.__version__ == "0.1.1"
    assert sorted(hop.RETRYABLE_STATUS) == [408, 409, 429, 500, 502, 503, 504, 529]


@pytest.mark.parametrize("name", sorted(NAMES - {"RETRYABLE_STATUS", "__version__"}))
def test_every_name_takes_the_parameters_of_the_original(name: str, original: Any) -> None:
    same_parameters(getattr(original, name), getattr(ours, name))


@pytest.mark.parametrize("kind", ["RateLimiter", "CircuitBreaker"])
def test_every_method_takes_the_parameters_of_the_original(kind: str, original: Any) -> None:
    theirs, mine = getattr(original, kind), getattr(ours, kind)
    for name, method in vars(theirs).items():
        if not name.startswith("_"):
            assert hasattr(mine, name), name
            if callable(method):
                same_parameters(method, getattr(mine, name))


def test_an_object_has_the_attributes_of_the_original(hop: Any) -> None:
    breaker = hop.CircuitBreaker(3, 12.5)
    assert (breaker.failure_threshold, breaker.recovery_time, breaker.state) == (3, 12.5, "closed")
    assert (breaker.CLOSED, breaker.OPEN, breaker.HALF_OPEN) == ("closed", "open", "half_open")
    error = hop.RetryError(3, ValueError("no"), None)
    assert (error.attempts, str(error.last_exception), error.last_result) == (3, "no", None)
    assert hop.CircuitOpenError(2.5).retry_in == 2.5
    assert isinstance(error, Exception)


def test_a_state_is_a_frozen_dataclass_with_the_fields_in_order(hop: Any) -> None:
    error = ValueError()
    state = hop.RetryState(1, 2.0, error, None, 0.5)
    names = [each.name for each in dataclasses.fields(state)]
    assert names == ["attempt", "delay", "exception", "result", "elapsed", "from_server"]
    assert dataclasses.astuple(state)[:2] == (1, 2.0)
    assert (state.from_server, hop.RetryState(1, 2.0, error, None, 0.5, True).from_server) == (False, True)
    assert state == hop.RetryState(1, 2.0, error, None, 0.5, from_server=False)
    assert dataclasses.replace(state, attempt=4).attempt == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.attempt = 2


@pytest.mark.parametrize("name", SUBMODULES)
def test_the_submodules_have_their_public_names(name: str, original: Any) -> None:
    theirs = importlib.import_module(f"retryhop.{name}")
    mine = importlib.import_module(f"forbear.compat.retryhop.{name}")
    assert getattr(ours, name) is mine
    for public in vars(theirs):
        value = getattr(theirs, public)
        if not public.startswith("_") and getattr(value, "__module__", None) == theirs.__name__:
            assert hasattr(mine, public), public


def output(program: str, place: Path) -> str:
    place.write_text(program, encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", place], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_says_the_same_after_its_import_line_has_changed(path: Path, tmp_path: Path) -> None:
    program = path.read_text(encoding="utf-8")
    changed = program.replace("from retryhop import", "from forbear.compat.retryhop import")
    assert changed != program
    said = output(changed, tmp_path / path.name)
    assert said.count("\n") > 10
    pytest.importorskip("retryhop")
    assert output(program, tmp_path / path.name) == said
