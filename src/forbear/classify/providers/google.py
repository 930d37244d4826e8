"""Gemini, Vertex and everything that speaks google.rpc.Status; gRPC itself."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

_GEMINI = "Gemini API docs: Troubleshooting"
_LIMITS = "Gemini API docs: Rate limits"
_GRPC = "gRPC status codes; AIP-194"

RULES = (
    # The words alone are no quota: a limit per minute says "you exceeded your current quota" too.
    Rule(kind=Kind.QUOTA_SPENT, source=_LIMITS, codes=frozenset({"quota per day", "quota of zero"})),
    Rule(
        kind=Kind.QUOTA_SPENT,
        source="Gemini: public reports of a model that is not in the tier",
        provider="google",
        statuses=frozenset({429}),
        texts=("limit: 0",),
    ),
    Rule(
        kind=Kind.QUOTA_SPENT,
        source=_GEMINI,
        codes=frozenset({"payment_required", "quota_exceeded", "insufficient_g1_credits_balance"}),
    ),
    Rule(
        kind=Kind.QUOTA_SPENT,
        source=_GEMINI,
        codes=frozenset({"resource_exhausted"}),
        statuses=frozenset({402}),
    ),
    Rule(kind=Kind.RATE_LIMITED, source=_GEMINI, codes=frozenset({"resource_exhausted", "too_many_requests"})),
    *(
        rule
        for provider in ("google", "grpc")  # common words: elsewhere they may mean anything
        for rule in (
            Rule(kind=Kind.OVERLOADED, source=_GEMINI, provider=provider, codes=frozenset({"unavailable"})),
            Rule(kind=Kind.CANCELLED, source=_GEMINI, provider=provider, codes=frozenset({"cancelled"})),
            Rule(kind=Kind.CONFLICT, source=_GRPC, provider=provider, codes=frozenset({"aborted"}), transient=False),
            Rule(
                kind=Kind.INVALID_REQUEST,
                source=_GRPC,
                provider=provider,
                codes=frozenset(
                    {
                        "invalid_argument",
                        "failed_precondition",
                        "out_of_range",
                        "unimplemented",
                        "already_exists",
                        "data_loss",
                    }
                ),
            ),
        )
    ),
    Rule(kind=Kind.SERVER_ERROR, source=_GEMINI, provider="google", codes=frozenset({"internal"})),
    Rule(kind=Kind.TIMEOUT, source=_GEMINI, provider="google", codes=frozenset({"deadline_exceeded"})),
    Rule(kind=Kind.AUTH, source=_GEMINI, codes=frozenset({"api_key_invalid", "unauthenticated", "permission_denied"})),
    Rule(
        kind=Kind.TOO_LONG,
        source=_GEMINI,
        codes=frozenset({"invalid_argument"}),
        statuses=frozenset({400}),
        texts=("input token count",),
    ),
    # Without a time to come back it may as well be a message that is too large.
    Rule(kind=Kind.RATE_LIMITED, source=_GRPC, provider="grpc", codes=frozenset({"resource_exhausted"}), hinted=True),
    Rule(
        kind=Kind.QUOTA_SPENT,
        source=_GRPC,
        provider="grpc",
        codes=frozenset({"resource_exhausted"}),
    ),
    Rule(
        kind=Kind.SERVER_ERROR, source=_GRPC, provider="grpc", codes=frozenset({"internal", "unknown"}), transient=False
    ),
    Rule(kind=Kind.TIMEOUT, source=_GRPC, provider="grpc", codes=frozenset({"deadline_exceeded"}), transient=False),
)
