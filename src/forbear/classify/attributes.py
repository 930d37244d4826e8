"""The attributes of an error that readers of facts ask for, taken off it once; and what its class comes from.

Decided here: how an attribute is read without the error of a property, and without asking for those that are not
there: of the thirty names an error mostly has five. Must never know what an attribute means.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, ParamSpec, TypeVar

NAMES = frozenset({
    "body", "code", "details", "error", "error_code", "error_type", "grpc_status_code", "headers", "http_body",
    "http_status", "inner_exception", "json_body", "litellm_response_headers", "message", "original_exception",
    "os_error", "provider_status_code", "raw_response", "rcvd", "reason", "request", "response", "retry_after",
    "sqlstate", "status", "status_code", "trailing_metadata", "type",
})  # fmt: skip
# Other names of attributes that are read too; to ask for them makes the library warn.
_DEPRECATED = frozenset({("aiohttp.client_exceptions", "code")})
# Packages of Python itself whose errors tell about a service.
PYTHONS = frozenset({
    "asyncio", "builtins", "concurrent", "ftplib", "http", "json", "nntplib", "smtplib", "socket", "ssl", "urllib",
})  # fmt: skip
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def tried(read: Callable[_Given, _Found], *given: _Given.args, **named: _Given.kwargs) -> _Found | None:
    """What a function gives, or None where it fails: foreign objects may do anything when they are read."""
    try:
        return read(*given, **named)
    except Exception:
        return None


def attribute(owner: object, name: str) -> Any:
    """An attribute, or None: libraries compute some of theirs, and may fail at it."""
    try:
        return getattr(owner, name, None)
    except Exception:
        return None


def called(method: object) -> object:
    """What a method without arguments gives, or None."""
    return tried(method) if callable(method) else None


def attributes_of(error: BaseException) -> dict[str, Any]:
    """Those of `NAMES` that an error has, without those that are None or can't be read."""
    held = tried(vars, error) or {}
    found = {name: held[name] for name in held if name in NAMES and held[name] is not None}
    kind: Any = type(error)
    for name, computed in _declared(kind):
        if computed or name not in held:
            value = attribute(error, name)
            if value is not None:
                found[name] = value
            elif name in found:
                del found[name]
    return found


@lru_cache(maxsize=1_024)  # bounded: botocore makes classes at run time
def _declared(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The names that a class has itself, and whether it computes them: then they hide what the instance has.

    All of them where it computes attributes by name.
    """
    declared: dict[str, bool] = {}
    for one in kind.__mro__:
        own = vars(one)
        if one.__module__ != "builtins" and ("__getattr__" in own or "__getattribute__" in own):
            return tuple((name, True) for name in NAMES)
        for name in NAMES & own.keys():
            if (one.__module__, name) in _DEPRECATED:
                continue
            declared.setdefault(name, hasattr(type(own[name]), "__set__"))
    return tuple(declared.items())


class Descent(NamedTuple):
    """What a class comes from: see `Facts.packages`, `Facts.class_names` and `Facts.library`."""

    packages: tuple[str, ...]
    names: tuple[str, ...]
    library: str | None


@lru_cache(maxsize=1_024)
def descent_of(kind: Any) -> Descent:
    """The packages and names of a class and its parents."""
    packages: dict[str, None] = {}
    names: list[str] = []
    for one in kind.__mro__[:-3]:
        parts = str(one.__module__).split(".")
        names.append(f"{parts[0]}.{one.__name__}")
        if parts[0] != "builtins":
            packages.setdefault(".".join(parts[:2]), None)
            packages.setdefault(parts[0], None)
    found = tuple(packages)
    return Descent(found, tuple(names), _library(found))


def _library(packages: tuple[str, ...]) -> str | None:
    """The package of the class itself, Google's by two names; None where it is a part of Python."""
    foreign = [package for package in packages if package.partition(".")[0] not in PYTHONS]
    if not foreign:
        return None
    return foreign[0] if foreign[0].startswith("google.") else foreign[0].partition(".")[0]
