"""What a call tells its caller: the state before a wait, and the error in the end.

Decided here: what they say, and what survives pickling. No text of a foreign error gets into a message or a repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from forbear.errors import ResultRejected, picklable, type_name
from forbear.errors import RetryError as GivenUp


@dataclass(frozen=True)
class RetryState:
    """What `on_retry` is told before a wait.

    `attempt` has failed (from 1); `delay` seconds follow, asked for by the server where `from_server`; `exception` is
    what it raised, or `result` what it returned; `elapsed` seconds since the call began.
    """

    attempt: int
    delay: float
    exception: BaseException | None = field(repr=False)
    result: Any = field(repr=False)
    elapsed: float
    from_server: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        error = picklable(self.exception)
        return (type(self), (self.attempt, self.delay, error, self.result, self.elapsed, self.from_server))


class RetryError(GivenUp):
    """The call was given up: all attempts are used up, or the deadline is reached.

    `attempts` have been made; `last_exception` (also `__cause__`) is what the last one raised, or `last_result` what it
    returned. It is a `forbear.RetryError` too, with its `reason`, `elapsed`, `waited` and `history`.
    """

    def __init__(self, attempts: int, last_exception: BaseException | None = None, last_result: object = None) -> None:
        super().__init__("max_attempts", attempts, last_exception)
        self.last_exception = last_exception
        self._result = last_result
        what = f"returned a refused {type(last_result).__name__}"
        if last_exception is not None:
            what = f"raised {type_name(last_exception)}"
        self.args = (f"gave up after {'1 attempt' if attempts == 1 else f'{attempts} attempts'}; the last one {what}",)

    @property
    def last_result(self) -> Any:
        """The value that `retry_if_result` refused last, or None."""
        return self._result

    def __copy__(self) -> RetryError:
        return _remade(type(self), self.last_exception, self._facts())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_remade, (type(self), picklable(self.last_exception), self._facts()))

    def _facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("attempts", "last_result", *_FACTS)}


_FACTS = ("reason", "elapsed", "waited", "hint", "history")


def _remade(kind: type[RetryError], last: BaseException | None, facts: dict[str, Any]) -> RetryError:
    made = kind(facts["attempts"], last, facts["last_result"])
    for name in _FACTS:
        setattr(made, name, facts[name])
    return made


class Listed(Exception):
    """Takes the place of a RetryError that is to be retried, as it is listed by name."""

    def __init__(self, error: GivenUp) -> None:
        super().__init__("a RetryError that is listed")
        self.error = error


class Kept:
    """A result that could be awaited, and is not ours to await: a task, or what opens a block."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def bare(value: Any) -> Any:
    """What the function really returned or raised."""
    return value.value if type(value) is Kept else value.error if type(value) is Listed else value


def final_of(error: GivenUp) -> RetryError:
    """What a caller of this surface gets where forbear has given up."""
    last = error.last_error
    result = bare(last.result) if isinstance(last, ResultRejected) else None
    facts = {"attempts": error.attempts, "last_result": result, **{name: getattr(error, name) for name in _FACTS}}
    return _remade(RetryError, None if isinstance(last, ResultRejected) else bare(last), facts)
