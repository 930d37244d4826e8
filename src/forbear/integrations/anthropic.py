"""Retries under the clients of anthropic: `client = sole_owner(Anthropic())`."""

from __future__ import annotations

from typing import Any, TypeVar

import anthropic

from forbear.integrations import owner

C = TypeVar("C", bound="anthropic.Anthropic | anthropic.AsyncAnthropic")


def sole_owner(client: C, **options: Any) -> C:
    """As `forbear.integrations.sole_owner`, and what is not a client of anthropic is refused."""
    if not isinstance(client, (anthropic.Anthropic, anthropic.AsyncAnthropic)):
        raise TypeError(
            f"this is for Anthropic and AsyncAnthropic, not {type(client).__name__}: use integrations.sole_owner"
        )
    return owner.sole_owner(client, **options)
