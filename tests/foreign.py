"""Errors as foreign libraries make them, made without those libraries. Taken in by the `conftest.py` of a folder."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any


class Thing:
    """A foreign object: only the attributes that are given exist."""

    def __init__(self, **facts: object) -> None:
        self.__dict__.update(facts)


class WebError(Exception):
    """An error of an unknown library: only the attributes that are given exist."""

    def __init__(self, **facts: object) -> None:
        super().__init__()
        self.__dict__.update(facts)


def foreign(name: str, module: str, *bases: type[BaseException]) -> Any:
    """An exception class as the library of that module has it; made with `(**attributes)`."""

    def set_facts(self: BaseException, *args: object, **facts: object) -> None:
        BaseException.__init__(self, *args)
        self.__dict__.update(facts)

    return type(name, bases or (Exception,), {"__module__": module, "__init__": set_facts})


def chained(*errors: BaseException) -> Any:
    """The first error, made from the second with `raise ... from`, that from the third, and so on."""
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]


def caught(make: Callable[[], BaseException], root: BaseException, *, suppressed: bool = False) -> Any:
    """An error that was raised where another one had been caught, as wrappers do."""
    try:
        try:
            raise root
        except BaseException:
            if suppressed:
                raise make() from None
            raise make()
    except BaseException as error:
        return error


def answer(status: int, headers: dict[str, str] | None = None, body: Any = None, **facts: object) -> WebError:
    """The error of a failed HTTP answer."""
    return WebError(status_code=status, headers=headers or {}, body=body, **facts)
