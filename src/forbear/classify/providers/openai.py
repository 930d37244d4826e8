"""OpenAI, and the services that speak its protocol through its library."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

_ERRORS = "OpenAI guide: Error codes"
_LIMITS = "OpenAI guide: Usage and spend limits"

RULES = (
    Rule(
        kind=Kind.QUOTA_SPENT,
        source=_LIMITS,
        codes=frozenset(
            {
                "insufficient_quota",
                "credit_balance_exhausted",
                "organization_spend_limit_exceeded",
                "project_spend_limit_exceeded",
                "organization_usage_limit_exceeded",
                "billing_hard_limit_reached",
                "billing_not_active",
            }
        ),
    ),
    Rule(kind=Kind.RATE_LIMITED, source=_ERRORS, codes=frozenset({"rate_limit_exceeded", "slow_down"})),
    Rule(
        # The same code and type as an ordinary rate limit: only the text tells that waiting can't help.
        kind=Kind.TOO_LONG,
        source=_ERRORS,
        codes=frozenset({"rate_limit_exceeded", "tokens"}),
        statuses=frozenset({429}),
        texts=("request too large",),
    ),
    Rule(
        kind=Kind.OVERLOADED,
        source=_ERRORS,
        codes=frozenset({"server_is_overloaded", "service_unavailable_error", "engine_overloaded"}),
    ),
    Rule(kind=Kind.SERVER_ERROR, source=_ERRORS, codes=frozenset({"server_error", "internal_server_error"})),
    Rule(
        kind=Kind.TOO_LONG,
        source=_ERRORS,
        codes=frozenset({"context_length_exceeded", "string_above_max_length", "max_tokens_exceeded"}),
    ),
    Rule(
        kind=Kind.CONTENT_REFUSED,
        source=_ERRORS,
        codes=frozenset({"content_policy_violation", "content_filter", "moderation_blocked", "invalid_prompt"}),
    ),
    Rule(kind=Kind.AUTH, source=_ERRORS, codes=frozenset({"invalid_api_key", "account_deactivated"})),
    Rule(kind=Kind.NOT_FOUND, source=_ERRORS, codes=frozenset({"model_not_found"})),
    Rule(
        kind=Kind.INVALID_REQUEST,
        source="OpenAI library: the answer ended at its own token limit or filter",
        provider="openai",
        classes=frozenset({"openai.LengthFinishReasonError", "openai.ContentFilterFinishReasonError"}),
    ),
    Rule(
        kind=Kind.QUOTA_SPENT,
        source="xAI: public reports of credits that are used up",
        provider="openai",
        statuses=frozenset({403, 429}),
        texts=("used all available credits", "reached its monthly spending limit"),
    ),
)
