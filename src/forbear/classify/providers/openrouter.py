"""OpenRouter: the stable facts are in `error.metadata`."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

_ERRORS = "OpenRouter docs: Errors and debugging"

RULES = (
    Rule(
        kind=Kind.QUOTA_SPENT,
        source=_ERRORS,
        codes=frozenset({"openrouter_credits", "openrouter_key_limit", "weight_exceeds_budget"}),
    ),
    Rule(
        # Other requests hold the money for now; without a time to come back it is spent.
        kind=Kind.RATE_LIMITED,
        source=_ERRORS,
        codes=frozenset({"openrouter_in_flight_budget", "in_flight_budget_exhausted"}),
        hinted=True,
    ),
    Rule(kind=Kind.OVERLOADED, source=_ERRORS, codes=frozenset({"provider_unavailable", "provider_overloaded"})),
    Rule(
        kind=Kind.TOO_LONG,
        source=_ERRORS,
        codes=frozenset({"max_tokens_exceeded", "token_limit_exceeded", "string_too_long"}),
    ),
    Rule(kind=Kind.CONTENT_REFUSED, source=_ERRORS, codes=frozenset({"moderation", "content_moderation"})),
)
