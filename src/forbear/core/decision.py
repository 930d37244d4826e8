"""The one decision: after a failed attempt, retry after which delay, or stop for which reason?

All facts come in as arguments; the rules are tried in the order in which they are written. Every form of call asks
here, so that a function, a block and a transport can never disagree.

Must never know what was called. Prevents waits that cannot end in time, retries of what was perhaps done, and
endless retries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from forbear.core.failure import Failure
from forbear.core.policy import Policy
from forbear.core.validation import count, number, share

Source = Literal["backoff", "shortened backoff", "hint", "capped hint"]
StopReason = Literal["unsafe", "permanent", "max_attempts", "deadline", "budget", "interrupted"]


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait `delay` seconds, then make the next attempt. `source` says who asked for the delay."""

    delay: float
    source: Source


@dataclass(frozen=True, slots=True)
class Stop:
    """Make no further attempt. "unsafe" and "permanent": raise the error as it is; else the call is given up.

    Two are not decided here: "budget" needs to know what other calls have spent, "interrupted" what a stream has
    already delivered.
    """

    reason: StopReason


UNSAFE, PERMANENT, ATTEMPTS, DEADLINE, BUDGET, INTERRUPTED = (
    Stop("unsafe"), Stop("permanent"), Stop("max_attempts"), Stop("deadline"), Stop("budget"), Stop("interrupted"),
)  # fmt: skip


def decide(
    policy: Policy,
    failure: Failure,
    *,
    completed_attempts: int,
    remaining: float,
    random: float,
    previous_delay: float | None = None,
    rounds: int | None = None,
) -> Retry | Stop:
    """Retry or stop, after `completed_attempts` attempts (from 1) of which the last one failed.

    `remaining` is the time in seconds until the deadline (may be infinite), `random` a number in [0, 1],
    `previous_delay` the call's last backoff wait, `rounds` how many of the attempts came one after the other, where
    copies of one ran at the same time: the backoff grows with these. Raises ValueError for anything else, even where
    the answer would be to stop. The driver must do exactly what the answer says, and must not wait where it is told to
    stop.
    """
    count("completed_attempts", completed_attempts)
    remaining, random = _not_negative("remaining", remaining), share("random", random)
    stop = refusal(policy, failure, completed_attempts)
    if stop is not None:
        return stop
    if previous_delay is not None:
        previous_delay = _not_negative("previous_delay", previous_delay)
    backoff = policy.waits.delay(completed_attempts if rounds is None else rounds, random, previous_delay)
    asked, source = _hint(policy, failure.retry_after, random)
    answer = _wait(policy, backoff, asked, source)
    if answer.delay + policy.minimum_attempt <= remaining and answer.delay < remaining:
        return answer
    room = remaining - policy.minimum_attempt
    if answer.source == "backoff" and policy.late_backoff == "shorten" and asked <= room < remaining:
        return Retry(room, "shortened backoff")
    return DEADLINE


def _wait(policy: Policy, backoff: float, asked: float, source: Source | None) -> Retry:
    """The longer of backoff and hint, or what else the policy makes of them."""
    if source is None:
        return Retry(backoff, "backoff")
    if policy.retry_after == "add":
        return Retry(asked + backoff, source)
    return Retry(asked, source) if asked >= backoff or policy.retry_after == "instead" else Retry(backoff, "backoff")


def refusal(policy: Policy, failure: Failure, completed_attempts: int) -> Stop | None:
    """Why no wait could help, whatever its length; None where one could. Lets a driver ask before it throws dice."""
    if not failure.safe_to_retry:
        return UNSAFE
    if not failure.transient:
        return PERMANENT
    if policy.max_attempts is not None and completed_attempts >= policy.max_attempts:
        return ATTEMPTS
    return None


def _hint(policy: Policy, hint: float | None, random: float) -> tuple[float, Source | None]:
    """The wait that the server asks for, spread as the policy says, and what to call it; 0 and None without a hint.

    The cap of the backoff never limits it.
    """
    if hint is None:
        return 0.0, None
    source: Source = "hint"
    if policy.max_retry_after is not None and hint > policy.max_retry_after:
        hint, source = policy.max_retry_after, "capped hint"
    return hint + random * policy.retry_after_jitter, source


def _not_negative(name: str, value: object) -> float:
    result = number(name, value)
    if result < 0:
        raise ValueError(f"{name} is {result:g}: it must not be negative; of a computed rest, pass max(0, rest)")
    return result
