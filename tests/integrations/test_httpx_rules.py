"""What the transports retry, what they send besides, what they leave alone, and what they refuse. Client, server and
clock are a test's; httpx2 is tried too where it is installed.
"""

from __future__ import annotations

import gzip
import logging
import threading
import time as real_time
import traceback
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest

from forbear import (
    AttemptSummary,
    BudgetExhausted,
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    GaveUp,
    RateLimiter,
    RetriesExhausted,
    RetryBudget,
    RetryState,
    Upstream,
    constant,
    deadline,
)
from forbear.errors import UsageError
from forbear.integrations.http import deadline_header as wire
from forbear.integrations.http import exchange
from forbear.testing import FakeTime, record_events
from loopback.server import Server
from loopback.steps import Choose, Reply
from loopback.wire import Request as Received

URL = "https://api.example/items"
QUICK: dict[str, Any] = {"max_attempts": 3, "base": 0.5, "cap": 2.0, "deadline": None, "attempt_timeout": 1.0}


class Service:
    """Answers by script, the last answer for ever: statuses, `(status, headers, body)`, or functions of the library
    and the request.
    """

    def __init__(self, library: Any, *answers: Any) -> None:
        self.library = library
        self.answers = answers
        self.requests: list[Any] = []

    def __call__(self, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if callable(answer):
            return answer(self.library, request)
        if isinstance(answer, int):
            return self.library.Response(answer, text=f"answer {len(self.requests)}")
        status, headers, body = answer
        return self.library.Response(status, headers=headers, content=body)

    def header(self, name: str) -> list[str | None]:
        """What each request had of this header."""
        return [request.headers.get(name) for request in self.requests]


class Http:
    """One kind of client of one library: `await http.send(service, method)` with a transport of these options."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.library = pytest.importorskip(name)
        self.ours: Any = import_module(f"forbear.integrations.{name}")
        self.blocking = kind == "blocking"

    def service(self, *answers: Any) -> Service:
        return Service(self.library, *answers)

    def transport(self, inner: Any, **options: Any) -> Any:
        """A transport around a service, or around an inner transport."""
        inner = self.library.MockTransport(inner) if callable(inner) else inner
        kind = self.ours.Transport if self.blocking else self.ours.AsyncTransport
        quick = {
            name: value for name, value in QUICK.items() if "backoff" not in options or name not in ("base", "cap")
        }
        return kind(inner, **{**quick, **options})

    def client(self, transport: Any, **options: Any) -> Any:
        kind = self.library.Client if self.blocking else self.library.AsyncClient
        return kind(transport=transport, **{"trust_env": False, "timeout": 10.0, **options})

    async def ask(self, client: Any, method: str, url: str = URL, **options: Any) -> Any:
        response = client.request(method, url, **options)
        return response if self.blocking else await response

    async def send(self, inner: Any, method: str = "GET", url: str = URL, **options: Any) -> Any:
        """The response of one request; `request` among the options are those of the request."""
        given = options.pop("request", {})
        client = self.client(self.transport(inner, **options))
        try:
            return await self.ask(client, method, url, **given)
        finally:
            await self.close(client)

    def sockets(self) -> Any:
        """An inner transport on real sockets."""
        kind = self.library.HTTPTransport if self.blocking else self.library.AsyncHTTPTransport
        return kind(trust_env=False)

    async def close(self, thing: Any) -> None:
        if self.blocking:
            thing.close()
        else:
            await thing.aclose()

    async def read(self, client: Any, way: str, service_url: str = URL, method: str = "GET") -> Any:
        """What a stream gives that is read in this way: "read", "iter_raw", "iter_bytes", "iter_text", "iter_lines"."""
        if self.blocking:
            with client.stream(method, service_url) as response:
                return response.read() if way == "read" else list(getattr(response, way)())
        async with client.stream(method, service_url) as response:
            if way == "read":
                return await response.aread()
            return [piece async for piece in getattr(response, f"a{way}")()]


KINDS = [(name, kind) for name in ("httpx", "httpx2") for kind in ("blocking", "async")]


@pytest.fixture(params=KINDS, ids=" ".join)
def http(request: pytest.FixtureRequest) -> Http:
    return Http(*request.param)


def raising(name: str, text: str = "it broke") -> Callable[[Any, Any], Any]:
    """A service that breaks with this error of the library."""

    def answer(library: Any, request: Any) -> Any:
        raise getattr(library, name)(text, request=request)

    return answer


NOT_DONE: list[Any] = [
    429, 425, (503, {"Retry-After": "1"}, b""), (529, {"Retry-After": "1"}, b""), raising("ConnectError"),
    raising("ConnectTimeout"), raising("PoolTimeout"),
]  # fmt: skip
MAYBE_DONE: list[Any] = [500, 502, 503, 504, 408]
LOST: list[str] = ["ReadTimeout", "WriteTimeout", "ReadError", "WriteError", "RemoteProtocolError"]
REPEATABLE = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"]
OTHERS = ["POST", "PATCH", "CONNECT", "PROPFIND", "get"]


# ---- methods -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", REPEATABLE)
async def test_a_repeatable_method_is_repeated_whatever_may_have_been_done(http: Http, method: str) -> None:
    with FakeTime():
        for failure in [*MAYBE_DONE, *NOT_DONE, *map(raising, LOST)]:
            service = http.service(failure, failure, 200)
            assert (await http.send(service, method, upstream=None)).status_code == 200
            assert [request.method for request in service.requests] == [method] * 3


@pytest.mark.parametrize("method", OTHERS[:-1])
async def test_any_other_is_not_where_it_may_have_been_done(http: Http, method: str) -> None:
    with FakeTime() as clock:
        for status in MAYBE_DONE:
            service = http.service(status, 200)
            response = await http.send(service, method)
            assert (response.status_code, response.text, len(service.requests)) == (status, "answer 1", 1)
        for name in LOST:
            service = http.service(raising(name), 200)
            with pytest.raises(getattr(http.library, name), match="it broke"):
                await http.send(service, method)
            assert len(service.requests) == 1
        assert clock.now == 0.0


@pytest.mark.parametrize("method", ["POST", "PATCH", "PROPFIND"])
async def test_any_other_is_where_nothing_was_done(http: Http, method: str) -> None:
    with FakeTime():
        for failure in NOT_DONE:
            service = http.service(failure, failure, 200)
            assert (await http.send(service, method, upstream=None)).status_code == 200
            assert len(service.requests) == 3


async def test_a_post_to_a_port_where_nobody_listens_is_tried_again(http: Http) -> None:
    addresses = import_module("loopback.addresses")
    with addresses.refused() as host, FakeTime(patience=5.0) as clock, pytest.raises(RetriesExhausted) as caught:
        await http.send(http.sockets(), "POST", f"http://{host}", backoff=constant(0.0), attempt_timeout=None)
    assert caught.value.attempts == 3
    assert isinstance(caught.value.last_error, http.library.ConnectError)
    assert clock.sleeps == [0, 0]


async def test_idempotent_says_it_for_all_requests_instead(http: Http) -> None:
    with FakeTime():
        service = http.service(503, 200)
        assert (await http.send(service, "POST", idempotent=True)).status_code == 200
        service = http.service(503, 200)
        assert (await http.send(service, "GET", idempotent=False)).status_code == 503
        service = http.service(503, 200)
        given = {"headers": {"Idempotency-Key": "k"}}
        assert (await http.send(service, "PUT", idempotent=False, request=given)).status_code == 503
        service = http.service(429, 200)
        assert (await http.send(service, "GET", idempotent=False)).status_code == 200


async def test_why_it_is_not_repeated_is_told(http: Http, caplog: pytest.LogCaptureFixture) -> None:
    with FakeTime(), record_events() as events, caplog.at_level(logging.WARNING, "forbear"):
        await http.send(http.service(503), "POST")
    assert [(end.reason, end.attempts) for end in events.ends] == [("unsafe", 1)]
    [line] = [record.getMessage() for record in caplog.records]
    assert "POST https://api.example not retried after" in line
    assert "Idempotency-Key" in line
    assert "idempotency_key=True" in line


# ---- keys --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PATCH", "PROPFIND"])
async def test_with_a_key_of_the_callers_it_is_repeated_with_that_key(http: Http, method: str) -> None:
    with FakeTime():
        for failure in (503, raising("ReadTimeout")):
            service = http.service(failure, failure, 200)
            given = {"headers": {"idempotency-KEY": "order 17"}}
            assert (await http.send(service, method, request=given)).status_code == 200
            assert service.header("Idempotency-Key") == ["order 17"] * 3


async def test_a_key_is_added_where_that_was_chosen_one_for_each_call(http: Http) -> None:
    with FakeTime():
        service = http.service(503, 503, 200)
        client = http.client(http.transport(service, idempotency_key=True))
        for _ in range(3):
            assert (await http.ask(client, "POST")).status_code == 200
    first, *others = service.header("Idempotency-Key")
    assert first is not None
    assert uuid.UUID(first)
    assert others[:2] == [first, first]
    assert len({first, *others}) == 3


async def test_without_that_choice_none_is_added(http: Http) -> None:
    with FakeTime():
        service = http.service(200)
        await http.send(service, "POST")
        assert service.header("Idempotency-Key") == [None]


async def test_a_key_that_is_there_is_left_alone(http: Http) -> None:
    with FakeTime():
        service = http.service(503, 200)
        await http.send(service, "POST", idempotency_key=True, request={"headers": {"Idempotency-Key": "mine"}})
        assert service.header("Idempotency-Key") == ["mine"] * 2
        assert [len(request.headers.get_list("idempotency-key")) for request in service.requests] == [1, 1]


async def test_the_key_may_have_another_header(http: Http) -> None:
    with FakeTime():
        service = http.service(503, 503, 200)
        await http.send(service, "POST", idempotency_key="X-Request-Token")
        assert len(set(service.header("x-request-token"))) == 1
        assert None not in service.header("x-request-token")
        assert service.header("Idempotency-Key") == [None] * 3
        service = http.service(503, 200)
        given = {"headers": {"X-Request-Token": "mine"}}
        await http.send(service, "POST", idempotency_key="X-Request-Token", request=given)
        assert service.header("x-request-token") == ["mine"] * 2


async def test_a_conflict_with_the_first_request_of_a_key_is_waited_for(http: Http) -> None:
    with FakeTime() as clock:
        conflict = (409, {}, b'{"error": "a request with this key is still in progress"}')
        service = http.service(raising("ReadTimeout"), conflict, 200)
        assert (await http.send(service, "POST", idempotency_key=True)).text == "answer 3"
        assert len(set(service.header("Idempotency-Key"))) == 1
        assert len(clock.sleeps) == 2


async def test_a_conflict_without_a_key_is_returned(http: Http) -> None:
    with FakeTime():
        service = http.service(409, 200)
        assert (await http.send(service, "POST")).status_code == 409
        assert len(service.requests) == 1


@pytest.mark.parametrize("status", [400, 422])
async def test_a_key_that_was_used_for_something_else_is_never_tried_again(http: Http, status: int) -> None:
    with FakeTime() as clock:
        body = b'{"error": "this key was used with another payload"}'
        service = http.service((status, {"Retry-After": "1"}, body), 200)
        response = await http.send(service, "POST", idempotency_key=True)
        assert (response.status_code, response.content) == (status, body)
        assert (len(service.requests), clock.now) == (1, 0.0)


# ---- answers that are no failures of ours ------------------------------------------------------------------------

TEXT = "naïve answer\n" * 20
ZIPPED = gzip.compress(TEXT.encode(), mtime=0)
BODIES = {
    "plain": ((("content-type", "text/plain; charset=utf-8"),), TEXT.encode()),
    "gzip": ((("content-type", "text/plain; charset=utf-8"), ("content-encoding", "gzip")), ZIPPED),
}


@pytest.mark.parametrize("hold_body", [10, 1_048_576])
@pytest.mark.parametrize("form", BODIES)
@pytest.mark.parametrize("status", [200, 304, 404, 501])
async def test_it_is_returned_untouched_and_can_be_read_in_any_way(
    http: Http, status: int, form: str, hold_body: int, loopback: Server
) -> None:
    headers, body = BODIES[form]
    body = b"" if status == 304 else body
    loopback.script(Reply(status, headers, body))
    transport = http.transport(http.sockets(), hold_body=hold_body, attempt_timeout=None)
    client = http.client(transport)
    text = "" if status == 304 else TEXT
    assert await http.read(client, "read", loopback.url) == text.encode()
    assert b"".join(await http.read(client, "iter_raw", loopback.url)) == body
    assert b"".join(await http.read(client, "iter_bytes", loopback.url)) == text.encode()
    assert "".join(await http.read(client, "iter_text", loopback.url)) == text
    assert await http.read(client, "iter_lines", loopback.url) == text.splitlines()
    response = await http.ask(client, "GET", loopback.url)
    assert (response.status_code, response.text) == (status, text)
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.http_version == "HTTP/1.1"
    assert response.elapsed.total_seconds() > 0
    assert response.request.url.host == "127.0.0.1"
    await http.close(client)
    assert (len(loopback.requests), loopback.connections) == (6, 1)


async def test_a_body_that_can_not_be_decoded_hides_no_status(http: Http, loopback: Server) -> None:
    loopback.script(Reply(503, {"content-encoding": "gzip"}, "no gzip"), Reply(200, body="done"))
    with FakeTime(patience=5.0):
        response = await http.send(http.sockets(), "GET", loopback.url, backoff=constant(0.0), attempt_timeout=None)
    assert (response.text, response.extensions["forbear"].attempts) == ("done", 2)


async def test_a_long_failure_that_was_retried_in_vain_says_where_it_was_cut(
    http: Http, loopback: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "HOLD_FAILURE", 300)
    loopback.script(Reply(503, body="x" * 1_000))
    options: dict[str, Any] = {"backoff": constant(0.0), "attempt_timeout": None, "reraise": True}
    with FakeTime(patience=5.0):
        client = http.client(http.transport(http.sockets(), hold_body=100, **options))
        with pytest.raises(http.library.ReadError, match="longer than 300 bytes"):
            await http.read(client, "read", loopback.url)
        await http.close(client)
    assert len(loopback.requests) == 3


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_long_failure_that_is_not_retried_is_whole(http: Http, method: str, loopback: Server) -> None:
    loopback.script(Reply(503, body="x" * 1_000))
    rule = http.library.ReadError  # so a GET is not retried either
    client = http.client(http.transport(http.sockets(), hold_body=100, attempt_timeout=None, retryable=rule))
    assert await http.read(client, "read", loopback.url, method) == b"x" * 1_000
    await http.close(client)
    assert len(loopback.requests) == 1


async def test_of_a_long_failure_the_callers_rule_is_asked_too(http: Http, loopback: Server) -> None:
    loopback.script(Reply(404, body="x" * 1_000), Reply(200, body="done"))
    options: dict[str, Any] = {"hold_body": 100, "attempt_timeout": None, "backoff": constant(0.0)}
    with FakeTime(patience=5.0):
        response = await http.send(http.sockets(), "GET", loopback.url, retryable=lambda error: True, **options)
    assert (response.status_code, len(loopback.requests)) == (200, 2)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_the_clients(http: Http, status: int) -> None:
    with FakeTime():
        away = (status, {"Location": "https://other.example/there", "Retry-After": "60"}, b"")
        service = http.service(503, away, 503, 200)
        client = http.client(http.transport(service), follow_redirects=True)
        response = await http.ask(client, "PUT" if status == 308 else "GET")
        assert (response.text, str(response.url)) == ("answer 4", "https://other.example/there")
        assert [past.status_code for past in response.history] == [status]
        hosts = [request.url.host for request in service.requests]
        assert hosts == ["api.example", "api.example", "other.example", "other.example"]
        service = http.service(away)
        assert (await http.send(service)).status_code == status


async def test_a_redirect_loop_is_the_clients(http: Http) -> None:
    with FakeTime():
        service = http.service((302, {"Location": URL}, b""))
        client = http.client(http.transport(service), follow_redirects=True, max_redirects=4)
        with pytest.raises(http.library.TooManyRedirects):
            await http.ask(client, "GET")
        assert len(service.requests) == 5


def digest(received: Received) -> Reply:
    if received.header("authorization"):
        return Reply(200, body="welcome")
    return Reply(401, {"www-authenticate": 'Digest realm="r", nonce="n0", qop="auth", algorithm=SHA-256'})


async def test_a_flow_of_authentication_is_the_clients(http: Http, loopback: Server) -> None:
    loopback.script(Reply(503), Choose(digest), Reply(503), Choose(digest))
    with FakeTime(patience=5.0):
        transport = http.transport(http.sockets(), backoff=constant(0.0), attempt_timeout=None)
        client = http.client(transport, auth=http.library.DigestAuth("user", "secret"), timeout=5.0)
        response = await http.ask(client, "GET", loopback.url)
        await http.close(client)
    assert (response.status_code, response.text) == (200, "welcome")
    assert [past.status_code for past in response.history] == [401]
    sent = [request.header("authorization") or "" for request in loopback.requests]
    assert [one.startswith("Digest ") for one in sent] == [False, False, True, True]
    assert sent[2] == sent[3]


async def test_a_password_that_is_wrong_is_tried_once(http: Http) -> None:
    with FakeTime():
        service = http.service(401)
        response = await http.send(service, request={"auth": ("user", "wrong")})
        assert (response.status_code, len(service.requests)) == (401, 1)


async def test_cookies_are_the_clients(http: Http) -> None:
    with FakeTime():
        service = http.service(503, (200, {"set-cookie": "b=2"}, b""), 503, 200)
        client = http.client(http.transport(service), cookies={"a": "1"})
        await http.ask(client, "GET")
        await http.ask(client, "GET")
        assert service.header("cookie") == ["a=1", "a=1", "a=1; b=2", "a=1; b=2"]


async def test_event_hooks_hear_of_one_request_and_one_response(http: Http) -> None:
    heard: list[Any] = []

    async def hear(thing: Any) -> None:
        heard.append(thing)

    with FakeTime():
        service = http.service(503, 503, 200)
        hook: Any = heard.append if http.blocking else hear
        client = http.client(http.transport(service), event_hooks={"request": [hook], "response": [hook]})
        response = await http.ask(client, "GET")
    assert len(service.requests) == 3
    assert heard == [response.request, response]


async def test_the_callers_request_stays_as_it_was(http: Http) -> None:
    with FakeTime():
        service = http.service(503, 200)
        client = http.client(http.transport(service, idempotency_key=True, deadline=9.0, attempt_header="x-attempt"))
        request = client.build_request("POST", URL, content=b"body", extensions={"sni_hostname": "other"})
        headers, extensions = dict(request.headers), dict(request.extensions)
        response = client.send(request) if http.blocking else await client.send(request)
        assert (dict(request.headers), dict(request.extensions)) == (headers, extensions)
        assert response.request is request
        assert [sent.extensions["sni_hostname"] for sent in service.requests] == ["other"] * 2
        assert [sent.content for sent in service.requests] == [b"body"] * 2


# ---- headers that are added --------------------------------------------------------------------------------------


class Late(Service):
    """A service that takes its time, and reads how long somebody waits for it."""

    def __init__(self, library: Any, clock: FakeTime, name: str) -> None:
        super().__init__(library, 503)
        self.clock, self.name = clock, name
        self.left: list[float] = []

    def __call__(self, request: Any) -> Any:
        left = wire.read(self.name, request.headers[self.name], real_time.time())
        assert left is not None
        self.left.append(left + self.clock.now)
        self.clock.advance(0.375)
        return super().__call__(request)


@pytest.mark.parametrize("name", ["X-Request-Deadline", "grpc-timeout", "X-Other"])
async def test_the_server_is_told_the_time_that_is_left_and_never_more(http: Http, name: str) -> None:
    with FakeTime() as clock:
        service = Late(http.library, clock, name)
        with pytest.raises(RetriesExhausted):
            await http.send(service, deadline=20.0, deadline_header=name)
        assert len(service.left) == 3
        exact = name == "grpc-timeout"
        for end in service.left:
            assert 20.0 - (1e-6 if exact else 5.0) < end <= 20.0  # a real wall clock goes on between the two
        if not exact:
            told = [datetime.fromisoformat(request.headers[name]) for request in service.requests]
            assert all(instant.tzinfo == UTC for instant in told)


async def test_the_default_is_an_instant(http: Http) -> None:
    with FakeTime():
        service = http.service(200)
        before = real_time.time()
        await http.send(service, deadline=20.0)
        [sent] = service.header("X-Request-Deadline")
        assert sent is not None
        assert before + 19.99 < datetime.fromisoformat(sent).timestamp() <= real_time.time() + 20.0


async def test_without_a_deadline_nothing_is_told(http: Http) -> None:
    with FakeTime():
        service = http.service(503, 200)
        for name in ("X-Request-Deadline", "grpc-timeout"):
            await http.send(service, deadline=None, deadline_header=name)
            assert set(service.header(name)) == {None}
        service = http.service(200)
        await http.send(service, deadline=5.0, deadline_header=None)
        assert service.header("X-Request-Deadline") == service.header("grpc-timeout") == [None]


async def test_a_deadline_around_the_request_is_told_too(http: Http) -> None:
    with FakeTime(), deadline(2.5):
        service = http.service(200)
        await http.send(service, deadline=None, deadline_header="grpc-timeout")
        await http.send(service, deadline=1.5, deadline_header="grpc-timeout")
        await http.send(service, deadline=9.5, deadline_header="grpc-timeout")
        left = [wire.read("grpc-timeout", sent or "", 0.0) for sent in service.header("grpc-timeout")]
        assert left == pytest.approx([2.5, 1.5, 2.5], abs=1e-6)


async def test_one_that_the_caller_has_set_is_left_alone(http: Http) -> None:
    with FakeTime():
        service = http.service(503, 200)
        given = {"headers": {"x-request-deadline": "2001-01-01T00:00:00Z"}}
        await http.send(service, deadline=5.0, request=given)
        assert service.header("X-Request-Deadline") == ["2001-01-01T00:00:00Z"] * 2


async def test_each_attempt_can_tell_how_many_there_were_before(http: Http) -> None:
    with FakeTime():
        service = http.service(503, raising("ReadError"), 200)
        await http.send(service, attempt_header="x-retry-count", request={"headers": {"x-retry-count": "7"}})
        assert service.header("x-retry-count") == ["0", "1", "2"]
        assert [len(request.headers.get_list("x-retry-count")) for request in service.requests] == [1] * 3
        service = http.service(503, 200)
        await http.send(service)
        assert service.header("x-retry-count") == [None, None]


async def test_nothing_else_is_added(http: Http) -> None:
    with FakeTime():
        service = http.service(503, 200)
        client = http.client(http.transport(service, deadline_header=None))
        request = client.build_request("PUT", URL, content=b"body")
        _ = client.send(request) if http.blocking else await client.send(request)
        assert [sent.headers.raw for sent in service.requests] == [request.headers.raw] * 2


# ---- whose guards ------------------------------------------------------------------------------------------------


async def test_two_origins_share_nothing(http: Http) -> None:
    with FakeTime() as clock:
        service = http.service((429, {"Retry-After": "30"}, b""), 200)
        transport = http.transport(service, deadline=5.0)
        client = http.client(transport)
        with pytest.raises(DeadlineExceeded):
            await http.ask(client, "GET", "https://busy.example/a")
        assert (await http.ask(client, "GET", "https://other.example/a")).status_code == 200
        assert (await http.ask(client, "GET", "http://busy.example/a")).status_code == 200
        assert (await http.ask(client, "GET", "https://busy.example:8443/a")).status_code == 200
        with pytest.raises(DeadlineExceeded) as caught:
            await http.ask(client, "GET", "https://busy.example/b")
        assert caught.value.held_by == "Upstream 'https://busy.example' (it has asked for a pause)"
        assert caught.value.hint is not None
        assert caught.value.hint >= 30
        assert (len(service.requests), clock.now) == (4, 0.0)


async def test_the_upstream_of_an_origin_can_be_asked_for(http: Http) -> None:
    with FakeTime():
        transport = http.transport(http.service(200))
        client = http.client(transport)
        await http.ask(client, "GET", "https://user:secret@api.example/a?b=c")
        upstream = transport.upstream_of("https://api.example/elsewhere")
        assert isinstance(upstream, Upstream)
        assert upstream.name == "https://api.example"
        assert upstream.snapshot().successes == 1
        for same in (
            "https://API.example:443/",
            http.library.URL("https://api.example/a"),
            "https://user:secret@api.example",
        ):
            assert transport.upstream_of(same) is upstream
        for other in ("http://api.example/", "https://api.example:444/", "https://www.api.example/"):
            assert transport.upstream_of(other) is not upstream


async def test_one_upstream_for_all(http: Http) -> None:
    with FakeTime():
        upstream = Upstream("both")
        service = http.service((429, {"Retry-After": "30"}, b""), 200)
        transport = http.transport(service, deadline=5.0, upstream=upstream)
        assert transport.upstream_of(URL) is transport.upstream_of("http://other") is upstream
        client = http.client(transport)
        with pytest.raises(DeadlineExceeded):
            await http.ask(client, "GET", "https://busy.example/a")
        with pytest.raises(DeadlineExceeded) as caught:
            await http.ask(client, "GET", "https://other.example/a")
        assert caught.value.held_by == "Upstream 'both' (it has asked for a pause)"
        assert len(service.requests) == 1


async def test_a_function_of_the_origin(http: Http) -> None:
    asked: list[str] = []
    mine = Upstream("mine")

    def upstream(origin: str) -> Upstream | None:
        asked.append(origin)
        return mine if origin == "https://api.example" else None

    with FakeTime():
        transport = http.transport(http.service(200), upstream=upstream)
        client = http.client(transport)
        for url in (URL, URL + "?again", "http://user:secret@other.example:81/x"):
            await http.ask(client, "GET", url)
        await http.ask(client, "POST", URL)
        assert asked == ["https://api.example", "http://other.example:81"]
        assert mine.snapshot().successes == 3
        assert transport.upstream_of("http://other.example:81") is None


async def test_none_for_none(http: Http) -> None:
    with FakeTime():
        service = http.service((429, {"Retry-After": "30"}, b""), 200)
        transport = http.transport(service, deadline=5.0, upstream=None)
        assert transport.upstream_of(URL) is None
        client = http.client(transport)
        with pytest.raises(DeadlineExceeded):
            await http.ask(client, "GET")
        assert (await http.ask(client, "GET")).status_code == 200


async def test_the_lease_is_given_back_with_the_body(http: Http, loopback: Server) -> None:
    loopback.script(Reply(200, body="x" * 100))
    upstream = Upstream("one at a time", max_concurrency=1)
    client = http.client(http.transport(http.sockets(), upstream=upstream, hold_body=10, attempt_timeout=None))
    for _ in range(3):
        assert len(await http.read(client, "read", loopback.url)) == 100
        assert upstream.snapshot().in_flight == 0
    assert upstream.snapshot().successes == 3
    await http.close(client)


@pytest.mark.parametrize("content", [None, b"", b"x" * 100])
async def test_it_is_given_back_where_the_inner_transport_has_read_the_body_already(http: Http, content: Any) -> None:
    with FakeTime(), record_events() as events:
        upstream = Upstream("counts")
        service = http.service(lambda library, request: library.Response(200, content=content))
        client = http.client(http.transport(service, upstream=upstream, hold_body=10, deadline=5.0))
        kept = [await http.ask(client, "GET") for _ in range(2)]
        assert [response.content for response in kept] == [content or b""] * 2
        assert (upstream.snapshot().in_flight, upstream.snapshot().successes) == (0, 2)
        assert [end.reason for end in events.ends] == ["success"] * 2


def test_threads_that_begin_together_share_the_upstream_of_their_origin() -> None:
    http = Http("httpx", "blocking")
    made: list[Upstream] = []

    def slowly(origin: str) -> Upstream:
        made.append(Upstream(origin))
        real_time.sleep(0.02)  # so that all of them ask before the first has its answer
        return made[-1]

    transport = http.transport(http.service(200), upstream=slowly)
    client = http.client(transport)
    threads = [threading.Thread(target=client.request, args=(method, URL)) for method in REPEATABLE]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert transport.upstream_of(URL).snapshot().successes == len(REPEATABLE)


async def test_an_origin_that_is_in_use_is_not_forgotten(http: Http) -> None:
    with FakeTime():
        transport = http.transport(http.service(200), deadline=5.0)
        client = http.client(transport)
        first = transport.upstream_of(URL)
        for number in range(1_005):
            await http.ask(client, "GET")
            transport.upstream_of(f"https://number{number}.example")
        await http.ask(client, "PUT")
        assert transport.upstream_of(URL) is first
        assert first.snapshot().successes == 1_006


async def test_a_budget_of_retries(http: Http) -> None:
    with FakeTime():
        service = http.service(503)
        budget = RetryBudget(initial=1)
        client = http.client(http.transport(service, budget=budget))
        with pytest.raises(BudgetExhausted) as caught:
            await http.ask(client, "GET")
        assert isinstance(caught.value, http.library.TransportError)
        assert isinstance(caught.value.__cause__, http.library.HTTPStatusError)
        assert len(service.requests) == 2


async def test_a_breaker(http: Http) -> None:
    with FakeTime():
        service = http.service(503)
        breaker = CircuitBreaker(failure_threshold=3, recovery_time=60)
        client = http.client(http.transport(service, breaker=breaker, max_attempts=2))
        errors = []
        for _ in range(3):
            with pytest.raises(http.library.TransportError) as caught:
                await http.ask(client, "GET")
            errors.append(caught.value)
        assert isinstance(errors[0], RetriesExhausted)
        assert isinstance(errors[-1], CircuitOpenError)
        assert errors[-1].retry_in > 0
        assert isinstance(errors[-2].__cause__, http.library.HTTPStatusError)  # what has opened it
        assert len(service.requests) == 3


async def test_a_limiter_and_what_a_request_costs(http: Http) -> None:
    with FakeTime() as clock:
        service = http.service(200)
        limiter = RateLimiter(tokens_per_minute=60, burst=10)
        costs = http.transport(service, limiter=limiter, tokens=lambda request: len(request.content))
        client = http.client(costs)
        await http.ask(client, "PUT", content=b"x" * 10)
        await http.ask(client, "PUT", content=b"x" * 5)
        assert clock.now == pytest.approx(5.0)


# ---- the caller's own rules --------------------------------------------------------------------------------------


async def test_a_class_of_errors(http: Http) -> None:
    with FakeTime():
        for rule in (http.library.ReadError, (http.library.ReadError, KeyError)):
            service = http.service(raising("ReadError"), 200)
            assert (await http.send(service, retryable=rule)).status_code == 200
            service = http.service(503, 200)
            response = await http.send(service, retryable=rule)
            assert (response.status_code, response.text, len(service.requests)) == (503, "answer 1", 1)
            service = http.service(raising("ReadTimeout"), 200)
            with pytest.raises(http.library.ReadTimeout):
                await http.send(service, retryable=rule)


async def test_a_function_of_the_error_which_has_the_whole_answer(http: Http) -> None:
    def rule(error: Exception) -> bool:
        response = getattr(error, "response", None)
        return response is not None and response.json()["code"] == "try again"

    with FakeTime():
        again, never = (418, {}, b'{"code": "try again"}'), (418, {}, b'{"code": "never"}')
        service = http.service(again, again, 200)
        assert (await http.send(service, retryable=rule)).status_code == 200
        service = http.service(again, never, 200)
        response = await http.send(service, retryable=rule)
        assert (response.json(), len(service.requests)) == ({"code": "never"}, 2)


async def test_an_answer_below_400_is_never_offered(http: Http) -> None:
    with FakeTime():
        service = http.service(302, 200)
        assert (await http.send(service, retryable=lambda error: True)).status_code == 302


async def test_a_rule_of_the_callers_makes_nothing_safe(http: Http) -> None:
    with FakeTime():
        service = http.service(503, 200)
        assert (await http.send(service, "POST", retryable=lambda error: True)).status_code == 503


async def test_a_rule_that_fails_says_no(http: Http, caplog: pytest.LogCaptureFixture) -> None:
    with FakeTime():
        service = http.service(503, 200)
        assert (await http.send(service, retryable=lambda error: error.missing)).status_code == 503
    assert "retryable raised" in caplog.text


async def test_on_retry_is_told_of_each_wait(http: Http) -> None:
    told: list[RetryState] = []
    with FakeTime(rng=lambda: 1.0):
        service = http.service(503, raising("ReadError"), 200)
        await http.send(service, "PUT", on_retry=told.append)
    assert [(state.call, state.attempt, state.delay) for state in told] == [
        ("PUT https://api.example", 1, 0.5),
        ("PUT https://api.example", 2, 1.0),
    ]
    assert [state.status for state in told] == [503, None]
    assert isinstance(told[0].error, http.library.HTTPStatusError)
    assert told[0].error.response.text == "answer 1"
    assert isinstance(told[1].error, http.library.ReadError)


async def test_a_sleep_of_the_callers(http: Http) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    with FakeTime(rng=lambda: 1.0):
        await http.send(http.service(503, 200), sleep=slept.append if http.blocking else sleep)
    assert slept == [0.5]


# ---- what comes back ---------------------------------------------------------------------------------------------


async def test_the_log_of_attempts_is_among_the_extensions(http: Http) -> None:
    with FakeTime(rng=lambda: 1.0):
        log = (await http.send(http.service(200))).extensions["forbear"]
        assert log == http.ours.AttemptLog(attempts=1, history=(), waited=0.0, elapsed=0.0)
        log = (await http.send(http.service(503, raising("ReadError"), 200))).extensions["forbear"]
        error = f"{http.library.ReadError.__module__}.ReadError"
        status_error = f"{http.library.HTTPStatusError.__module__}.HTTPStatusError"
        assert (log.attempts, log.waited, log.elapsed, log.gave_up) == (3, 1.5, 1.5, None)
        assert log.history == (
            AttemptSummary(number=1, error_type=status_error, status=503, delay=0.5),
            AttemptSummary(number=2, error_type=error, delay=1.0),
        )
        log = (await http.send(http.service(404))).extensions["forbear"]
        assert (log.attempts, log.gave_up) == (1, None)


async def test_what_the_inner_transport_has_left_there_stays(http: Http) -> None:
    def answer(library: Any, request: Any) -> Any:
        return library.Response(200, extensions={"http_version": b"HTTP/2", "mine": 1})

    with FakeTime():
        response = await http.send(http.service(503, answer))
        assert (response.extensions["mine"], response.http_version) == (1, "HTTP/2")


async def test_without_any_limit_an_answer_is_waited_for_as_long_as_it_takes(http: Http, loopback: Server) -> None:
    loopback.script(Reply(200, body="held"), Reply(200, body="streamed", after=0.02))
    transport = http.transport(http.sockets(), attempt_timeout=None, deadline=None, hold_body=5)
    client = http.client(transport, timeout=None)
    for text in ("held", "streamed"):
        assert (await http.ask(client, "GET", loopback.url)).text == text
    await http.close(client)


async def test_reraise_hands_out_the_last_response(http: Http) -> None:
    with FakeTime() as clock:
        response = await http.send(http.service(503), reraise=True)
        assert (response.status_code, response.text) == (503, "answer 3")
        log = response.extensions["forbear"]
        assert (log.attempts, log.waited) == (3, pytest.approx(clock.now))
        assert isinstance(log.gave_up, GaveUp)
        assert (log.gave_up.reason, log.gave_up.attempts) == ("max_attempts", 3)
        response = await http.send(http.service((503, {"Retry-After": "30"}, b"")), reraise=True, deadline=5.0)
        assert response.extensions["forbear"].gave_up.reason == "deadline"


async def test_reraise_raises_the_last_error(http: Http) -> None:
    with FakeTime():
        service = http.service(503, raising("ReadTimeout"), raising("ReadError"))
        with pytest.raises(http.library.ReadError, match="it broke") as caught:
            await http.send(service, reraise=True)
        assert any("gave up after attempt 3" in note for note in caught.value.__notes__)
        assert str(caught.value.request.url) == URL


async def test_an_async_attempt_that_was_cut_is_a_timeout_of_the_library() -> None:
    http = Http("httpx", "async")

    async def deaf(request: Any) -> Any:
        await import_module("asyncio").sleep(100)

    with FakeTime() as clock:
        with pytest.raises(http.library.ReadTimeout, match="first_timeout=1 s"):
            await http.send(deaf, "POST")
        assert clock.now == 1.0


# ---- mistakes are answered ---------------------------------------------------------------------------------------

NOT_HERE: dict[str, tuple[Any, str]] = {
    "hedge": (0.1, "hedge the function that makes the request"),
    "fallback": ("x", "put it on the function"),
    "fallback_on": (ValueError, "put it on the function"),
    "retry_if_result": (bool, "say with retryable= which responses of 400 and above"),
    "after_content": ("buffer", "raised as the client's own error"),
    "resume": (bool, "raised as the client's own error"),
    "events": ("openai", r"put forbear\.stream around"),
    "hold_at_most": (3, "use hold_body"),
    "max_retries": (3, r"use max_attempts \(max_retries \+ 1\)"),
    "timeout": (3, "attempt_timeout for one attempt, deadline for the whole call"),
    "retry_afer": ("add", "did you mean retry_after"),
}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"deadline_header": ""}, "deadline_header must be the name of a header, or None"),
    ({"deadline_header": "X: y\r\nZ"}, "deadline_header must be the name of a header, or None"),
    ({"deadline_header": True}, "deadline_header must be the name of a header, or None"),
    ({"attempt_header": "no such name"}, "attempt_header must be the name of a header, or None"),
    ({"attempt_header": b"x-attempt"}, "attempt_header must be the name of a header, or None"),
    ({"idempotency_key": None}, "True, False, or the name of its header"),
    ({"idempotency_key": "a b"}, "True, False, or the name of its header"),
    ({"idempotency_key": uuid.uuid4}, "True, False, or the name of its header"),
    ({"idempotent": "yes"}, "idempotent must be True or False"),
    ({"hold_body": -1}, "hold_body is -1: it must be a whole number of bytes"),
    ({"hold_body": "1 MB"}, "hold_body must be a number"),
    ({"hold_body": True}, "hold_body must be a number"),
    ({"upstream": "api"}, "an Upstream for all requests, a function of the origin"),
    ({"upstream": Upstream}, "an Upstream for all requests, a function of the origin"),
    ({"upstream": RetryBudget()}, "an Upstream for all requests, a function of the origin"),
    ({"budget": 3}, "budget must be a RetryBudget"),
    ({"breaker": CircuitBreaker}, "breaker must be a CircuitBreaker"),
    ({"limiter": 3}, "limiter must be a RateLimiter"),
    ({"tokens": 3, "upstream": None}, "neither is given"),
    ({"upstream": Upstream("api"), "budget": RetryBudget()}, "budget= beside upstream="),
    ({"max_attempts": 0}, "max_attempts"),
    ({"max_attempts": None, "deadline": None}, "retry for ever"),
    ({"policy": 3}, "policy must be a Policy"),
    ({"on_retry": 3}, "on_retry must be a function"),
    ({"retryable": BaseException}, "no Exception class"),
    ({"reraise": "yes"}, "reraise must be True or False"),
    ({"first_timeout": 0}, "first_timeout"),
]


@pytest.mark.parametrize("option", NOT_HERE)
def test_an_option_that_a_transport_does_not_take(http: Http, option: str) -> None:
    value, said = NOT_HERE[option]
    with pytest.raises(TypeError, match=said):
        http.transport(http.service(200), **{option: value})


@pytest.mark.parametrize(("options", "said"), BAD, ids=lambda given: ",".join(given) if isinstance(given, dict) else "")
def test_a_value_that_makes_no_sense_is_refused_when_the_transport_is_made(
    http: Http, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        http.transport(http.service(200), **options)


async def test_an_async_sleep_in_blocking_code() -> None:
    http = Http("httpx", "blocking")

    async def sleep(seconds: float) -> None:
        raise AssertionError("never")

    with FakeTime(), pytest.raises((UsageError, ValueError), match="async"):
        await http.send(http.service(503), sleep=sleep)


# ---- nothing leaks -----------------------------------------------------------------------------------------------

SECRET = "hunter2"
SECRET_URL = f"https://user:{SECRET}@api.example/{SECRET}/items?token={SECRET}#{SECRET}"


async def test_events_are_named_by_method_and_origin(http: Http) -> None:
    with FakeTime(), record_events() as events:
        await http.send(http.service(503, 200), "DELETE", SECRET_URL)
        await http.send(http.service(503, 200), "GET", "http://[::1]:8080/a?b")
    assert [event.call for event in events] == ["DELETE https://api.example"] * 4 + ["GET http://[::1]:8080"] * 4
    assert [end.reason for end in events.ends] == ["success"] * 2


def leaks(http: Http) -> list[Any]:
    """How calls with secrets in them end: every way to an error, a line in a log or an event."""
    with_body = (503, {"Retry-After": "30", "x-token": SECRET}, SECRET.encode())
    return [
        ("GET", {}, (503,)),
        ("GET", {"deadline": 5.0}, (with_body,)),
        ("GET", {"reraise": True}, (with_body,)),
        ("POST", {}, (503,)),
        ("POST", {}, (raising("ReadTimeout"),)),
        ("GET", {}, (raising("ReadError"),)),
        ("GET", {"budget": RetryBudget(initial=0)}, (503,)),
        ("GET", {"breaker": CircuitBreaker(failure_threshold=1)}, (503,)),
        ("GET", {"retryable": lambda error: error.missing}, (503,)),
        ("GET", {"on_retry": lambda state: state.missing}, (503,)),
        ("GET", {}, (404,)),
        ("GET", {}, (with_body, 200)),
    ]


async def test_no_secret_is_in_a_message_an_event_or_a_line_of_a_log(
    http: Http, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    with FakeTime(), record_events() as events, caplog.at_level(logging.DEBUG, "forbear"):
        for method, options, answers in leaks(http):
            given = {
                "headers": {"Authorization": SECRET, "Idempotency-Key-2": SECRET, "Cookie": SECRET},
                "content": SECRET.encode(),
            }
            transport = http.transport(http.service(*answers), **{"max_attempts": 2, **options})
            told += [repr(transport), repr(transport.upstream_of(SECRET_URL))]
            try:
                response = await http.ask(http.client(transport), method, SECRET_URL, **given)
            except Exception as error:
                told += [str(error), repr(error), "".join(traceback.format_exception_only(error))]
                told += [repr(vars(error).get("history"))]
                cause = error.__cause__
                while cause is not None:  # httpx's own errors here have a text of ours or of this test
                    told += [str(cause), repr(cause)]
                    cause = cause.__cause__
            else:
                told += [repr(response.extensions["forbear"]), repr(response)]
    told += map(repr, events)
    told += [record.getMessage() for record in caplog.records if record.name.startswith("forbear")]
    assert len(told) > 100
    assert any("POST https://api.example not retried" in text for text in told)
    assert [text for text in told if SECRET in text] == []
