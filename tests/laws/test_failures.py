"""Laws of the classifier: whatever an error is, it gets a verdict, within bounded time, and never an exception."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.classify.failures import Classifier, classify, is_retryable, is_transient, retry_after_of, status_code_of
from forbear.classify.rules import Rule
from forbear.core.failure import PERMITS, Failure, Kind
from forbear.errors import ApiError, CircuitOpenError, ResultRejected, gave_up
from foreign import Thing, WebError, answer, chained, foreign

law = settings(max_examples=150, deadline=None)
OURS = Classifier([Rule(kind=Kind.AUTH, source="a test", codes=frozenset({"full"}))])
ENOUGH = 1.0  # seconds, of which every verdict here needs a small part


@contextmanager
def soon() -> Iterator[None]:
    begun = time.perf_counter()
    yield
    assert time.perf_counter() - begun < ENOUGH


def verdicts(error: BaseException, now: float | None = None) -> list[Failure]:
    """All that can be asked about an error, and that the answers are in order."""
    found = [classify(error, idempotent=safe, now=now) for safe in (True, False)] + [OURS.classify(error, now=now)]
    for failure in found:
        assert isinstance(failure, Failure)
        assert failure.retry_after is None or 0 <= failure.retry_after < math.inf
        assert failure.executed in {"no", "maybe"}
        assert failure.status is None or 400 <= failure.status <= 599
        assert failure.rule
    assert found[1].safe_to_retry <= found[0].safe_to_retry
    assert (found[0].transient, found[0].kind) == (found[1].transient, found[1].kind)
    assert isinstance(is_retryable(error), bool)
    assert isinstance(is_transient(error), bool)
    hint = retry_after_of(error, now)
    assert hint is None or 0 <= hint < math.inf
    status = status_code_of(error)
    assert status is None or 400 <= status <= 599
    return found


class Raising(Exception):
    """Every attribute that a reader may ask for raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("text")


class Broken(Mapping[str, Any]):
    """Nothing can be read from it."""

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("iter")

    def __len__(self) -> int:
        return 1


def fails() -> None:
    raise RuntimeError("called")


ATTRIBUTES = [
    "response", "raw_response", "headers", "body", "details", "error", "json_body", "http_body", "status_code",
    "status", "code", "http_status", "provider_status_code", "error_code", "type", "sqlstate", "error_type",
    "grpc_status_code", "rcvd", "retry_after", "message", "litellm_response_headers", "trailing_metadata", "reason",
    "inner_exception", "original_exception", "os_error",
]  # fmt: skip
odd = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 2_000), st.floats(), st.complex_numbers(), st.text(max_size=20),
    st.binary(max_size=20), st.sampled_from(["full", "429", "rate_limit_exceeded", "insufficient_quota", "INTERNAL"]),
    st.sampled_from([print, fails, object(), Exception, ValueError("x"), [], {}, (), Thing(), Thing(name=7), 10**400]),
    st.sampled_from([Thing(code=429), Thing(status_code=503), Thing(headers={"Retry-After": "7"}), {"error": "text"}]),
)  # fmt: skip
PACKAGES = [
    "builtins",
    "openai",
    "httpx",
    "aiohttp.client",
    "litellm.exceptions",
    "grpc",
    "google.genai.errors",
    "acme",
]
CLASSES = [
    "APIConnectionError", "Timeout", "ConnectError", "ClientResponseError", "RateLimitError", "RpcError", "Error",
]  # fmt: skip
singles = st.builds(
    lambda module, name, facts: foreign(name, module)(**facts),
    st.sampled_from(PACKAGES),
    st.sampled_from(CLASSES),
    st.dictionaries(st.sampled_from(ATTRIBUTES), odd, max_size=5),
)
plain = st.sampled_from([
    ConnectionResetError, TimeoutError, ValueError, KeyboardInterrupt, asyncio.CancelledError, CircuitOpenError,
    ResultRejected, lambda: ApiError(503), lambda: gave_up("deadline", 2, None), lambda: httpx.ReadError(""), Raising,
]).map(lambda make: make())  # fmt: skip


@st.composite
def tangles(draw: st.DrawFn) -> BaseException:
    """Some errors, tied to each other in any way, circles included, and groups of them."""
    errors: list[BaseException] = draw(st.lists(singles | plain, min_size=1, max_size=6))
    for _ in range(draw(st.integers(0, 3))):
        errors.append(BaseExceptionGroup("several", draw(st.lists(st.sampled_from(errors), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 8))):  # after the groups, so that an error may be made from one that holds it
        one, other = draw(st.sampled_from(errors)), draw(st.sampled_from(errors))
        setattr(one, draw(st.sampled_from(["__cause__", "__context__", "reason", "os_error"])), other)
    return errors[-1]


@law
@given(singles | plain, st.none() | st.floats(0, 1e10))
def test_an_error_with_any_attributes_gets_a_verdict(error: BaseException, now: float | None) -> None:
    verdicts(error, now)


@law
@given(tangles())
def test_errors_that_are_tied_in_any_way_get_a_verdict(error: BaseException) -> None:
    with soon():
        verdicts(error)


@law
@given(st.lists(singles | plain, min_size=1, max_size=5))
def test_a_group_is_transient_exactly_if_every_error_in_it_is(errors: list[BaseException]) -> None:
    found = classify(BaseExceptionGroup("several", errors))
    alone = [classify(error) for error in errors]
    assert found.transient == all(failure.transient for failure in alone)
    assert found.safe_to_retry == all(failure.safe_to_retry for failure in alone)
    assert found.retry_after == max((one.retry_after for one in alone if one.retry_after is not None), default=None)


@law
@given(st.lists(st.integers(400, 599).map(ApiError) | plain, min_size=1, max_size=5))
def test_a_group_is_retried_exactly_if_every_error_in_it_is(errors: list[BaseException]) -> None:
    assert is_retryable(BaseExceptionGroup("several", errors)) == all(map(is_retryable, errors))


@law
@given(odd | st.dictionaries(st.text(max_size=5), odd, max_size=3), singles)
def test_a_reader_of_hints_may_give_anything_or_fail(value: Any, error: BaseException) -> None:
    for reader in (lambda _: value, lambda _: fails(), lambda body: body["x"]):
        found = Classifier(hints=[reader]).classify(error).retry_after
        assert found is None or 0 <= found < math.inf


@law
@given(st.sampled_from([KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]), singles)
def test_what_must_leave_is_never_transient(leaving: type[BaseException], beside: Exception) -> None:
    for error in (leaving(), BaseExceptionGroup("several", [beside, leaving()])):
        assert not any(failure.transient for failure in verdicts(error))


@law
@given(st.integers(400, 599), st.booleans(), st.booleans())
def test_a_call_that_must_not_be_repeated_is_repeated_only_where_nothing_was_done(
    status: int, hinted: bool, streaming: bool
) -> None:
    facts: dict[str, Any] = {"retry_after": 1} if hinted else {}
    error = WebError(status_code=200, code=status, **facts) if streaming else answer(status, **facts)
    failure = classify(error, idempotent=False)
    assert failure.safe_to_retry == (failure.executed == "no")
    assert failure.transient is PERMITS[failure.kind].transient
    if streaming:
        assert failure.executed == "maybe"


# ---- bounds ------------------------------------------------------------------------------------------------------


def chain_of(size: int, link: str, make: Any) -> BaseException:
    first: BaseException = make()
    last = first
    for _ in range(size):
        following = make()
        setattr(last, link, following)
        last = following
    setattr(last, link, ConnectionRefusedError())
    return first


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
@pytest.mark.parametrize(
    "make", [RuntimeError, ConnectionResetError, foreign("APIConnectionError", "openai"), WebError]
)
def test_a_chain_of_any_length_takes_bounded_time(link: str, make: Any) -> None:
    error = chain_of(10_000, link, make)
    with soon():
        verdicts(error)


@pytest.mark.parametrize("link", ["reason", "inner_exception", "original_exception", "os_error"])
def test_so_does_a_chain_through_attributes(link: str) -> None:
    error = chain_of(10_000, link, WebError)
    with soon():
        verdicts(error)


def test_so_does_a_group_of_any_width_and_depth() -> None:
    wide = ExceptionGroup("wide", [ConnectionResetError() for _ in range(50_000)])
    deep: Exception = ConnectionResetError()
    for _ in range(10_000):
        deep = ExceptionGroup("deep", [deep, ConnectionResetError()])
    with soon():
        verdicts(wide)
        verdicts(deep)


LARGE: dict[str, Any] = {
    "a body of text": {"body": "x" * 20_000_000},
    "a body of bytes": {"body": b"x" * 20_000_000},
    "a body of opening brackets": {"body": "[" * 65_000},
    "a body of objects in objects": {"body": '{"error":' * 7_000},
    "details": {"body": {"error": {"details": [{"reason": "x"}] * 100_000}}},
    "violations": {"body": {"details": [{"violations": [{"quotaId": "x"}] * 100_000}]}},
    "a message": {"message": "x" * 20_000_000},
    "a code": {"code": "x" * 20_000_000},
    "a header": {"headers": {"Retry-After": " " * 2_000_000 + "7"}},
    "digits in a header": {"headers": {"Retry-After": "7" * 2_000_000}},
    "a reset": {"headers": {"x-ratelimit-reset": "1h" * 1_000_000}},
    "a name of a header": {"headers": {"x-ratelimit-" + "-" * 1_000_000: "7"}},
    "a structured field": {"headers": {"ratelimit": '"a";r=0;t=1,' * 100_000}},
    "many headers": {"headers": {f"name-{number}": "7" for number in range(20_000)}},
}


@pytest.mark.parametrize("facts", LARGE.values(), ids=LARGE)
def test_facts_of_any_size_take_bounded_time(facts: dict[str, Any]) -> None:
    for error in (
        WebError(status_code=429, **facts),
        chained(foreign("APIConnectionError", "openai")(), WebError(**facts)),
    ):
        with soon():
            verdicts(error)


def test_an_error_of_which_nothing_can_be_read_gets_a_verdict() -> None:
    for error in (Raising(), chained(RuntimeError(), Raising()), ExceptionGroup("several", [Raising()])):
        assert not any(failure.transient for failure in verdicts(error))
    kind: Any = type("Reset", (Raising, ConnectionResetError), {})
    assert classify(kind()).transient


class NoText:
    def __str__(self) -> str:
        raise RuntimeError


class NoClass:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError


class NoAttributes:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError


class OddInt(int):
    def __str__(self) -> str:
        raise RuntimeError


class OddText(str):
    __slots__ = ()

    def lower(self) -> str:
        raise RuntimeError


def of_module(name: Any) -> Exception:
    kind: Any = type("Odd", (Exception,), {})
    kind.__module__ = name
    return kind()  # type: ignore[no-any-return]


ODD: dict[str, Any] = {
    "5000 digits as a code": {"status_code": 503, "body": {"error": {"code": "9" * 5_000}}},
    "a header that is no latin-1": {"headers": {"grpc-status-details-bin": "\u1234"}},
    "details whose attributes raise": {"details": [NoAttributes()]},
    "a delay whose attributes raise": {"details": [Thing(retry_delay=NoAttributes())]},
    "a response that is a broken mapping": {"response": Broken()},
    "a body that is a broken mapping": {"body": Broken()},
    "details that are broken mappings": {"body": {"error": {"details": [Broken()]}}},
    "inner headers that are broken": {"body": {"error": {"metadata": {"headers": Broken()}}}},
    "inner headers without text": {"body": {"error": {"metadata": {"headers": {"a": NoText()}}}}},
    "inner headers of too many digits": {"body": {"metadata": {"headers": {"a": 10**5_000}}}},
    "a quota without text": {"body": {"details": [{"violations": [{"quotaValue": NoText()}]}]}},
    "a quota of too many digits": {"body": {"details": [{"violations": [{"quotaValue": 10**5_000}]}]}},
    "a type without text": {"body": {"details": [{"@type": NoText()}]}},
    "a code of too many digits": {"code": 10**5_000},
    "an int without text": {"code": OddInt(3)},
    "a text without lower case": {"code": OddText("a"), "message": OddText("b")},
    "a header without lower case": {"headers": {OddText("a"): "1"}},
    "values without a class": {"code": NoClass(), "response": NoClass(), "body": NoClass(), "reason": NoClass()},
    "lists as codes": {"body": {"error": {"code": [1]}, "details": [[1]]}},
}


@pytest.mark.parametrize("facts", ODD.values(), ids=ODD)
def test_one_fact_that_can_not_be_read_leaves_the_others(facts: dict[str, Any]) -> None:
    for error in (WebError(**facts), chained(foreign("APIConnectionError", "openai")(), WebError(**facts))):
        verdicts(error)
    if "response" not in facts:
        assert classify(WebError(**{"headers": {"Retry-After": "7"}, "status_code": 503, **facts})).status == 503


@pytest.mark.parametrize("name", [None, 7, ""])
def test_a_class_of_an_odd_module_gets_a_verdict(name: Any) -> None:
    verdicts(of_module(name))
    verdicts(chained(foreign("APIConnectionError", "openai")(), of_module(name)))


@pytest.mark.parametrize("name", ["headers", "trailing_metadata", "litellm_response_headers"])
def test_headers_of_which_nothing_can_be_read_are_none(name: str) -> None:
    for error in (WebError(status_code=503, **{name: Broken()}), WebError(response=Thing(**{name: Broken()}))):
        verdicts(error)
