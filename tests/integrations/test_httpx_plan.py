"""What the transports send, and when, is exactly what the pure core plans: 500 random scripts, blocking and async.

The reference knows nothing of transports, streams or drivers: it asks the verdict and the decision what follows from
each failure, and moves a number that stands for time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from email.utils import formatdate
from importlib import import_module
from random import Random
from typing import Any

import pytest

from forbear import Policy, deadline, proportional
from forbear.classify.failures import classify
from forbear.core.decision import Retry
from forbear.core.run import Pending, Run
from forbear.testing import FakeTime

SCRIPTS = 500
BATCHES = 10
CLOCKS = ("connect", "read", "write", "pool")
REPEATABLE = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE")
NOON = 1_700_000_000  # where a script's dates are
WALL = 0.0  # where no date counts: each answer that names one names its own time too


@dataclass(frozen=True)
class Step:
    """One answer: after `latency` seconds a status with headers, or an error of the library by its name. `deaf`: an
    async transport that heeds no timeout and answers after a day.
    """

    latency: float
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    error: str = ""
    deaf: bool = False


@dataclass(frozen=True)
class Script:
    """One request, under which options, and how each attempt goes; the steps are repeated."""

    number: int
    steps: tuple[Step, ...]
    policy: dict[str, Any]
    timeout: tuple[float | None, ...]
    method: str
    key: str = ""
    adds_key: bool = False
    idempotent: bool | None = None
    around: float | None = None

    @property
    def repeatable(self) -> bool:
        if self.idempotent is not None:
            return self.idempotent
        return self.method in REPEATABLE or self.adds_key or bool(self.key)

    @property
    def timeouts(self) -> dict[str, float | None]:
        return dict(zip(CLOCKS, self.timeout, strict=True))


@dataclass
class Outcome:
    """What went over the wire, and how the call ended: a status, or the name of an error and its number of attempts."""

    sent: list[tuple[float, dict[str, float | None]]] = field(default_factory=list)
    end: tuple[Any, ...] = ()
    ended_at: float = 0.0


# ---- scripts -----------------------------------------------------------------------------------------------------

STATUSES = (
    200,
    200,
    204,
    304,
    400,
    401,
    403,
    404,
    408,
    409,
    413,
    422,
    425,
    429,
    429,
    500,
    501,
    502,
    503,
    503,
    504,
    529,
)
BEFORE = ("ConnectError", "ConnectTimeout", "PoolTimeout")
AFTER = ("ReadTimeout", "ReadError", "WriteError", "WriteTimeout", "RemoteProtocolError", "CloseError")
HOPELESS = ("LocalProtocolError", "UnsupportedProtocol", "ProxyError")


def drawn_headers(rng: Random) -> tuple[tuple[str, str], ...]:
    seconds = rng.choice((0, 0, 1, 2, 5, 30, 3600, -10))
    date = (("Date", formatdate(NOON, usegmt=True)),)
    forms: tuple[tuple[tuple[str, str], ...], ...] = (
        (),
        (("Retry-After", str(seconds)),),
        (("Retry-After", f" {seconds}.5 "),),
        (("Retry-After", formatdate(NOON + seconds, usegmt=True)), *date),
        (("retry-after-ms", str(seconds * 1000 + 250)),),
        (("Retry-After", rng.choice(("soon", "", "nan", "inf", "1e9999", "Thu, 99 Foo 2026 00:00:00 GMT"))),),
        (("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", f"{abs(seconds)}s")),
        (("x-should-retry", rng.choice(("true", "false"))),),
    )
    return rng.choice(forms)


def drawn_step(rng: Random, *, fails: bool) -> Step:
    latency = rng.choice((0.05, 0.11, 0.23, 0.47, 0.83, 1.7, 3.3, 7.9))
    what = rng.random()
    if what < 0.08:
        return Step(latency, deaf=True)
    if what < 0.4:
        names = rng.choice((BEFORE, AFTER, AFTER) + (() if fails else (HOPELESS,)))
        return Step(latency, error=rng.choice(names))
    status = rng.choice((429, 500, 503) if fails else STATUSES)
    return Step(latency, status, drawn_headers(rng))


def drawn_policy(rng: Random) -> dict[str, Any]:
    policy: dict[str, Any] = {
        "max_attempts": rng.choice((1, 2, 3, 5, 8, None)),
        "attempt_timeout": rng.choice((None, 0.3, 1.0, 4.0)),
        "deadline": rng.choice((None, 0.6, 2.0, 9.0, 40.0)),
        "retry_after": rng.choice(("floor", "add", "instead")),
        "retry_after_jitter": rng.choice((0.0, 0.0, 1.5)),
        "max_retry_after": rng.choice((None, None, 3.0)),
    }
    if rng.random() < 0.5:
        policy |= {"base": rng.choice((0.0, 0.1, 0.7)), "cap": rng.choice((0.5, 2.0, 30.0))}
    else:
        policy["backoff"] = rng.choice(([0.0], [0.2, 0.9, 0.4], [1.0]))
    if rng.random() < 0.5:
        kinds = ("full", "equal", "none", proportional(0.2)) + (() if "backoff" in policy else ("decorrelated",))
        policy["jitter"] = rng.choice(kinds)
    if rng.random() < 0.3:
        policy |= {"minimum_attempt": 0.25, "late_backoff": rng.choice(("stop", "shorten"))}
    if policy["max_attempts"] is None and policy["deadline"] is None:
        policy["deadline"] = 9.0
    return policy


def drawn(number: int) -> Script:
    """The script of this number, always the same."""
    rng = Random(f"plan {number}")
    mostly_fails = rng.random() < 0.7
    steps = [drawn_step(rng, fails=mostly_fails and rng.random() < 0.85) for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.35:
        steps.append(Step(0.11, 200))
    return Script(
        number=number,
        steps=tuple(steps),
        policy=drawn_policy(rng),
        timeout=tuple(rng.choice((None, 0.2, 0.7, 5.0)) if i % 2 == 0 else rng.choice((1.3, 5.0)) for i in range(4)),
        method=rng.choice((*REPEATABLE[:3], "PUT", "DELETE", "POST", "POST", "PATCH", "REPORT")),
        key=rng.choice(("", "", "given")),
        adds_key=rng.random() < 0.3,
        idempotent=rng.choice((None, None, None, True, False)),
        around=rng.choice((None, None, None, 1.4, 6.0)),
    )


# ---- the reference -----------------------------------------------------------------------------------------------


def least(given: float | None, limit: float) -> float | None:
    return given if limit == math.inf else limit if given is None else min(given, limit)


def error_of(library: Any, step: Step, *, late: bool) -> Exception | None:
    """What a step's end means to the reference; None for a response that is no failure."""
    if late or step.error:
        return getattr(library, "ReadTimeout" if late else step.error)("it broke")  # type: ignore[no-any-return]
    request = library.Request("GET", "https://api.example/")
    response = library.Response(step.status, headers=list(step.headers), request=request)
    if step.status < 400:
        return None
    return library.HTTPStatusError("a status", request=request, response=response)  # type: ignore[no-any-return]


def takes(step: Step, timeouts: dict[str, float | None], limit: float, *, blocking: bool) -> tuple[float, bool]:
    """Seconds that an attempt takes, and whether it is too late: its answer comes after its timeout to read."""
    if step.deaf and not blocking and limit < math.inf:
        return limit, True
    patience = timeouts["read"]
    if patience is not None and (step.deaf or step.latency >= patience):
        return patience, True
    return step.latency, False


def planned(script: Script, library: Any, *, blocking: bool) -> Outcome:
    """What should happen, by the pure core alone."""
    random, outcome, now = Random(script.number).random, Outcome(), 0.0
    policy = Policy(**script.policy)
    ends = [limit for limit in (policy.deadline, script.around) if limit is not None]
    run = Run(policy, now, min(ends, default=math.inf))
    while True:
        timeouts = {name: least(given, run.limit) for name, given in script.timeouts.items()}
        outcome.sent.append((now, timeouts))
        step = script.steps[(len(outcome.sent) - 1) % len(script.steps)]
        spent, late = takes(step, timeouts, run.limit, blocking=blocking)
        now = round(now + spent, 9)
        outcome.ended_at = now
        error = error_of(library, step, late=late)
        if error is None:
            outcome.end = (step.status, run.number)
            return outcome
        failure = classify(error, idempotent=script.repeatable, now=WALL)
        answer = run.failed(error, failure, now, 0.0 if run.refusal(failure) else random())
        if isinstance(answer, Retry):
            now = round(now + answer.delay, 9)
            run.resumed(Pending(error, answer, failure), now)
            continue
        if answer.reason in ("unsafe", "permanent"):
            is_answer = isinstance(error, library.HTTPStatusError)
            outcome.end = (step.status, run.number) if is_answer else (type(error).__name__,)
        else:
            outcome.end = ({"max_attempts": "RetriesExhausted"}.get(answer.reason, "DeadlineExceeded"), run.number)
        return outcome


# ---- the transports ----------------------------------------------------------------------------------------------


class Wire:
    """What the inner transport sees; it answers by script and moves the clock."""

    def __init__(self, script: Script, library: Any, clock: FakeTime) -> None:
        self.script, self.library, self.clock = script, library, clock
        self.outcome = Outcome()
        self.requests: list[Any] = []

    def blocking(self, request: Any) -> Any:
        step, timeouts = self._next(request)
        spent, late = takes(step, timeouts, math.inf, blocking=True)
        self.clock.advance(spent)
        return self._end(step, request, late=late)

    async def asynchronous(self, request: Any) -> Any:
        step, timeouts = self._next(request)
        limited = Policy(**self.script.policy).attempt_timeout is not None or self._has_an_end()
        if step.deaf and limited:
            await asyncio.sleep(86_400)
        spent, late = takes(step, timeouts, math.inf, blocking=True)
        self.clock.advance(spent)
        return self._end(step, request, late=late)

    def _has_an_end(self) -> bool:
        return self.script.around is not None or self.script.policy["deadline"] is not None

    def _next(self, request: Any) -> tuple[Step, dict[str, float | None]]:
        self.outcome.sent.append((self.clock.now, request.extensions["timeout"]))
        self.requests.append(request)
        return self.script.steps[(len(self.requests) - 1) % len(self.script.steps)], request.extensions["timeout"]

    def _end(self, step: Step, request: Any, *, late: bool) -> Any:
        if late or step.error:
            raise getattr(self.library, "ReadTimeout" if late else step.error)("it broke", request=request)
        return self.library.Response(step.status, headers=list(step.headers), content=b"")

    def ended(self, result: Any) -> Outcome:
        """The call is over, with a response or an error."""
        outcome = self.outcome
        outcome.ended_at = self.clock.now
        name = type(result).__name__
        if name == "Response":
            outcome.end = (result.status_code, result.extensions["forbear"].attempts)
        else:
            attempts = getattr(result, "attempts", None)
            outcome.end = (name,) if attempts is None else (name, attempts)
        return outcome


def options_of(script: Script) -> dict[str, Any]:
    return {
        **script.policy,
        "upstream": None,
        "idempotency_key": script.adds_key,
        "idempotent": script.idempotent,
        "rng": Random(script.number).random,
        "attempt_header": "x-attempt",
    }


def request_of(script: Script, library: Any) -> dict[str, Any]:
    headers = {"Idempotency-Key": script.key} if script.key else {}
    return {
        "method": script.method,
        "url": "https://api.example/",
        "headers": headers,
        "timeout": library.Timeout(**script.timeouts),
    }


async def sent(script: Script, name: str, library: Any, *, blocking: bool) -> Wire:
    """The same through a real client."""
    ours = import_module(f"forbear.integrations.{name}")
    with FakeTime() as clock, ExitStack() as blocks:
        wire = Wire(script, library, clock)
        if script.around is not None:
            blocks.enter_context(deadline(script.around))
        result: Any
        try:
            if blocking:
                transport = ours.Transport(library.MockTransport(wire.blocking), **options_of(script))
                with library.Client(transport=transport, trust_env=False) as client:
                    result = client.request(**request_of(script, library))
            else:
                inner = library.MockTransport(wire.asynchronous)
                transport = ours.AsyncTransport(inner, **options_of(script))
                async with library.AsyncClient(transport=transport, trust_env=False) as client:
                    result = await client.request(**request_of(script, library))
        except Exception as error:
            result = error
        wire.ended(result)
    return wire


def compare(script: Script, found: Outcome, expected: Outcome, *, blocking: bool) -> None:
    told = f"\nscript {script!r}\nfound {found!r}\nexpected {expected!r}\nblocking {blocking}"
    assert len(found.sent) == len(expected.sent), told
    for (at, timeouts), (planned_at, planned_timeouts) in zip(found.sent, expected.sent, strict=True):
        assert at == pytest.approx(planned_at, abs=1e-6), told
        assert timeouts == pytest.approx(planned_timeouts, abs=1e-6), told
    assert found.ended_at == pytest.approx(expected.ended_at, abs=1e-6), told
    ends = expected.end
    if not blocking and ends == ("ReadTimeout",):  # the driver's own error of an attempt that was cut is made one too
        assert found.end in (ends, ("TimeoutError",)), told
    else:
        assert found.end == ends, told


def check_headers(script: Script, requests: list[Any]) -> None:
    assert [request.headers["x-attempt"] for request in requests] == [str(i) for i in range(len(requests))]
    keys = {request.headers.get("idempotency-key") for request in requests}
    assert len(keys) == 1
    if script.key:
        assert keys == {script.key}
    else:
        assert (keys == {None}) is not (script.adds_key and script.method not in REPEATABLE)


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "async"])
@pytest.mark.parametrize("name", ["httpx", "httpx2"])
async def test_the_wire_log_is_the_plan(name: str, blocking: bool, batch: int) -> None:
    library = pytest.importorskip(name)
    for number in range(batch, SCRIPTS, BATCHES):
        script = drawn(number)
        wire = await sent(script, name, library, blocking=blocking)
        compare(script, wire.outcome, planned(script, library, blocking=blocking), blocking=blocking)
        check_headers(script, wire.requests)


def count(test: Callable[[Script, Outcome], bool]) -> int:
    library = import_module("httpx")
    scripts = map(drawn, range(SCRIPTS))
    return sum(test(script, planned(script, library, blocking=True)) for script in scripts)


def test_the_scripts_reach_every_end() -> None:
    assert count(lambda _, found: found.end[0] == "RetriesExhausted") >= 50
    assert count(lambda _, found: found.end[0] == "DeadlineExceeded") >= 50
    assert count(lambda _, found: found.end[0] in (200, 204, 304) and len(found.sent) > 1) >= 30
    assert count(lambda script, found: found.end[0] == 503 and not script.repeatable) >= 5
    assert count(lambda _, found: found.end[0] in AFTER) >= 20
    assert count(lambda _, found: len(found.sent) >= 5) >= 30
    assert count(lambda script, found: bool(script.around) and found.ended_at > 0.99 * (script.around or 0)) >= 5


def test_a_script_is_the_same_in_every_run() -> None:
    assert drawn(17) == drawn(17)
    assert len({repr(drawn(number)) for number in range(SCRIPTS)}) == SCRIPTS
