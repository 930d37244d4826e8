"""Groq."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

_ERRORS = "Groq docs: Errors"

RULES = (
    # Its code says rate limit, but the request alone is above the limit.
    Rule(
        kind=Kind.TOO_LONG,
        source=_ERRORS,
        codes=frozenset({"rate_limit_exceeded"}),
        statuses=frozenset({413}),
    ),
    Rule(kind=Kind.OVERLOADED, source="Groq docs: Flex processing", codes=frozenset({"capacity_exceeded"})),
    Rule(kind=Kind.OVERLOADED, source=_ERRORS, provider="groq", statuses=frozenset({498})),
    Rule(kind=Kind.AUTH, source=_ERRORS, provider="groq", statuses=frozenset({424})),
    Rule(kind=Kind.INVALID_REQUEST, source=_ERRORS, codes=frozenset({"tool_use_failed"})),
)
