"""What a call costs of a service's limits, as users say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Tokens = Callable[..., float] | float | None


def tokens_of(tokens: Tokens, args: Iterable[Any], kwargs: dict[str, Any]) -> float:
    """What a call with these arguments costs."""
    if tokens is None:
        return 0.0
    return tokens(*args, **kwargs) if callable(tokens) else tokens
