"""The server's own wait, wherever an error carries it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from forbear.classify.hints import headers_of, retry_after_of

NOW = "Wed, 21 Oct 2015 07:28:00 GMT"
LATER = "Wed, 21 Oct 2015 07:30:30 GMT"


class Answer:
    """A response, as far as its headers go."""

    def __init__(self, headers: object) -> None:
        self.headers = headers


class WebError(Exception):
    """An error as HTTP libraries make them: only what is given exists."""

    def __init__(self, **facts: object) -> None:
        super().__init__()
        self.__dict__.update(facts)


class Broken(Mapping[str, str]):
    """Headers that can't be read any more."""

    def __getitem__(self, name: str) -> str:
        raise RuntimeError("closed")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("closed")

    def __len__(self) -> int:
        return 1


def hint_in(**headers: object) -> float | None:
    return retry_after_of(WebError(headers={name.replace("_", "-"): value for name, value in headers.items()}))


@pytest.mark.parametrize("value", [7, 7.0, "7", " 7 ", "7e0"])
def test_an_attribute_gives_the_wait_in_seconds(value: object) -> None:
    assert retry_after_of(WebError(retry_after=value)) == 7.0


@pytest.mark.parametrize("value", [0, 0.0, "0"])
def test_a_wait_of_zero_is_a_hint(value: object) -> None:
    assert retry_after_of(WebError(retry_after=value)) == 0.0


NONSENSE = [
    -1,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    True,
    False,
    "soon",
    "",
    "1_000",
    "\u0667",
    "0x10",
    "nan",
    "inf",
    "-1",
]


@pytest.mark.parametrize("value", [*NONSENSE, b"7", [7], {}])
def test_nonsense_in_an_attribute_is_no_hint(value: object) -> None:
    assert retry_after_of(WebError(retry_after=value)) is None


@pytest.mark.parametrize("value", NONSENSE)
def test_nonsense_in_a_header_is_no_hint(value: object) -> None:
    assert hint_in(Retry_After=value) is None
    assert hint_in(Retry_After=value, Date=NOW) is None


def test_the_attribute_comes_before_the_headers() -> None:
    assert retry_after_of(WebError(retry_after=3, headers={"Retry-After": "7"})) == 3.0
    assert retry_after_of(WebError(retry_after=None, headers={"Retry-After": "7"})) == 7.0


def test_no_hint_anywhere_gives_none() -> None:
    assert retry_after_of(ValueError()) is None
    assert retry_after_of(WebError(headers={})) is None
    assert retry_after_of(WebError(headers={"Content-Type": "text/plain"})) is None


@pytest.mark.parametrize("name", ["Retry-After", "retry-after", "RETRY-AFTER"])
def test_the_case_of_a_header_does_not_matter(name: str) -> None:
    assert retry_after_of(WebError(headers={name: "1.5"})) == 1.5


def test_milliseconds_come_before_seconds() -> None:
    assert hint_in(Retry_After_Ms="1500", Retry_After="2") == 1.5
    assert hint_in(Retry_After_Ms="nonsense", Retry_After="2") == 2.0


def test_a_date_is_read_against_the_date_of_the_response() -> None:
    assert hint_in(Retry_After=LATER, Date=NOW) == 150.0


def test_a_date_in_the_past_means_no_wait() -> None:
    assert hint_in(Retry_After=NOW, Date=LATER) == 0.0


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_a_date_without_a_readable_date_of_the_response_is_no_hint(date: str | None) -> None:
    assert hint_in(Retry_After=LATER) is None
    assert hint_in(Retry_After=LATER, Date=date) is None


@pytest.mark.parametrize(
    "later",
    [
        "Wednesday, 21-Oct-15 07:30:30 GMT",
        "Wed Oct 21 07:30:30 2015",
        "Wed, 21 Oct 2015 09:30:30 +0200",
        "21 Oct 2015 07:30:30 -0000",
    ],
)
def test_the_older_forms_of_a_date_are_read_too(later: str) -> None:
    assert hint_in(Retry_After=later, Date=NOW) == 150.0


@pytest.mark.parametrize(
    "date",
    [
        "Wed, 99 Oct 2015 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 +9999999",
        "Wed, 21 Oct 2015 07:28:00 +99999999999999999999",
        "Wed, 21 Oct",
    ],
)
def test_an_impossible_date_is_no_hint(date: str) -> None:
    assert hint_in(Retry_After=date, Date=NOW) is None


def test_the_headers_of_the_response_come_before_those_of_the_error() -> None:
    error = WebError(response=Answer({"Retry-After": "7"}), headers={"Retry-After": "9"})
    assert retry_after_of(error) == 7.0


def test_the_headers_of_the_error_serve_where_the_response_has_none() -> None:
    assert retry_after_of(WebError(response=Answer(None), headers={"Retry-After": "9"})) == 9.0
    assert retry_after_of(WebError(response=None, headers={"Retry-After": "9"})) == 9.0


def test_the_headers_of_httpx_are_read() -> None:
    request = httpx.Request("GET", "https://example.org")
    response = httpx.Response(429, headers={"Retry-After": "7"}, request=request)
    assert retry_after_of(httpx.HTTPStatusError("", request=request, response=response)) == 7.0


@pytest.mark.parametrize("headers", [None, "Retry-After: 7", [("Retry-After", "7")], 7])
def test_what_is_no_mapping_is_no_headers(headers: object) -> None:
    assert headers_of(WebError(headers=headers)) is None
    assert retry_after_of(WebError(headers=headers)) is None


def test_headers_that_cannot_be_read_are_empty() -> None:
    assert headers_of(WebError(headers=Broken())) == {}
    assert retry_after_of(WebError(headers=Broken())) is None


def test_names_are_given_in_lower_case_and_values_as_text() -> None:
    headers: dict[Any, Any] = {"Retry-After": 7, "X-Id": None}
    assert headers_of(WebError(headers=headers)) == {"retry-after": "7", "x-id": "None"}
