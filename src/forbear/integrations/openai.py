"""Retries under the clients of openai: `client = sole_owner(OpenAI())`."""

from __future__ import annotations

from typing import Any, TypeVar

import openai

from forbear.integrations import owner

C = TypeVar("C", bound="openai.OpenAI | openai.AsyncOpenAI")


def sole_owner(client: C, **options: Any) -> C:
    """As `forbear.integrations.sole_owner`, and what is not a client of openai is refused."""
    if not isinstance(client, (openai.OpenAI, openai.AsyncOpenAI)):
        raise TypeError(f"this is for OpenAI and AsyncOpenAI, not {type(client).__name__}: use integrations.sole_owner")
    return owner.sole_owner(client, **options)
