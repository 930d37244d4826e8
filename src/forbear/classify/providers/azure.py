"""Azure OpenAI."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

RULES = (
    Rule(
        kind=Kind.CONTENT_REFUSED,
        source="Azure OpenAI docs: Content filtering",
        codes=frozenset({"content_filter", "responsibleaipolicyviolation"}),
    ),
    Rule(
        kind=Kind.TIMEOUT,
        source="Azure OpenAI: the code of a 408",
        codes=frozenset({"timeout"}),
        statuses=frozenset({408}),
    ),
)
