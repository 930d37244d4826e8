"""Retries under the clients of anthropic: `client = sole_owner(Anthropic())`."""

from __future__ import annotations

from typing import TypeVar, Unpack, cast

try:
    import anthropic
except ModuleNotFoundError as missing:
    needs = "anthropic is needed here: pip install 'forbear[anthropic]'"
    raise ModuleNotFoundError(needs, name=missing.name) from missing

from forbear.integrations import owner
from forbear.integrations.http.senders import TransportOptions

C = TypeVar("C", bound="anthropic.Anthropic | anthropic.AsyncAnthropic")


def sole_owner(client: C, **options: Unpack[TransportOptions]) -> C:
    """As `forbear.integrations.sole_owner`, and what is not a client of anthropic is refused."""
    if not isinstance(cast("object", client), (anthropic.Anthropic, anthropic.AsyncAnthropic)):
        raise TypeError(
            f"this is for Anthropic and AsyncAnthropic, not {type(client).__name__}: use integrations.sole_owner"
        )
    return owner.sole_owner(client, **options)
