"""Stripe, and others that store the outcome of a request under its Idempotency-Key."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

_SOURCE = "Stripe docs: Idempotent requests; Error codes"

RULES = (
    # The first request with this key still runs: its answer can be fetched by asking again.
    Rule(kind=Kind.CONFLICT, source=_SOURCE, codes=frozenset({"idempotency_key_in_use"}), executed="maybe"),
    Rule(kind=Kind.INVALID_REQUEST, source=_SOURCE, codes=frozenset({"idempotency_error"}), statuses=frozenset({400})),
    Rule(kind=Kind.RATE_LIMITED, source=_SOURCE, codes=frozenset({"lock_timeout"}), statuses=frozenset({429})),
    Rule(kind=Kind.INVALID_REQUEST, source=_SOURCE, codes=frozenset({"card_error", "card_declined"})),
)
