"""litellm: it wraps other libraries' errors, and gives a status to failures that never had one."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

RULES = (
    Rule(
        kind=Kind.TOO_LONG,
        source="litellm: exceptions",
        provider="litellm",
        classes=frozenset({"litellm.ContextWindowExceededError"}),
    ),
    Rule(
        kind=Kind.CONTENT_REFUSED,
        source="litellm: exceptions",
        provider="litellm",
        classes=frozenset({"litellm.ContentPolicyViolationError"}),
    ),
    Rule(
        kind=Kind.QUOTA_SPENT,
        source="litellm: exceptions; the code stands in the text alone",
        provider="litellm",
        texts=("insufficient_quota",),
    ),
)
