"""Cohere: a monthly limit and a minute's have the same status and class; only the text tells them apart."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

RULES = (
    Rule(
        kind=Kind.QUOTA_SPENT,
        source="Cohere docs: Rate limits",
        provider="cohere",
        statuses=frozenset({429}),
        texts=("/ month", "per month", "monthly"),
    ),
    Rule(
        kind=Kind.CONTENT_REFUSED,
        source="Cohere docs: Errors",
        provider="cohere",
        statuses=frozenset({498}),
    ),
    Rule(
        kind=Kind.TOO_LONG,
        source="Cohere docs: Errors",
        provider="cohere",
        statuses=frozenset({400}),
        texts=("too many tokens",),
    ),
)
