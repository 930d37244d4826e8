"""`sole_owner`: what it makes of clients of HTTP and of those around them, what stays as it was, and what it refuses.

How the clients of openai and anthropic behave afterwards, and unknown ones, have files of their own.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import types
import warnings
import weakref
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any
from unittest import mock

import httpx
import pytest

from forbear import Policy, Upstream
from forbear.integrations import sole_owner
from forbear.integrations.httpx import AsyncTransport, Transport
from loopback import Reply, Server

QUICK: dict[str, Any] = {"max_attempts": 3, "backoff": [0.001]}
FAILED = Reply(500)


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@pytest.fixture(params=["blocking", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def run(kind: str, work: Awaitable[Any]) -> Any:
    """Runs a coroutine: in a loop, or through without a stop."""
    if kind == "async":
        return asyncio.run(work)  # type: ignore[arg-type]
    try:
        work.send(None)  # type: ignore[attr-defined]
    except StopIteration as end:
        return end.value
    raise AssertionError("a blocking client has waited for a loop")


def made(library: Any, kind: str, **options: Any) -> Any:
    return (library.Client if kind == "blocking" else library.AsyncClient)(**options)


async def close(client: Any) -> None:
    await settled(client.aclose() if hasattr(client, "aclose") else client.close())


# ---- clients of httpx and httpx2 -------------------------------------------------------------------------------------


def test_a_copy_of_an_http_client_retries_and_the_given_one_does_not(library: Any, kind: str, loopback: Server) -> None:
    async def work() -> None:
        given = made(library, kind)
        client = sole_owner(given, **QUICK)
        assert type(client) is type(given)
        loopback.script(FAILED)
        answer = await settled(client.get(loopback.url))
        assert (answer.status_code, len(loopback.requests)) == (500, 3)
        await settled(given.get(loopback.url))
        assert len(loopback.requests) == 4
        assert loopback.connections == 1
        await close(given)

    run(kind, work())


def test_settings_are_kept(library: Any, kind: str, loopback: Server) -> None:
    seen: list[str] = []

    async def note(request: Any) -> None:
        seen.append(request.url.path)

    async def work() -> None:
        given = made(
            library,
            kind,
            base_url=f"{loopback.url}/v1",
            headers={"x-a": "b"},
            cookies={"c": "d"},
            auth=("user", "word"),
            params={"q": "1"},
            timeout=7.0,
            follow_redirects=True,
            event_hooks={"request": [note if kind == "async" else lambda request: seen.append(request.url.path)]},
        )
        client = sole_owner(given, **QUICK)
        loopback.script(Reply(307, {"location": "/v1/there", "set-cookie": "e=f"}), FAILED, Reply(200))
        answer = await settled(client.get("/here"))
        assert (answer.status_code, answer.url.path) == (200, "/v1/there")
        assert seen == ["/v1/here", "/v1/there"]  # a hook sees each request, and not each attempt
        first, *rest = [dict(request.headers) for request in loopback.requests]
        assert (first["x-a"], first["Cookie"]) == ("b", "c=d")
        assert first["Authorization"].startswith("Basic ")
        assert loopback.requests[0].path == "/v1/here?q=1"
        assert [sorted(one["Cookie"].split("; ")) for one in rest] == [["c=d", "e=f"]] * 2
        assert client.timeout == given.timeout == library.Timeout(7.0)
        assert given.cookies["e"] == "f"  # one jar
        await close(client)

    run(kind, work())


def test_mounts_and_proxies_are_kept_each_under_forbear(library: Any, kind: str, loopback: Server) -> None:
    def answer(request: Any) -> Any:
        asked.append(request.url.host)
        return library.Response(500)

    async def work() -> None:
        mounts = {"all://a.test": library.MockTransport(answer), "all://none.test": None}
        given = made(library, kind, mounts=mounts)
        client = sole_owner(given, **QUICK)
        assert list(client._mounts) == list(given._mounts)
        assert sorted(transport is None for transport in client._mounts.values()) == [False, True]
        assert (await settled(client.get("http://a.test/"))).status_code == 500
        assert asked == ["a.test"] * 3
        await close(given)
        proxied = made(library, kind, proxy=loopback.url)
        loopback.script(FAILED)
        await settled(sole_owner(proxied, **QUICK).get("http://b.test/"))
        assert [request.path for request in loopback.requests] == ["http://b.test/"] * 3
        await close(proxied)

    asked: list[str] = []
    run(kind, work())


def test_a_subclass_stays_one(library: Any, loopback: Server) -> None:
    class Signing(library.Client):  # type: ignore[misc, name-defined]
        def send(self, request: Any, **options: Any) -> Any:
            request.headers["x-signed"] = "yes"
            return super().send(request, **options)

    loopback.script(FAILED)
    with Signing() as given:
        client = sole_owner(given, **QUICK)
        assert type(client) is Signing
        client.get(loopback.url)
    assert [dict(request.headers)["x-signed"] for request in loopback.requests] == ["yes"] * 3


def test_a_subclass_that_closes_itself_at_its_end_keeps_what_it_overrides(library: Any, loopback: Server) -> None:
    class Signing(library.Client):  # type: ignore[misc, name-defined]
        def send(self, request: Any, **options: Any) -> Any:
            request.headers["x-signed"] = "yes"
            return super().send(request, **options)

        def __del__(self) -> None:
            self.close()

    loopback.script(FAILED)
    with Signing() as given:
        sole_owner(given, **QUICK).get(loopback.url)
    assert [dict(request.headers).get("x-signed") for request in loopback.requests] == ["yes"] * 3


def test_the_end_of_the_copy_of_a_client_that_closes_itself_leaves_the_connections(
    library: Any, loopback: Server
) -> None:
    class Closing(library.Client):  # type: ignore[misc, name-defined]
        def __del__(self) -> None:
            self.close()

    given = Closing()
    client = sole_owner(given, **QUICK)
    client.get(loopback.url)
    assert loopback.open_connections == 1
    del client
    gc.collect()
    given.get(loopback.url)
    assert loopback.connections == 1
    given.close()


def test_twice_in_a_row_replaces_the_options(library: Any, kind: str, loopback: Server) -> None:
    async def work() -> None:
        given = made(library, kind)
        first = sole_owner(given, max_attempts=2, backoff=[0.001])
        second = sole_owner(first, max_attempts=5, backoff=[0.001])
        assert type(second._transport.inner) is type(given._transport)
        loopback.script(FAILED)
        await settled(second.get(loopback.url))
        assert len(loopback.requests) == 5
        await settled(first.get(loopback.url))
        assert len(loopback.requests) == 7
        await close(second)

    run(kind, work())


@pytest.mark.parametrize("closes_first", [False, True])
def test_the_end_of_one_client_leaves_the_other_usable(
    library: Any, kind: str, closes_first: bool, loopback: Server
) -> None:
    async def work() -> None:
        given = made(library, kind)
        client = sole_owner(given, **QUICK)
        clients = [client, given] if closes_first else [given, client]
        del client, given
        for one in clients:
            await settled(one.get(loopback.url))
        gone = clients.pop()
        if closes_first:
            await close(gone)
        del gone, one
        gc.collect()
        assert (await settled(clients[0].get(loopback.url))).status_code == 200
        await close(clients[0])

    run(kind, work())
    gc.collect()
    loopback.wait_until_idle()


def test_a_closed_client_is_still_closed(library: Any, loopback: Server) -> None:
    given = library.Client()
    given.close()
    client = sole_owner(given)
    assert client.is_closed
    with pytest.raises(RuntimeError, match="closed"):
        client.get(loopback.url)
    assert loopback.requests == []


def test_an_upstream_of_its_own_counts(kind: str, loopback: Server) -> None:
    upstream = Upstream("service")

    async def work() -> None:
        client = sole_owner(made(httpx, kind), **QUICK, upstream=upstream)
        assert isinstance(client._transport, Transport if kind == "blocking" else AsyncTransport)
        await settled(client.get(loopback.url))
        await close(client)

    run(kind, work())
    assert upstream.snapshot().successes == 1


# ---- sessions of requests and aiohttp --------------------------------------------------------------------------------


def test_a_session_of_requests(loopback: Server) -> None:
    requests = pytest.importorskip("requests")
    pytest.importorskip("forbear.integrations.requests")
    loopback.script(FAILED)
    with requests.Session() as given:
        given.headers["x-a"] = "b"
        client = sole_owner(given, **QUICK)
        assert type(client) is type(given)
        assert client is not given
        assert client.get(loopback.url).status_code == 500
        assert [dict(request.headers)["x-a"] for request in loopback.requests] == ["b"] * 3
        sole_owner(client, max_attempts=2, backoff=[0.001]).get(loopback.url)
        assert len(loopback.requests) == 5
        given.get(loopback.url)
        assert len(loopback.requests) == 6


async def test_a_session_of_aiohttp(loopback: Server) -> None:
    aiohttp = pytest.importorskip("aiohttp")
    pytest.importorskip("forbear.integrations.aiohttp")
    loopback.script(FAILED)
    async with aiohttp.ClientSession(headers={"x-a": "b"}) as session:
        assert sole_owner(session, **QUICK) is session
        async with session.get(loopback.url) as answer:
            assert answer.status == 500
        assert [dict(request.headers)["x-a"] for request in loopback.requests] == ["b"] * 3
        sole_owner(session, max_attempts=2, backoff=[0.001])
        async with session.get(loopback.url):
            pass
        assert len(loopback.requests) == 5


# ---- clients around them ---------------------------------------------------------------------------------------------


class Holder:
    """A client of somebody else's: what it speaks HTTP with is an attribute, of it or of a part of it."""

    def __init__(self, http: Any, depth: int = 0) -> None:
        self.part = Holder(http, depth - 1) if depth else http
        self.itself = self

    @property
    def costly(self) -> Any:
        raise AssertionError("a property was read")

    def http(self) -> Any:
        return self.part.http() if isinstance(self.part, Holder) else self.part


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_http_is_found_in_the_parts_of_a_client(depth: int, loopback: Server) -> None:
    with httpx.Client() as http:
        client = Holder(http, depth)
        assert sole_owner(client, **QUICK) is client
        loopback.script(FAILED)
        client.http().get(loopback.url)
        assert len(loopback.requests) == 3


def test_http_that_is_too_deep_is_not_searched_for() -> None:
    with httpx.Client() as http, pytest.raises(TypeError, match="no HTTP client of httpx"):
        sole_owner(Holder(http, 8))


def test_the_http_of_others_is_not_changed_though_a_client_knows_their_module() -> None:
    module = types.ModuleType("other")
    with httpx.Client() as own, httpx.Client() as foreign:
        client: Any = Holder(own)
        module.http = foreign  # type: ignore[attr-defined]
        client.json = module
        sole_owner(client, **QUICK)
        assert isinstance(own._transport, Transport)
        assert not isinstance(foreign._transport, Transport)


def nothing() -> None:
    """No client."""


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (None, "NoneType"),
        (5, "int"),
        ("text", "str"),
        (object(), "object"),
        (nothing, "function"),
        (types.ModuleType("m"), "m"),
        ([], "list"),
        (mock.Mock(), "Mock"),
        (mock.MagicMock(), "MagicMock"),
        (mock.AsyncMock(), "AsyncMock"),
        (mock.create_autospec(httpx.Client, instance=True), "NonCallableMagicMock"),
        (weakref.WeakValueDictionary(), "WeakValueDictionary"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_has_no_http_client_is_refused_with_advice(thing: Any, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = rf"no HTTP client of .* was found in \w+\.{name}: turn its own retries off"
        if isinstance(thing, (str, int, list, types.ModuleType, type(None))):
            told = rf"takes a client, such as requests.Session\(\) or openai.OpenAI\(\), not {name}"
        with pytest.raises(TypeError, match=told):
            sole_owner(thing)


def test_a_class_is_refused_with_the_advice_to_make_an_object() -> None:
    with pytest.raises(TypeError, match=r"Client\(\)"):
        sole_owner(httpx.Client)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_atempts": 3}, TypeError, r"did you mean max_attempts=\?"),
        ({"max_attempts": 0}, ValueError, "1 is the least"),
        ({"hedge": True}, TypeError, "a transport takes no hedge="),
        ({"upstream": "all"}, ValueError, "upstream must be"),
    ],
)
def test_mistakes_in_options_are_told_at_once_and_change_nothing(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with httpx.Client() as given:
        transport = given._transport
        for client in (given, Holder(given)):
            with pytest.raises(error, match=text):
                sole_owner(client, **options)
        assert given._transport is transport


# ---- clients that are made alike -------------------------------------------------------------------------------------


@pytest.fixture(params=["openai", "anthropic"])
def sdk(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip("httpx2")
    pytest.importorskip(request.param)
    return import_module(request.param)


class Asked:
    """A service without a network that always fails, and how often it was asked."""

    def __init__(self) -> None:
        self.times = 0

    def answer(self, _: Any) -> Any:
        self.times += 1
        return import_module("httpx2").Response(500, json={})

    def options(self) -> dict[str, Any]:
        httpx2 = import_module("httpx2")
        return {"api_key": "k", "http_client": httpx2.Client(transport=httpx2.MockTransport(self.answer))}


NAMES = {"openai": "OpenAI", "anthropic": "Anthropic"}


def requests_of(client: Any, asked: Asked) -> int:
    """How many requests one call makes, of a POST."""
    before = asked.times
    with pytest.raises(Exception, match="500"):
        client.post("/x", cast_to=object, body={})
    return asked.times - before


def client_of(sdk: Any, asked: Asked, change: Callable[[type[Any]], type[Any]] = lambda kind: kind) -> Any:
    return change(getattr(sdk, NAMES[sdk.__name__]))(**asked.options())


def test_a_policy_and_single_options_are_taken(sdk: Any) -> None:
    asked = Asked()
    given = client_of(sdk, asked)
    assert requests_of(sole_owner(given, policy=Policy(max_attempts=7), sleep=lambda _: None), asked) == 7
    assert requests_of(sole_owner(given, **QUICK, idempotent=False), asked) == 1
    assert requests_of(sole_owner(given, **QUICK, retryable=lambda _: False), asked) == 1


def test_a_client_of_a_users_own_class_has_the_defaults_for_llm_apis(sdk: Any) -> None:
    asked = Asked()
    client = sole_owner(client_of(sdk, asked, lambda kind: type("Mine", (kind,), {"__module__": "mine"})), **QUICK)
    assert type(client).__name__ == "Mine"
    assert requests_of(client, asked) == 3


def test_a_weak_proxy_is_taken_for_the_client_behind_it(sdk: Any) -> None:
    asked = Asked()
    given = client_of(sdk, asked)
    client = sole_owner(weakref.proxy(given), **QUICK)
    assert type(client) is type(given)
    assert requests_of(client, asked) == 3


@pytest.mark.parametrize("derive", [False, True])
def test_a_second_owner_takes_the_place_of_the_first(sdk: Any, derive: bool) -> None:
    asked = Asked()
    first = sole_owner(client_of(sdk, asked), max_attempts=2, sleep=lambda _: None)
    second = sole_owner(first.with_options(timeout=3.0) if derive else first, max_attempts=5, sleep=lambda _: None)
    assert not isinstance(second._client._transport.inner, type(second._client._transport))
    assert requests_of(first, asked) == 2
    assert requests_of(second, asked) == 5
    assert requests_of(second.copy(), asked) == 5


def test_the_http_of_a_second_owner_is_not_nested_in_the_first(sdk: Any) -> None:
    asked = Asked()
    client = sole_owner(sole_owner(client_of(sdk, asked), **QUICK), **QUICK)
    assert requests_of(client, asked) == 3
    assert not isinstance(client._client._transport.inner, type(client._client._transport))


def test_an_http_client_of_the_users_own_keeps_its_settings(sdk: Any, library: Any, kind: str) -> None:
    seen: list[str] = []

    def answer(request: Any) -> Any:
        seen.append(f"{request.headers['x-a']} {request.headers['cookie']}")
        return library.Response(500, json={})

    async def work() -> None:
        http = made(
            library,
            kind,
            transport=library.MockTransport(answer),
            headers={"x-a": "b"},
            cookies={"c": "d"},
            timeout=7.0,
        )
        make = getattr(sdk, f"{'' if kind == 'blocking' else 'Async'}{NAMES[sdk.__name__]}")
        try:
            given = make(api_key="k", http_client=http)
        except TypeError as error:
            pytest.skip(f"not taken by this library: {error}")
        client = sole_owner(given, **QUICK)
        assert isinstance(client._client, type(http))
        assert client.timeout == given.timeout
        with pytest.raises(sdk.InternalServerError):
            await settled(client.post("/x", cast_to=object, body={}))
        assert seen == ["b c=d"] * 3
        await close(http)

    run(kind, work())


def test_a_closed_client_of_an_sdk_is_still_closed(sdk: Any) -> None:
    asked = Asked()
    given = client_of(sdk, asked)
    given.close()
    client = sole_owner(given, **QUICK)
    assert client.is_closed()
    with pytest.raises((RuntimeError, sdk.APIConnectionError)):
        client.models.list()
    assert asked.times == 0


@pytest.mark.parametrize("name", ["Mock", "MagicMock", "AsyncMock"])
def test_a_mock_of_an_sdks_client_is_refused(sdk: Any, name: str) -> None:
    with pytest.raises(TypeError, match="no HTTP client of"):
        sole_owner(getattr(mock, name)(spec=getattr(sdk, NAMES[sdk.__name__])))


def test_a_client_inside_another_is_owned_too(sdk: Any) -> None:
    asked = Asked()
    inner = client_of(sdk, asked)
    holder = sole_owner(types.SimpleNamespace(client=inner), **QUICK, idempotent=True)
    assert holder.client is inner
    assert (requests_of(inner, asked), requests_of(inner.with_options(timeout=5), asked)) == (3, 3)


@pytest.mark.parametrize(
    ("thing", "advice"),
    [(httpx.HTTPTransport(), r"put it into Transport\(...\)"), (httpx.AsyncHTTPTransport(), r"put it into Transport")],
)
def test_a_part_of_a_client_is_refused_with_its_own_advice(thing: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        sole_owner(thing)


def test_an_adapter_is_refused_with_its_own_advice() -> None:
    with pytest.raises(TypeError, match=r"put it into Adapter\(...\)"):
        sole_owner(pytest.importorskip("requests").adapters.HTTPAdapter())
