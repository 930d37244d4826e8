"""What can be read off an error without knowing its library: status, headers, body, codes, classes.

Decided here: where each fact may lie, in which order the places are believed, and what is never done to find it: no
import, no method that may read from a network, no text longer than a bound. Every reader takes whatever it finds and
never raises. Must never decide what a fact means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

from forbear.classify.attributes import attribute, attributes_of, called, descent_of, tried
from forbear.classify.hints import hint_of

MAX_BODY = 65_536  # bytes of a body that are read: an error says what it is early
MAX_TEXT = 2_000
_OWN_STATUS = ("provider_status_code", "status_code", "code", "http_status", "status")
# In these a number from 400 to 599 is a code of another protocol: 535 is a wrong password in SMTP.
_NO_HTTP = frozenset({"aiosmtplib", "smtplib", "ftplib", "nntplib", "clickhouse_driver", "clickhouse_connect"})
_RESPONSE_STATUS = ("status_code", "status")
_UNREAD = object()
_CODES = ("error_code", "code", "type", "error_type")
# Attributes of which a part is a code: of google, azure and websockets; of a state of a database it is all of it.
_PARTS = {"sqlstate": "", "grpc_status_code": "name", "error": "code", "rcvd": "code"}
# Attributes that no status, header, body or code is read from. Errors of the network have no others.
_SILENT = frozenset(
    {"inner_exception", "message", "original_exception", "os_error", "reason", "request", "retry_after"}
)
_BODIES = ("body", "details", "json_body", "http_body", "error")
# The headers that anything is read from, besides those of rate limits. The others are passed over unread.
_NOTED = frozenset({
    "date", "grpc-retry-pushback-ms", "grpc-status-details-bin", "ratelimit", "retry-after", "retry-after-ms",
    "stripe-should-retry", "x-amz-retry-after", "x-ms-retry-after-ms", "x-should-retry",
})  # fmt: skip
_NOTED_BYTES = {name.encode(): name for name in _NOTED}
Reader = Callable[[Mapping[str, Any]], float | None]


class Facts:
    """The facts of one error. `now` is the wall clock, in epoch seconds; `readers` are asked for hints in the body.

    own: the attributes that may tell something, as they are.
    packages: the packages that the error's classes come from, the most specific first: "google.genai", "google".
    class_names: the names of its classes with their package: "httpx.ReadTimeout".
    library: the package that the error's own class comes from; None for Python's own.
    status: the HTTP status of a failure (400 to 599), or None; where several places disagree, the first wins.
    headers: those that tell something, with names in lower case, of a repeated one the last.
    body: Python data, mostly a dict, or None.
    codes: all that names the error for machines, in lower case, the most telling first.
    """

    __slots__ = (
        "_hint", "_message", "body", "class_names", "codes", "error", "headers", "library", "now", "own", "packages",
        "readers", "status",
    )  # fmt: skip

    def __init__(self, error: BaseException, now: float | None = None, readers: tuple[Reader, ...] = ()) -> None:
        self.error = error
        self.now = now
        self.readers = readers
        kind: Any = type(error)
        self.packages, self.class_names, self.library = descent_of(kind)
        self.own = attributes_of(error)
        self._hint: Any = _UNREAD
        self._message: str | None = None
        self.headers: dict[str, str] = {}
        self.body: Any = None
        self.status: int | None = None
        self.codes: tuple[str, ...] = ()
        if not self.own.keys() <= _SILENT:
            self._read(self.own)

    def _read(self, own: dict[str, Any]) -> None:
        """Each fact by itself: where one can't be read, the others still say what they say."""
        response = own.get("response")
        if response is not None and tried(is_mapping, response):
            response = own["response"] = tried(dict, response)  # botocore's; from here on it is the body, too
        headers = tried(headers_of, own, response, self.packages)
        self.headers = headers or {}
        self.body = tried(body_of, own, response)
        if self._status_is_made_up(headers):
            told = status_in(own.get("provider_status_code"))
            self.status = None if told == 500 else told  # litellm says 500 where it does not know
        else:
            if _NO_HTTP.isdisjoint(self.packages):
                self.status = tried(status_of, own, response, self.body)
            self.codes = tried(codes_of, own, self.body, self.packages) or ()

    def is_of(self, package: str) -> bool:
        """Whether a class of the error comes from this package."""
        return package in self.packages

    def _status_is_made_up(self, headers: dict[str, str] | None) -> bool:
        """Two libraries give a status and codes to failures that no server answered: there are no headers then."""
        if "litellm" in self.packages:
            return headers is None
        return "aiohttp" in self.packages and "headers" not in self.own

    @property
    def inside_answer(self) -> bool:
        """Whether the failure came inside an answer that had begun with a status of success."""
        response = self.own.get("response")
        for owner, name in ((response, "status_code"), (response, "status"), (self.error, "status_code")):
            wire = attribute(owner, name)
            if isinstance(wire, int) and not isinstance(wire, bool):
                return wire < 400
        return self.status is not None and self.status == tried(status_in_body, self.body)

    @property
    def repeated(self) -> bool:
        """Whether the library has made the request more than once by itself: an earlier one may have been done."""
        response = self.own.get("response")
        if type(response) is dict:
            metadata = response.get("ResponseMetadata")
            return is_mapping(metadata) and metadata.get("RetryAttempts", 0) not in (0, None)
        request = self.own.get("request") or attribute(response, "request")
        headers = attribute(request, "headers")
        if headers is None:
            return False
        if not hasattr(type(headers), "raw"):
            headers = read_headers(headers)
        return headers.get("x-stainless-retry-count", "0") not in ("0", "")

    @property
    def message(self) -> str:
        """What the error says for people, in lower case. Only rules of one provider may look at it."""
        if self._message is None:
            self._message = tried(message_of, self.error, self.own, self.body) or ""
        return self._message

    @property
    def hint(self) -> float | None:
        """The server's own wait in seconds, or None."""
        if self._hint is _UNREAD:
            self._hint = tried(hint_of, self)
        return self._hint  # type: ignore[no-any-return]


def status_of(own: Mapping[str, Any], response: object, body: object) -> int | None:
    """The status of a failure, wherever it lies."""
    if type(response) is dict:
        metadata = response.get("ResponseMetadata")
        return status_in(metadata.get("HTTPStatusCode")) if is_mapping(metadata) else None
    for name in _OWN_STATUS:
        if name in own:
            found = status_in(own[name])
            if found is not None:
                return found
    for owner in (response, own.get("raw_response")):
        if owner is not None:
            for name in _RESPONSE_STATUS:
                found = status_in(attribute(owner, name))
                if found is not None:
                    return found
    return status_in_body(body)


def headers_of(own: Mapping[str, Any], response: object, packages: tuple[str, ...]) -> dict[str, str] | None:
    """The headers of note of an error, its response, or what its library keeps of them. None where there are none."""
    if type(response) is dict:
        metadata = response.get("ResponseMetadata")
        return noted_headers(metadata.get("HTTPHeaders")) if is_mapping(metadata) else None
    if "grpc" in packages:
        return noted_headers(called(own.get("trailing_metadata")))
    found = None if response is None else noted_headers(attribute(response, "headers"))
    if found is None and "headers" in own:
        found = noted_headers(own["headers"])
    if found is None and "raw_response" in own:
        found = noted_headers(attribute(own["raw_response"], "headers"))
    return noted_headers(own.get("litellm_response_headers")) if found is None else found


def body_of(own: Mapping[str, Any], response: object) -> Any:
    """The body of an error as Python data, or None."""
    if type(response) is dict:
        return response
    for name in _BODIES:
        if name in own:
            found = data_in(own[name])
            if found is not None:
                return found
    # Both httpx and requests keep a body there once it has been read; asking for it otherwise could read it now.
    return None if response is None else data_in(attribute(response, "_content"))


def codes_of(own: Mapping[str, Any], body: object, packages: tuple[str, ...]) -> tuple[str, ...]:
    """All that names the error for machines, in lower case, the most telling first."""
    found: dict[str, None] = {}
    told = (
        [*own_codes(own, packages), *(tried(body_codes, body) or ())] if body is not None else own_codes(own, packages)
    )
    for value in told:
        text = value if type(value) is str else tried(_odd_code, value)
        if text is not None and len(text) < 100:
            found[text.lower()] = None
    return tuple(found)


def _odd_code(value: object) -> str | None:
    """The text of a number, or of an enum's member; None for what can be no code."""
    if isinstance(value, str):
        return str.__str__(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def message_of(error: BaseException, own: Mapping[str, Any], body: object) -> str:
    """What an error says for people, in lower case, within the bound."""
    for value in (tried(message_in, body), own.get("message")):
        if isinstance(value, str) and value:
            return value[:MAX_TEXT].lower()
    return str(error)[:MAX_TEXT].lower()


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a dict or the like; a dict is told without the price of an abstract class."""
    return type(value) is dict or (value is not None and type(value) is not str and isinstance(value, Mapping))


def status_in(value: object) -> int | None:
    """The status of a failure, of an int or an HTTPStatus; None for everything else, texts and close codes too."""
    if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
        return int(value)
    return None


def pairs_of(headers: object) -> Iterable[tuple[Any, Any]]:
    """The pairs of headers of any kind; without any where there are none. May raise while it is read."""
    if headers is None:
        return ()
    pairs: Any = attribute(headers, "raw") or headers
    if not isinstance(pairs, list):
        pairs = pairs.items() if hasattr(pairs, "items") else pairs
    return pairs  # type: ignore[no-any-return]


def read_headers(headers: object) -> dict[str, str]:
    """Headers of any mapping or list of pairs, text or bytes; never raises."""
    try:
        return {as_text(name).lower(): as_text(value) for name, value in pairs_of(headers)}
    except Exception:
        return {}


def noted_headers(headers: object) -> dict[str, str] | None:
    """Those headers that tell something; None where there are no headers, or none that can be read."""
    found: dict[str, str] = {}
    key: Any = None
    try:
        for name, value in pairs_of(headers):
            if type(name) is bytes:
                key = name.lower()
                if key in _NOTED_BYTES or b"ratelimit-" in key:
                    text = value.decode("latin-1") if type(value) is bytes else as_text(value)
                    found[_NOTED_BYTES.get(key) or key.decode("latin-1")] = text
            else:
                key = as_text(name).lower()
                if key in _NOTED or "ratelimit-" in key:
                    found[key] = as_text(value)
    except Exception:
        return None
    return None if key is None else found


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


def own_codes(own: Mapping[str, Any], packages: tuple[str, ...]) -> list[object]:
    """Codes that an error carries as attributes."""
    found: list[object] = [own[name] for name in _CODES if name in own]
    found += [own[name] for name in ("status", "status_code") if isinstance(own.get(name), str)]  # words, in a few
    if "grpc" in packages:  # it has a method there
        found.append(attribute(called(own.get("code")), "name"))
    if own.keys().isdisjoint(_PARTS):
        return found
    if isinstance(own.get("sqlstate"), str):
        found.append(f"sqlstate {own['sqlstate']}")
    return found + [attribute(own[name], part) for name, part in _PARTS.items() if name in own and part]


def status_in_body(body: object) -> int | None:
    """The status that an error event inside a stream, which has none of its own, names in its body."""
    error = body.get("error") if is_mapping(body) else None
    code = (error if is_mapping(error) else body if is_mapping(body) else {}).get("code")
    return status_in(
        int(code) if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit() else code
    )


def body_codes(body: object) -> list[object]:
    """Codes in a body, in the shapes that providers use."""
    if not is_mapping(body):
        return tried(detail_codes, body) or [] if isinstance(body, list) else []
    found: list[object] = []
    error = body.get("error", body.get("Error"))
    for part in (error, body) if is_mapping(error) else (body,):
        if "details" in part:
            details = part["details"]
            found += [details.get("error_code")] if is_mapping(details) else tried(detail_codes, details) or []
        for name in ("metadata", "innererror"):
            if name in part and is_mapping(part[name]):
                found += map(part[name].get, ("error_type", "limit_source", "code"))
        found += [part[name] for name in ("code", "Code", "type", "status", "error_type", "__type") if name in part]
    return found


def detail_codes(details: object) -> list[object]:
    """Reasons and quotas in the details of a google.rpc.Status."""
    found: list[object] = []
    for detail in details[:16] if isinstance(details, list) else ():
        if is_mapping(detail):
            found.append(detail.get("reason"))
            violations = detail.get("violations")
            for violation in violations[:16] if isinstance(violations, list) else ():
                if is_mapping(violation):
                    quota = violation.get("quotaId")
                    if isinstance(quota, str) and "perday" in quota.lower():
                        found.append("quota per day")
                    if str(violation.get("quotaValue", "")) == "0":
                        found.append("quota of zero")
    return found


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
