"""Clients of libraries that are not known here: what they send goes through forbear, and retries of their own are
noticed where they multiply.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from forbear import NestedRetriesWarning
from forbear.integrations import sole_owner
from forbear.integrations.owner import _http_in
from loopback import Reply, Server

ASKED = [{"role": "user", "content": "x"}]
FAILED = Reply(500, {"retry-after-ms": "1"}, {"error": {"message": "x", "code": 500}})


@dataclass(frozen=True)
class Library:
    """One library. `make` gives a client of the server at a URL; `ask` makes one request, of a POST; `tries`: how often
    the client asks by itself; `name`: as the warning says it.
    """

    package: str
    make: Callable[[Any, str], Any]
    ask: Callable[[Any], Any]
    tries: int
    name: str = ""


def genai(library: Any, url: str, **more: Any) -> Any:
    kinds = pytest.importorskip("google.genai.types")
    return library.Client(api_key="k", http_options=kinds.HttpOptions(base_url=url, **more))


def genai_with_retries(library: Any, url: str) -> Any:
    kinds = pytest.importorskip("google.genai.types")
    retries = kinds.HttpRetryOptions(attempts=3, initial_delay=0.001, max_delay=0.002)
    return genai(library, url, retry_options=retries)


def mistral(_: Any, url: str) -> Any:
    return pytest.importorskip("mistralai.client").Mistral(api_key="k", server_url=url)


LIBRARIES = {
    "google-genai": Library("google.genai", genai, lambda c: c.models.generate_content(model="m", contents="x"), 1),
    "google-genai with retries": Library(
        "google.genai",
        genai_with_retries,
        lambda c: c.models.generate_content(model="m", contents="x"),
        3,
        "google.Client",
    ),
    "mistralai": Library("mistralai", mistral, lambda c: c.chat.complete(model="m", messages=ASKED), 1),
    "mistralai, async": Library("mistralai", mistral, lambda c: c.chat.complete_async(model="m", messages=ASKED), 1),
    "cohere": Library(
        "cohere",
        lambda library, url: library.ClientV2(api_key="k", base_url=url),
        lambda c: c.chat(model="m", messages=ASKED),
        3,
        "cohere.ClientV2",
    ),
    "cohere, async": Library(
        "cohere",
        lambda library, url: library.AsyncClientV2(api_key="k", base_url=url),
        lambda c: c.chat(model="m", messages=ASKED),
        3,
        "cohere.AsyncClientV2",
    ),
    "ollama": Library(
        "ollama", lambda library, url: library.Client(host=url), lambda c: c.chat(model="m", messages=ASKED), 1
    ),
    "ollama, async": Library(
        "ollama", lambda library, url: library.AsyncClient(host=url), lambda c: c.chat(model="m", messages=ASKED), 1
    ),
}
# Those that are made as openai's is: not unknown, and one for all of them.
ALIKE = {"groq": "Groq", "together": "Together", "fireworks": "Fireworks"}


def loaded(package: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # some load what is old
        return pytest.importorskip(package)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


@pytest.fixture
def client(library: Library, loopback: Server) -> Iterator[Any]:
    made = library.make(loaded(library.package), loopback.url)
    yield made
    for http in _http_in(made):
        if not inspect.iscoroutinefunction(http.send):
            http.close()


def ask(library: Library, client: Any) -> list[str]:
    """Asks once, in vain, and gives what was warned of."""

    async def in_loop(asked: Any) -> None:
        try:
            await asked
        finally:
            for http in _http_in(client):
                if inspect.iscoroutinefunction(http.send):
                    await http.aclose()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", NestedRetriesWarning)
        with pytest.raises(Exception, match=r".*"):
            if inspect.isawaitable(asked := library.ask(client)):
                asyncio.run(in_loop(asked))
    return [str(one.message) for one in told if one.category is NestedRetriesWarning]


def test_its_http_goes_through_forbear_and_multiplied_retries_are_counted(
    library: Library, client: Any, loopback: Server
) -> None:
    loopback.script(FAILED)
    assert sole_owner(client, max_attempts=2, backoff=[0.001], idempotent=True) is client
    told = ask(library, client)
    assert len(loopback.requests) == 2 * library.tries
    if library.tries == 1:
        assert told == []
    else:
        assert told[-1].startswith(f"{library.name} repeats by itself")
        assert f"{len(loopback.requests)} requests for one so far ({library.tries} times 2)" in told[-1]


def test_a_request_that_may_not_be_repeated_is_left_to_the_client_without_a_word(
    library: Library, client: Any, loopback: Server
) -> None:
    loopback.script(FAILED)
    sole_owner(client, max_attempts=2, backoff=[0.001], idempotent=False)
    assert ask(library, client) == []
    assert len(loopback.requests) == library.tries


def test_a_second_owner_takes_the_place_of_the_first(library: Library, client: Any, loopback: Server) -> None:
    loopback.script(FAILED)
    sole_owner(client, max_attempts=5, backoff=[0.001], idempotent=True)
    sole_owner(client, max_attempts=2, backoff=[0.001], idempotent=True)
    ask(library, client)
    assert len(loopback.requests) == 2 * library.tries


@pytest.mark.parametrize(
    "package",
    [
        "groq",
        "together",
        "fireworks",
    ],
)
@pytest.mark.parametrize("kind", ["", "Async"])
def test_libraries_of_the_make_of_openai_are_known(package: str, kind: str, loopback: Server) -> None:
    library = loaded(package)
    given = getattr(library, f"{kind}{ALIKE[package]}")(api_key="k", base_url=loopback.url)
    client = sole_owner(given, max_attempts=2, backoff=[0.001])
    assert type(client) is type(given)
    assert client is not given
    assert (client.max_retries, given.max_retries) == (0, library.DEFAULT_MAX_RETRIES)
    loopback.script(FAILED)

    async def main() -> None:
        with pytest.raises(library.InternalServerError):
            await client.chat.completions.create(model="m", messages=ASKED)
        await client.close()

    if kind:
        asyncio.run(main())
    else:
        with pytest.raises(library.InternalServerError), client:
            client.chat.completions.create(model="m", messages=ASKED)
    assert len(loopback.requests) == 2  # a POST: as for all LLM APIs, it is repeated
    assert "x-request-deadline" not in {name.lower() for name, _ in loopback.requests[0].headers}
