"""What the tests of this surface share: errors as services answer them, functions by script, a clock by hand."""

from __future__ import annotations

from typing import Any


class Answer:
    """A response of an HTTP client."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.status_code = status
        self.headers = headers or {}


class StatusError(Exception):
    """An error of a client for an API, with its response."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.response = Answer(status, {name.replace("_", "-"): value for name, value in headers.items()})


class Script:
    """A function whose calls end as listed; the last outcome repeats."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = outcomes
        self.calls = 0

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.calls += 1
        outcome = self.outcomes[min(self.calls, len(self.outcomes)) - 1]
        if isinstance(outcome, BaseException):
            raise outcome.with_traceback(None)
        return outcome


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def nap(_: float) -> None:
    """A wait that takes no time."""
