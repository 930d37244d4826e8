"""R098: default output printed what the call was given; keys hide in arguments, headers, queries and texts."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
import warnings
from collections.abc import Callable, Generator
from typing import Any

import httpx
import pytest

from forbear import ApiError, RetryError, RetryState, listening, retry_call, retry_sync
from forbear.classify import failures
from forbear.testing import FakeTime, Flaky, record_events

Form = Callable[..., Any]
SECRET = "sk-live-abcdef0123456789"


class Collected(logging.Handler):
    """Every record of every logger, fully formatted."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {record.__dict__}")


@pytest.fixture
def logged() -> Generator[list[str]]:
    root, handler = logging.getLogger(), Collected()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    logging.getLogger("forbear").setLevel(logging.DEBUG)
    yield handler.lines
    root.removeHandler(handler)
    root.setLevel(level)
    logging.getLogger("forbear").setLevel(logging.NOTSET)


class ClientError(ConnectionError):
    """An error of a client that holds everything."""

    def __init__(self) -> None:
        super().__init__(f"GET https://example.org/?key={SECRET}")
        self.request = {"headers": {"authorization": SECRET}}
        self.host = SECRET
        self.add_note(SECRET)


def http_error() -> httpx.HTTPStatusError:
    request = httpx.Request("GET", f"https://u:{SECRET}@example.org/?key={SECRET}", headers={"authorization": SECRET})
    response = httpx.Response(503, headers={"x-key": SECRET, "retry-after": "1"}, text=SECRET, request=request)
    return httpx.HTTPStatusError(f"503 for {request.url}", request=request, response=response)


def chained() -> Exception:
    try:
        raise ValueError(SECRET)
    except ValueError as cause:
        error = ConnectionError(SECRET)
        error.__cause__ = cause
        return error


ERRORS: dict[str, Callable[[], Exception]] = {
    "text": lambda: ConnectionError(SECRET),
    "client": ClientError,
    "http": http_error,
    "api": lambda: ApiError(503, SECRET, retry_after=1.0),
    "cause": chained,
    "permanent": lambda: ApiError(400, SECRET),
    "spent": lambda: ApiError(429, SECRET, retry_after=1e6),
}


def ours(error: BaseException) -> list[str]:
    """All that a final error of ours prints of itself; not the foreign error behind it."""
    twin = pickle.loads(pickle.dumps(error))
    texts = [str(error), repr(error), *error.args, str(twin), repr(twin), *getattr(error, "__notes__", ())]
    if isinstance(error, RetryError):
        texts += [repr(error.history), *traceback.format_exception_only(error)]
        texts += [repr(twin.last_error)] if type(twin.last_error) is not type(error.last_error) else []
    return texts


def hooks() -> dict[str, Callable[[RetryState], Any] | None]:
    def raising(state: RetryState) -> None:
        raise ValueError(SECRET) from state.error

    def raising_the_failure(state: RetryState) -> None:
        assert state.error is not None
        raise state.error

    async def raising_async(state: RetryState) -> None:
        raise ValueError(SECRET, state)

    return {"none": None, "raising": raising, "same": raising_the_failure, "async": raising_async}


@pytest.mark.parametrize("hook", hooks())
def test_what_an_error_holds_is_in_nothing_of_ours(form: Form, logged: list[str], hook: str) -> None:
    def broken_listener(event: object) -> None:
        raise ValueError(SECRET, event)

    for name, make in ERRORS.items():
        shown: list[str] = []
        with FakeTime(), record_events() as events, listening(broken_listener), pytest.raises(Exception) as caught:
            form(Flaky(then=make()), max_attempts=3, on_retry=hooks()[hook])
        if isinstance(caught.value, RetryError):
            shown += ours(caught.value)
        shown += [repr(event) + str(event) for event in events]
        shown += [repr(failures.classify(make())), *(line for line in logged if "forbear" in line)]
        assert events, name
        assert [text for text in shown if SECRET in text] == [], name


@pytest.mark.parametrize("name", ["text", "api"])
def test_the_note_on_an_error_raised_as_itself_adds_nothing(form: Form, name: str) -> None:
    with FakeTime(), pytest.raises((ConnectionError, ApiError)) as caught:
        form(Flaky(then=ERRORS[name]()), max_attempts=2, reraise=True)
    assert [note for note in caught.value.__notes__ if SECRET in note] == []
    assert SECRET not in repr(caught.value.__forbear__)  # type: ignore[union-attr]


def test_a_refused_result_is_not_shown(form: Form, logged: list[str]) -> None:
    with FakeTime(), record_events() as events, pytest.raises(RetryError) as caught:
        form(Flaky(then={"token": SECRET}), retry_if_result=lambda _: True, max_attempts=3, on_retry=hooks()["raising"])
    assert caught.value.last_result == {"token": SECRET}
    shown = [*ours(caught.value), repr(caught.value.last_error), str(caught.value.last_error), repr(events), *logged]
    assert [text for text in shown if SECRET in text] == []


def test_a_result_is_not_shown(form: Form, logged: list[str]) -> None:
    with FakeTime(), record_events() as events:
        assert form(Flaky(ConnectionError(), then=SECRET)) == SECRET
    assert SECRET not in repr(events) + "".join(logged)


def use(key: str, *, token: str = "", **_: str) -> None:
    raise ConnectionError(f"{key} {token}")


async def use_async(key: str, *, token: str = "", **_: str) -> None:
    raise ConnectionError(f"{key} {token}")


@pytest.mark.parametrize("hook", ["none", "raising", "same"])
def test_arguments_are_not_shown(logged: list[str], hook: str) -> None:
    options: Any = {"max_attempts": 3, "on_retry": hooks()[hook]}
    with FakeTime(), record_events() as events, pytest.raises(RetryError) as caught:
        retry_call(use, SECRET, token=SECRET, other=SECRET, retry_options=options)
    assert [text for text in [*ours(caught.value), repr(events), *logged] if SECRET in text] == []


@pytest.mark.parametrize("hook", ["none", "raising", "same", "async"])
async def test_arguments_of_async_calls_are_not_shown(logged: list[str], hook: str) -> None:
    options: Any = {"max_attempts": 3, "on_retry": hooks()[hook]}
    with FakeTime(), record_events() as events, pytest.raises(RetryError) as caught:
        await retry_call(use_async, SECRET, token=SECRET, other=SECRET, retry_options=options)
    lines = [line for line in logged if "forbear" in line]
    assert [text for text in [*ours(caught.value), repr(events), *lines] if SECRET in text] == []


def test_warnings_show_nothing(logged: list[str]) -> None:
    async def main() -> None:
        with pytest.raises(RetryError):
            retry_sync(lambda: use(SECRET), backoff=[0.001], max_attempts=2)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(main())
    assert warned
    assert [text for text in [str(one.message) for one in warned] + logged if SECRET in text] == []
