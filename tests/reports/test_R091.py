"""R091: in a pool of workers the final error is pickled; where that fails the caller sees another, useless one."""

from __future__ import annotations

import copy
import importlib
import multiprocessing
import pickle
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from forbear import (
    ApiError,
    CircuitOpenError,
    DeadlineExceeded,
    Policy,
    ResultRejected,
    RetriesExhausted,
    RetryError,
    SummaryError,
    retry_sync,
)
from forbear.testing import FakeTime, Flaky

WORKER = '''
"""What the processes of the pool run."""
import asyncio
from forbear import ApiError, attempts, retry, retry_sync
from forbear.testing import FakeTime


class KeywordOnly(Exception):
    def __init__(self, *, code):
        super().__init__("keyword only")
        self.code = code


class Unpicklable(ConnectionError):
    def __init__(self):
        super().__init__("unpicklable")
        self.connection = lambda: None


MAKE = {
    "built-in": lambda: ConnectionError("down"),
    "api": lambda: ApiError(503, "busy", 2.0),
    "keyword only": lambda: KeywordOnly(code=7),
    "unpicklable": Unpicklable,
    "group": lambda: ExceptionGroup("two", [ConnectionError("a"), ConnectionError("b")]),
}


def fail(name, **options):
    def failing():
        raise MAKE[name]()

    with FakeTime(rng=lambda: 1.0):
        return retry_sync(failing, retryable=Exception, max_attempts=3, **options)


def fail_async(name, **options):
    async def failing():
        raise MAKE[name]()

    with FakeTime(rng=lambda: 1.0):
        return asyncio.run(retry(failing, retryable=Exception, max_attempts=3, **options))


def fail_in_block(name, **options):
    with FakeTime(rng=lambda: 1.0):
        for attempt in attempts(retryable=Exception, max_attempts=3, **options):
            with attempt:
                raise MAKE[name]()


def refuse(value):
    with FakeTime(rng=lambda: 1.0):
        return retry_sync(lambda: value, retry_if_result=lambda _: True, max_attempts=2)


calls = 0


def fail_with_a_mark():
    global calls
    calls += 1
    return fail("api", reraise=True)
'''
NAMES = ["built-in", "api", "keyword only", "unpicklable", "group"]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Generator[ModuleType]:
    """A module that the processes of a pool can import."""
    folder: Path = tmp_path_factory.mktemp("pool")
    (folder / "forbear_pool_worker.py").write_text(WORKER)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("forbear_pool_worker")


@pytest.fixture(scope="module")
def pool(worker: ModuleType) -> Generator[ProcessPoolExecutor]:
    """Fresh processes that share nothing with this one."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["fail", "fail_async", "fail_in_block"])
def test_a_final_error_comes_out_of_the_pool_with_its_facts(
    pool: ProcessPoolExecutor, worker: ModuleType, how: str, name: str
) -> None:
    error = pool.submit(getattr(worker, how), name).exception(timeout=60)
    assert type(error) is RetriesExhausted
    assert (error.reason, error.attempts, len(error.history)) == ("max_attempts", 3, 3)
    assert error.waited == pytest.approx(1.5 if name != "api" else 4.0)
    assert type(error.last_error) in (type(worker.MAKE[name]()), SummaryError)
    assert (type(error.last_error) is SummaryError) == (name in ("keyword only", "unpicklable"))
    assert "gave up after 3 attempts" in str(error)


@pytest.mark.parametrize("name", ["built-in", "api", "group"])
def test_an_error_raised_as_itself_comes_out_as_itself(
    pool: ProcessPoolExecutor, worker: ModuleType, name: str
) -> None:
    error = pool.submit(worker.fail, name, reraise=True).exception(timeout=60)
    assert type(error) is type(worker.MAKE[name]())
    assert any("gave up after attempt 3" in note for note in error.__notes__)


def test_the_other_errors_come_out_as_well(pool: ProcessPoolExecutor, worker: ModuleType) -> None:
    late = pool.submit(worker.fail, "built-in", deadline=1.0).exception(timeout=60)
    assert type(late) is DeadlineExceeded
    assert isinstance(late, TimeoutError)
    refused: Any = pool.submit(worker.refuse, [1, 2]).exception(timeout=60)
    assert (type(refused), refused.last_result) == (RetriesExhausted, [1, 2])


@pytest.mark.parametrize("reraise", [True, False])
def test_what_a_process_has_retried_to_the_end_is_not_retried_again_outside(
    pool: ProcessPoolExecutor, worker: ModuleType, reraise: bool
) -> None:
    submitted = []

    def call() -> Any:
        submitted.append(1)
        return pool.submit(worker.fail, "built-in", reraise=reraise).result(timeout=60)

    with FakeTime(), pytest.raises((RetriesExhausted, ConnectionError)):
        retry_sync(call, retryable=Exception, max_attempts=3, deadline=None, attempt_timeout=None)
    assert len(submitted) == 1


@pytest.mark.parametrize("trip", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("name", NAMES)
def test_a_round_trip_at_home_keeps_the_same(worker: ModuleType, trip: Callable[[Any], Any], name: str) -> None:
    with pytest.raises(RetriesExhausted) as caught:
        worker.fail(name)
    error, twin = caught.value, trip(caught.value)
    assert twin is not error
    for fact in ("reason", "attempts", "elapsed", "waited", "hint", "history"):
        assert getattr(twin, fact) == getattr(error, fact)
    assert trip(twin).history == error.history


@pytest.mark.parametrize(
    "error",
    [ApiError(503, "busy", 2.0), ResultRejected({"a": 1}), CircuitOpenError(2.0), SummaryError("pkg.Error", "t")],
)
def test_the_small_ones_keep_their_facts(error: Exception) -> None:
    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))


def test_policies_and_decorated_functions_of_a_module_can_be_sent_too(
    pool: ProcessPoolExecutor, worker: ModuleType
) -> None:
    policy = Policy(max_attempts=2, base=0.1, cap=0.2)
    assert pool.submit(Policy.replace, policy, max_attempts=7).result(timeout=60) == policy.replace(max_attempts=7)
    error = pool.submit(worker.fail, "built-in", policy=policy).exception(timeout=60)
    assert isinstance(error, RetryError)


def test_a_cause_that_refuses_even_its_text_is_summed_up() -> None:
    class Mute(ConnectionError):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        retry_sync(Flaky(then=Mute()))
    twin = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(twin.last_error, SummaryError)
    assert "Mute" in twin.last_error.error_type
