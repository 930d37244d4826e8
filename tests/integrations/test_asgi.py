"""The door of an ASGI application: how long a request may take, which one is not begun, what an error is answered with.

By hand, without a server: each request is a scope, and what was sent is looked at.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import logging
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio

from forbear import (
    ApiError,
    BudgetExhausted,
    CircuitOpenError,
    DeadlineExceeded,
    RetriesExhausted,
    current_deadline,
    deadline,
    retry,
)
from forbear.errors import GaveUp
from forbear.integrations import asgi
from forbear.integrations.asgi import DeadlineCounts, DeadlineMiddleware
from forbear.testing import FakeTime, Flaky, Hang

Handler = Callable[[], Awaitable[None]]


class Sent(list[dict[str, Any]]):
    """The messages that an application has sent."""

    async def __call__(self, message: Any) -> None:
        self.append(dict(message))

    @property
    def status(self) -> int:
        return int(self[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self[1:])


START = {"type": "http.response.start", "status": 200, "headers": []}


def body(data: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def answering(work: Handler) -> Any:
    """An application that works, and then answers 200."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await work()
        await send(START)
        await send(body(b"done"))

    return app


async def nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def ask(app: Any, *headers: tuple[str, str], method: str = "GET", **scope: Any) -> Sent:
    sent = Sent()
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    await app({"type": "http", "method": method, "headers": raw, **scope}, nothing, sent)
    return sent


class Left:
    """An application's work: notes the seconds that its request has left."""

    def __init__(self) -> None:
        self.seen: list[float | None] = []

    async def __call__(self) -> None:
        holds = current_deadline()
        self.seen.append(None if holds is None else holds.remaining())


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(asgi, "wall_clock", lambda: 1_796_040_854.0)
    return 1_796_040_854.0


# ---- how long a request may take -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        ([], 60.0),
        ([("x-request-deadline", "3")], 2.95),
        ([("x-request-deadline", "1796040857.5")], 3.45),
        ([("x-request-deadline", "2026-11-30T12:14:17.350Z")], 3.3),
        ([("grpc-timeout", "2500m")], 2.45),
        ([("x-request-deadline", "3"), ("grpc-timeout", "1S")], 0.95),
        ([("grpc-timeout", "1S"), ("x-request-deadline", "3")], 0.95),
        ([("x-request-deadline", "3"), ("x-request-deadline", "2")], 1.95),
        ([("x-request-deadline", "soon")], 60.0),
        ([("x-request-deadline", "soon"), ("grpc-timeout", "1S")], 0.95),
        ([("x-request-deadline", "60.04")], 59.99),
        ([("x-request-deadline", "3600")], 60.0),
        ([("x-another-deadline", "3")], 60.0),
    ],
)
async def test_a_request_has_what_its_caller_has_less_the_margin_and_the_maximum_at_most(
    headers: list[tuple[str, str]], left: float, now: float
) -> None:
    work = Left()
    with FakeTime():
        sent = await ask(DeadlineMiddleware(answering(work)), *headers)
    assert work.seen == [pytest.approx(left, abs=1e-5)]
    assert (sent.status, sent.body) == (200, b"done")


async def test_maximum_margin_and_header_are_settings() -> None:
    work = Left()
    app = answering(work)
    with FakeTime():
        await ask(DeadlineMiddleware(app, maximum=2), ("X-Request-Deadline", "9"))
        await ask(DeadlineMiddleware(app, maximum=None), ("X-Request-Deadline", "9000"))
        await ask(DeadlineMiddleware(app, maximum=None))
        await ask(DeadlineMiddleware(app, margin=1), ("X-Request-Deadline", "9"))
        await ask(DeadlineMiddleware(app, header="X-Mine"), ("X-Request-Deadline", "9"), ("x-mine", "5"))
        await ask(DeadlineMiddleware(app, header=()), ("X-Request-Deadline", "9"))
    assert work.seen == [2, 8999.95, None, 8, 4.95, 60]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"maximum": 0}, "maximum"),
        ({"maximum": -1}, "maximum"),
        ({"margin": -1}, "margin"),
        ({"margin": float("inf")}, "margin"),
        ({"observe_only": 1}, "observe_only"),
        ({"header": ""}, "header"),
        ({"header": ("X-Deadline", 3)}, "header"),
        ({"header": (b"X-Deadline",)}, "header"),
        ({"header": "X-Fälligkeit"}, "header"),
        ({"header": None}, r"header must name .*; \(\) reads none"),
        ({"header": 3}, "header"),
        ({"header": b"X-Deadline"}, "header"),
        ({"header": "X Deadline"}, "without spaces"),
        ({"header": "X-Deadline "}, "without spaces"),
        ({"header": "X-Deadline\n"}, "without spaces"),
        ({"header": "X-Deadline:"}, "colons"),
        ({"header": "X-Request-Deadline,grpc-timeout"}, "commas"),
        ({"counts": True}, r"counts = DeadlineCounts\(\)"),
        ({"counts": DeadlineCounts}, r"counts = DeadlineCounts\(\)"),
        ({"counts": {}}, r"counts = DeadlineCounts\(\)"),
    ],
)
def test_settings_that_can_not_hold_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DeadlineMiddleware(answering(Left()), **settings)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("timeout", "maximum"),
        ("max", "maximum"),
        ("deadline", "maximum"),
        ("headers", "header"),
        ("deadline_header", "header"),
        ("dry_run", "observe_only"),
        ("stats", "counts"),
        ("grace", "margin"),
    ],
)
def test_an_option_that_there_is_not_is_answered_with_the_one_that_is_meant(option: str, meant: str) -> None:
    settings: Any = {option: 3}
    with pytest.raises(TypeError, match=rf"^DeadlineMiddleware has no option {option}=; use {meant}$"):
        DeadlineMiddleware(answering(Left()), **settings)
    unknown: Any = {"colour": 3}
    with pytest.raises(TypeError, match=r"^DeadlineMiddleware has no option colour=$"):
        DeadlineMiddleware(answering(Left()), **unknown)


@pytest.mark.parametrize("app", [None, 3, "main:app"])
def test_what_is_no_application_is_refused(app: Any) -> None:
    with pytest.raises(TypeError, match=rf"not {type(app).__name__}: DeadlineMiddleware\(app\), or app.add_middleware"):
        DeadlineMiddleware(app)


async def test_a_name_that_a_server_has_left_as_it_came_is_known_too() -> None:
    work = Left()
    with FakeTime():
        await DeadlineMiddleware(answering(work))(
            {"type": "http", "headers": [(b"Grpc-Timeout", b"3S")]}, nothing, Sent()
        )
    assert work.seen == [2.95]


async def test_a_deadline_around_the_whole_application_still_holds() -> None:
    work = Left()
    with FakeTime(), deadline(1):
        await ask(DeadlineMiddleware(answering(work)), ("X-Request-Deadline", "9"))
    assert work.seen == [1]


async def test_the_calls_below_obey_it_and_what_knows_no_deadline_is_cut() -> None:
    async def calls() -> None:
        await retry(Flaky(then=Hang(100)).asynchronous, deadline=50, attempt_timeout=None)

    async def sleeps() -> None:
        await asyncio.sleep(100)

    async def in_a_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(100))

    for work in (calls, sleeps, in_a_group):
        with FakeTime() as fake:
            sent = await ask(DeadlineMiddleware(answering(work)), ("X-Request-Deadline", "3"))
            assert 2.95 <= fake.now < 2.97, work
        assert sent.status == 504
        assert json.loads(sent.body) == {"error": "the time for this request is over"}


async def test_nothing_of_the_deadline_is_left_after_the_request() -> None:
    async def fails() -> None:
        raise ValueError("own")

    app = DeadlineMiddleware(answering(Left()))
    with FakeTime() as fake:
        for headers in ([], [("grpc-timeout", "5S")], [("grpc-timeout", "0S")]):
            await ask(app, *headers)
            assert current_deadline() is None
        with pytest.raises(ValueError, match="own"):
            await ask(DeadlineMiddleware(answering(fails)))
        assert current_deadline() is None
        await asyncio.sleep(1000)  # no timer cuts what comes after
        assert fake.now == 1000


async def test_a_task_that_the_request_leaves_behind_is_bound_no_longer() -> None:
    seen: list[object] = []
    over = asyncio.Event()

    async def lingers() -> None:
        await over.wait()
        seen.append(current_deadline())

    async def work() -> None:
        tasks.append(asyncio.create_task(lingers()))

    tasks: list[asyncio.Task[None]] = []
    await ask(DeadlineMiddleware(answering(work)))
    over.set()
    await tasks[0]
    assert seen == [None]


@pytest.mark.parametrize(
    "last",
    [
        [START, body(b"done")],
        [START, body(b"do", more=True), body(b"ne")],
        [START | {"trailers": True}, body(b"done"), {"type": "http.response.trailers", "headers": []}],
        [START, {"type": "http.response.pathsend", "path": "/x"}],
    ],
)
@pytest.mark.parametrize("by_child", [False, True])
async def test_what_comes_after_the_last_byte_is_not_cut(last: list[dict[str, Any]], by_child: bool) -> None:
    work = Left()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def answer() -> None:
            for message in last:
                await work()
                await send(message)

        await (asyncio.create_task(answer()) if by_child else answer())
        await work()
        await asyncio.sleep(100)
        await work()

    with FakeTime() as fake:
        sent = await ask(DeadlineMiddleware(app, maximum=3))
        assert fake.now == 100
    assert len(sent) == len(last)
    assert work.seen == [3] * len(last) + [None, None]


async def test_a_last_byte_that_leaves_while_the_cut_is_on_its_way_stops_no_cut() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        try:
            await asyncio.sleep(100)
        finally:
            await send(body())

    with FakeTime() as fake:
        with pytest.raises(DeadlineExceeded):
            await ask(DeadlineMiddleware(app, maximum=3))
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        assert fake.now < 3.1


async def test_an_answer_that_has_begun_is_broken_off() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        while True:
            await send(body(b"x", more=True))
            await asyncio.sleep(1)

    sent = Sent()
    with FakeTime(), pytest.raises(DeadlineExceeded):
        await DeadlineMiddleware(app, maximum=2.5)({"type": "http", "headers": []}, nothing, sent)
    assert [message["type"] for message in sent] == ["http.response.start"] + ["http.response.body"] * 3


async def test_a_cut_says_whose_it_was_and_how_to_have_more_time(caplog: pytest.LogCaptureFixture) -> None:
    async def sleeps() -> None:
        await asyncio.sleep(100)

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await sleeps()

    with FakeTime():
        await ask(DeadlineMiddleware(answering(sleeps), maximum=3))
        with pytest.raises(DeadlineExceeded) as caught:
            await ask(DeadlineMiddleware(streams, maximum=3))
    assert [record.getMessage() for record in caplog.records if "answered 504" in record.getMessage()] == [
        (
            "answered 504 to GET: forbear.errors.DeadlineExceeded: the request was cut after 3.01 s; "
            "allow more time with maximum=, or in the header of its caller"
        )
    ]
    assert caught.value.__notes__ == [
        (
            "forbear: the request was cut by DeadlineMiddleware; "
            "allow more time with maximum=, or in the header of its caller"
        )
    ]


@pytest.mark.parametrize("last", [ApiError(503), None])
async def test_an_error_that_tells_more_than_the_cut_is_told_as_it_is(
    last: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    error = DeadlineExceeded("deadline", 1, last, elapsed=2.9, held_by=None if last else "openai")

    async def tells() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            raise error

    with FakeTime():
        assert (await ask(DeadlineMiddleware(answering(tells), maximum=3))).status == 504
    assert caplog.messages[-1] == f"answered 504 to GET: forbear.errors.DeadlineExceeded: {error}"


async def test_a_cut_by_a_block_of_the_application_is_told_as_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def sleeps() -> None:
        async with deadline(1):
            await asyncio.sleep(100)

    with FakeTime():
        assert (await ask(DeadlineMiddleware(answering(sleeps), maximum=3))).status == 504
    assert caplog.messages == [
        (
            "answered 504 to GET: forbear.errors.DeadlineExceeded: the block was cut at its deadline after 1.01 s; "
            "allow more time with deadline(...)"
        )
    ]


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_other_connections_pass_untouched(kind: str) -> None:
    given: list[Any] = []

    async def app(*parts: Any) -> None:
        given.extend(parts)
        assert current_deadline() is None

    middleware = DeadlineMiddleware(app)
    scope, sent = {"type": kind, "headers": [(b"grpc-timeout", b"0S")]}, Sent()
    await middleware(scope, nothing, sent)
    assert [part is mine for part, mine in zip(given, (scope, nothing, sent), strict=True)] == [True] * 3
    assert middleware.counts == DeadlineCounts()


async def test_a_cancellation_by_the_server_passes() -> None:
    async def sleeps() -> None:
        await asyncio.sleep(100)

    app = DeadlineMiddleware(answering(sleeps))
    sent = Sent()
    task = asyncio.create_task(app({"type": "http", "headers": []}, nothing, sent))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sent == []
    assert app.counts == DeadlineCounts(requests=1)


async def test_two_requests_at_once_have_a_deadline_each() -> None:
    work = Left()

    async def waits() -> None:
        await asyncio.sleep(1)
        await work()

    app = DeadlineMiddleware(answering(waits), margin=0)
    with FakeTime():
        await asyncio.gather(ask(app, ("grpc-timeout", "9S")), ask(app, ("grpc-timeout", "3S")))
    assert work.seen == [pytest.approx(8), pytest.approx(2)]


def test_under_trio_the_calls_are_bound() -> None:
    work = Left()

    async def calls() -> None:
        await work()
        await retry(Flaky(then=ConnectionError).asynchronous, max_attempts=1000, deadline=50)

    async def main() -> Sent:
        with FakeTime():
            sent = await ask(DeadlineMiddleware(answering(calls)), ("grpc-timeout", "1S"))
            assert current_deadline() is None
            return sent

    sent = trio.run(main)
    assert work.seen == [0.95]
    assert sent.status == 504


def test_under_trio_the_deadline_ends_with_the_answer_and_a_cancellation_passes() -> None:
    work = Left()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(body())
        await work()
        await trio.sleep_forever()

    async def main() -> None:
        with trio.move_on_after(0.05) as cut:
            await ask(DeadlineMiddleware(app))
        assert cut.cancelled_caught

    trio.run(main)
    assert work.seen == [None]


# ---- requests that are late ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        ("X-Request-Deadline", "0.05"),
        ("X-Request-Deadline", "0"),
        ("X-Request-Deadline", "2026-11-30T12:14:13Z"),
        ("grpc-timeout", "20m"),
    ],
)
async def test_a_request_that_comes_late_is_not_begun(header: tuple[str, str], now: float) -> None:
    work = Left()
    app = DeadlineMiddleware(answering(work))
    sent = await ask(app, header)
    assert sent.status == 504
    assert json.loads(sent.body) == {"error": "the deadline of this request had passed when it came"}
    assert sent.headers[b"content-length"] == b"%d" % len(sent.body)
    assert b"retry-after" not in sent.headers
    assert work.seen == []
    assert app.counts == DeadlineCounts(requests=1, with_deadline=1, late=1)


async def test_late_requests_are_told_at_each_doubling(caplog: pytest.LogCaptureFixture) -> None:
    app = DeadlineMiddleware(answering(Left()))
    for _ in range(9):
        await ask(app, ("grpc-timeout", "0S"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4
    assert [record.getMessage() for record in caplog.records][::3] == [
        "requests that came with no time left: 1 so far (answered 504 at once)",
        "requests that came with no time left: 8 so far (answered 504 at once)",
    ]


# ---- errors that leave the application -------------------------------------------------------------------------------

KEY = "sk-a-secret-of-others"
CAUSE = ApiError(503, KEY)


def raising(error: BaseException) -> Any:
    async def work() -> None:
        raise error

    return answering(work)


def grouped(*errors: Exception) -> Exception:
    return ExceptionGroup("a task group", list(errors))


ANSWERS: list[tuple[Exception, int, bytes | None]] = [
    (RetriesExhausted("max_attempts", 3, CAUSE), 502, None),
    (RetriesExhausted("max_attempts", 3, CAUSE, hint=7.2), 502, b"8"),
    (DeadlineExceeded("deadline", 1, CAUSE, elapsed=1.0), 504, None),
    (DeadlineExceeded("deadline", 1, CAUSE, hint=30.0), 504, b"30"),
    (DeadlineExceeded("deadline", 0, None, hint=0.2, held_by="openai"), 504, b"1"),
    (BudgetExhausted("budget", 1, CAUSE), 503, None),
    (BudgetExhausted("budget", 1, CAUSE, hint=2.0), 503, b"2"),
    (CircuitOpenError(4.01, "openai"), 503, b"5"),
    (CircuitOpenError(), 503, b"1"),
    (CircuitOpenError(float("inf")), 503, None),
    (RetriesExhausted("max_attempts", 3, CAUSE, hint=1e300), 502, None),
    (grouped(CircuitOpenError(2)), 503, b"2"),
    (grouped(grouped(DeadlineExceeded("deadline", 1, CAUSE))), 504, None),
]


@pytest.mark.parametrize(("error", "status", "retry_after"), ANSWERS)
async def test_an_error_of_ours_is_answered_by_what_it_says(
    error: Exception, status: int, retry_after: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    app = DeadlineMiddleware(raising(error))
    sent = await ask(app, endpoint=test_two_requests_at_once_have_a_deadline_each, path=f"/{KEY}", query_string=KEY)
    assert sent.status == status
    assert sent.headers.get(b"retry-after") == retry_after
    assert sent.headers[b"content-type"] == b"application/json"
    assert sent.headers[b"content-length"] == b"%d" % len(sent.body)
    assert set(json.loads(sent.body)) == {"error"}
    (record,) = caplog.records
    assert record.name == "forbear"
    assert record.levelno == logging.WARNING
    assert record.exc_info is None
    said = record.getMessage()
    assert said.startswith(f"answered {status} to GET test_two_requests_at_once_have_a_deadline_each: forbear.errors.")
    assert "\n" not in said
    assert "it came as" not in said
    assert KEY not in said + sent.body.decode()
    assert app.counts == DeadlineCounts(requests=1, failed=1)


async def test_an_error_that_was_raised_again_after_giving_up_is_answered_by_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def attempts() -> None:
        await retry(Flaky(then=ApiError(503, KEY)).asynchronous, reraise=True, max_attempts=2)

    async def time_is_over() -> None:
        await retry(Flaky(then=ApiError(429, KEY, 30)).asynchronous, reraise=True, deadline=5)

    with FakeTime():
        first = await ask(DeadlineMiddleware(answering(attempts)))
        second = await ask(DeadlineMiddleware(answering(time_is_over)))
    assert (first.status, first.headers.get(b"retry-after")) == (502, None)
    assert (second.status, second.headers.get(b"retry-after")) == (504, b"30")
    assert "ApiError after attempt 2 in" in caplog.text
    assert KEY not in caplog.text + first.body.decode() + second.body.decode()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            DeadlineExceeded("deadline", 1, CAUSE, elapsed=0.05, hint=30.0),
            "a service behind this one asks to come back",
        ),
        (DeadlineExceeded("deadline", 1, CAUSE, elapsed=5.0), "the time for this request is over"),
        (DeadlineExceeded("deadline", 1, CAUSE, elapsed=5.0, hint=0.0), "the time for this request is over"),
        (RetriesExhausted("max_attempts", 1, CAUSE, hint=30.0), "a service behind this one has failed"),
        (BudgetExhausted("budget", 1, CAUSE, hint=30.0), "a service behind this one is failing for everyone"),
    ],
)
async def test_where_the_service_asks_for_more_time_than_there_was_the_answer_says_so(
    error: Exception, text: str
) -> None:
    sent = await ask(DeadlineMiddleware(raising(error)))
    assert json.loads(sent.body)["error"].startswith(text)


class TheirsError(Exception):
    """What a client library makes of an error that it has caught."""

    response: Any = None


class Given:
    """A response, of which a client has made an error."""


def made(error: BaseException, *causes: BaseException) -> Any:
    """`error` made from the first of the causes, that from the second, and so on."""
    last = error
    for cause in causes:
        last.__cause__, last = cause, cause
    return error


def of_marked_response() -> TheirsError:
    error = TheirsError(KEY)
    error.response = Given()
    error.response.__forbear__ = GaveUp(reason="budget", attempts=2, elapsed=1.0, waited=0.5)
    return error


LATE = DeadlineExceeded("deadline", 3, CAUSE, elapsed=1.0, hint=30.0)
FAILED = RetriesExhausted("max_attempts", 3, CAUSE)


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (made(TheirsError(KEY), CircuitOpenError(4.2)), 503, b"5"),
        (made(TheirsError(KEY), FAILED), 502, None),
        (made(TheirsError(KEY), LATE), 504, b"30"),
        (made(TheirsError(KEY), ValueError(KEY), TheirsError(KEY), LATE), 504, b"30"),
        (made(TheirsError(KEY), *(ValueError(KEY) for _ in range(20)), LATE), 504, b"30"),
        (made(TheirsError(KEY), RetriesExhausted("max_attempts", 3, LATE)), 502, None),
        (of_marked_response(), 503, None),
        (made(ValueError(KEY), of_marked_response()), 503, None),
        (made(of_marked_response(), CircuitOpenError(4.2)), 503, None),
        (grouped(made(TheirsError(KEY), LATE)), 504, b"30"),
        (made(grouped(ValueError(KEY), ValueError(KEY)), LATE), 504, b"30"),
        (grouped(grouped(FAILED, made(TheirsError(KEY), LATE)), CircuitOpenError(9)), 502, None),
    ],
)
async def test_an_error_that_was_made_from_one_of_ours_is_answered_by_the_nearest(
    error: Exception, status: int, retry_after: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    for observe_only in (False, True):
        app = DeadlineMiddleware(raising(error), observe_only=observe_only)
        if observe_only:
            with pytest.raises(type(error)) as caught:
                await ask(app)
            assert caught.value is error
        else:
            sent = await ask(app)
            assert (sent.status, sent.headers.get(b"retry-after")) == (status, retry_after)
            assert KEY not in sent.body.decode()
        assert app.counts == DeadlineCounts(requests=1, failed=1)
    assert [text.partition(" to GET: ")[0] for text in caplog.messages] == [
        f"answered {status}",
        f"would have answered {status}",
    ]
    assert KEY not in caplog.text


async def test_the_log_names_the_error_of_ours_and_the_type_that_it_came_as(caplog: pytest.LogCaptureFixture) -> None:
    await ask(DeadlineMiddleware(raising(made(TheirsError(KEY), CircuitOpenError(4.2, "openai")))))
    assert caplog.messages == [
        (
            "answered 503 to GET: forbear.errors.CircuitOpenError: "
            f"{CircuitOpenError(4.2, 'openai')}; it came as {__name__}.TheirsError"
        )
    ]


@pytest.mark.parametrize("observe_only", [False, True])
async def test_an_error_that_was_answered_dies_with_its_request(observe_only: bool) -> None:
    async def work() -> None:
        raise alone.pop()

    alone: list[Exception] = [made(TheirsError(), CircuitOpenError(1))]
    dies = weakref.ref(alone[0].__cause__)  # type: ignore[type-var]
    gc.collect()
    gc.disable()
    try:
        with suppress(TheirsError):
            await ask(DeadlineMiddleware(answering(work), observe_only=observe_only))
        assert dies() is None
    finally:
        gc.enable()


def beside(*, hidden: bool = False) -> Exception:
    """An error that was raised while one of ours was being handled, and that was not made from it."""
    try:
        try:
            raise DeadlineExceeded("deadline", 1, CAUSE)
        except DeadlineExceeded:
            if hidden:
                raise ValueError("own") from None
            raise ValueError("own")  # as a mistake in a handler is
    except ValueError as error:
        return error


def endless() -> Exception:
    error = ValueError("own")
    return made(error, ValueError(), error)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("own"),
        TimeoutError(),
        ApiError(503),
        beside(),
        beside(hidden=True),
        made(ValueError("own"), beside()),
        made(ValueError("own"), *(ValueError() for _ in range(200)), CircuitOpenError()),
        endless(),
        grouped(CircuitOpenError(), ValueError()),
        grouped(ValueError(), made(TheirsError(), CircuitOpenError())),
        grouped(grouped(CircuitOpenError()), grouped(ValueError())),
        grouped(ValueError()),
        grouped(*(grouped(CircuitOpenError()) for _ in range(2_000))),
    ],
    ids=lambda error: repr(error)[:40],
)
async def test_other_errors_go_on_untouched(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    app = DeadlineMiddleware(raising(error))
    sent = Sent()
    with pytest.raises(type(error)) as caught:
        await app({"type": "http", "headers": []}, nothing, sent)
    assert caught.value is error
    assert sent == []
    assert not caplog.records
    assert app.counts == DeadlineCounts(requests=1)


async def test_once_the_answer_has_begun_the_error_goes_on() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        raise CircuitOpenError(3)

    sent = Sent()
    with pytest.raises(CircuitOpenError):
        await DeadlineMiddleware(app)({"type": "http", "headers": []}, nothing, sent)
    assert sent == [START]


async def test_the_answer_to_head_has_no_body() -> None:
    sent = await ask(DeadlineMiddleware(raising(CircuitOpenError(3))), method="HEAD")
    assert (sent.status, sent.body, sent.headers[b"content-length"] > b"0") == (503, b"", True)


async def test_errors_alone_can_be_answered_without_any_deadline() -> None:
    work = Left()
    app = DeadlineMiddleware(answering(work), maximum=None, header=())
    assert (await ask(app, ("grpc-timeout", "0S"))).status == 200
    assert work.seen == [None]
    assert (await ask(DeadlineMiddleware(raising(CircuitOpenError(3)), maximum=None, header=()))).status == 503


# ---- to observe first ------------------------------------------------------------------------------------------------


async def test_where_it_only_observes_nothing_is_changed_and_all_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    work = Left()
    counts = DeadlineCounts()

    async def takes_two_seconds() -> None:
        await work()
        await asyncio.sleep(2)

    app = DeadlineMiddleware(answering(takes_two_seconds), observe_only=True, counts=counts)
    with FakeTime():
        answers = [
            await ask(app),
            await ask(app, ("grpc-timeout", "5S")),
            await ask(app, ("grpc-timeout", "1S")),
            await ask(app, ("grpc-timeout", "0S")),
            await ask(app, ("grpc-timeout", "1H")),
            await ask(app, ("grpc-timeout", "soon")),
        ]
        failing = DeadlineMiddleware(raising(CircuitOpenError(3)), observe_only=True, counts=counts)
        with pytest.raises(CircuitOpenError):
            await ask(failing)
    assert [sent.status for sent in answers] == [200] * 6
    assert work.seen == [None] * 6
    assert counts.snapshot() == DeadlineCounts(
        requests=7, with_deadline=4, unreadable=1, clipped=1, late=1, overran=1, failed=1
    )
    assert [record.getMessage() for record in caplog.records] == [
        "requests not done in time: 1 so far (only observed)",
        "requests that came with no time left: 1 so far (only observed)",
        f"would have answered 503 to GET: forbear.errors.CircuitOpenError: {CircuitOpenError(3)}",
    ]


@pytest.mark.parametrize("observe_only", [False, True])
async def test_what_was_not_done_in_time_is_counted_alike_in_both_ways(observe_only: bool) -> None:
    async def slow() -> None:
        await asyncio.sleep(5)

    async def after_the_answer(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(body())
        await slow()

    counts = DeadlineCounts()
    settings: dict[str, Any] = {"observe_only": observe_only, "counts": counts, "maximum": 3}
    with FakeTime():
        await ask(DeadlineMiddleware(answering(slow), **settings))
        assert counts.overran == 1
        await ask(DeadlineMiddleware(after_the_answer, **settings))
        await ask(DeadlineMiddleware(answering(Left()), **settings))
    assert counts.requests == 3
    assert counts.overran == 1
    assert counts.failed == (0 if observe_only else 1)


async def test_a_snapshot_stands_still() -> None:
    app = DeadlineMiddleware(answering(Left()))
    before = app.counts.snapshot()
    await ask(app)
    assert (before.requests, app.counts.requests) == (0, 1)


async def test_the_context_of_the_server_is_left_as_it_was() -> None:
    before = dict(contextvars.copy_context())
    await ask(DeadlineMiddleware(answering(Left())))
    changed = {var.name for var, value in contextvars.copy_context().items() if before.get(var) is not value}
    assert changed == set()
