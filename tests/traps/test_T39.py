"""T39: layers of retries around one service must not multiply its requests, nor what they take of its guards."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest

from forbear import (
    CircuitBreaker,
    NestedRetriesWarning,
    RateLimiter,
    RetriesExhausted,
    RetryBudget,
    RetryError,
    Upstream,
    llm_retry,
)
from forbear.integrations import sole_owner
from forbear.testing import FakeTime, Flaky

Form = Callable[..., Any]
GUARDS: dict[str, Callable[[], dict[str, Any]]] = {
    "upstream": lambda: {"upstream": Upstream("service")},
    "bounded upstream": lambda: {"upstream": Upstream("service", max_concurrency=1)},
    "budget": lambda: {"budget": RetryBudget()},
    "breaker": lambda: {"breaker": CircuitBreaker(10)},
    "limiter": lambda: {"limiter": RateLimiter(600)},
}


@pytest.mark.parametrize("guards", GUARDS)
@pytest.mark.parametrize("reraise", [True, False])
def test_three_layers_of_three_attempts_make_three_requests(form: Form, guards: str, reraise: bool) -> None:
    options, fn = GUARDS[guards](), Flaky(then=ConnectionError())
    upstream = Upstream("service") if "upstream" not in options else options.pop("upstream")
    if "upstream" in guards:
        options["upstream"] = upstream

    def inner() -> Any:
        return llm_retry(max_attempts=3, reraise=reraise, **options)(fn)()

    def middle() -> Any:
        return llm_retry(max_attempts=3, reraise=reraise, **options)(inner)()

    with FakeTime(), pytest.raises(ConnectionError if reraise else RetryError):
        form(middle, max_attempts=3, reraise=reraise, **options)
    assert fn.calls == 3
    assert (upstream.snapshot().in_flight, upstream.snapshot().waiting) == (0, 0)


def test_only_retries_that_were_made_are_paid_for(form: Form) -> None:
    budget, fn = RetryBudget(initial=10), Flaky(then=ConnectionError())

    def inner() -> Any:
        return llm_retry(max_attempts=3, budget=budget)(fn)()

    with FakeTime():
        with pytest.raises(ConnectionError):
            form(inner, max_attempts=3, budget=budget, reraise=True)
        assert budget.balance == 8.0


def test_the_breaker_counts_the_call_once(form: Form) -> None:
    breaker, fn = CircuitBreaker(2), Flaky(then=ConnectionError())

    def inner() -> Any:
        return llm_retry(max_attempts=3, breaker=breaker)(fn)()

    with FakeTime():
        with pytest.raises(ConnectionError):
            form(inner, max_attempts=3, breaker=breaker, reraise=True)
        assert fn.calls == 3
        assert breaker.state == "closed"
        assert breaker.snapshot().consecutive_failures <= 1


def test_layers_with_guards_of_their_own_do_not_multiply_either(form: Form) -> None:
    ways = [Upstream(name) for name in "abc"]
    fn = Flaky(then=ConnectionError())

    def inner() -> Any:
        return ways[0].retry(max_attempts=3)(fn)()

    def middle() -> Any:
        return ways[1].retry(max_attempts=3)(inner)()

    with FakeTime(), pytest.raises(RetriesExhausted):
        form(middle, max_attempts=3, upstream=ways[2])
    assert fn.calls == 3
    assert all(way.snapshot().in_flight == 0 for way in ways)


# ---- layers that are not ours ----------------------------------------------------------------------------------------


class Service:
    """A service without a network that answers 500, after a number of good answers."""

    def __init__(self, httpx2: Any, sdk: str, *, good: int = 0, fails: int = 1_000) -> None:
        self.httpx2 = httpx2
        self.requests = 0
        self.statuses = [200] * good + [500] * fails
        self.sdk = sdk

    def answer(self, _: Any) -> Any:
        self.requests += 1
        status = self.statuses[self.requests - 1] if self.requests <= len(self.statuses) else 200
        return self.httpx2.Response(status, json={"data": [], "object": "list", "has_more": False})

    def client(self, kind: str = "", **options: Any) -> Any:
        make = getattr(import_module(self.sdk), kind + {"openai": "OpenAI", "anthropic": "Anthropic"}[self.sdk])
        http = getattr(self.httpx2, f"{kind}Client")(transport=self.httpx2.MockTransport(self.answer))
        client = make(api_key="k", base_url="http://service.test/", http_client=http, **options)
        client._calculate_retry_timeout = lambda *_: 0.0
        return client


@pytest.fixture(params=["openai", "anthropic"])
def sdk(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


def failures() -> tuple[type[Exception], ...]:
    """What the libraries raise for a 500."""
    found = [sys.modules[name].InternalServerError for name in ("openai", "anthropic") if name in sys.modules]
    return (RetryError, *found)


def asked(ask: Callable[[], Any]) -> list[str]:
    """Asks, with failures or not, and gives what was warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with suppress(*failures()):
            ask()
    assert {one.category for one in told} <= {NestedRetriesWarning}
    return [str(one.message) for one in told]


@pytest.mark.parametrize("kind", ["", "Async"])
@pytest.mark.parametrize(("own", "requests"), [({}, 9), ({"max_retries": 1}, 6), ({"max_retries": 0}, 3)])
def test_retries_of_a_client_multiply_and_it_is_said_with_their_count(
    sdk: str, kind: str, own: dict[str, int], requests: int
) -> None:
    service = Service(pytest.importorskip("httpx2"), sdk)
    client = service.client(kind, **own)
    layer = llm_retry(max_attempts=3, backoff=[0.0])

    async def ask_async() -> None:
        await client.models.list()

    ask = layer(ask_async) if kind else layer(lambda: client.models.list())  # noqa: PLW0108  # it is given to a layer
    told = asked((lambda: asyncio.run(ask())) if kind else ask)
    assert service.requests == requests
    if requests == 3:
        assert told == []
    else:
        assert told
        inner = requests // 3
        text = f"the client made {inner} requests in one attempt, so 3 attempts make up to {requests}"
        assert all(text in one for one in told)


def test_an_owned_client_does_not_multiply_and_nothing_is_said(sdk: str) -> None:
    service = Service(pytest.importorskip("httpx2"), sdk)
    client = sole_owner(service.client(), max_attempts=3, backoff=[0.0])

    @llm_retry(max_attempts=3, backoff=[0.0])
    def inner() -> Any:
        return client.models.list()

    assert asked(llm_retry(max_attempts=3, backoff=[0.0])(inner)) == []
    assert service.requests == 3


def test_nothing_is_said_of_inner_retries_that_helped(sdk: str) -> None:
    service = Service(pytest.importorskip("httpx2"), sdk, fails=2)
    client = service.client()
    assert asked(llm_retry(max_attempts=3, backoff=[0.0])(lambda: client.models.list())) == []  # noqa: PLW0108
    assert service.requests == 3
