"""FastAPI and Starlette behind a real server, asked by a real client: what callers see, and what is logged."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

# ruff: noqa: E402  # the partners are there only with the SDKs
fastapi = pytest.importorskip("fastapi")
pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from forbear import (
    ApiError,
    BudgetExhausted,
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    RetriesExhausted,
    Upstream,
    current_deadline,
    retry,
    retry_sync,
)
from forbear.integrations import sole_owner
from forbear.integrations.asgi import DeadlineCounts, DeadlineMiddleware
from forbear.integrations.httpx import AsyncTransport
from forbear.testing import Flaky
from loopback import Hang, Reply, Reset, Server

KEY = "sk-a-secret-of-others"
LONG = 30.0  # seconds; no test waits so long
DEADLINE = "X-Request-Deadline"


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The application behind uvicorn, in a thread of its own; gives its address."""
    config = uvicorn.Config(app, "127.0.0.1", 0, http="h11", ws="none", loop="asyncio", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="uvicorn", daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.001)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def client_of(app: Any) -> Iterator[httpx.Client]:
    with serving(app) as address, httpx.Client(base_url=address, timeout=10, trust_env=False) as client:
        yield client


def left() -> float | None:
    holds = current_deadline()
    return None if holds is None else holds.remaining()


# ---- the application -------------------------------------------------------------------------------------------------


async def show_left(request: Request) -> Response:
    assert request.client is not None
    return JSONResponse({"left": left(), "port": request.client.port})


async def sleep(request: Request) -> Response:
    await asyncio.sleep(float(request.path_params["seconds"]))
    return PlainTextResponse("done")


async def fail(request: Request) -> Response:
    match request.path_params["how"]:
        case "exhausted":
            raise RetriesExhausted("max_attempts", 3, ApiError(503, KEY), hint=7.5)
        case "deadline":
            raise DeadlineExceeded("deadline", 3, ApiError(503, KEY), hint=30)
        case "budget":
            raise BudgetExhausted("budget", 1, ApiError(503, KEY), hint=2)
        case "circuit":
            raise CircuitOpenError(4.2, "a service")
        case "retry":
            await retry(Flaky(then=ApiError(503, KEY)).asynchronous, max_attempts=2, base=0.001)
        case "reraise":
            await retry(Flaky(then=ApiError(429, KEY, 0)).asynchronous, max_attempts=2, base=0.001, reraise=True)
        case "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(trip))
        case "caused":
            raise ValueError(KEY) from CircuitOpenError(1)
        case "beside":
            try:
                trip()
            except CircuitOpenError:
                raise ValueError(KEY)  # as a mistake in a handler is
        case "http":
            raise HTTPException(409)
    raise ValueError(KEY)


def trip() -> None:
    raise CircuitOpenError(4.2)


def blocking(request: Request) -> Response:
    retry_sync(Flaky(then=ConnectionError), max_attempts=10_000, base=0.02, cap=0.02, deadline=LONG)
    raise AssertionError


async def stream(request: Request) -> Response:
    log: list[str] = request.app.state.log

    async def parts() -> AsyncIterator[str]:
        try:
            for number in range(1000):
                yield f"{number}\n"
                await asyncio.sleep(0.02)
        finally:
            log.append("stream ended")

    return StreamingResponse(parts())


async def background(request: Request) -> Response:
    async def later() -> None:
        request.app.state.log.append(left())
        await asyncio.sleep(0.6)
        request.app.state.log.append("worked on")

    return PlainTextResponse("done", background=BackgroundTask(later))


PATHS: dict[str, Callable[[Request], Any]] = {
    "/left": show_left,
    "/sleep/{seconds}": sleep,
    "/fail/{how}": fail,
    "/blocking": blocking,
    "/stream": stream,
    "/background": background,
}


def starlette_app() -> Any:
    return Starlette(routes=[Route(path, endpoint) for path, endpoint in PATHS.items()])


def fastapi_app() -> Any:
    app = fastapi.FastAPI()
    for path, endpoint in PATHS.items():
        # FastAPI looks the types of a function up; these are the same for all.
        endpoint.__annotations__ = {"request": Request, "return": Response}
        app.get(path, response_model=None)(endpoint)
    return app


@pytest.fixture(params=[starlette_app, fastapi_app], ids=["starlette", "fastapi"])
def app(request: pytest.FixtureRequest) -> Any:
    made = request.param()
    made.state.log = []
    return made


on_starlette = pytest.mark.parametrize("app", [starlette_app], ids=["starlette"], indirect=True)  # FastAPI is no other


def told(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """What a logger has said, tracebacks included."""
    records = [record for record in caplog.records if record.name == name]
    return [logging.Formatter().format(record) for record in records]


# ---- what callers see ------------------------------------------------------------------------------------------------


OURS = {
    "exhausted": (502, "8"),
    "deadline": (504, "30"),
    "budget": (503, "2"),
    "circuit": (503, "5"),
    "retry": (502, None),
    "reraise": (502, "1"),
    "group": (503, "5"),
    "caused": (503, "1"),
}
OTHERS = {"beside": 500, "own": 500, "http": 409}


def test_errors_of_ours_are_answered_and_logged_in_one_line(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    app.add_middleware(DeadlineMiddleware)
    with client_of(app) as client:
        answers = {how: client.get(f"/fail/{how}", params={"key": KEY}) for how in OURS}
        assert client.get("/left").status_code == 200
    assert {how: (each.status_code, each.headers.get("retry-after")) for how, each in answers.items()} == OURS
    assert all(set(each.json()) == {"error"} for each in answers.values())
    lines = told(caplog, "forbear")
    assert [line.partition(": ")[0] for line in lines] == [
        f"answered {status} to GET fail" for status, _ in OURS.values()
    ]
    assert not any("\n" in line for line in lines)
    assert told(caplog, "uvicorn.error") == []
    assert KEY not in caplog.text + "".join(each.text for each in answers.values())


def test_other_errors_are_the_applications_own(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    app.add_middleware(DeadlineMiddleware)
    with client_of(app) as client:
        alone = {"Connection": "close"}  # the server ends a connection whose application has failed
        assert {how: client.get(f"/fail/{how}", headers=alone).status_code for how in OTHERS} == OTHERS
    assert told(caplog, "forbear") == []
    assert len(told(caplog, "uvicorn.error")) == 2


def test_handlers_of_the_application_come_first_and_the_one_for_everything_comes_after(app: Any) -> None:
    async def own(request: Request, error: Exception) -> Response:
        return PlainTextResponse(type(error).__name__, 418)

    app.add_middleware(DeadlineMiddleware)
    app.add_exception_handler(CircuitOpenError, own)
    app.add_exception_handler(Exception, own)
    with client_of(app) as client:
        answers = [client.get(f"/fail/{how}") for how in ("circuit", "exhausted", "own")]
    assert [answer.status_code for answer in answers] == [418, 502, 418]


@on_starlette
@pytest.mark.parametrize("outside", [False, True])
def test_it_works_around_and_inside_a_middleware_with_a_task_group(
    app: Any, outside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Passing(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Response:
            response: Response = await call_next(request)
            return response

    for middleware in (DeadlineMiddleware, Passing) if outside else (Passing, DeadlineMiddleware):
        app.add_middleware(middleware)
    with client_of(app) as client:
        assert client.get("/fail/group").status_code == 503
        assert client.get("/sleep/30", headers={DEADLINE: "0.3"}).status_code == 504
        assert client.get("/background", headers={DEADLINE: "0.3"}).text == "done"
        assert 0.3 < client.get("/left", headers={DEADLINE: "5"}).json()["left"] < 5
    assert app.state.log == [None, "worked on"]
    assert told(caplog, "uvicorn.error") == []


def test_around_the_whole_application_it_answers_before_the_framework_reports_a_failure(
    app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """There the framework has answered 500 already: only the deadline is the middleware's."""
    with client_of(DeadlineMiddleware(app)) as client:
        assert client.get("/sleep/30", headers={DEADLINE: "0.3"}).status_code == 504
        assert client.get("/fail/circuit").status_code == 500


# ---- deadlines -------------------------------------------------------------------------------------------------------


def test_what_is_left_is_clipped_by_margin_and_maximum(app: Any) -> None:
    app.add_middleware(DeadlineMiddleware, maximum=20, margin=1)
    with client_of(app) as client:

        def seconds(**headers: str) -> float:
            return float(client.get("/left", headers=headers).json()["left"])

        assert 19 < seconds() <= 20
        assert 19 < seconds(**{DEADLINE: "3600"}) <= 20
        assert 8 < seconds(**{DEADLINE: "10"}) <= 9
        assert 8 < seconds(**{DEADLINE: f"{time.time() + 10:.3f}"}) < 9.01
        assert 3 < seconds(**{DEADLINE: "10", "grpc-timeout": "5S"}) <= 4


def test_code_that_knows_no_deadline_is_cut_and_cleans_up(caplog: pytest.LogCaptureFixture) -> None:
    app = fastapi.FastAPI()
    log: list[str] = []

    async def connection() -> AsyncIterator[str]:
        try:
            yield "connection"
        finally:
            log.append("closed")

    async def ask(held: str = fastapi.Depends(connection)) -> None:
        log.append(held)
        await asyncio.sleep(LONG)

    ask.__annotations__ = {"held": str, "return": None}
    app.get("/ask")(ask)
    app.add_middleware(DeadlineMiddleware)
    with client_of(app) as client:
        began_at = time.monotonic()
        answer = client.get("/ask", headers={DEADLINE: "0.4"})
        assert 0.3 < time.monotonic() - began_at < 10
    assert (answer.status_code, answer.json()) == (504, {"error": "the time for this request is over"})
    assert log == ["connection", "closed"]
    assert told(caplog, "uvicorn.error") == []


@on_starlette
def test_blocking_endpoints_are_bound_in_their_threads(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    app.add_middleware(DeadlineMiddleware)
    with client_of(app) as client:
        began_at = time.monotonic()
        assert client.get("/blocking", headers={DEADLINE: "0.4"}).status_code == 504
        assert time.monotonic() - began_at < 10
    assert told(caplog, "uvicorn.error") == []


def test_late_requests_are_not_begun(app: Any) -> None:
    counts = DeadlineCounts()
    app.add_middleware(DeadlineMiddleware, counts=counts)
    with client_of(app) as client:
        for header in ({DEADLINE: f"{time.time() - 1:.3f}"}, {"grpc-timeout": "1m"}):
            answer = client.post("/fail/own", headers=header, content=b"x" * 100_000)
            assert answer.status_code == 504
            assert "retry-after" not in answer.headers
        assert client.get("/left").status_code == 200
    assert (counts.requests, counts.late) == (3, 2)


@on_starlette
def test_to_observe_changes_nothing(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    counts = DeadlineCounts()
    app.add_middleware(DeadlineMiddleware, observe_only=True, counts=counts)
    with client_of(app) as client:
        assert client.get("/left", headers={DEADLINE: "0"}).json()["left"] is None
        assert client.get("/sleep/0.3", headers={DEADLINE: "0.1"}).text == "done"
        assert client.get("/fail/circuit").status_code == 500
    assert counts == DeadlineCounts(requests=3, with_deadline=2, late=1, overran=1, failed=1)
    assert len(told(caplog, "forbear")) == 3
    assert len(told(caplog, "uvicorn.error")) == 1


@on_starlette
def test_nothing_leaks_to_the_next_request_of_a_connection(app: Any) -> None:
    app.add_middleware(DeadlineMiddleware)
    with client_of(app) as client:
        first = client.get("/left", headers={DEADLINE: "0.5"}).json()
        assert client.get("/sleep/0.9").text == "done"  # longer than the first one's deadline
        cut = client.get("/sleep/30", headers={DEADLINE: "0.2"})
        late = client.get("/left", headers={DEADLINE: "0"})
        last = client.get("/left").json()
    assert (cut.status_code, late.status_code) == (504, 504)
    assert first["left"] < 0.5
    assert 50 < last["left"] <= 60
    assert first["port"] == last["port"]  # it was one connection


@on_starlette
def test_a_stream_that_is_longer_than_its_deadline_is_broken_off(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    app.add_middleware(DeadlineMiddleware)
    parts: list[str] = []
    with client_of(app) as client:
        with client.stream("GET", "/stream", headers={DEADLINE: "0.4"}) as answer:
            assert answer.status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):
                parts.extend(answer.iter_lines())
        assert client.get("/left").status_code == 200
    assert app.state.log == ["stream ended"]
    assert any("DeadlineExceeded" in text for text in told(caplog, "uvicorn.error"))


@on_starlette
def test_a_caller_who_leaves_is_no_failure(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    counts = DeadlineCounts()
    app.add_middleware(DeadlineMiddleware, counts=counts)
    with client_of(app) as client:
        with client.stream("GET", "/stream") as answer:
            next(answer.iter_lines())
        ends_at = time.monotonic() + 10
        while not app.state.log and time.monotonic() < ends_at:
            time.sleep(0.01)
    assert app.state.log == ["stream ended"]
    assert counts == DeadlineCounts(requests=1)
    assert told(caplog, "forbear") == told(caplog, "uvicorn.error") == []


@on_starlette
def test_background_tasks_are_not_cut(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    app.add_middleware(DeadlineMiddleware)
    with client_of(app) as client:
        assert client.get("/background", headers={DEADLINE: "0.3"}).text == "done"
        ends_at = time.monotonic() + 10
        while len(app.state.log) < 2 and time.monotonic() < ends_at:
            time.sleep(0.01)
    assert app.state.log == [None, "worked on"]
    assert told(caplog, "uvicorn.error") == []


# ---- clients of a service behind -------------------------------------------------------------------------------------


ASKED: Any = [{"role": "user", "content": "x"}]
BEHIND: dict[str, tuple[Any, int, str | None, str]] = {
    "resets": (Reset(), 502, None, "openai.APIConnectionError"),
    "hangs": (Hang(), 504, None, "openai.APITimeoutError"),
    "is down": (Reply(503), 502, None, "openai.InternalServerError"),
    "asks to wait": (Reply(429, {"retry-after": "30"}), 504, "30", "openai.RateLimitError"),
    "is known to be down": (Reply(), 503, "20", "openai.APIConnectionError"),
}


def gateway(url: str, **options: Any) -> Any:
    """Asks the service behind with openai's own client, whose errors it leaves alone."""
    openai = pytest.importorskip("openai")
    app = fastapi.FastAPI()
    app.state.raised = []
    settings: dict[str, Any] = {"max_attempts": 2, "backoff": [0.001], **options}

    async def ask() -> str | None:
        async with sole_owner(openai.AsyncOpenAI(base_url=url, api_key=KEY), **settings) as client:
            try:
                answer = await client.chat.completions.create(model="m", messages=ASKED)
            except openai.OpenAIError as error:
                app.state.raised.append(f"openai.{type(error).__name__}")
                raise
            return str(answer)

    ask.__annotations__ = {"return": str}
    app.get("/ask")(ask)
    app.add_middleware(DeadlineMiddleware)
    return app


@pytest.mark.parametrize("reraise", [True, False])
@pytest.mark.parametrize("how", BEHIND)
def test_errors_of_openai_are_answered_by_what_forbear_has_seen(
    how: str, reraise: bool, loopback: Server, caplog: pytest.LogCaptureFixture
) -> None:
    step, status, retry_after, raised = BEHIND[how]
    loopback.script(step)
    service = Upstream("behind", breaker=CircuitBreaker(1, 20) if how == "is known to be down" else None)
    if service.breaker is not None:
        with pytest.raises(RetriesExhausted):
            service.retry_sync(Flaky(then=ConnectionError), max_attempts=1)
    app = gateway(loopback.url, upstream=service, reraise=reraise)
    with client_of(app) as client:
        waits = 1.0 if how == "hangs" else 9.0
        answer = client.get("/ask", headers={DEADLINE: f"{time.time() + waits:.3f}"})
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry_after)
    of_ours = "openai.APITimeoutError" if status == 504 else "openai.APIConnectionError"
    assert app.state.raised == [raised if reraise else of_ours]
    assert len(loopback.requests) == {"resets": 2, "is down": 2, "is known to be down": 0}.get(how, 1)
    (line,) = [line for line in told(caplog, "forbear") if line.startswith("answered")]
    assert line.startswith(f"answered {status} to GET gateway.<locals>.ask: ")
    assert told(caplog, "uvicorn.error") == []
    assert KEY not in caplog.text + answer.text
    if how == "asks to wait":
        assert "asks to come back later" in answer.text


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_service_that_hangs_until_the_deadline_is_answered_504(
    max_attempts: int, loopback: Server, caplog: pytest.LogCaptureFixture
) -> None:
    loopback.script(Hang())
    app = fastapi.FastAPI()

    async def ask() -> None:
        transport = AsyncTransport(max_attempts=max_attempts, backoff=[0.001])
        async with httpx.AsyncClient(transport=transport, timeout=LONG, trust_env=False) as client:
            await client.get(loopback.url)

    ask.__annotations__ = {"return": None}
    app.get("/ask")(ask)
    app.add_middleware(DeadlineMiddleware)
    with client_of(app) as client:
        answer = client.get("/ask", headers={DEADLINE: f"{time.time() + 0.5:.3f}"})
    assert (answer.status_code, answer.json()) == (504, {"error": "the time for this request is over"})
    assert len(loopback.requests) == 1
    assert told(caplog, "uvicorn.error") == []


def test_a_response_that_was_given_up_is_a_failure_only_where_the_handler_asks_for_its_status(loopback: Server) -> None:
    loopback.script(Reply(503, body="down"))
    app = fastapi.FastAPI()

    async def forward(how: str) -> str:
        own = httpx.AsyncClient(trust_env=False)
        async with sole_owner(own, max_attempts=2, backoff=[0.001], reraise=how != "no reraise") as client:
            answer = await client.get(loopback.url)
            if how == "status":
                answer.raise_for_status()
            return str(answer.text)

    forward.__annotations__ = {"how": str, "return": str}
    app.get("/forward/{how}")(forward)
    app.add_middleware(DeadlineMiddleware)
    with client_of(app) as client:
        answers = {how: client.get(f"/forward/{how}").status_code for how in ("body", "status", "no reraise")}
    assert answers == {"body": 200, "status": 502, "no reraise": 502}


@on_starlette
def test_a_blocking_endpoint_that_was_cut_works_on_and_sees_that_its_time_is_over(app: Any) -> None:
    log: list[object] = []

    def works_on(request: Request) -> Response:
        holds = current_deadline()
        assert holds is not None
        retried = Flaky(ConnectionError, then=1)
        time.sleep(0.6)
        log.append(holds.expired)
        log.append(retry_sync(retried, base=0.001))  # bound by nothing of the request: it is not refused
        return PlainTextResponse("done")

    app.router.routes.append(Route("/works-on", works_on))
    app.add_middleware(DeadlineMiddleware)
    with client_of(app) as client:
        assert client.get("/works-on", headers={DEADLINE: "0.3"}).status_code == 504
        ends_at = time.monotonic() + 10
        while len(log) < 2 and time.monotonic() < ends_at:
            time.sleep(0.01)
    assert log == [True, 1]
