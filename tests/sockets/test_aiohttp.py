"""Retries under an aiohttp client, on real sockets: what is sent, what the caller gets, and what is given back.

What is sent is counted at the server: aiohttp itself sends some requests twice, and nobody else would notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import gzip
import io
import logging
import os
import pickle
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

# ruff: noqa: E402  # the partner may be missing
aiohttp = pytest.importorskip("aiohttp")

from aiohttp import web

from forbear import CircuitBreaker, NestedRetriesWarning, Upstream, deadline, errors, retry
from forbear.errors import mark_of
from forbear.integrations.aiohttp import (
    AsyncBody,
    BudgetExhausted,
    CircuitOpenError,
    DeadlineExceeded,
    Middleware,
    RetriesExhausted,
    attempt_log,
    own,
    sole_owner,
)
from forbear.integrations.http import aiohttp_like, exchange
from forbear.testing import record_events
from loopback import (
    Choose,
    Close,
    Cut,
    Hang,
    Line,
    Reply,
    Request,
    Reset,
    Server,
    Stream,
    Talk,
    refused,
    unanswered,
)

Run = Callable[[Coroutine[Any, Any, Any]], Any]
QUICK: dict[str, Any] = {"base": 0.001, "cap": 0.002}
BROKEN = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)  # what becomes of RST, whichever byte it meets
LONG = b"x" * 300_000
WAITING = Stream([b"one", b"two"], ends="hang")


@asynccontextmanager
async def client(loopback: Server, session: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Any]:
    """A session through forbear. Nothing of its pool may be left in use at its end."""
    middleware = Middleware(**{**QUICK, **options})
    async with aiohttp.ClientSession(loopback.url, middlewares=(middleware,), **(session or {})) as made:
        made.ours = lambda: middleware.upstream_of(loopback.url).snapshot()  # type: ignore[union-attr]
        yield made
        await until(lambda: not made.connector._acquired)


@pytest.fixture(autouse=True)
def notes_on_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """`client` keeps a note on its session, which aiohttp warns of in its debug mode."""
    monkeypatch.setattr(aiohttp.ClientSession, "ATTRS", aiohttp.ClientSession.ATTRS | {"ours"})


async def until(true: Callable[[], object], within: float = 5.0) -> None:
    ends = time.monotonic() + within
    while not true():
        assert time.monotonic() < ends, "it did not come true"
        await asyncio.sleep(0.005)


def quiet(session: Any) -> bool:
    """Whether nothing of the service is held."""
    snapshot = session.ours()
    return (snapshot.in_flight, snapshot.waiting) == (0, 0)


async def get(session: Any, **options: Any) -> tuple[int, bytes]:
    async with session.get("/x", **options) as response:
        return response.status, await response.read()


# ---- statuses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
async def test_a_status_that_may_pass_is_retried(loopback: Server, status: int) -> None:
    loopback.script(Reply(status), Reply(status), Reply(200, body=b"good"))
    async with client(loopback) as session, session.get("/x") as response:
        assert (response.status, await response.read()) == (200, b"good")
        log = attempt_log(response)
        assert log is not None
        assert (log.attempts, log.gave_up) == (3, None)
        assert [one.status for one in log.history] == [status, status]
        assert 0 < log.waited < log.elapsed
    assert len(loopback.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422, 501])
async def test_any_other_is_returned_untouched(loopback: Server, status: int) -> None:
    loopback.script(Reply(status, body={"error": "no"}))
    async with client(loopback) as session:
        async with session.get("/x") as response:
            assert (response.status, await response.json()) == (status, {"error": "no"})
            assert mark_of_response(response) is None
            with pytest.raises(aiohttp.ClientResponseError):
                response.raise_for_status()
        async with session.get("/x") as response:
            assert await response.content.readexactly(5) == b'{"err'
            assert await response.content.read() == b'or": "no"}'
        assert quiet(session)
    assert len(loopback.requests) == 2


def mark_of_response(response: Any) -> Any:
    return getattr(response, "__forbear__", None)


async def test_one_that_is_retried_in_vain_is_an_error_of_both(loopback: Server) -> None:
    loopback.script(Reply(503, body=b"busy"))
    async with client(loopback, max_attempts=3) as session:
        with pytest.raises(RetriesExhausted) as caught:
            await session.get("/x")
        assert quiet(session)
    assert isinstance(caught.value, aiohttp.ClientError)
    assert isinstance(caught.value, errors.RetriesExhausted)
    last: Any = caught.value.last_error
    assert type(last) is aiohttp.ClientResponseError
    assert (last.status, last.body, caught.value.attempts) == (503, b"busy", 3)
    assert len(loopback.requests) == 3


async def test_or_the_last_response_where_that_is_wanted(loopback: Server) -> None:
    loopback.script(Reply(503, body=b"first"), Reply(503, body=b"last"))
    async with client(loopback, max_attempts=2, reraise=True) as session, session.get("/x") as response:
        assert (response.status, await response.read()) == (503, b"last")
        log = attempt_log(response)
        assert log is not None
        assert log.gave_up is not None
        assert (log.gave_up.reason, log.gave_up.attempts) == ("max_attempts", 2)
        with pytest.raises(aiohttp.ClientResponseError) as caught:
            response.raise_for_status()
        assert mark_of(caught.value) is log.gave_up
    assert len(loopback.requests) == 2


async def test_a_response_that_was_given_up_does_not_hold_itself(loopback: Server) -> None:
    loopback.script(Reply(503))
    async with client(loopback, max_attempts=1, reraise=True) as session:
        gc.collect()
        gc.disable()
        try:
            response = await session.get("/x")
            known = weakref.ref(response)
            del response
            assert known() is None
            with pytest.raises(aiohttp.ClientResponseError) as caught:
                (await session.get("/x")).raise_for_status()  # it is gone before the error is made
        finally:
            gc.enable()
    assert (caught.value.status, caught.value.message) == (503, "Service Unavailable")
    assert mark_of(caught.value) is not None


@pytest.mark.parametrize("asked", ["by the session", "by the request", "by hand"])
async def test_what_is_made_of_it_is_not_retried_by_a_layer_around(loopback: Server, asked: str) -> None:
    loopback.script(Reply(503))
    given = {"raise_for_status": True} if asked == "by the session" else {}

    async def call() -> None:
        async with session.get("/x", raise_for_status=True if asked == "by the request" else None) as response:
            response.raise_for_status()

    async with client(loopback, given, max_attempts=2, reraise=True) as session:
        with pytest.raises(aiohttp.ClientResponseError):
            await retry(call, max_attempts=3, base=0.001)
    assert len(loopback.requests) == 2


async def test_a_session_that_raises_for_statuses_does_so_for_what_is_returned(loopback: Server) -> None:
    loopback.script(Reply(503), Reply(404))
    async with client(loopback, {"raise_for_status": True}) as session:
        with pytest.raises(aiohttp.ClientResponseError) as caught:
            await session.get("/x")
    assert caught.value.status == 404
    assert len(loopback.requests) == 2


async def test_what_the_body_says_counts(loopback: Server) -> None:
    loopback.script(Reply(429, body={"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}))
    async with client(loopback) as session, session.get("/x") as response:
        assert (await response.json())["error"]["code"] == "insufficient_quota"
    assert len(loopback.requests) == 1


async def test_a_rule_of_the_callers_own_reads_status_headers_and_body(loopback: Server) -> None:
    seen: list[Any] = []

    def rule(error: Exception) -> bool:
        assert isinstance(error, aiohttp.ClientResponseError)
        seen.append((error.status, error.headers["X-Why"], error.body))  # type: ignore[index, attr-defined]
        return error.status == 404

    loopback.script(Reply(404, {"X-Why": "soon"}, b"not yet"), Reply(200))
    async with client(loopback, retryable=rule) as session:
        assert (await get(session))[0] == 200
    assert seen == [(404, "soon", b"not yet")]


async def test_the_servers_own_wait_is_kept(loopback: Server) -> None:
    loopback.script(Reply(503, {"retry-after-ms": "300"}), Reply(200))
    async with client(loopback) as session:
        assert (await get(session))[0] == 200
    first, second = loopback.requests
    assert second.at - first.at >= 0.3


async def test_a_wait_that_does_not_fit_ends_the_call_at_once(loopback: Server) -> None:
    loopback.script(Reply(503, {"Retry-After": "30"}))
    async with client(loopback, deadline=5) as session:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            await session.get("/x")
        assert time.monotonic() - began < 3
    assert caught.value.hint == 30
    assert isinstance(caught.value, aiohttp.ServerTimeoutError)
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("answer", [Reply(204), Reply(304), Reply(200)])
async def test_answers_without_a_body_need_no_reading(loopback: Server, answer: Reply) -> None:
    loopback.script(answer)
    async with client(loopback) as session:
        for method in ("GET", "HEAD"):
            async with session.request(method, "/x") as response:
                assert (response.status, await response.read()) == (answer.status, b"")
            assert quiet(session)


# ---- connections that fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble", [Reset(), Close(), Cut(b"half"), Cut(b"half", reset=True), Cut(b"half", status=503)]
)
async def test_what_breaks_inside_an_attempt_is_retried(loopback: Server, trouble: Any) -> None:
    loopback.script(trouble, trouble, Reply(body=b"whole"))
    async with client(loopback) as session:
        with record_events() as events:
            assert await get(session) == (200, b"whole")
        assert quiet(session)
    assert [event.outcome for event in events.attempts] == ["failure", "failure", "success"]
    assert len(loopback.requests) == 3


async def test_a_server_that_hangs_is_left_at_the_attempts_time(loopback: Server) -> None:
    loopback.script(Hang())
    async with client(loopback, attempt_timeout=0.2, max_attempts=2) as session:
        began = time.monotonic()
        with pytest.raises(RetriesExhausted) as caught:
            await session.get("/x")
        assert 0.37 <= time.monotonic() - began < 3
        assert quiet(session)
    assert isinstance(caught.value.last_error, aiohttp.ServerTimeoutError)
    assert len(loopback.requests) == 2


@pytest.mark.parametrize("where", ["head", "body"])
async def test_r007_a_byte_now_and_then_does_not_keep_an_attempt_alive(loopback: Server, where: str) -> None:
    loopback.script(Reply(body=b"y" * (100 if where == "body" else 1), drip=0.05 if where == "head" else 0.004))
    limit = 0.2 if where == "head" else 0.6
    async with client(loopback, attempt_timeout=limit, max_attempts=1) as session:
        began = time.monotonic()
        with pytest.raises(RetriesExhausted):
            await session.get("/x")
        assert limit - 0.02 <= time.monotonic() - began < limit + 2
        await until(lambda: quiet(session))


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_where_nobody_listens_any_method_is_tried_again(method: str) -> None:
    async with aiohttp.ClientSession(middlewares=(Middleware(max_attempts=3, **QUICK),)) as session:
        with refused() as address, pytest.raises(RetriesExhausted) as caught:
            await session.request(method, f"http://{address}")
    assert isinstance(caught.value.last_error, aiohttp.ClientConnectorError)
    assert caught.value.attempts == 3


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_where_nobody_answers_either_as_nothing_was_sent(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp_like, "_EARLY", 9.8)  # on a busy machine both timers are late, and less is known then
    monkeypatch.setattr(aiohttp_like, "_SHARE", 0.0)
    options = {"max_attempts": 2, "attempt_timeout": 10, "deadline": None, **QUICK}
    async with aiohttp.ClientSession(middlewares=(Middleware(**options),)) as session:
        with unanswered() as address, pytest.raises(RetriesExhausted) as caught:
            await session.request(method, f"http://{address}")
    assert isinstance(caught.value.last_error, aiohttp.ConnectionTimeoutError)
    assert caught.value.attempts == 2


async def test_to_wait_for_a_place_in_the_pool_is_not_to_send(
    loopback: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiohttp_like, "_EARLY", 9.8)
    monkeypatch.setattr(aiohttp_like, "_SHARE", 0.0)
    loopback.script(Reply(429, {"Connection": "close"}), WAITING, Reply(200))
    pool = aiohttp.TCPConnector(limit=1)
    held: list[Any] = []

    async def take_and_give(_: object) -> None:
        if held:
            held[0].close()
        else:
            held.append(await other.get(loopback.url))

    options = {"attempt_timeout": 10, "deadline": None, "on_retry": take_and_give, "upstream": None}
    async with (
        aiohttp.ClientSession(connector=pool) as other,
        client(loopback, {"connector": pool}, **options) as session,
        session.post("/x") as response,
    ):
        assert (response.status, attempts_of(response)) == (200, 3)
        log = attempt_log(response)
    assert log is not None
    assert log.history[1].error_type.endswith("ConnectionTimeoutError")
    assert len(loopback.requests) == 3


# ---- which requests may be sent again --------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [Reply(503), Reply(500), Reset(), Close(), Hang()])
async def test_t38_a_post_without_a_key_is_not_sent_again(
    loopback: Server, trouble: Any, caplog: pytest.LogCaptureFixture
) -> None:
    loopback.script(trouble, Reply(200))
    async with client(loopback, attempt_timeout=0.2) as session:
        with record_events() as events, caplog.at_level(logging.WARNING, "forbear"):
            if isinstance(trouble, Reply):
                assert (await session.post("/x", json={})).status == trouble.status
            else:
                with pytest.raises((*BROKEN, aiohttp.ServerTimeoutError)):
                    await session.post("/x", json={})
        assert quiet(session)
    assert [event.reason for event in events.ends] == ["unsafe"]
    assert "Idempotency-Key" in caplog.text
    assert len(loopback.requests) == 1


async def test_with_a_key_it_is_and_the_key_stays_the_same(loopback: Server) -> None:
    loopback.script(Reply(503), Reset(), Reply(200), Reply(200))
    async with client(loopback, idempotency_key=True) as session:
        assert (await session.post("/x", json={})).status == 200
        assert (await session.post("/x", json={})).status == 200
    keys = [request.header("Idempotency-Key") for request in loopback.requests]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert None not in keys


async def test_so_it_is_with_a_key_of_the_callers_own(loopback: Server) -> None:
    loopback.script(Reply(503), Reply(200))
    async with client(loopback) as session:
        assert (await session.post("/x", headers={"idempotency-key": "mine"})).status == 200
    assert [request.header("Idempotency-Key") for request in loopback.requests] == ["mine", "mine"]


@pytest.mark.parametrize(("method", "said", "sent"), [("POST", True, 2), ("GET", False, 1)])
async def test_what_the_caller_says_of_all_requests_counts(
    loopback: Server, method: str, said: bool, sent: int
) -> None:
    loopback.script(Reply(503), Reply(200))
    async with client(loopback, idempotent=said) as session:
        assert (await session.request(method, "/x")).status == (200 if said else 503)
    assert len(loopback.requests) == sent


async def test_a_refusal_for_now_proves_that_nothing_was_done(loopback: Server) -> None:
    loopback.script(Reply(429), Reply(200))
    async with client(loopback) as session:
        assert (await session.post("/x")).status == 200


# ---- headers ---------------------------------------------------------------------------------------------------------


async def test_each_attempt_has_its_own_headers_and_each_of_them_once(loopback: Server) -> None:
    loopback.script(Reply(503), Reply(503), Reply(200))
    async with client(loopback, attempt_header="x-retry-count", base=0.05, cap=0.05, jitter="none") as session:
        response = await session.get("/x", headers={"X-Mine": "1"})
    told = [request.header("X-Request-Deadline") for request in loopback.requests]
    assert None not in told
    assert len(set(told)) == 1 or told == sorted(told)  # one instant, told by a clock of milliseconds
    assert [request.header("x-retry-count") for request in loopback.requests] == ["0", "1", "2"]
    for request in loopback.requests:
        names = [name.lower() for name, _ in request.headers]
        assert len(names) == len(set(names))
        assert request.header("x-mine") == "1"
    assert response.request_info.headers["x-retry-count"] == "2"


async def test_nothing_of_ours_stays_on_the_request(loopback: Server) -> None:
    before: list[dict[str, str]] = []

    async def twice(request: Any, handler: Any) -> Any:
        before.append(dict(request.headers))
        await handler(request)
        before.append(dict(request.headers))
        return await handler(request)

    options = {**QUICK, "attempt_header": "x-retry-count", "idempotency_key": True}
    async with aiohttp.ClientSession(middlewares=(twice, Middleware(**options))) as session:
        await session.post(loopback.url)
    assert before[0] == before[1]
    assert [request.header("x-retry-count") for request in loopback.requests] == ["0", "0"]
    keys = [request.header("idempotency-key") for request in loopback.requests]
    assert keys[0] != keys[1]


async def test_expecting_a_100_works_in_every_attempt(loopback: Server) -> None:
    loopback.script(Reply(503), Reply(503), Reply(200))
    async with client(loopback) as session:
        assert (await session.put("/x", data=b"body", expect100=True)).status == 200
    assert [request.body for request in loopback.requests] == [b"body"] * 3
    assert [request.header("expect") for request in loopback.requests] == ["100-continue"] * 3


async def test_every_attempt_waits_for_its_own_100(loopback: Server) -> None:
    early: list[bytes] = []

    async def strict(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(TimeoutError):
            early.append(await asyncio.wait_for(line.reader.read(100), 0.1))
        await line.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await line.reader.readexactly(4) == b"body"
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    loopback.script(Reply(503, {"Connection": "close"}), Talk(strict))
    async with client(loopback) as session:
        assert (await session.put("/x", data=b"body", expect100=True)).status == 200
    assert early == []


# ---- bodies ----------------------------------------------------------------------------------------------------------

TEXT = "0123456789" + "abcdefghij" * 30_000


def a_form(**parts: Any) -> Any:
    form = aiohttp.FormData()
    form.add_field("name", "value")
    for name, part in parts.items():
        form.add_field(name, part, filename=name)
    return form


async def some_chunks() -> AsyncIterator[bytes]:
    for start in range(0, len(TEXT), 100_000):
        yield TEXT[start : start + 100_000].encode()


BODIES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "bytes": lambda _: {"data": b"bytes"},
    "bytearray": lambda _: {"data": bytearray(b"bytes")},
    "text": lambda _: {"data": "text"},
    "json": lambda _: {"json": {"a": 1}},
    "form": lambda _: {"data": {"a": "1", "b": "2"}},
    "nothing": lambda _: {},
    "file": lambda file: {"data": file},
    "buffer": lambda file: {"data": at_ten(io.BytesIO(file.seek(0) or file.read()))},
    "text buffer": lambda file: {"data": at_ten(io.StringIO(TEXT))},
    "text file": lambda file: {"data": at_ten(Path(file.name).open(encoding="utf-8"))},  # noqa: SIM115
    "form with a file": lambda file: {"data": a_form(file=file)},
    "made anew": lambda _: {"data": AsyncBody(some_chunks)},
    "form with one made anew": lambda _: {"data": a_form(made=AsyncBody(some_chunks))},
    "compressed": lambda file: {"data": file, "compress": "deflate"},
}


def at_ten(file: Any) -> Any:
    file.seek(10)
    return file


@pytest.fixture
def upload(tmp_path: Path) -> Any:
    """A file that stands at its tenth byte."""
    path = tmp_path / "upload"
    path.write_text(TEXT, encoding="utf-8")
    with path.open("rb") as file:
        yield at_ten(file)


async def half(line: Line) -> None:
    """Reads the head and a part of the body, then drops the connection."""
    head = await line.reader.readuntil(b"\r\n\r\n")
    if b"content-length: 0" not in head.lower():
        await line.reader.read(20_000)
    line.reset()


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("trouble", [Reply(503), Reset(), Talk(half)], ids=["after it", "reset", "in its midst"])
async def test_r053_every_attempt_sends_the_same_body(loopback: Server, name: str, trouble: Any, upload: Any) -> None:
    async with client(loopback) as session, session.put("/x", **BODIES[name](upload)) as response:
        assert response.status == 200
    meant = loopback.requests.pop()  # what is sent without any trouble
    loopback.script(trouble, Reply(503), Reply(200))
    with at_ten(Path(upload.name).open("rb")) as file:  # aiohttp has closed the other
        async with client(loopback) as session, session.put("/x", **BODIES[name](file)) as response:
            assert response.status == 200
            assert attempts_of(response) == 3
    assert len(loopback.requests) == (2 if isinstance(trouble, Talk) else 3)
    for request in loopback.requests:
        assert without_boundary(request) == without_boundary(meant)
        for header in ("content-length", "transfer-encoding", "content-encoding"):
            assert request.header(header) == meant.header(header)
    if name in {"file", "buffer", "text buffer", "text file"}:
        assert meant.body == TEXT[10:].encode()


def attempts_of(response: Any) -> int:
    log = attempt_log(response)
    assert log is not None
    return log.attempts


def without_boundary(request: Request) -> bytes:
    kind = request.header("content-type") or ""
    _, _, boundary = kind.partition("boundary=")
    return request.body.replace(boundary.encode(), b"--") if boundary else request.body


PIPES: list[Any] = []


def a_pipe(data: bytes) -> Any:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    PIPES.append(os.fdopen(reading, "rb"))
    return PIPES[-1]


@pytest.fixture(autouse=True)
def pipes() -> Iterator[None]:
    """aiohttp does not close what it could not rewind."""
    yield
    while PIPES:
        PIPES.pop().close()


class Foreign(aiohttp.Payload):  # type: ignore[misc, name-defined, unused-ignore]
    """A payload of which nobody knows whether it can be written twice."""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return ""

    async def write(self, writer: Any) -> None:
        await writer.write(b"once")


ONCE: dict[str, Callable[[], Any]] = {
    "a generator": some_chunks,
    "a pipe": lambda: a_pipe(b"once"),
    "a form with a pipe": lambda: a_form(file=a_pipe(b"once")),
    "a payload of its own": lambda: Foreign(None),
}


@pytest.mark.parametrize("trouble", [Reply(503), Reset(), Hang()], ids=["refused", "reset", "too slow"])
@pytest.mark.parametrize("name", ONCE)
async def test_a_body_that_can_be_read_once_is_sent_once(
    loopback: Server, name: str, trouble: Any, caplog: pytest.LogCaptureFixture
) -> None:
    loopback.script(trouble, Reply(200))
    async with client(loopback, attempt_timeout=0.2) as session:
        with record_events() as events, caplog.at_level(logging.WARNING, "forbear"):
            if isinstance(trouble, Reply):
                assert (await session.put("/x", data=ONCE[name]())).status == 503
            else:
                with pytest.raises((*BROKEN, aiohttp.ServerTimeoutError)) as caught:
                    await session.put("/x", data=ONCE[name]())
                assert not isinstance(caught.value, errors.RetryError)
        assert quiet(session)
        assert len(loopback.requests) == 1
        assert (await get(session))[0] == 200
    assert [event.reason for event in events.ends] == ["unsafe"]
    assert "can be read only once" in caplog.text
    assert "AsyncBody" in caplog.text


@pytest.mark.parametrize("name", ONCE)
async def test_but_where_nothing_was_sent_it_is_tried_again(name: str) -> None:
    async with aiohttp.ClientSession(middlewares=(Middleware(max_attempts=3, **QUICK),)) as session:
        with refused() as address, pytest.raises(RetriesExhausted) as caught:
            await session.put(f"http://{address}", data=ONCE[name]())
    assert caught.value.attempts == 3


async def test_a_body_made_anew_is_closed_when_its_attempt_is_cut(loopback: Server) -> None:
    made: list[str] = []

    async def slow() -> AsyncIterator[bytes]:
        made.append("begun")
        try:
            yield b"first"
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.02)
            made.append("closed")  # before the next attempt begins to read

    async def listen(line: Line) -> None:
        await line.until_gone()

    loopback.script(Talk(listen))
    async with client(loopback, attempt_timeout=0.2, max_attempts=2) as session:
        with pytest.raises(RetriesExhausted):
            await session.put("/x", data=AsyncBody(slow))
        await until(lambda: len(made) == 4)
    assert made == ["begun", "closed"] * 2


# ---- what aiohttp sends by itself ------------------------------------------------------------------------------------


async def kept_alive(session: Any) -> None:
    """The session has a connection that it will use again."""
    async with session.get("/warm") as response:
        await response.read()


async def test_a_sole_owner_is_so_for_requests_with_middlewares_of_their_own_too(loopback: Server) -> None:
    async with aiohttp.ClientSession(loopback.url) as session:
        assert sole_owner(session, **QUICK) is session
        await kept_alive(session)
        loopback.script(Reset(), Reply(200))
        assert (await get(session, middlewares=()))[0] == 200
        assert len(loopback.requests) == 3
        loopback.script(Reset(), Reply(503), Reply(200))
        assert (await get(session))[0] == 200
    assert len(loopback.requests) == 6


@pytest.mark.parametrize("debug", [False, True])
async def test_a_sole_owner_goes_last_among_the_middlewares_of_a_request(
    loopback: Server, debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    async def sessions(request: Any, handler: Any) -> Any:
        calls.append("the session's")
        return await handler(request)

    async def requests(request: Any, handler: Any) -> Any:
        calls.append("the request's")
        return await handler(request)

    if debug:  # of aiohttp, in which its sessions warn of attributes that are not their own
        monkeypatch.setattr(aiohttp.ClientSession, "__setattr__", strict_setattr, raising=False)
    async with aiohttp.ClientSession(loopback.url, middlewares=(sessions,)) as session:
        sole_owner(sole_owner(session, max_attempts=9, **QUICK), max_attempts=2, **QUICK)
        for given, called in ((requests,), "the request's"), ((), None), (None, "the session's"):
            calls.clear()
            loopback.script(Reply(503))
            async with session.get("/x", middlewares=given) as response:
                log = attempt_log(response)
                assert log is not None
                assert (response.status, log.attempts) == (503, 2)
            assert calls == ([called] if called else [])
        own = Middleware(max_attempts=3, reraise=True, **QUICK)
        async with session.get("/x", middlewares=[own]) as response:
            log = attempt_log(response)
            assert log is not None
            assert log.attempts == 3
    assert len(loopback.requests) == 3 * 2 + 3


def strict_setattr(session: Any, name: str, value: Any) -> None:
    assert name in aiohttp.ClientSession.ATTRS
    object.__setattr__(session, name, value)


async def test_an_owned_session_is_no_riddle_for_the_collector(loopback: Server) -> None:
    session = sole_owner(aiohttp.ClientSession(loopback.url), **QUICK)
    assert (await get(session))[0] == 200
    await session.close()
    known = weakref.ref(session)
    gc.disable()
    try:
        del session
        await until(lambda: known() is None)
    finally:
        gc.enable()


async def test_a_request_function_that_was_wrapped_before_stays_so(loopback: Server) -> None:
    asked: list[str] = []
    async with aiohttp.ClientSession(loopback.url) as session:
        usual = session._request

        async def noting(method: str, url: Any, **options: Any) -> Any:
            asked.append(method)
            return await usual(method, url, **options)

        object.__setattr__(session, "_request", noting)
        loopback.script(Reply(503), Reply(200))
        assert (await get(sole_owner(session, **QUICK)))[0] == 200
    assert asked == ["GET"]
    assert len(loopback.requests) == 2


async def test_a_class_among_the_middlewares_is_told_so(loopback: Server) -> None:
    given: Any = (Middleware,)
    async with aiohttp.ClientSession(loopback.url, middlewares=given) as session:
        with pytest.raises(TypeError, match=r"Middleware\(\)"):
            await session.get("/x")


@pytest.mark.parametrize("by", ["the same request", "another request"])
async def test_a_middleware_around_it_may_try_again(loopback: Server, by: str) -> None:
    paths: list[str] = []

    async def stubborn(request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except BROKEN:
            if by == "the same request":
                return await handler(request)
            return await session.get("/x", middlewares=(count, inner))

    async def count(request: Any, handler: Any) -> Any:
        paths.append(request.url.path)
        return await handler(request)

    inner = Middleware(max_attempts=1, reraise=True, **QUICK)
    loopback.script(Reset(), Reply(200))
    async with aiohttp.ClientSession(loopback.url, middlewares=(stubborn, count, inner)) as session:
        assert (await get(session))[0] == 200
    assert paths == ["/x", "/x"]
    assert len(loopback.requests) == 2


async def test_the_error_that_was_refused_a_resend_is_not_kept(loopback: Server) -> None:
    loopback.script(Reset())
    async with client(loopback, max_attempts=1, reraise=True) as session:
        with pytest.raises(BROKEN):
            await session.get("/x")
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, BROKEN) and mark_of(one) is not None]


# ---- sole_owner ------------------------------------------------------------------------------------------------------


async def test_a_sole_owner_hands_out_what_aiohttp_would(loopback: Server) -> None:
    loopback.script(Reply(503))
    async with aiohttp.ClientSession(loopback.url) as session:
        sole_owner(session, max_attempts=2, **QUICK)
        assert (await get(session))[0] == 503
    assert len(loopback.requests) == 2


async def test_a_session_has_one_owner_and_keeps_its_other_middlewares(loopback: Server) -> None:
    calls: list[str] = []

    async def other(request: Any, handler: Any) -> Any:
        calls.append(request.method)
        return await handler(request)

    loopback.script(Reply(503))
    async with aiohttp.ClientSession(loopback.url, middlewares=[Middleware(max_attempts=5), other]) as session:
        sole_owner(sole_owner(session, max_attempts=4), max_attempts=2, **QUICK)
        assert (await get(session))[0] == 503
    assert calls == ["GET"]
    assert len(loopback.requests) == 2


@pytest.mark.filterwarnings("ignore:code property is deprecated")  # of aiohttp's error, which is read where it may be
@pytest.mark.parametrize("trouble", [Reply(503), Reset()])
async def test_a_library_around_a_session_that_repeats_by_itself_is_noticed(loopback: Server, trouble: Any) -> None:
    loopback.script(trouble)
    async with aiohttp.ClientSession(loopback.url) as session:
        own(session, {"max_attempts": 2, "reraise": True, **QUICK}, watched="a library")

        async def ask(body: bytes) -> None:
            with contextlib.suppress(*BROKEN):
                await session.put("/x", data=body)

        await ask(b"one")
        await ask(b"another")
        with pytest.warns(NestedRetriesWarning, match="a library repeats by itself .* 4 requests"):
            await ask(b"one")


def test_what_is_no_session_has_another_way() -> None:
    with pytest.raises(TypeError, match=r"integrations\.sole_owner"):
        sole_owner(object())  # type: ignore[type-var]


# ---- answers that nobody reads ---------------------------------------------------------------------------------------


async def test_t37_r055_discarded_answers_are_closed_before_the_wait(loopback: Server) -> None:
    huge = Reply(503, body=b"x" * 3_000_000)
    loopback.script(huge, huge, huge, Reply(200, body=b"good"))
    held: list[int] = []

    async def look(_: object) -> None:
        held.append(len(session.connector._acquired))

    async with aiohttp.ClientSession(loopback.url, middlewares=(Middleware(on_retry=look, **QUICK),)) as session:
        assert await get(session) == (200, b"good")
        assert not session.connector._acquired  # type: ignore[union-attr]
        began = time.monotonic()
    assert time.monotonic() - began < 1
    assert held == [0, 0, 0]
    await asyncio.to_thread(loopback.wait_until_idle)


@pytest.mark.parametrize(("status", "requests"), [(503, 2), (404, 1)])
async def test_a_failure_that_is_far_too_long_says_that_it_was_not_read(
    loopback: Server, status: int, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "HOLD_FAILURE", 100_000)
    loopback.script(Reply(status, body=LONG))
    async with client(loopback, hold_body=1_000, max_attempts=2, reraise=True) as session:
        response = await session.get("/x")
        assert response.status == status
        with pytest.raises(aiohttp.ClientPayloadError, match="longer than 100,000 bytes"):
            await response.read()
    assert len(loopback.requests) == requests


async def test_a_rule_of_the_callers_own_is_asked_of_a_long_failure_too(
    loopback: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "HOLD_FAILURE", 100_000)
    seen: list[tuple[int, bytes]] = []

    def rule(error: Any) -> bool:
        seen.append((error.status, error.body[:1]))
        return True

    loopback.script(Reply(404, body=LONG), Reply(404, body=LONG[:50_000]), Reply(200, body=b"good"))
    async with client(loopback, hold_body=1_000, retryable=rule) as session:
        assert await get(session) == (200, b"good")
    assert seen == [(404, b"x")] * 2


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_what_comes_to_its_end_beyond_hold_body_is_whole(loopback: Server, status: int) -> None:
    async def talk(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        await line.send(head.encode())
        await asyncio.sleep(0.05)
        await line.send(b"64\r\n" + b"1" * 100 + b"\r\n0\r\n\r\n")
        await asyncio.sleep(0.3)

    with Server(Talk(talk)) as server:
        async with client(server, hold_body=10, hold_json=True, max_attempts=1, reraise=True) as session:
            assert await get(session) == (status, b"1" * 100)
            assert quiet(session)
            assert not session.connector._acquired


async def test_what_comes_to_its_end_before_its_caller_has_it_is_whole(
    loopback: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = aiohttp_like.AiohttpExchange._in_time

    async def send_slowly(exchange: Any) -> None:
        await send(exchange)
        await asyncio.sleep(0.2)

    monkeypatch.setattr(aiohttp_like.AiohttpExchange, "_in_time", send_slowly)
    loopback.script(Stream([b"one", 0.05, b"two"]))
    async with client(loopback) as session:
        response = await session.get("/x")
        assert quiet(session)
        assert not session.connector._acquired
        assert await response.read() == b"onetwo"


@pytest.mark.parametrize("status", [200, 404])
async def test_a_held_answer_that_stands_still_is_left_for_another_attempt(status: int) -> None:
    async def talk(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.send(f"HTTP/1.1 {status} X\r\nContent-Length: 9\r\n\r\nbyte".encode())
        await asyncio.sleep(10)

    options: dict[str, Any] = {"attempt_timeout": None, "gap_timeout": 0.3, "deadline": 3, "max_attempts": 2}
    with Server(Talk(talk)) as server:
        async with client(server, **options) as session:
            began = time.monotonic()
            with pytest.raises(RetriesExhausted) as caught:
                await session.get("/x")
            assert 0.55 < time.monotonic() - began < 2
            assert isinstance(caught.value.last_error, aiohttp.ServerTimeoutError)
        assert server.connections == 2


async def test_a_long_answer_that_is_not_retried_can_be_read_whole(loopback: Server) -> None:
    loopback.script(Reply(404, body=LONG))
    async with client(loopback, hold_body=1_000) as session:
        assert await get(session) == (404, LONG)
        await until(lambda: quiet(session))
    assert len(loopback.requests) == 1


async def test_an_answer_that_grows_when_it_is_unpacked_can_be_read_whole(loopback: Server) -> None:
    packed = gzip.compress(b"x" * 5_000_000)
    loopback.script(Reply(200, {"content-encoding": "gzip"}, packed))
    async with client(loopback, hold_body=100_000) as session:
        assert len(packed) < 100_000
        assert await get(session) == (200, b"x" * 5_000_000)
        await until(lambda: quiet(session))


# ---- answers that are read by their caller ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["read", "released", "closed", "left", "forgotten", "broken"])
async def test_a_lease_is_held_until_the_caller_has_done_with_the_answer(loopback: Server, how: str) -> None:
    ends = {"read": "whole", "broken": "reset", "forgotten": "reset"}.get(how, "hang")
    loopback.script(Stream([b"one", 0.2, b"two"], ends=ends))  # type: ignore[arg-type]
    async with client(loopback) as session:
        with record_events() as events:
            response = await session.get("/x")
            assert await response.content.readexactly(3) == b"one"
            assert session.ours().in_flight == 1
            match how:
                case "read":
                    assert await response.content.read() == b"two"
                case "released":
                    response.release()
                case "closed":
                    response.close()
                case "left":
                    async with response:
                        pass
                case "broken":
                    with pytest.raises(aiohttp.ClientPayloadError):
                        await response.read()
                case _:
                    del response  # aiohttp holds it until its connection ends
                    await asyncio.sleep(0.4)
                    gc.collect()
            await until(lambda: quiet(session))
        broke = how in {"broken", "forgotten"}
        assert [event.reason for event in events.ends] == [
            "interrupted" if broke else "success" if how == "read" else "closed"
        ]
        outcome = "failure" if broke else "success"
        assert [event.outcome for event in events.attempts] == [outcome]
    assert len(loopback.requests) == 1


async def test_an_answer_that_is_forgotten_holds_its_connection_until_the_deadline(loopback: Server) -> None:
    loopback.script(WAITING)
    async with client(loopback, deadline=0.4) as session:
        await session.get("/x")
        assert len(session.connector._acquired) == 1
        await until(lambda: not session.connector._acquired and quiet(session))
    await asyncio.to_thread(loopback.wait_until_idle)


@pytest.mark.parametrize("reading", [True, False], ids=["while it is read", "before it is read"])
async def test_the_deadline_is_for_the_body_too(loopback: Server, reading: bool) -> None:
    loopback.script(WAITING)
    async with client(loopback, deadline=0.4) as session:
        began = time.monotonic()
        response = await session.get("/x")
        if not reading:
            await asyncio.sleep(0.6)
            assert response.closed
            assert not session.connector._acquired
        with pytest.raises(DeadlineExceeded) as caught:
            await response.read()
        assert 0.4 <= time.monotonic() - began < 3
        await until(lambda: quiet(session))
        assert response.closed
    assert caught.value.attempts == 1
    assert isinstance(caught.value, aiohttp.ServerTimeoutError)
    await asyncio.to_thread(loopback.wait_until_idle)


async def test_the_deadline_ends_an_answer_that_is_iterated(loopback: Server) -> None:
    loopback.script(Stream([b"line\n", 0.05] * 100))
    async with client(loopback, deadline=0.4) as session:
        lines = 0
        with pytest.raises(DeadlineExceeded):
            async with session.get("/x") as response:
                async for _ in response.content:
                    lines += 1
        assert 0 < lines < 20


async def test_what_is_longer_than_total_timeout_is_a_timeout(loopback: Server) -> None:
    loopback.script(Stream([b"x", 0.05] * 100))
    async with client(loopback, total_timeout=0.3) as session:
        began = time.monotonic()
        with record_events() as events, pytest.raises(aiohttp.ServerTimeoutError) as caught:
            await get(session)
        assert 0.3 <= time.monotonic() - began < 3
        await until(lambda: events.ends)
    assert not isinstance(caught.value, errors.RetryError)
    assert [event.reason for event in events.ends] == ["interrupted"]


async def test_total_timeout_is_for_each_attempt(loopback: Server) -> None:
    loopback.script(Hang(), Stream([b"x", 0.1] * 3))
    async with client(loopback, first_timeout=0.5, total_timeout=0.7) as session:
        assert await get(session) == (200, b"xxx")
    assert len(loopback.requests) == 2


@pytest.mark.parametrize("option", ["gap_timeout", "attempt_timeout"])
@pytest.mark.parametrize("chunks", [[], [b"x", 0.05, b"x"]], ids=["at once", "later"])
async def test_a_body_that_stands_still_is_left(loopback: Server, option: str, chunks: list[Any]) -> None:
    loopback.script(Stream(chunks, ends="hang"))
    async with client(loopback, **{option: 0.3}) as session:
        began = time.monotonic()
        with pytest.raises(aiohttp.ServerTimeoutError):
            await get(session)
        assert 0.3 <= time.monotonic() - began < 3
        await until(lambda: quiet(session))
        snapshot = session.ours()
    assert snapshot.in_flight == 0
    assert len(loopback.requests) == 1


async def test_one_that_goes_on_may_take_longer_than_an_attempt(loopback: Server) -> None:
    loopback.script(Stream([b"x", 0.06] * 8))
    async with client(loopback, attempt_timeout=0.3) as session:
        began = time.monotonic()
        assert await get(session) == (200, b"x" * 8)
        assert time.monotonic() - began >= 0.4
        assert (await get(session))[0] == 200  # and the clock of its connection goes back with it


async def test_an_answer_of_json_without_a_length_is_held_where_that_is_wanted(loopback: Server) -> None:
    kind = {"content-type": "application/json"}
    loopback.script(Stream([b"[1,"], ends="reset", headers=kind), Stream([b"[1,", b"2]"], headers=kind))
    async with client(loopback, hold_json=True) as session, session.get("/x") as response:
        assert await response.json() == [1, 2]
    assert len(loopback.requests) == 2


async def test_a_body_that_broke_counts_for_the_breaker(loopback: Server) -> None:
    loopback.script(Stream([b"x"], ends="reset"))
    breaker = CircuitBreaker(failure_threshold=2)
    async with client(loopback, breaker=breaker) as session:
        for _ in range(2):
            with pytest.raises(aiohttp.ClientPayloadError):
                await get(session)
        await until(lambda: breaker.state == "open")
        with pytest.raises(CircuitOpenError) as caught:
            await session.get("/x")
    assert isinstance(caught.value, aiohttp.ClientError)
    assert len(loopback.requests) == 2


async def test_a_circuit_that_opens_between_attempts_tells_why(loopback: Server) -> None:
    loopback.script(Reply(500))
    async with client(loopback, breaker=CircuitBreaker(1)) as session:
        with pytest.raises(CircuitOpenError) as caught:
            await session.get("/x")
    assert isinstance(caught.value.__cause__, aiohttp.ClientResponseError)


# ---- time ------------------------------------------------------------------------------------------------------------


async def test_a_deadline_around_the_call_is_kept_and_told(loopback: Server) -> None:
    loopback.script(Hang())
    async with client(loopback) as session:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            async with deadline(0.3):
                await session.get("/x")
        assert 0.3 <= time.monotonic() - began < 3
        assert quiet(session)
    assert loopback.requests[0].header("x-request-deadline") is not None


async def test_the_sessions_total_timeout_is_around_all_attempts(
    loopback: Server, caplog: pytest.LogCaptureFixture
) -> None:
    loopback.script(Hang())
    limits = {"timeout": aiohttp.ClientTimeout(total=0.3)}
    async with client(loopback, limits, base=1, cap=1, jitter="none") as session:
        began = time.monotonic()
        with caplog.at_level(logging.WARNING, "forbear"), pytest.raises(TimeoutError) as caught:
            await session.get("/x")
        assert 0.3 <= time.monotonic() - began < 1
        assert type(caught.value) is TimeoutError
        assert quiet(session)
    assert "total timeout" in caplog.text
    assert len(loopback.requests) == 1


async def test_and_around_the_waits(loopback: Server) -> None:
    loopback.script(Reply(503))
    limits = {"timeout": aiohttp.ClientTimeout(total=0.3)}
    async with client(loopback, limits, base=5, cap=5, jitter="none") as session:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await session.get("/x")
        assert 0.3 <= time.monotonic() - began < 3
        assert quiet(session)
    assert len(loopback.requests) == 1


async def test_and_around_the_reading(loopback: Server) -> None:
    loopback.script(WAITING)
    async with client(loopback, {"timeout": aiohttp.ClientTimeout(total=0.3)}) as session:
        with record_events() as events:
            with pytest.raises(TimeoutError):
                await get(session)
            await until(lambda: events.ends)
        assert quiet(session)
    assert [event.outcome for event in events.attempts] == ["failure"]


async def test_its_other_timeouts_are_for_each_attempt(loopback: Server) -> None:
    loopback.script(Hang(), Hang(), Reply(200))
    async with client(loopback, {"timeout": aiohttp.ClientTimeout(sock_read=0.2)}) as session:
        assert (await get(session))[0] == 200
    assert len(loopback.requests) == 3


# ---- cancellation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["refused", "long", "hang", "stream"])
def test_a_cancellation_leaves_nothing_behind_wherever_it_meets_the_call(run: Run, what: str) -> None:
    scripts: dict[str, list[Any]] = {
        "refused": [Reply(503)] * 2 + [Reply(200)],
        "long": [Reply(503, body=LONG)] * 2 + [Reply(200)],
        "hang": [Hang()],
        "stream": [Stream([b"x", b"y"])],
    }

    async def cancel_after(steps: int, server: Server) -> bool:
        server.script(*scripts[what])
        async with client(server, hold_body=1_000, attempt_timeout=0.05, max_attempts=3) as session:
            task = asyncio.create_task(get(session))
            for _ in range(steps):
                await asyncio.sleep(0)
            done = task.done()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, errors.RetryError):
                await task
            assert done or task.cancelled()
            await until(lambda: quiet(session) and not session.connector._acquired)
        return done

    async def all_steps() -> None:
        with Server() as server:
            met = [not await cancel_after(steps, server) for steps in (*range(40), *range(40, 400, 15))]
            assert sum(met) >= 10

    run(all_steps())


def test_r018_attempts_that_are_cut_leave_the_pool_as_it_was(run: Run) -> None:
    async def storm() -> None:
        with Server() as server:
            server.script(Hang())
            pool = {"connector": aiohttp.TCPConnector(limit=10)}
            async with client(server, pool, attempt_timeout=0.05, max_attempts=1, upstream=None) as session_:
                calls = [session_.get("/x") for _ in range(200)]
                ended = await asyncio.gather(*calls, return_exceptions=True)
                assert {type(one) for one in ended} == {RetriesExhausted}
                assert not session_.connector._acquired
                server.script(Reply(200))
                assert [(await get(session_))[0] for _ in range(20)] == [200] * 20

    run(storm())


async def test_the_callers_cancellation_wins_over_the_attempts_end(loopback: Server) -> None:
    loopback.script(Hang())
    async with client(loopback, attempt_timeout=0.1, max_attempts=50) as session:
        for late in range(8):
            task = asyncio.create_task(session.get("/x"))
            await asyncio.sleep(0.095 + late * 0.002)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert quiet(session)


# ---- where it sits in aiohttp ----------------------------------------------------------------------------------------


async def test_each_redirect_is_a_call_of_its_own(loopback: Server) -> None:
    loopback.script(Reply(503), Reply(302, {"Location": "/y"}), Reply(503), Reply(503), Reply(200, body=b"there"))
    async with client(loopback) as session, session.get("/x") as response:
        assert (response.status, await response.read()) == (200, b"there")
        assert attempts_of(response) == 3
        assert [attempts_of(one) for one in response.history] == [2]
    assert [request.path for request in loopback.requests] == ["/x", "/x", "/y", "/y", "/y"]


@pytest.mark.parametrize("name", ["file", "buffer", "made anew", "form with a file"])
async def test_a_redirect_that_keeps_the_body_sends_it_whole(loopback: Server, name: str, upload: Any) -> None:
    moved = Reply(307, {"Location": "/y"})
    loopback.script(Reply(503), moved, Reply(503), Reply(200))
    async with client(loopback) as session:
        assert (await session.put("/x", **BODIES[name](upload))).status == 200
    bodies = [without_boundary(request) for request in loopback.requests]
    assert len(bodies) == 4
    assert bodies[0]
    assert len(set(bodies)) == 1


async def test_it_works_for_one_request_too(loopback: Server) -> None:
    loopback.script(Reply(503), Reply(200))
    async with aiohttp.ClientSession(loopback.url) as session:
        async with session.get("/x", middlewares=(Middleware(**QUICK),)) as response:
            assert attempts_of(response) == 2
        async with session.get("/x") as response:
            assert attempt_log(response) is None


async def test_a_digest_login_goes_through_it(loopback: Server) -> None:
    asks = {"WWW-Authenticate": 'Digest realm="r", nonce="n", qop="auth", algorithm="MD5"'}

    def answer(request: Request) -> Reply:
        known = request.header("authorization") is not None
        if [one.header("authorization") is not None for one in loopback.requests].count(known) == 1:
            return Reply(503)
        return Reply(200) if known else Reply(401, asks)

    loopback.script(Choose(answer))
    login = aiohttp.DigestAuthMiddleware("me", "secret")
    async with aiohttp.ClientSession(loopback.url, middlewares=(login, Middleware(**QUICK))) as session:
        assert (await get(session))[0] == 200
    assert len(loopback.requests) == 4


async def test_websockets_pass_untouched() -> None:
    headers: list[Any] = []

    async def echo(request: Any) -> Any:
        headers.append(request.headers)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    app = web.Application()
    app.router.add_get("/", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    middleware = Middleware(deadline=0.2, attempt_timeout=0.1, idempotency_key=True, attempt_header="x-retry-count")
    try:
        session = aiohttp.ClientSession(middlewares=(middleware,))
        async with session, session.ws_connect(f"http://127.0.0.1:{port}/") as socket:
            await asyncio.sleep(0.4)
            await socket.send_str("still here")
            assert await socket.receive_str(timeout=5) == "still here"
    finally:
        await runner.cleanup()
    ours = {"x-request-deadline", "idempotency-key", "x-retry-count"}
    assert not ours & {name.lower() for name in headers[0]}


# ---- errors and options ----------------------------------------------------------------------------------------------

FACTS: dict[str, Any] = {"elapsed": 1.0, "waited": 0.5, "hint": 2.0, "held_by": "a place"}
OURS = [
    RetriesExhausted("max_attempts", 3, ValueError("x"), **FACTS),
    DeadlineExceeded("deadline", 3, ValueError("x"), **FACTS),
    BudgetExhausted("budget", 3, ValueError("x"), **FACTS),
    CircuitOpenError(1.5, "a service"),
]


@pytest.mark.parametrize("error", OURS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_our_errors_survive_a_copy(error: Any, again: Callable[[Any], Any]) -> None:
    other = again(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    facts = ("reason", "attempts", *FACTS) if isinstance(error, errors.RetryError) else ("retry_in", "name")
    assert [getattr(other, name) for name in facts] == [getattr(error, name) for name in facts]


@pytest.mark.parametrize("error", OURS, ids=lambda error: type(error).__name__)
def test_our_errors_are_met_by_the_handlers_that_are_there(error: Any) -> None:
    assert isinstance(error, aiohttp.ClientError)
    assert isinstance(error, getattr(errors, type(error).__name__))
    assert isinstance(error, TimeoutError) is isinstance(error, DeadlineExceeded)
    assert not isinstance(error, BROKEN)  # else aiohttp would send the request again


async def test_an_error_of_a_real_call_survives_pickling(loopback: Server) -> None:
    loopback.script(Reply(503))
    async with client(loopback, max_attempts=1) as session:
        with pytest.raises(RetriesExhausted) as caught:
            await session.get("/x?secret=1")
    assert "secret" not in str(caught.value)
    assert type(pickle.loads(pickle.dumps(caught.value))) is RetriesExhausted


@pytest.mark.parametrize(
    ("option", "value", "kind"),
    [
        ("hedge", 1, TypeError),
        ("fallback", 1, TypeError),
        ("after_content", "restart", TypeError),
        ("max_retries", 1, TypeError),
        ("hold_body", -1, ValueError),
        ("idempotency_key", "not a name", ValueError),
        ("deadline_header", "", ValueError),
        ("attempt_header", "a b", ValueError),
        ("upstream", "one", ValueError),
        ("gap_timeout", -1, ValueError),
        ("max_attempts", 0, ValueError),
    ],
)
def test_mistakes_are_told_when_it_is_made(option: str, value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Middleware(**{option: value})


async def test_requests_to_one_origin_share_an_upstream(loopback: Server) -> None:
    middleware = Middleware(**QUICK)
    one = middleware.upstream_of(loopback.url)
    assert one is middleware.upstream_of(f"{loopback.url}/path?query")
    assert one is not middleware.upstream_of("http://127.0.0.1:1")
    session = aiohttp.ClientSession(middlewares=(middleware,))
    async with session, session.get(f"http://me:secret@{loopback.host}/x") as response:
        assert response.status == 200
    assert one is not None
    assert one.snapshot().successes == 1


async def test_a_given_upstream_serves_all(loopback: Server) -> None:
    upstream = Upstream("mine")
    middleware = Middleware(upstream=upstream)
    assert middleware.upstream_of(loopback.url) is upstream
    assert Middleware(upstream=None).upstream_of(loopback.url) is None


async def test_tokens_are_told_of_the_request(loopback: Server) -> None:
    seen: list[Any] = []

    def tokens(request: Any) -> float:
        seen.append((request.method, str(request.url)))
        return 1.0

    async with client(loopback, tokens=tokens, upstream=Upstream("mine", tokens_per_minute=1_000)) as session:
        assert (await session.get("/x")).status == 200
    assert seen == [("GET", f"{loopback.url}/x")]
