"""The conformance cases: failures of real services as facts, each with what a program may conclude from it.

The facts are in `cases.json`; here they get names and types. A case says what the service does (`happens`, and what
belongs to it), what the SDK makes of it (`mro`, `found`, `chain`, as seen with the versions of `seen_with`), and what a
judge is expected to say (`retryable`, `wait`, `executed`). A disputed case states one of two answers that have grounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any, Literal, TypeAlias

Phase: TypeAlias = Literal["not_sent", "unknown", "response", "mid_stream", "local"]
FACTS = json.loads((Path(__file__).parent / "cases.json").read_text("utf-8"))
CLOCK: float = FACTS["clock"]  # the instant, in epoch seconds, that dates and epochs in headers are read against
DATE = formatdate(CLOCK, usegmt=True)  # the same instant; every scripted answer to a case carries it as its Date


@dataclass(frozen=True, kw_only=True)
class Case:
    """One failure, of an SDK's call in `sdk.raising`.

    `happens` is "reply" (status, headers, body), "event" (inside an answer that began well), "talk" (the body, in a
    protocol other than HTTP), "local" (no service has a part in it), or a trouble of `sdk.troubles`. `wait` is the
    number of seconds that the service asked for, read at `CLOCK` (None: it named none). `found` has the paths on the
    exception at which status, headers and body are found; `chain` the exceptions behind it, each with the way to it.
    """

    id: str
    sdk: str
    call: str
    happens: str = "reply"
    provider: str = ""
    kind: str = ""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = ""
    event: Mapping[str, str] = field(default_factory=dict)
    phase: Phase = "response"
    retryable: bool | None = None
    wait: float | None = None
    wait_within: float = 0.05
    disputed: bool = False
    mro: Sequence[str] = ()
    found: Mapping[str, Any] = field(default_factory=dict)
    chain: Sequence[Sequence[str]] = ()

    @property
    def executed(self) -> Literal["no", "maybe"] | None:
        """Whether the service may have acted, where the case says so: by its phase, or since a 429 refuses to act."""
        if self.phase == "not_sent" or (self.phase == "response" and self.status == 429):
            return "no"
        return "maybe" if self.phase in ("unknown", "mid_stream") else None

    def __str__(self) -> str:
        return self.id


CASES = tuple(Case(**facts) for facts in FACTS["cases"])
