"""`llm_retry` in all its forms: the defaults are those of a call of an LLM, and every option replaces one."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from typing import Any

import pytest

from forbear import ApiError, CircuitOpenError, Policy, RetryError, constant, current_attempt, llm_retry
from forbear.calls.llm import LLM_POLICY
from forbear.testing import FakeTime, Flaky, Hang


def test_the_defaults_are_a_policy() -> None:
    wanted = Policy(
        max_attempts=6, attempt_timeout=None, deadline=300, base=1, cap=60, minimum_attempt=0.1, retry_after="instead",
        retry_after_jitter=0.25, max_retry_after=120, late_backoff="shorten",
    )  # fmt: skip
    assert wanted == LLM_POLICY
    assert LLM_POLICY.schedule(9) == (1, 2, 4, 8, 16, 32, 60, 60)


def test_a_function_stays_what_it_is() -> None:
    def ask(prompt: str, top: int = 1) -> str:
        """Asks."""
        return prompt * top

    for decorated in (llm_retry(ask), llm_retry()(ask), llm_retry(max_attempts=2)(ask)):
        assert (decorated.__name__, decorated.__doc__) == ("ask", "Asks.")
        assert inspect.signature(decorated) == inspect.signature(ask)
        assert not inspect.iscoroutinefunction(decorated)
        assert decorated("x", top=2) == "xx"


class Client:
    def __init__(self, flaky: Flaky) -> None:
        self.flaky = flaky

    @llm_retry
    def ask(self, prompt: str) -> Any:
        return prompt, self.flaky()

    @llm_retry
    async def fetch(self, prompt: str) -> Any:
        return prompt, self.flaky()

    @llm_retry(max_attempts=2)
    @classmethod
    def make(cls, flaky: Flaky) -> Client:
        return cls(flaky())

    @staticmethod
    @llm_retry
    def load(flaky: Flaky) -> Any:
        return flaky()


async def test_methods_of_every_kind_are_retried() -> None:
    with FakeTime():
        assert Client(Flaky(ApiError(503), "done")).ask("a") == ("a", "done")
        assert await Client(Flaky(ApiError(503), "done")).fetch(prompt="a") == ("a", "done")
        assert Client.make(Flaky(ApiError(503), "done")).flaky == "done"
        assert Client.load(Flaky(ApiError(503), "done")) == "done"
        assert inspect.iscoroutinefunction(Client.fetch)


async def test_other_callables_are_retried() -> None:
    with FakeTime():
        assert llm_retry(Flaky(ApiError(503), "done"))() == "done"
        assert llm_retry(functools.partial(Flaky(ApiError(503), "done"), 1))() == "done"
        flaky = Flaky(ApiError(503), "done")
        assert await llm_retry(lambda: flaky.asynchronous())() == "done"  # noqa: PLW0108  # that is the case


def test_a_decorated_function_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Client.ask)) is Client.ask


@pytest.mark.parametrize(("options", "sleeps"), [
    ({"base": 3, "cap": 5}, [1.5, 2.5, 2.5, 2.5, 2.5]),
    ({"backoff": constant(2)}, [2] * 5),
    ({"backoff": [1, 7]}, [1, 7, 7, 7, 7]),
    ({"backoff": lambda attempt: attempt}, [1, 2, 3, 4, 5]),
    ({"jitter": "equal"}, [0.75, 1.5, 3, 6, 12]),
    ({"max_attempts": 2}, [0.5]),
    ({"max_attempts": 3, "deadline": None}, [0.5, 1]),
    ({"deadline": 2, "backoff": constant(1.5), "late_backoff": "stop"}, [1.5]),
    ({"deadline": 2, "backoff": constant(1.5)}, [1.5, pytest.approx(0.4)]),
    ({"policy": Policy(max_attempts=3, jitter="none")}, [0.5, 1]),
    ({"policy": Policy(max_attempts=3, jitter="none"), "base": 4}, [4, 8]),
])  # fmt: skip
def test_every_option_replaces_a_default(options: dict[str, Any], sleeps: list[float]) -> None:
    with FakeTime(rng=lambda: 0.5) as time, pytest.raises(ApiError):
        llm_retry(**options)(Flaky(then=ApiError(503)))()
    assert time.sleeps == sleeps


@pytest.mark.parametrize(("options", "sleeps"), [
    ({}, [20.125]), ({"max_retry_after": 5}, [5.125]), ({"retry_after_jitter": 4}, [22]),
    ({"retry_after": "add", "base": 8}, [24.125]), ({"retry_after": "floor", "base": 60}, [30]),
    ({"max_retry_after": None, "retry_after_jitter": 0}, [20]),
])  # fmt: skip
def test_what_becomes_of_a_hint_is_an_option(options: dict[str, Any], sleeps: list[float]) -> None:
    with FakeTime(rng=lambda: 0.5) as time:
        assert llm_retry(**options)(Flaky(ApiError(429, retry_after=20), "done"))() == "done"
    assert time.sleeps == sleeps


async def test_no_attempt_is_cut_but_at_the_deadline() -> None:
    with FakeTime() as time:
        assert await llm_retry(Flaky(Hang(290, "late")).asynchronous)() == "late"
        with pytest.raises(TimeoutError):
            await llm_retry(Flaky(Hang(400)).asynchronous)()
        assert time.now == 590
        flaky = Flaky(Hang(60), "done")
        assert await llm_retry(attempt_timeout=30)(flaky.asynchronous)() == "done"
        assert flaky.calls == 2


def test_an_attempt_knows_its_number() -> None:
    numbers: list[int] = []

    @llm_retry
    def ask() -> None:
        attempt = current_attempt()
        assert attempt is not None
        numbers.append(attempt.number)
        raise ApiError(503)

    with FakeTime(), pytest.raises(ApiError):
        ask()
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_a_given_up_error_tells_so() -> None:
    error = ApiError(503)
    with FakeTime(), pytest.raises(ApiError) as caught:
        llm_retry(Flaky(then=error))()
    assert caught.value is error
    assert any("gave up after attempt 6" in note for note in caught.value.__notes__)
    with FakeTime(), pytest.raises(RetryError) as given_up:
        llm_retry(reraise=False)(Flaky(then=ApiError(503)))()
    assert (given_up.value.attempts, str(given_up.value.last_error)) == (6, "503")


def test_layers_do_not_multiply() -> None:
    flaky = Flaky(then=ApiError(503))
    with FakeTime(), pytest.raises(ApiError):
        llm_retry(llm_retry(llm_retry(flaky)))()
    assert flaky.calls == 6


async def test_a_cancellation_leaves_at_once() -> None:
    flaky = Flaky(then=Hang(60))
    task = asyncio.create_task(llm_retry(flaky.asynchronous)())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert flaky.calls == 1


def test_a_refusal_of_another_circuit_is_not_retried() -> None:
    flaky = Flaky(then=CircuitOpenError(2))
    with FakeTime(), pytest.raises(CircuitOpenError):
        llm_retry(flaky)()
    assert flaky.calls == 1


@pytest.mark.parametrize(("options", "correction"), [
    ({"attempts": 3}, "use max_attempts"), ({"circuit": None}, "use breaker"), ({"retry_on": ValueError}, "retryable"),
    ({"max_retry_afer": 3}, "did you mean max_retry_after="),
])  # fmt: skip
def test_a_wrong_name_is_told_at_once(options: dict[str, Any], correction: str) -> None:
    with pytest.raises(TypeError, match=correction):
        llm_retry(**options)


@pytest.mark.parametrize("options", [
    {"max_attempts": 0}, {"deadline": -1}, {"reraise": 1}, {"breaker": "open"}, {"backoff": 3}, {"on_retry": 3},
    {"minimum_attempt": 0}, {"max_attempts": None, "deadline": None},
])  # fmt: skip
def test_a_senseless_value_is_told_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        llm_retry(**options)


async def test_what_can_not_be_retried_is_told_at_once() -> None:
    async def fetch() -> None: ...

    for thing, why in (
        (fetch(), "already been made"),
        (3, "needs a function"),
        (Client, "is a class"),
    ):
        with pytest.raises(TypeError, match=why):
            llm_retry(thing)  # type: ignore[type-var]


async def test_generators_become_streams() -> None:
    opened: list[str] = []

    def broken_once(name: str) -> None:
        opened.append(name)
        if opened.count(name) == 1:
            raise ApiError(503)

    @llm_retry
    def lines(prompt: str) -> Any:
        broken_once("lines")
        yield prompt

    @llm_retry(max_attempts=2)
    async def tokens(prompt: str) -> Any:
        broken_once("tokens")
        yield prompt

    with FakeTime() as time:
        assert list(lines("a")) == ["a"]
        assert [token async for token in tokens(prompt="b")] == ["b"]
    assert opened == ["lines", "lines", "tokens", "tokens"]
    assert len(time.sleeps) == 2
    assert lines.__name__ == "lines"
    assert inspect.isgeneratorfunction(lines)
    assert inspect.isasyncgenfunction(tokens)
