"""Retries under the clients of openai: `client = sole_owner(OpenAI())`."""

from __future__ import annotations

from typing import TypeVar, Unpack, cast

try:
    import openai
except ModuleNotFoundError as missing:
    needs = "openai is needed here: pip install 'forbear[openai]'"
    raise ModuleNotFoundError(needs, name=missing.name) from missing

from forbear.integrations import owner
from forbear.integrations.http.senders import TransportOptions

C = TypeVar("C", bound="openai.OpenAI | openai.AsyncOpenAI")


def sole_owner(client: C, **options: Unpack[TransportOptions]) -> C:
    """As `forbear.integrations.sole_owner`, and what is not a client of openai is refused."""
    if not isinstance(cast("object", client), (openai.OpenAI, openai.AsyncOpenAI)):
        raise TypeError(f"this is for OpenAI and AsyncOpenAI, not {type(client).__name__}: use integrations.sole_owner")
    return owner.sole_owner(client, **options)
