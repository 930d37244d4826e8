"""What can be read off an error without knowing its library: status, headers, body, codes, classes.

Decided here: where each fact may lie, in which order the places are believed, and what is never done to find it: no
import, no method that may read from a network, no text longer than a bound. Every reader takes whatever it finds and
never raises. Must never decide what a fact means.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

from forbear.classify.hints import hint_of

MAX_BODY = 65_536  # bytes of a body that are read: an error says what it is early
MAX_TEXT = 2_000
_OWN_STATUS = ("provider_status_code", "status_code", "code", "http_status", "status")
# In these a number from 400 to 599 is a code of another protocol: 535 is a wrong password in SMTP.
_NO_HTTP = frozenset({"aiosmtplib", "smtplib", "ftplib", "nntplib", "clickhouse_driver", "clickhouse_connect"})
_RESPONSE_STATUS = ("status_code", "status")
_UNREAD = object()
_BODIES = ("body", "details", "json_body", "http_body", "error")


def attribute(owner: object, name: str) -> Any:
    """An attribute, or None: libraries compute some of theirs, and may fail at it."""
    try:
        return getattr(owner, name, None)
    except Exception:
        return None


class Facts:
    """The facts of one error. `now` is the wall clock, in epoch seconds.

    packages: the packages that the error's classes come from, the most specific first: "google.genai", "google".
    class_names: the names of its classes with their package: "httpx.ReadTimeout".
    status: the HTTP status of a failure (400 to 599), or None; where several places disagree, the first wins.
    headers: names in lower case, of a repeated one the last.
    body: Python data, mostly a dict, or None.
    codes: all that names the error for machines, in lower case, the most telling first.
    """

    __slots__ = ("_hint", "_message", "body", "class_names", "codes", "error", "headers", "now", "packages", "status")

    def __init__(self, error: BaseException, now: float | None = None) -> None:
        self.error = error
        self.now = now
        kind: Any = type(error)
        self.packages, self.class_names = descent_of(kind)
        self._hint: Any = _UNREAD
        self._message: str | None = None
        response = attribute(error, "response")
        self.headers = headers_of(self, response)
        self.body = body_of(error, response)
        self.codes: tuple[str, ...] = ()
        if self._status_is_made_up():
            told = status_in(attribute(error, "provider_status_code"))
            self.status = None if told == 500 else told  # litellm says 500 where it does not know
        else:
            self.status = None if _NO_HTTP.intersection(self.packages) else status_of(error, response, self.body)
            self.codes = codes_of(error, self.body, self.packages)

    @property
    def library(self) -> str | None:
        """The package that the error's own class comes from; None for Python's own."""
        roots = [package for package in self.packages if "." not in package]
        return self.packages[0] if "google" in roots else roots[0] if roots else None

    def is_of(self, package: str) -> bool:
        """Whether a class of the error comes from this package."""
        return package in self.packages

    def _status_is_made_up(self) -> bool:
        """Two libraries give a status and codes to failures that no server answered: there are no headers then."""
        if "litellm" in self.packages:
            return not self.headers
        return "aiohttp" in self.packages and attribute(self.error, "headers") is None

    @property
    def inside_answer(self) -> bool:
        """Whether the failure came inside an answer that had begun with a status of success."""
        response = attribute(self.error, "response")
        for owner, name in ((response, "status_code"), (response, "status"), (self.error, "status_code")):
            wire = attribute(owner, name)
            if isinstance(wire, int) and not isinstance(wire, bool):
                return wire < 400
        return self.status is not None and self.status == status_in_body(self.body)

    @property
    def repeated(self) -> bool:
        """Whether the library has made the request more than once by itself: an earlier one may have been done."""
        response = attribute(self.error, "response")
        if is_mapping(response):
            metadata = response.get("ResponseMetadata")
            return is_mapping(metadata) and metadata.get("RetryAttempts", 0) not in (0, None)
        request = attribute(self.error, "request") or attribute(response, "request")
        headers = attribute(request, "headers")
        if attribute(headers, "raw") is None:
            headers = read_headers(headers)
        return headers.get("x-stainless-retry-count", "0") not in ("0", "")

    @property
    def message(self) -> str:
        """What the error says for people, in lower case. Only rules of one provider may look at it."""
        if self._message is None:
            self._message = message_of(self.error, self.body)
        return self._message

    @property
    def hint(self) -> float | None:
        """The server's own wait in seconds, or None."""
        if self._hint is _UNREAD:
            self._hint = hint_of(self)
        return self._hint  # type: ignore[no-any-return]


def status_of(error: BaseException, response: object, body: object) -> int | None:
    """The status of a failure, wherever it lies."""
    if is_mapping(response):
        metadata = response.get("ResponseMetadata")
        return status_in(metadata.get("HTTPStatusCode")) if is_mapping(metadata) else None
    for name in _OWN_STATUS:
        found = status_in(attribute(error, name))
        if found is not None:
            return found
    for owner in (response, attribute(error, "raw_response")):
        if owner is not None:
            for name in _RESPONSE_STATUS:
                found = status_in(attribute(owner, name))
                if found is not None:
                    return found
    return status_in_body(body)


def headers_of(facts: Facts, response: object) -> dict[str, str]:
    """The headers of an error, its response, or what its library keeps of them. Empty where there are none."""
    error = facts.error
    if is_mapping(response):
        metadata = response.get("ResponseMetadata")
        return read_headers(metadata.get("HTTPHeaders")) if is_mapping(metadata) else {}
    if "grpc" in facts.packages:
        return read_headers(called(attribute(error, "trailing_metadata")))
    for owner in (response, error, attribute(error, "raw_response")):
        found = read_headers(attribute(owner, "headers"))
        if found:
            return found
    return read_headers(attribute(error, "litellm_response_headers"))


def body_of(error: BaseException, response: object) -> Any:
    """The body of an error as Python data, or None."""
    if is_mapping(response):
        return response
    for name in _BODIES:
        found = data_in(attribute(error, name))
        if found is not None:
            return found
    # Both httpx and requests keep a body there once it has been read; asking for it otherwise could read it now.
    return data_in(attribute(response, "_content"))


def codes_of(error: BaseException, body: object, packages: tuple[str, ...]) -> tuple[str, ...]:
    """All that names the error for machines, in lower case, the most telling first."""
    found: dict[str, None] = {}
    for value in (*own_codes(error, packages), *body_codes(body)):
        if type(value) is str or (isinstance(value, (str, int)) and not isinstance(value, bool)):
            text = str.__str__(value) if isinstance(value, str) else str(value)  # also of an enum's member
            if len(text) < 100:
                found.setdefault(text.lower())
    return tuple(found)


def message_of(error: BaseException, body: object) -> str:
    """What an error says for people, in lower case, within the bound."""
    for value in (message_in(body), attribute(error, "message")):
        if isinstance(value, str) and value:
            return value[:MAX_TEXT].lower()
    try:
        return str(error)[:MAX_TEXT].lower()
    except Exception:
        return ""


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a dict or the like; a dict is told without the price of an abstract class."""
    return type(value) is dict or (value is not None and type(value) is not str and isinstance(value, Mapping))


class Descent(NamedTuple):
    """What a class comes from: see `Facts.packages` and `Facts.class_names`."""

    packages: tuple[str, ...]
    names: tuple[str, ...]


@lru_cache(maxsize=1_024)  # bounded: botocore makes classes at run time
def descent_of(kind: Any) -> Descent:
    """The packages and names of a class and its parents."""
    packages: dict[str, None] = {}
    names: list[str] = []
    for one in kind.__mro__[:-3]:
        parts = one.__module__.split(".")
        names.append(f"{parts[0]}.{one.__name__}")
        if parts[0] != "builtins":
            packages.setdefault(".".join(parts[:2]), None)
            packages.setdefault(parts[0], None)
    return Descent(tuple(packages), tuple(names))


def status_in(value: object) -> int | None:
    """The status of a failure, of an int or an HTTPStatus; None for everything else, texts and close codes too."""
    if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
        return int(value)
    return None


def read_headers(headers: object) -> dict[str, str]:
    """Headers of any mapping or list of pairs, text or bytes; never raises."""
    if headers is None:
        return {}
    pairs: Any = attribute(headers, "raw") or headers
    try:
        if not isinstance(pairs, list):
            pairs = pairs.items() if hasattr(pairs, "items") else pairs
        return {as_text(name).lower(): as_text(value) for name, value in pairs}
    except Exception:
        return {}


def as_text(value: object) -> str:
    """Text of text or bytes; of a list of values the last one."""
    if type(value) is bytes:
        return value.decode("latin-1")
    if isinstance(value, (list, tuple)) and value:
        value = value[-1]
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def data_in(value: object) -> Any:
    """Python data of a dict, a list or JSON text within the bound; None for what is none."""
    if is_mapping(value) or isinstance(value, list):
        return value
    if isinstance(value, (str, bytes)) and 0 < len(value) <= MAX_BODY:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value if isinstance(value, str) else None
    return None


def own_codes(error: BaseException, packages: tuple[str, ...]) -> Iterator[object]:
    """Codes that an error carries as attributes."""
    for name in ("error_code", "code", "type", "error_type"):
        yield attribute(error, name)
    for name in ("status", "status_code"):  # in a few libraries these are words
        value = attribute(error, name)
        yield value if isinstance(value, str) else None
    state = attribute(error, "sqlstate")
    yield f"sqlstate {state}" if isinstance(state, str) else None
    if "grpc" in packages:  # it has a method there
        yield attribute(called(attribute(error, "code")), "name")
    yield attribute(attribute(error, "grpc_status_code"), "name")
    yield attribute(attribute(error, "error"), "code")  # azure-core
    yield attribute(attribute(error, "rcvd"), "code")  # websockets


def called(method: object) -> object:
    """What a method without arguments gives, or None."""
    try:
        return method() if callable(method) else None
    except Exception:
        return None


def status_in_body(body: object) -> int | None:
    """The status that an error event inside a stream, which has none of its own, names in its body."""
    error = body.get("error") if is_mapping(body) else None
    code = (error if is_mapping(error) else body if is_mapping(body) else {}).get("code")
    return status_in(
        int(code) if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit() else code
    )


def body_codes(body: object) -> Iterator[object]:
    """Codes in a body, in the shapes that providers use."""
    if isinstance(body, list):
        yield from detail_codes(body)
    if not is_mapping(body):
        return
    error = body.get("error", body.get("Error"))
    for part in (error, body):
        if is_mapping(part):
            details = part.get("details")
            if is_mapping(details):
                yield details.get("error_code")
            elif isinstance(details, list):
                yield from detail_codes(details)
            for name in ("metadata", "innererror"):
                inner = part.get(name)
                if is_mapping(inner):
                    yield from (inner.get("error_type"), inner.get("limit_source"), inner.get("code"))
            for name in ("code", "Code", "type", "status", "error_type", "__type"):
                yield part.get(name)


def detail_codes(details: Iterable[object]) -> Iterator[object]:
    """Reasons and quotas in the details of a google.rpc.Status."""
    for detail in list(details)[:16]:
        if is_mapping(detail):
            yield detail.get("reason")
            violations = detail.get("violations")
            for violation in violations[:16] if isinstance(violations, list) else ():
                if is_mapping(violation):
                    quota = violation.get("quotaId")
                    if isinstance(quota, str) and "perday" in quota.lower():
                        yield "quota per day"
                    if str(violation.get("quotaValue", "")) == "0":
                        yield "quota of zero"


def message_in(body: object) -> object:
    """The message for people in a body."""
    if isinstance(body, str):
        return body
    if not is_mapping(body):
        return None
    error = body.get("error", body.get("Error"))
    if is_mapping(error):
        return error.get("message", error.get("Message"))
    return error if isinstance(error, str) else body.get("message", body.get("detail"))
