"""Hugging Face: classes of its own for what a text generation server says inside a stream."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

_SOURCE = "huggingface_hub: errors of text generation inference"

RULES = (
    Rule(
        kind=Kind.OVERLOADED,
        source=_SOURCE,
        provider="huggingface_hub",
        classes=frozenset({"huggingface_hub.OverloadedError"}),
    ),
    Rule(
        kind=Kind.SERVER_ERROR,
        source=_SOURCE,
        provider="huggingface_hub",
        classes=frozenset({"huggingface_hub.GenerationError", "huggingface_hub.IncompleteGenerationError"}),
    ),
    Rule(
        kind=Kind.INVALID_REQUEST,
        source=_SOURCE,
        provider="huggingface_hub",
        classes=frozenset({"huggingface_hub.ValidationError", "huggingface_hub.OfflineModeIsEnabled"}),
    ),
)
