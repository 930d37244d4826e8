"""What is known about providers and their libraries, as data: one file for each, every row with its source.

Must never hold a rule that is written in code. `ALL` is the book that `classify` reads, in no particular order: the
rule that names more wins.
"""

from forbear.classify.providers import (
    anthropic,
    aws,
    azure,
    cohere,
    google,
    groq,
    http,
    huggingface,
    litellm,
    mistral,
    ollama,
    openai,
    openrouter,
    storage,
    stripe,
)

ALL = (
    *anthropic.RULES,
    *aws.RULES,
    *azure.RULES,
    *cohere.RULES,
    *google.RULES,
    *groq.RULES,
    *http.RULES,
    *huggingface.RULES,
    *litellm.RULES,
    *mistral.RULES,
    *ollama.RULES,
    *openai.RULES,
    *openrouter.RULES,
    *storage.RULES,
    *stripe.RULES,
)
