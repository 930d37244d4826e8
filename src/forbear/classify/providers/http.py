"""Statuses that mean something else in the company of a hint."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

RULES = (
    Rule(
        kind=Kind.RATE_LIMITED,
        source="GitHub REST docs: Rate limits (secondary: Retry-After; primary: nothing remaining)",
        statuses=frozenset({403}),
        hinted=True,
    ),
    Rule(
        kind=Kind.QUOTA_SPENT,
        source="Fireworks docs: Inference error codes (412: account suspended)",
        provider="fireworks",
        statuses=frozenset({412}),
    ),
)
