"""T41: one wrap of a client covers all its methods, and every client that is derived from it.

The methods are found by introspection, so that what the libraries add is covered too. Each is called with arguments
that are made up; a service that always fails must then see as many requests as there are attempts, and no more.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from forbear.integrations import sole_owner

ATTEMPTS = 2
# Arguments whose value matters before a request is made; all others are "x".
MADE_UP: dict[str, Any] = {
    "messages": [], "file_ids": [], "files": [], "tasks": [], "file": b"x", "image": b"x", "video": b"x", "data": b"x",
    "recording": b"x", "archive": b"x", "max_tokens": 16, "cast_to": object,
}  # fmt: skip
# These open no connection of HTTP, end the client, or are ways to derive one, which have tests of their own.
PASSED_OVER = {"close", "copy", "is_closed", "platform_headers"}


@pytest.fixture(params=["openai", "anthropic"])
def sdk(request: pytest.FixtureRequest) -> ModuleType:
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return import_module(request.param)


@pytest.fixture
def httpx2() -> Any:
    return pytest.importorskip("httpx2")


class Service:
    """A service that always fails, without a network."""

    def __init__(self, httpx2: Any) -> None:
        self.httpx2 = httpx2
        self.requests: list[str] = []
        self.transport = httpx2.MockTransport(self.answer)

    def answer(self, request: Any) -> Any:
        self.requests.append(f"{request.method} {request.url.path}")
        return self.httpx2.Response(500, json={"error": {"message": "x"}})

    def client(self, sdk: ModuleType, kind: str = "") -> Any:
        """A client of this service with its retries as they are by default."""
        http = getattr(self.httpx2, f"{kind}Client")(transport=self.transport)
        name = {"openai": "OpenAI", "anthropic": "Anthropic"}[sdk.__name__]
        keys = {"api_key": "k"} | ({"admin_api_key": "a"} if sdk.__name__ == "openai" else {})
        return getattr(sdk, f"{kind}{name}")(**keys, base_url="http://service.test/v1", http_client=http)


def owned(client: Any) -> Any:
    made = sole_owner(client, max_attempts=ATTEMPTS, upstream=None, sleep=lambda _: None)
    made._calculate_retry_timeout = lambda *_: 0.0  # should it retry by itself, it is to be seen soon
    return made


def methods_of(client: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public method of a client and of its resources, with its path."""
    level = [("client", client)]
    while level:
        path, thing = level.pop()
        for name in dir(type(thing)):
            if name.startswith(("_", "with_")) or name in PASSED_OVER:
                continue
            if inspect.isfunction(inspect.getattr_static(type(thing), name)):
                yield f"{path}.{name}", getattr(thing, name)
                continue
            found = getattr(thing, name)
            if hasattr(found, "_client"):
                level.append((f"{path}.{name}", found))


def resources_of(client: Any) -> Iterator[tuple[str, Any]]:
    """Every resource of a client, with its path."""
    seen = {}
    for path, method in methods_of(client):
        resource = getattr(method, "__self__", None)
        if resource is not client:
            seen[path.rpartition(".")[0]] = resource
    return iter(seen.items())


def call(method: Callable[..., Any]) -> BaseException | None:
    """Calls a method with made-up arguments, and gives the error that it raises."""
    places, names = [], {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in (2, 4):  # *args and **kwargs
            continue
        value = MADE_UP.get(parameter.name, "x")
        if parameter.kind is parameter.KEYWORD_ONLY:
            names[parameter.name] = value
        else:
            places.append(value)
    try:
        method(*places, **names)
    except Exception as error:  # what it is, the tests judge
        return error
    return None


def test_every_method_makes_as_many_requests_as_there_are_attempts(sdk: ModuleType, httpx2: Any) -> None:
    service = Service(httpx2)
    methods = dict(methods_of(owned(service.client(sdk))))
    asked, silent = {}, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # some methods are; they must be covered all the same
        for path, method in methods.items():
            service.requests.clear()
            error = call(method)
            if service.requests:
                asked[path] = (len(service.requests), len(set(service.requests)), type(error))
            else:
                assert not isinstance(error, sdk.APIError), (path, error)
                silent.append(path)  # the made-up arguments would not do, or it waits until a stream is entered
    right = (ATTEMPTS, 1, sdk.InternalServerError)
    assert {path: seen for path, seen in asked.items() if seen != right} == {}
    assert len(asked) > 300, f"{len(asked)} asked; silent were {silent}"
    assert len(silent) < len(methods) / 10, silent


def test_the_count_would_tell_if_the_client_retried_by_itself(sdk: ModuleType, httpx2: Any) -> None:
    service = Service(httpx2)
    client = service.client(sdk)
    client._calculate_retry_timeout = lambda *_: 0.0
    assert isinstance(call(client.models.list), sdk.InternalServerError)
    assert len(service.requests) == client.max_retries + 1 == 3 != ATTEMPTS


@pytest.mark.parametrize("kind", ["", "Async"])
@pytest.mark.parametrize("derive", ["itself", "copy", "with_options", "twice"])
def test_every_resource_of_it_and_of_what_is_derived_has_its_http_and_no_retries(
    sdk: ModuleType, httpx2: Any, kind: str, derive: str
) -> None:
    first = owned(Service(httpx2).client(sdk, kind))
    client = {
        "itself": lambda: first,
        "copy": first.copy,
        "with_options": lambda: first.with_options(timeout=3.0),
        "twice": lambda: first.with_options(timeout=3.0).copy(default_headers={"a": "b"}),
    }[derive]()
    assert (client is first) == (derive == "itself")
    count = 0
    for path, resource in resources_of(client):
        count += 1
        assert resource._client._client is first._client, path  # the HTTP of all requests
        assert resource._client.max_retries == 0, path
    assert count > 50
