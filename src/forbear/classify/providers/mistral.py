"""Mistral: the numeric code tells; the type misleads."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

RULES = (
    Rule(
        kind=Kind.RATE_LIMITED,
        source="Mistral docs: Error glossary",
        provider="mistralai",
        codes=frozenset({"1300", "rate_limited"}),
    ),
    Rule(
        kind=Kind.OVERLOADED,
        source="Mistral: public reports of a service tier without capacity",
        provider="mistralai",
        codes=frozenset({"3505"}),
    ),
)
