"""R023: the library inside keeps its own retries, so a policy of n attempts makes 3 n requests, and nobody is told."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from forbear import NestedRetriesWarning, retry
from forbear.integrations import sole_owner
from loopback import Reply, Server

ATTEMPTS, TRIES = 4, 3
FAILED = Reply(500, (), {"error": {"message": "x"}})


@pytest.fixture(params=["openai", "anthropic"])
def sdk(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


@pytest.fixture
def server() -> Any:
    with Server(FAILED) as running:
        yield running


def client_of(sdk: str, server: Server, kind: str = "") -> Any:
    """A client that makes three tries by itself."""
    make = getattr(import_module(sdk), kind + {"openai": "OpenAI", "anthropic": "Anthropic"}[sdk])
    client = make(api_key="k", base_url=server.url, max_retries=TRIES - 1)
    client._calculate_retry_timeout = lambda *_: 0.0
    return client


def policy() -> Callable[[Any], Any]:
    return retry(max_attempts=ATTEMPTS, backoff=[0.0], reraise=True)


def ask(client: Any, kind: str) -> list[str]:
    """Asks through the policy, in vain, and gives what was warned of."""

    async def main() -> None:
        async with client:
            await policy()(in_async)()

    async def in_async() -> None:
        await client.models.list()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(Exception, match="500"):
            if kind:
                asyncio.run(main())
            else:
                with client:
                    policy()(lambda: client.models.list())()  # noqa: PLW0108  # it is given to a layer
    return [str(one.message) for one in told if one.category is NestedRetriesWarning]


@pytest.mark.parametrize("kind", ["", "Async"])
def test_without_the_helper_it_is_said(sdk: str, server: Server, kind: str) -> None:
    told = ask(client_of(sdk, server, kind), kind)
    assert len(server.requests) == ATTEMPTS * TRIES
    assert "the client made 3 requests in one attempt, so 4 attempts make up to 12" in told[0]
    assert "sole_owner(client)" in told[0]


@pytest.mark.parametrize("kind", ["", "Async"])
def test_with_the_helper_the_requests_are_the_attempts_asked_for(sdk: str, server: Server, kind: str) -> None:
    client = sole_owner(client_of(sdk, server, kind), max_attempts=ATTEMPTS, backoff=[0.0])
    assert ask(client, kind) == []
    assert len(server.requests) == ATTEMPTS


@pytest.mark.parametrize("attempts", [1, 2, 6])
def test_with_the_helper_its_own_count_holds_whatever_the_policy_around_it_says(
    sdk: str, server: Server, attempts: int
) -> None:
    assert ask(sole_owner(client_of(sdk, server), max_attempts=attempts, backoff=[0.0]), "") == []
    assert len(server.requests) == attempts


def test_an_unknown_client_that_repeats_by_itself_is_noticed(server: Server) -> None:
    httpx = import_module("httpx")

    class Unknown:
        """It makes three tries by itself, and says so nowhere."""

        def __init__(self) -> None:
            self.http = httpx.Client()

        def ask(self) -> None:
            for _ in range(TRIES - 1):
                if self.http.get(server.url).status_code == 200:
                    return
            self.http.get(server.url).raise_for_status()

    client = sole_owner(Unknown(), max_attempts=ATTEMPTS, backoff=[0.0])
    with client.http, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(httpx.HTTPStatusError):
            client.ask()
    assert len(server.requests) == ATTEMPTS * TRIES
    texts = [str(one.message) for one in told]
    assert texts[-1].endswith("12 requests for one so far (3 times 4): turn its own retries off")
