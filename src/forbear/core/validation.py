"""What a duration, a count and a share may be; one place for all settings, with messages that give the correction.

Must never know which setting it checks beyond its name. Prevents the harm of a wrong unit or a stray NaN that shows
itself only in the first outage, when the retry is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol


class Duration(Protocol):
    """What `datetime.timedelta` offers; named here so that nothing needs to be imported for it."""

    def total_seconds(self) -> float:
        """The length in seconds."""
        ...


Seconds = float | Duration


def number(name: str, value: object) -> float:
    """A float that is not NaN. A bool is not a number; an integer too large for a float is refused."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, not {type(value).__name__}")
    try:
        result = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large") from None
    if math.isnan(result):
        raise ValueError(f"{name} must be a number, not NaN")
    return result


def seconds(name: str, value: object, *, zero: bool = True, endless: bool = True) -> float:
    """Seconds as a float, from a number or a timedelta. `zero` and `endless` say whether 0 and infinity are allowed."""
    total = getattr(value, "total_seconds", None)
    result = number(name, total() if callable(total) else value)
    if result < 0:
        raise ValueError(f"{name} is {result:g}: a duration is never negative; of a computed rest, pass max(0, rest)")
    if not zero and result == 0:
        raise ValueError(f"{name} is 0, which leaves no time at all; pass None for no limit")
    if not endless and math.isinf(result):
        raise ValueError(f"{name} must be finite: an endless wait helps nobody")
    return result


def optional_seconds(name: str, value: object, *, zero: bool = True) -> float | None:
    """As `seconds`, where None and infinity both mean "no limit" and give None."""
    if value is None:
        return None
    result = seconds(name, value, zero=zero)
    return None if math.isinf(result) else result


def count(name: str, value: object) -> int:
    """An integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} is {value}: it counts attempts, the first included, so 1 is the least")
    return value


def share(name: str, value: object) -> float:
    """A number from 0 to 1, both included."""
    result = number(name, value)
    if not 0.0 <= result <= 1.0:
        raise ValueError(f"{name} is {result:g}; it must lie between 0 and 1")
    return result


def flag(name: str, value: object) -> bool:
    """A real bool, not a truthy value."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {type(value).__name__}")
    return value


def refuse_unknown(owner: str, unknown: Mapping[str, object], meant: Mapping[str, str]) -> None:
    """Raises TypeError for an option that `owner` does not have, with the one that users of other libraries mean."""
    for name in unknown:
        raise TypeError(f"{owner} has no option {name}=" + (f"; use {meant[name]}" if name in meant else ""))
