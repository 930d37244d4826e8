"""Raises the real exception of a case, or of a trouble, and hands it over.

Each SDK has a module here, named after it, whose `CALLS` say how a program calls it. They are loaded when they are
asked for; an SDK that is not installed is a `Missing`, and a call that raised nothing gives `None`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from loopback import Reply, Server, Stream
from sdk.cases import DATE, Case
from sdk.places import Call, Event, Missing, Place
from sdk.troubles import TROUBLES

SDKS = (
    "openai",
    "anthropic",
    "google-genai",
    "mistralai",
    "cohere",
    "groq",
    "fireworks-ai",
    "ollama",
    "huggingface-hub",
    "boto3",
    "azure-ai-inference",
    "google-api-core",
    "litellm",
    "httpx",
    "httpx2",
    "requests",
    "urllib3",
    "aiohttp",
    "stdlib",
    "grpcio",
    "redis",
    "asyncpg",
    "psycopg",
    "websockets",
)
UNASKED = (KeyboardInterrupt, SystemExit, Warning)  # a warning that pytest made an error is no answer of an SDK
WARNINGS_OF: dict[
    str, tuple[type[Warning], str]
] = {  # what an SDK warns of in its own code, where no caller can help it
    "google-genai": (DeprecationWarning, "Inheritance class AiohttpClientSession"),  # it derives from aiohttp's session
    "google-api-core": (ImportWarning, "Please install grpcio-status"),  # on import, beside a grpcio without it
    "litellm": (UserWarning, "Items? '.*' on TypedDict class"),  # pydantic, on litellm's own types
}


def calls_of(sdk: str) -> dict[str, Call]:
    """An SDK's calls by name. Raises `Missing` where it is not installed."""
    try:
        if sdk != "stdlib":
            version(sdk)
    except PackageNotFoundError:
        raise Missing(sdk) from None
    with known_warnings(sdk):
        module = importlib.import_module(f"sdk.raising.{sdk.removesuffix('-ai').replace('-', '_')}")
    calls: dict[str, Call] = module.CALLS
    return calls


def raise_case(case: Case) -> BaseException | None:
    """The exception that a case's call raises when the service does what the case says."""
    call = calls_of(case.sdk)[case.call]
    with place_of(case, call) as place, known_warnings(case.sdk):
        return raised_by(call, place)


def raise_when(sdk: str, call: str, happens: str = "reply", **facts: Any) -> BaseException | None:
    """`raise_case` for a failure that is no conformance case. The facts are fields of `Case`: status, headers, body."""
    return raise_case(Case(id=f"{sdk} {call} {happens}", sdk=sdk, call=call, happens=happens, **facts))


def raise_trouble(sdk: str, name: str, trouble: str) -> BaseException | None:
    """The exception that an SDK's call of this name raises when it meets a trouble of `sdk.troubles`."""
    call = calls_of(sdk)[name]
    with TROUBLES[trouble].makes(call) as place, known_warnings(sdk):
        return raised_by(call, place)


@contextmanager
def known_warnings(sdk: str) -> Iterator[None]:
    """Lets an SDK warn of what `WARNINGS_OF` knows; every other warning stays an error where the test made it one."""
    with warnings.catch_warnings():
        if sdk in WARNINGS_OF:
            kind, text = WARNINGS_OF[sdk]
            warnings.filterwarnings("ignore", text, kind)
        yield


@contextmanager
def place_of(case: Case, call: Call) -> Iterator[Place]:
    """A server that does what the case says, or the place where none is."""
    if call.serve is not None:
        with call.serve(case.body) as place:
            yield place
    elif case.happens in TROUBLES:
        with TROUBLES[case.happens].makes(call) as place:
            yield place
    else:
        with Server(step_of(case, call), date=DATE) as server:
            yield Place(server.url)


def step_of(case: Case, call: Call) -> Reply | Stream:
    """What the server answers."""
    if case.happens == "event":
        return Stream([*call.opening, call.written(Event(**case.event))], headers={**call.headers, **case.headers})
    if case.happens == "local":
        return Reply(headers=call.headers, body=call.answer)
    return Reply(case.status or 200, case.headers, case.body)


def raised_by(call: Call, place: Place) -> BaseException | None:
    """Makes the call. Call it from a blocking test: an async call gets an event loop of its own."""
    try:
        made = call.make(place)
        if inspect.iscoroutine(made):
            asyncio.run(made)
    except UNASKED:
        raise
    except BaseException as error:  # whatever it is, it is what was asked for
        return error
    return None
