"""Every SDK in every trouble: the class it raises is as `troubles.json` has it (null: none), and so is the verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forbear.classify.failures import classify
from sdk.places import Missing
from sdk.raising import SDKS, calls_of, raise_trouble
from sdk.troubles import TROUBLES, Trouble

SEEN: dict[str, dict[str, dict[str, str | None]]] = json.loads(
    (Path(__file__).parent / "troubles.json").read_text("utf-8")
)
ROWS = [
    (sdk, call, trouble, kind)
    for sdk, calls in SEEN.items()
    for call, troubles in calls.items()
    for trouble, kind in troubles.items()
]


@pytest.mark.parametrize(("sdk", "call", "trouble", "kind"), ROWS)
def test_a_trouble_is_raised_as_it_was_seen(sdk: str, call: str, trouble: str, kind: str | None):
    try:
        error = raise_trouble(sdk, call, trouble)
    except Missing as missing:
        pytest.skip(str(missing))
    assert (error and f"{type(error).__module__}.{type(error).__qualname__}") == kind, repr(error)
    if error is not None:
        judge(error, TROUBLES[trouble], told=(sdk, call, trouble) not in UNTOLD)


# Where nothing on the exception tells that the request was never sent: a limit on the whole call cuts it at any place,
# and urllib3 keeps no trace of where it was once it has given up its retries.
UNTOLD = {
    ("google-genai", "generate-async", "tls-stall"),
    ("google-genai", "generate-async", "connect-timeout"),
    ("aiohttp", "post-with-total", "tls-stall"),
    ("aiohttp", "post-with-total", "connect-timeout"),
    ("urllib3", "post-under-retry", "tls-reset"),
}


def judge(error: BaseException, trouble: Trouble, *, told: bool) -> None:
    """The verdict on a trouble: "nothing was done" exactly where that is so, and retried where that may help."""
    verdict = classify(error)
    assert verdict.executed == (trouble.executed if told else "maybe"), verdict
    if trouble.retryable is not None:
        assert verdict.transient is trouble.retryable, verdict


@pytest.mark.parametrize("sdk", SDKS)
def test_every_call_was_seen_in_every_trouble_it_can_meet(sdk: str):
    try:
        calls = calls_of(sdk)
    except Missing as missing:
        pytest.skip(str(missing))
    met = {
        name: [key for key, trouble in TROUBLES.items() if trouble.meets(name, call)] for name, call in calls.items()
    }
    assert {name: list(seen) for name, seen in SEEN.get(sdk, {}).items()} == {
        n: keys for n, keys in met.items() if keys
    }
