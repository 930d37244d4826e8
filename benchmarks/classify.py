"""What it costs to classify one real error of a real SDK. Target: at most 20 µs.

The errors come from the SDKs themselves, which get a scripted answer through their HTTP client's own mock transport.
Needs `pip install -e '.[sdk-test]'`.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from time import perf_counter
from typing import Any

import anthropic
import httpx2
import openai

from forbear.classify.failures import classify

LIMITED = {
    "retry-after": "5",
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "6m0s",
    "date": "Tue, 01 Dec 2026 00:00:00 GMT",
    "content-type": "application/json",
}
OPENAI_BODY = {
    "error": {"message": "Rate limit reached", "type": "requests", "param": None, "code": "rate_limit_exceeded"}
}
ANTHROPIC_BODY = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}, "request_id": "r"}
TARGET = 20.0  # microseconds


def answering(status: int, body: dict[str, Any]) -> httpx2.Client:
    """An HTTP client whose server always answers the same."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, headers=LIMITED, json=body))
    return httpx2.Client(transport=transport)


def refusing(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused", request=request) from ConnectionRefusedError(111, "Connection refused")


def raised(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("the call must fail")


def openai_error(http: httpx2.Client) -> Exception:
    client = openai.OpenAI(api_key="k", max_retries=0, http_client=http)
    return raised(lambda: client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}]))


def anthropic_error(http: httpx2.Client) -> Exception:
    client = anthropic.Anthropic(api_key="k", max_retries=0, http_client=http)
    message: Any = {"role": "user", "content": "x"}
    return raised(lambda: client.messages.create(model="m", max_tokens=1, messages=[message]))


def microseconds(error: Exception, rounds: int) -> float:
    """The least of rounds of a hundred: whatever else the machine does only adds."""
    times = []
    for _ in range(rounds):
        began = perf_counter()
        for _ in range(100):
            classify(error)
        times.append((perf_counter() - began) * 1e4)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs to classify one real SDK error.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    errors = {
        "openai 429 with a hint": openai_error(answering(429, OPENAI_BODY)),
        "openai 500": openai_error(answering(500, {"error": {"message": "broken"}})),
        "openai refused connection": openai_error(httpx2.Client(transport=httpx2.MockTransport(refusing))),
        "anthropic 429 with a hint": anthropic_error(answering(429, ANTHROPIC_BODY)),
    }
    found = {name: microseconds(error, options.rounds) for name, error in errors.items()}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"Python {platform.python_version()}, openai {version('openai')}, anthropic {version('anthropic')}")
    for name, cost in found.items():
        print(f"{name:30} {cost:6.1f} µs  {'met' if cost <= TARGET else 'missed'}")
    print(f"target: {TARGET:g} µs", file=sys.stderr)


if __name__ == "__main__":
    main()
