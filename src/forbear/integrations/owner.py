"""One owner of the retries of a client: forbear.

Decided here: where a client keeps its HTTP, and how its own retries are turned off; for it and for every client that is
derived from it. Must never load a library that is not there: only the one that the client comes from. Prevents retries
that multiply: a client that makes 3 requests of each, under a policy of 3 attempts, makes 9.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar, Unpack

from forbear.calls.llm import LLM_POLICY
from forbear.calls.nesting import warn
from forbear.classify.failures import is_transient
from forbear.integrations.http.senders import TransportOptions

C = TypeVar("C")
logger = logging.getLogger("forbear")

# The clients that speak HTTP themselves, and the file here that knows them.
_HTTP = {
    ("httpx", "Client"), ("httpx", "AsyncClient"), ("httpx2", "Client"), ("httpx2", "AsyncClient"),
    ("requests", "Session"), ("aiohttp", "ClientSession"),
}  # fmt: skip
# Libraries of LLM APIs: an answer may take minutes, and may be asked for twice, as most of them do by themselves.
_LLM = (
    "anthropic", "cerebras", "cohere", "fireworks", "google.genai", "groq", "mistralai", "ollama", "openai", "together",
    "writerai",
)  # fmt: skip
_LLM_OPTIONS: dict[str, Any] = {
    "policy": LLM_POLICY, "retryable": is_transient, "idempotent": True, "deadline_header": None, "hold_json": True,
}  # fmt: skip
_DEPTH, _MOST = 5, 2_000  # how far a client is searched for its HTTP


def sole_owner(client: C, **options: Unpack[TransportOptions]) -> C:
    """The client, with its own retries off and its HTTP through forbear.

        client = sole_owner(openai.OpenAI())

    openai, anthropic and other clients of their make (groq, cerebras ...): a new client, with all that is derived from
        it (`with_options`, `with_raw_response`, `with_streaming_response`, `beta`, the helpers for streams); the one
        that you gave stays as it is.
    httpx and httpx2: a new client that shares the connections. requests: a new session. aiohttp: the same session.
    Any other: the client itself, if one of these is found in it; that goes through forbear then. Its own retries are
        unknown, so a `NestedRetriesWarning` counts them when they are seen. HTTP that it makes later is not found.

    Clients of LLM APIs get the defaults of `llm_retry`, and may send a request again. For others a POST without an
    `Idempotency-Key` is not sent again where it may have been done, unless you say `idempotent=True`.

    `options` are those of the transport, such as `max_attempts`, `deadline`, `upstream`, `idempotency_key`; `reraise`
    is True here, so that the errors are the client's own. Raises TypeError where no HTTP client is found.
    """
    if isinstance(client, type):
        raise TypeError(f"{client.__name__} is a class: make a client first, as in sole_owner({client.__name__}())")
    if _kind_of(client) is not None:
        return _own_http(client, dict(options))  # type: ignore[no-any-return]
    _refuse(client)
    given: dict[str, Any] = {**_LLM_OPTIONS, **options} if _is_for_llms(client) else dict(options)
    own = _own_stainless if _is_stainless(client) else _own_unknown
    return own(client, given)  # type: ignore[no-any-return]


def _refuse(client: object) -> None:
    """Raises TypeError, with the correction, for what can be no client."""
    if isinstance(client, (str, bytes, int, list, tuple, dict, ModuleType)) or client is None:
        named = client.__name__ if isinstance(client, ModuleType) else type(client).__name__
        raise TypeError(f"sole_owner takes a client, such as requests.Session() or openai.OpenAI(), not {named}")
    kind: Any = type(client)  # of a mock, an object itself has every attribute
    if hasattr(kind, "handle_request") or hasattr(kind, "handle_async_request"):
        raise TypeError(f"{type(client).__name__} is a transport: put it into Transport(...), or give the client")
    if hasattr(kind, "build_response") and hasattr(kind, "send"):
        raise TypeError(f"{type(client).__name__} is an adapter: put it into Adapter(...), or give the session")


def _is_for_llms(client: object) -> bool:
    """Whether a client, or one of the classes that its own is made from, is of a library of LLM APIs."""
    return any(f"{kind.__module__}.".startswith(f"{name}.") for kind in client.__class__.__mro__ for name in _LLM)


# ---- clients of HTTP -------------------------------------------------------------------------------------------------


def _kind_of(client: object) -> str | None:
    """The library of a client that speaks HTTP itself."""
    for kind in type(client).__mro__:
        root = kind.__module__.partition(".")[0]
        if (root, kind.__name__) in _HTTP:
            return root
    return None


def _own_http(client: Any, options: dict[str, Any], *, in_place: bool = False, watched: str | None = None) -> Any:
    module = import_module(f"forbear.integrations.{_kind_of(client)}")
    return module.own(client, {"reraise": True, **options}, in_place=in_place, watched=watched)


# ---- clients that Stainless generates: openai, anthropic, groq and others --------------------------------------------


def _is_stainless(client: Any) -> bool:
    http = getattr(client, "_client", None)
    return _kind_of(http) is not None and hasattr(client, "max_retries") and callable(getattr(client, "copy", None))


def _own_stainless(client: Any, options: dict[str, Any]) -> Any:
    """A new client like this one. All that it makes has the same HTTP, and what is derived from it is made ours too."""
    if client.max_retries:
        logger.info("%s: its own retries (%s) are off, forbear makes them", type(client).__name__, client.max_retries)
    http = _own_http(client._client, options)  # noqa: SLF001  # where it keeps it
    return _derived(client.__class__.copy(client, http_client=http, max_retries=0), http, options)


def _derived(client: Any, http: Any, options: dict[str, Any]) -> Any:
    """Makes this client ours, and what `copy` and `with_options` derive from it."""

    def copy(**changes: Any) -> Any:
        retries = changes.get("max_retries")
        if isinstance(retries, int) and retries:
            warn(
                f"max_retries={retries} has no effect: forbear makes the retries of this client; "
                f"write sole_owner(client, max_attempts={retries + 1})"
            )
        other = changes.get("http_client")
        own = http if other is None or other is http else _own_http(other, options)
        return _derived(
            client.__class__.copy(client, **{**changes, "http_client": own, "max_retries": 0}), own, options
        )

    client.copy = client.with_options = copy
    client.max_retries = 0
    return client


# ---- all others ------------------------------------------------------------------------------------------------------


def _own_unknown(client: Any, options: dict[str, Any]) -> Any:
    """The client itself, with all HTTP clients that are found in it changed in place."""
    kind = type(client)
    name = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
    found = list(_http_in(client))
    for http in found:
        if _kind_of(http) is None:  # a client that is known, inside of another
            _derived(http, _own_http(http._client, options, in_place=True), options)  # noqa: SLF001
        else:
            _own_http(http, options, in_place=True, watched=name)
    if not found:
        raise TypeError(
            f"no HTTP client of httpx, httpx2, requests or aiohttp was found in {name}: turn its own retries off, and "
            "put @retry on the function that calls it"
        )
    return client


def _http_in(client: object) -> Iterator[Any]:
    """The clients that speak HTTP, or are known, in the attributes of a client, and in theirs."""
    seen, level = {id(client)}, [client]
    for _ in range(_DEPTH):
        deeper: list[object] = []
        for owner in level:
            for thing in list(getattr(owner, "__dict__", {}).values()):
                if id(thing) in seen or isinstance(thing, (type, ModuleType)) or len(seen) > _MOST:
                    continue
                seen.add(id(thing))
                if _kind_of(thing) is not None or _is_stainless(thing):
                    yield thing
                else:
                    deeper.append(thing)
        level = deeper
