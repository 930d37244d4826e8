"""Failures of which documents, libraries and users say different things: what is chosen here, and why.

Each is a real exception of a real library, made by the tests, so what this page says is what `classify` does. Must hold
no rule: these choices follow from the rules, statuses and limits that are written down elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple


class Choice(NamedTuple):
    """One case: its name in the tests, what comes, what is chosen, and the reason. `wait`: the seconds waited for."""

    case: str
    comes: str
    retried: bool
    why: str
    wait: float | None = None


CHOICES = (
    Choice(
        "openai.429.reset-headers-only",
        "a 429 without Retry-After, requests used up, their reset in 6m0s",
        True,
        "The reset is the only time that the server names. A bucket that fills bit by bit may have room earlier, but a "
        "little late beats another refusal; the deadline bounds it.",
        360,
    ),
    Choice(
        "openrouter.429.x-ratelimit-reset-ms",
        "a 429 without Retry-After, X-RateLimit-Reset as an epoch in milliseconds",
        True,
        "As above. Milliseconds are told from seconds by their size: as seconds they would lie beyond the year 5000.",
        45,
    ),
    Choice(
        "http.429.ratelimit-draft07",
        "a 429 with RateLimit: limit=100, remaining=0, reset=25",
        True,
        "As above: nothing remains, so the reset binds.",
        25,
    ),
    Choice(
        "http.429.ratelimit-reset-delta",
        "a 429 with RateLimit-Remaining: 0 and RateLimit-Reset: 18",
        True,
        "As above. So small a number is a wait, and no date.",
        18,
    ),
    Choice(
        "anthropic.429.reset-only",
        "a 429 without Retry-After, a limit that is used up, its reset in 42 s",
        True,
        "The documents say that a 429 without Retry-After is a spend cap. Such a cap has a code of its own, which is "
        "permanent here; where only the header is missing, a limit that says it is used up is believed.",
        42,
    ),
    Choice(
        "openai.429.retry-after-over-cap",
        "a 429 with Retry-After: 3600",
        True,
        "An hour is long but not never. Neither is it cut, as some libraries do: the call ends at once if its deadline "
        "is nearer, and the error says when to come back.",
        3600,
    ),
    Choice(
        "azure.429.86400",
        "a 429 with Retry-After: 86400",
        True,
        "The server names a time, so it is believed. With any deadline below a day nothing is repeated, and the error "
        "says when to come back.",
        86400,
    ),
    Choice(
        "http.429.retry-after-zero",
        "a 429 with Retry-After: 0",
        True,
        "0 is a value: come back at once. The backoff that the policy draws is waited for all the same.",
        0,
    ),
    Choice(
        "openai.409.lock",
        "a 409",
        True,
        "It mostly is a lock or a race, and OpenAI's guide asks to try again. One that stays costs the attempts of one "
        "call; Anthropic's `conflict_error` is documented as permanent, and is.",
    ),
    Choice(
        "azure.403.temporarily-blocked",
        "a 403 whose text says \"temporarily blocked\"",
        False,
        "A person lifts such a block, no time is named, and prose is no contract.",
    ),
    Choice(
        "gemini.429.per-day",
        "a 429 on a quota per day, with a RetryInfo of 36 s",
        False,
        "Such a quota comes back at midnight. Where it does appear on a short throttle, one call fails too early; the "
        "other mistake spends every attempt of every call until midnight.",
    ),
    Choice(
        "gemini.429.limit-zero",
        "a 429 on a quota of zero, with a RetryInfo of 25 s",
        False,
        "Nothing refills a quota of zero: the model is not in the plan.",
    ),
    Choice(
        "gemini.interactions.429.quota_exceeded",
        "a 429 with the code quota_exceeded",
        False,
        "A quota per day, documented as one to be retried after its reset: that is tomorrow, not in this call.",
    ),
    Choice(
        "gemini.499.cancelled",
        "a 499",
        False,
        "The documents call it the caller's own cancellation, and what was cancelled must not come back by itself.",
    ),
    Choice(
        "bedrock.400.ServiceQuotaExceededException",
        "a ServiceQuotaExceededException",
        True,
        "The API reference says \"you can resubmit your request later\". Where it stays, it costs the attempts of one "
        "call.",
    ),
    Choice(
        "groq.400.tool_use_failed",
        "a 400 with the code tool_use_failed",
        False,
        "The text asks for another prompt. Whoever counts on another sample writes a rule for this code.",
    ),
    Choice(
        "ollama.stream.error",
        "an error inside a stream, without a status",
        True,
        "What is wrong with a request mostly shows before the stream begins; what fails in it is the runner.",
    ),
    Choice(
        "http.423",
        "a 423",
        False,
        "A lock of WebDAV is held by somebody for minutes or days, and no library retries it.",
    ),
    Choice(
        "http.501",
        "a 501",
        False,
        "RFC 9110: the method is not supported. What is not implemented now is not in a minute.",
    ),
    Choice(
        "openai.local.length",
        "a LengthFinishReasonError: the answer reached its limit of tokens",
        False,
        "The same limit mostly cuts the next answer too, and each one is paid for.",
    ),
    Choice(
        "openai.200.bad-json",
        "a JSONDecodeError of an answer with status 200",
        False,
        "It is a ValueError like that of any other text, and nothing on it says that it came from a service. Chosen "
        "against those who see a truncated answer: `retryable=` can name JSONDecodeError.",
    ),
    Choice(
        "transport.openai.dns-noname",
        "a host that has no name (EAI_NONAME)",
        True,
        "Resolvers flap, and say this while a container starts. Nothing was sent, and a name that is wrong costs the "
        "attempts of one call.",
    ),
    Choice(
        "transport.aiohttp.garbage-response",
        "an answer that is not HTTP",
        True,
        "Seen for a moment while a proxy restarts. The wrong port costs the attempts of one call.",
    ),
)  # fmt: skip
