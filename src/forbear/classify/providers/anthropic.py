"""Anthropic: the type of an error, and the code in its details where there is one."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

_ERRORS = "Claude API docs: Errors"
_LIMITS = "Claude API docs: Rate limits"

RULES = (
    Rule(
        kind=Kind.QUOTA_SPENT,
        source=_LIMITS,
        codes=frozenset({"enforced_spend_limit_reached", "contract_spend_limit_reached", "billing_error"}),
    ),
    Rule(
        kind=Kind.QUOTA_SPENT,
        source=_LIMITS,
        provider="anthropic",
        statuses=frozenset({400}),
        texts=("specified api usage limits", "credit balance is too low"),
    ),
    Rule(kind=Kind.RATE_LIMITED, source=_LIMITS, codes=frozenset({"rate_limit_error", "ramp_limit_exceeded"})),
    Rule(
        kind=Kind.OVERLOADED,
        source=_ERRORS,
        codes=frozenset(
            {"overloaded_error", "compaction_unavailable", "cmek_key_unreachable", "cmek_context_unavailable"}
        ),
    ),
    Rule(kind=Kind.SERVER_ERROR, source=_ERRORS, codes=frozenset({"api_error"}), streaming=True),
    # It may have been done: read the state first.
    Rule(
        kind=Kind.SERVER_ERROR,
        source=_ERRORS,
        codes=frozenset({"change_outcome_unknown"}),
        transient=False,
        executed="maybe",
    ),
    Rule(kind=Kind.TIMEOUT, source=_ERRORS, codes=frozenset({"timeout_error"})),
    Rule(
        kind=Kind.CONFLICT,
        source=_ERRORS,
        provider="anthropic",
        codes=frozenset({"concurrent_membership_change"}),
        statuses=frozenset({409}),
    ),
    Rule(
        kind=Kind.CONFLICT,
        source=_ERRORS,
        provider="anthropic",
        codes=frozenset({"conflict_error"}),
        transient=False,
    ),
    Rule(kind=Kind.TOO_LONG, source=_ERRORS, codes=frozenset({"request_too_large"})),
    Rule(
        kind=Kind.TOO_LONG,
        source=_ERRORS,
        provider="anthropic",
        statuses=frozenset({400}),
        texts=("prompt is too long",),
    ),
    Rule(kind=Kind.AUTH, source=_ERRORS, codes=frozenset({"authentication_error", "permission_error"})),
    Rule(kind=Kind.NOT_FOUND, source=_ERRORS, codes=frozenset({"not_found_error"})),
    Rule(kind=Kind.INVALID_REQUEST, source=_ERRORS, codes=frozenset({"invalid_request_error"}), streaming=True),
)
