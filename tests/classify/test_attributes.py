"""The attributes of an error are read once, safely, and only those that are there; and what its class comes from."""

from __future__ import annotations

from typing import Any

import httpx

from forbear.classify.attributes import NAMES, attribute, attributes_of, called, descent_of, tried
from foreign import Thing, WebError, foreign


def fails() -> None:
    raise RuntimeError


def test_what_fails_gives_nothing() -> None:
    assert tried(fails) is None
    assert tried(int, "7", base=8) == 7
    assert called(fails) is called(None) is called(7) is None
    assert called(lambda: 7) == 7
    assert called(lambda needed: needed) is None


def test_an_attribute_that_fails_is_none() -> None:
    request = httpx.RequestError("")
    assert attribute(request, "request") is None
    assert attribute(request, "nothing") is None
    assert attribute(Thing(a=7), "a") == 7


def test_only_what_is_known_and_is_there_is_read() -> None:
    assert attributes_of(ValueError("x")) == attributes_of(KeyboardInterrupt()) == {}
    assert attributes_of(WebError(status_code=429, body=None, mine=7)) == {"status_code": 429}


def test_defaults_and_properties_of_a_class_are_read_as_its_instances_give_them() -> None:
    class Base(Exception):
        code = 1
        status = 2
        body = None

        @property
        def message(self) -> str:
            return "computed"

        @property
        def details(self) -> str:
            raise RuntimeError

    class Mine(Base):
        __slots__ = ("reason",)

    error = Mine()
    error.status = 3
    error.__dict__.update(message="hidden", details="hidden too")
    assert attributes_of(error) == {"code": 1, "status": 3, "message": "computed"}
    error.reason = "slot"
    assert attributes_of(error)["reason"] == "slot"
    assert attributes_of(UnicodeDecodeError("ascii", b"x", 0, 1, "why")) == {"reason": "why"}


def test_a_class_that_computes_attributes_by_name_is_asked_for_all() -> None:
    class Computed(Exception):
        def __getattr__(self, name: str) -> Any:
            if name == "status":
                raise RuntimeError
            return name.upper() if name in NAMES else None

    assert attributes_of(Computed()) == {name: name.upper() for name in NAMES - {"status"}}


def test_a_class_that_gives_away_nothing_has_nothing() -> None:
    class Closed(Exception):
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError

    assert attributes_of(Closed()) == {}


def test_pythons_own_classes_come_from_no_package() -> None:
    assert descent_of(ConnectionResetError) == (
        (), ("builtins.ConnectionResetError", "builtins.ConnectionError", "builtins.OSError"), None,
    )  # fmt: skip
    assert descent_of(Exception) == ((), (), None)


def test_a_library_has_one_name_and_those_of_google_two() -> None:
    assert descent_of(foreign("E", "cohere.errors.not_found")).library == "cohere"
    assert descent_of(foreign("E", "google.api_core.exceptions")).library == "google.api_core"
    assert descent_of(foreign("gaierror", "socket")).library is None
    assert descent_of(foreign("E", "http.client", foreign("F", "acme"))).library == "acme"


def test_a_class_may_have_an_odd_module() -> None:
    odd = foreign("Odd", "acme")
    odd.__module__ = None
    assert descent_of(odd) == (("None",), ("None.Odd",), "None")


def test_another_name_of_an_attribute_at_which_a_library_warns_is_not_asked_for() -> None:
    """aiohttp has `code` for `status`, and tells whoever reads it that it is deprecated."""

    def code(_: object) -> int:
        raise AssertionError("it was read")

    kind = foreign("ClientResponseError", "aiohttp.client_exceptions")
    kind.code = property(code)
    error = type("Ours", (kind,), {})()
    error.status = 503
    assert attributes_of(error) == {"status": 503}
