"""Ollama: texts only."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

RULES = (
    Rule(
        kind=Kind.QUOTA_SPENT,
        source="Ollama cloud: public reports of session and weekly limits",
        provider="ollama",
        statuses=frozenset({429}),
        texts=("usage limit",),
    ),
    Rule(
        kind=Kind.SERVER_ERROR,
        source="Ollama server: the runner broke down inside a stream",
        provider="ollama",
        texts=("unexpected eof", "error was encountered while running the model"),
        streaming=True,
    ),
)
