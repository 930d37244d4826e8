"""An owned client of anthropic: every way to ask makes as many requests as there are attempts, and the errors, the ids
and the streams are the library's own; the clients for the platforms of others too.

The ways are written once, as coroutines; for the blocking client they run through without a stop.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

# ruff: noqa: E402  # the library is there only with the SDKs
anthropic = pytest.importorskip("anthropic")
httpx2 = pytest.importorskip("httpx2")

from forbear import (
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    NestedRetriesWarning,
    RetriesExhausted,
    StreamInterrupted,
    Upstream,
    stream,
)
from forbear.integrations import sole_owner
from forbear.integrations.anthropic import sole_owner as sole_owner_of_anthropic
from loopback import Choose, Close, Cut, Hang, Reply, Reset, Server, Stream, event
from sockets.asking import chain, closing, entered, items, run, settled, three_layers

Way = Callable[[Any], Coroutine[Any, Any, Any]]
QUICK: dict[str, Any] = {"backoff": [0.001], "deadline": 20.0}
ASKED = [{"role": "user", "content": "x"}]
ASK: dict[str, Any] = {"model": "m", "max_tokens": 16, "messages": ASKED}
FAILED = Reply(529, {"request-id": "req-1"}, {"type": "error", "error": {"type": "overloaded_error", "message": "x"}})


def made(server: Server, kind: str, **options: Any) -> Any:
    """The library's own client, its retries as they are by default."""
    make = anthropic.Anthropic if kind == "blocking" else anthropic.AsyncAnthropic
    return make(**{"api_key": "k", "base_url": server.url, **options})


def owned(server: Server, kind: str, **options: Any) -> Any:
    return sole_owner(made(server, kind), **{**QUICK, "max_attempts": 3, **options})


# ---- what the service says -------------------------------------------------------------------------------------------

MESSAGE: dict[str, Any] = {
    "id": "msg", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip


def part(name: str, **facts: Any) -> bytes:
    return event({"type": name, **facts}, name)


PARTS = [
    part("message_start", message={**MESSAGE, "content": [], "stop_reason": None}),
    part("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    part("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hel"}),
    part("content_block_delta", index=0, delta={"type": "text_delta", "text": "lo"}),
    part("content_block_stop", index=0),
    part("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 3}),
    part("message_stop"),
]
FILE = {
    "id": "f",
    "type": "file",
    "filename": "n",
    "mime_type": "text/plain",
    "size_bytes": 3,
    "created_at": "2026-01-01T00:00:00Z",
}
MODEL = {"id": "m", "type": "model", "display_name": "M", "created_at": "2026-01-01T00:00:00Z"}


def good(request: Any) -> Reply | Stream:
    """What the service answers where it does not fail."""
    path = request.path.partition("?")[0].removeprefix("/v1/")
    if path == "messages":
        return Stream(PARTS) if b'"stream":true' in request.body else Reply(200, {"request-id": "req-ok"}, MESSAGE)
    if path == "messages/count_tokens":
        return Reply(200, (), {"input_tokens": 7})
    if path == "files":
        return Reply(200, (), FILE)
    more = "after_id" not in request.path
    found = {**MODEL, "id": f"m{more:d}"}
    return Reply(200, (), {"data": [found], "has_more": more, "first_id": found["id"], "last_id": found["id"]})


async def ask(client: Any) -> Any:
    return await settled(client.messages.create(**ASK))


async def create(client: Any) -> Any:
    return (await ask(client)).content[0].text


def text_of(one: Any) -> str:
    return one.delta.text if one.type == "content_block_delta" else ""


async def stream_of_events(client: Any) -> Any:
    events = await settled(client.messages.create(**ASK, stream=True))
    return "".join([text_of(one) async for one in items(events)])


async def stream_helper(client: Any) -> Any:
    async with entered(client.messages.stream(**ASK)) as events:
        return "".join([text async for text in items(events.text_stream)])


async def final_message(client: Any) -> Any:
    async with entered(client.messages.stream(**ASK)) as events:
        return (await settled(events.get_final_message())).content[0].text


async def beta(client: Any) -> Any:
    return (await settled(client.beta.messages.create(**ASK))).content[0].text


async def beta_helper(client: Any) -> Any:
    async with entered(client.beta.messages.stream(**ASK)) as events:
        return "".join([text async for text in items(events.text_stream)])


async def count(client: Any) -> Any:
    return (await settled(client.messages.count_tokens(model="m", messages=ASKED))).input_tokens


async def upload(client: Any) -> Any:
    return (await settled(client.beta.files.upload(file=("n", b"abc", "text/plain")))).id


async def low_level(client: Any) -> Any:
    return (await settled(client.post("/v1/messages", cast_to=object, body={"model": "m"})))["id"]


async def raw(client: Any) -> Any:
    answer = await settled(client.messages.with_raw_response.create(**ASK))
    return answer.request_id, (await settled(answer.parse())).content[0].text


async def streaming(client: Any) -> Any:
    async with entered(client.messages.with_streaming_response.create(**ASK)) as answer:
        return (await settled(answer.parse())).content[0].text


async def with_options(client: Any) -> Any:
    return await create(client.with_options(timeout=9.0))


async def with_middleware(client: Any) -> Any:
    """What the library adds around requests keeps what is below."""

    def passed_on(request: Any, call_next: Any) -> Any:
        return call_next(request)

    async def passed_on_async(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    is_async = isinstance(client, anthropic.AsyncAnthropic)
    return await create(client.with_middleware(passed_on_async if is_async else passed_on))


async def copied(client: Any) -> Any:
    return await create(client.copy(default_headers={"a": "b"}))


async def derived_of_derived(client: Any) -> Any:
    return await create(client.copy().with_options(timeout=9.0).copy())


WAYS: dict[str, tuple[Way, Any]] = {
    "create": (create, "Hello"),
    "a stream": (stream_of_events, "Hello"),
    "the helper for streams": (stream_helper, "Hello"),
    "a final message": (final_message, "Hello"),
    "beta": (beta, "Hello"),
    "the helper of beta": (beta_helper, "Hello"),
    "count_tokens": (count, 7),
    "an upload": (upload, "f"),
    "low level": (low_level, "msg"),
    "raw": (raw, ("req-ok", "Hello")),
    "streaming": (streaming, "Hello"),
    "with_options": (with_options, "Hello"),
    "with_middleware": (with_middleware, "Hello"),
    "copy": (copied, "Hello"),
    "derived of derived": (derived_of_derived, "Hello"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_makes_as_many_requests_as_attempts(loopback: Server, kind: str, way: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        async with closing(client):
            loopback.script(FAILED)
            with pytest.raises(anthropic.APIStatusError):
                await WAYS[way][0](client)
            assert len(loopback.requests) == 3
            assert len({request.body for request in loopback.requests}) == 1
            loopback.requests.clear()
            loopback.script(FAILED, Choose(good))
            assert await WAYS[way][0](client) == WAYS[way][1]
            assert len(loopback.requests) == 2

    run(kind, work())


def test_each_page_is_a_call_of_its_own(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(FAILED, Choose(good), FAILED, FAILED, Choose(good))
        async with closing(client):
            assert [model.id async for model in items(client.models.list())] == ["m1", "m0"]
        assert len(loopback.requests) == 5

    run(kind, work())


# ---- the clients -----------------------------------------------------------------------------------------------------


def test_the_owned_client_is_of_the_same_kind_and_the_given_one_is_as_it_was(loopback: Server, kind: str) -> None:
    given = made(loopback, kind, max_retries=7, timeout=11.0, default_headers={"a": "b"})
    http, transport = given._client, given._client._transport
    client = sole_owner_of_anthropic(given)
    assert type(client) is type(given)
    assert client is not given
    assert (client.max_retries, given.max_retries) == (0, 7)
    assert (given._client, given._client._transport) == (http, transport)
    for name in ("timeout", "api_key", "base_url", "_custom_headers"):
        assert getattr(client, name) == getattr(given, name), name
    run(kind, settled(given.close()))


PLATFORMS: dict[str, dict[str, Any]] = {
    "AnthropicBedrock": {"aws_access_key": "a", "aws_secret_key": "b", "aws_region": "us-east-1"},
    "AnthropicBedrockMantle": {"api_key": "k", "aws_region": "us-east-1"},
    "AnthropicVertex": {"access_token": "t", "project_id": "p", "region": "us"},
    "AnthropicFoundry": {"api_key": "k", "resource": "r"},
    "AnthropicAWS": {"api_key": "k", "aws_region": "us-east-1", "workspace_id": "w"},
}
DERIVE: dict[str, Callable[[Any], Any]] = {
    "itself": lambda client: client,
    "copy": lambda client: client.copy(),
    "with_options": lambda client: client.with_options(timeout=9.0),
    "twice": lambda client: client.copy().with_options(timeout=9.0),
}


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("derive", DERIVE)
def test_the_clients_for_platforms_of_others(kind: str, platform: str, derive: str) -> None:
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(request.url.host)
        return httpx2.Response(500, json={})

    for needed in ("boto3", "google.auth"):
        pytest.importorskip(needed)
    make = getattr(anthropic, platform if kind == "blocking" else f"Async{platform}")
    http = (httpx2.Client if kind == "blocking" else httpx2.AsyncClient)(transport=httpx2.MockTransport(answer))
    client = DERIVE[derive](sole_owner(make(**PLATFORMS[platform], http_client=http), **QUICK, max_attempts=3))
    assert type(client) is make

    async def work() -> None:
        async with closing(client):
            with pytest.raises(anthropic.InternalServerError):
                await ask(client)

    run(kind, work())
    assert len(asked) == 3


@pytest.mark.parametrize("name", ["with_options", "copy"])
def test_retries_of_the_clients_own_have_no_effect_and_are_warned_of(loopback: Server, kind: str, name: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(FAILED)
        async with closing(client):
            with pytest.warns(NestedRetriesWarning, match=r"max_retries=5 .*max_attempts=6") as told:
                other = getattr(client, name)(max_retries=5)
            assert [warning.filename for warning in told] == [__file__]
            with pytest.raises(anthropic.APIStatusError):
                await create(other)
            assert len(loopback.requests) == 3
            getattr(client, name)(max_retries=0)  # says nothing

    run(kind, work())


def test_another_http_client_goes_through_forbear_too(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        http = (httpx2.Client if kind == "blocking" else httpx2.AsyncClient)(headers={"x-of": "another"})
        other = client.with_options(http_client=http)
        loopback.script(FAILED)
        async with closing(client, other):
            for one in (other, other.copy()):
                loopback.requests.clear()
                with pytest.raises(anthropic.APIStatusError):
                    await create(one)
                assert [dict(request.headers).get("x-of") for request in loopback.requests] == ["another"] * 3

    run(kind, work())


def test_retries_asked_for_in_one_request_are_warned_of(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        client._calculate_retry_timeout = lambda *_: 0.0
        loopback.script(FAILED)
        async with closing(client):
            with warnings.catch_warnings(record=True) as told, pytest.raises(anthropic.APIStatusError):
                warnings.simplefilter("always")
                await settled(client.post("/x", cast_to=object, body={}, options={"max_retries": 1}))
        assert len(loopback.requests) == 6
        assert [one.category for one in told if "this is its attempt 2" in str(one.message)] == [NestedRetriesWarning]

    run(kind, work())


def test_others_are_refused(loopback: Server) -> None:
    with pytest.raises(TypeError, match=r"Anthropic and AsyncAnthropic, not Server: use integrations\.sole_owner"):
        sole_owner_of_anthropic(loopback)  # type: ignore[type-var]


# ---- errors ----------------------------------------------------------------------------------------------------------


async def caught(client: Any) -> Any:
    with pytest.raises(anthropic.APIError) as raised:
        await ask(client)
    return raised.value


def test_a_status_is_the_librarys_error_with_all_its_parts(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}
        loopback.script(Reply(429, {"request-id": "req-9", "x-more": "1"}, body))
        async with closing(client):
            error = await caught(client)
        assert type(error) is anthropic.RateLimitError
        assert (error.status_code, error.request_id) == (429, "req-9")
        assert error.body == body
        assert error.response.headers["x-more"] == "1"
        assert error.response.json() == body
        assert error.response.extensions["forbear"].attempts == 3
        assert error.response.extensions["forbear"].gave_up.reason == "max_attempts"
        assert len(loopback.requests) == 3

    run(kind, work())


def test_retries_in_vain_may_end_with_our_error_behind_the_librarys(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind, reraise=False)
        loopback.script(FAILED)
        async with closing(client):
            error = await caught(client)
        assert type(error) is anthropic.APIConnectionError
        assert any(isinstance(one, RetriesExhausted) for one in chain(error))
        assert len(loopback.requests) == 3

    run(kind, work())


@pytest.mark.parametrize("step", [Close(), Reset()])
def test_a_lost_connection_is_the_librarys_error(loopback: Server, kind: str, step: Any) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(step)
        async with closing(client):
            error = await caught(client)
        assert type(error) is anthropic.APIConnectionError
        assert isinstance(error.__cause__, httpx2.TransportError)
        assert len(loopback.requests) == 3

    run(kind, work())


def test_a_deadline_is_a_timeout_of_the_library_with_ours_behind_it(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind, deadline=0.1, reraise=False)
        loopback.script(Hang())
        async with closing(client):
            error = await caught(client)
        assert type(error) is anthropic.APITimeoutError
        assert any(isinstance(one, DeadlineExceeded) for one in chain(error))

    run(kind, work())


def test_an_open_breaker_is_a_connection_error_with_ours_behind_it(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind, breaker=CircuitBreaker(1), max_attempts=1)
        loopback.script(FAILED)
        async with closing(client):
            await caught(client)
            error = await caught(client)
        assert type(error) is anthropic.APIConnectionError
        assert any(isinstance(one, CircuitOpenError) for one in chain(error))
        assert len(loopback.requests) == 1

    run(kind, work())


# ---- layers around it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", ["retry", "llm_retry", "attempts"])
@pytest.mark.parametrize("step", [FAILED, Reply(429), Close(), Reset(), Cut(b'{"a":')])
def test_three_layers_of_three_attempts_make_three_requests(loopback: Server, kind: str, outer: str, step: Any) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(step)
        async with closing(client):
            with pytest.raises(anthropic.APIError):
                await three_layers(lambda: client.messages.create(**ASK), kind, outer)
        assert len(loopback.requests) == 3

    run(kind, work())


# ---- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", ["closed", "read to its end", "forgotten", "broken"])
def test_a_streams_lease_is_held_until_it_is_left(loopback: Server, kind: str, leaves: str) -> None:
    upstream = Upstream("service", max_concurrency=4)

    async def work() -> None:
        client = owned(loopback, kind, upstream=upstream)
        ends: Any = {"read to its end": "whole", "broken": "reset"}.get(leaves, "hang")
        loopback.script(FAILED, Stream(PARTS[:3] if ends == "reset" else PARTS, ends=ends))
        async with closing(client):
            events = await settled(client.messages.create(**ASK, stream=True))
            source = items(events)
            await anext(source)
            assert upstream.snapshot().in_flight == 1
            if leaves == "closed":
                await settled(events.close())
            elif leaves == "forgotten":
                del events, source
                gc.collect()
                for _ in range(500 if kind == "async" else 0):  # the loop ends what was forgotten, layer by layer
                    if not upstream.snapshot().in_flight:
                        break
                    await asyncio.sleep(0.01)
                    gc.collect()
            else:
                try:
                    async for _ in source:
                        pass
                    assert leaves != "broken"
                except httpx2.TransportError:
                    assert leaves == "broken"
            assert upstream.snapshot().in_flight == 0
        assert len(loopback.requests) == 2

    run(kind, work())


def test_the_helpers_lease_ends_with_its_block(loopback: Server, kind: str) -> None:
    upstream = Upstream("service", max_concurrency=4)

    async def work() -> None:
        client = owned(loopback, kind, upstream=upstream)
        loopback.script(Stream(PARTS[:3], ends="hang"))
        async with closing(client):
            async with entered(client.messages.stream(**ASK)) as events:
                await anext(items(events))
                assert upstream.snapshot().in_flight == 1
            assert upstream.snapshot().in_flight == 0

    run(kind, work())


def test_the_deadline_covers_the_body(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind, deadline=0.3)
        loopback.script(Stream(PARTS[:2], ends="hang"))
        async with closing(client):
            events = await settled(client.messages.create(**ASK, stream=True))
            with pytest.raises(httpx2.TimeoutException) as raised:
                async for _ in items(events):
                    pass
        assert isinstance(raised.value, DeadlineExceeded)
        assert len(loopback.requests) == 1

    run(kind, work())


def streamed(client: Any, kind: str, **options: Any) -> Any:
    if kind == "blocking":
        question = lambda: client.messages.create(**ASK, stream=True)  # noqa: E731
        return (chunk for chunk in stream(question, **options))  # which could be iterated in async code too

    async def source() -> Any:
        return await client.messages.create(**ASK, stream=True)

    return stream(source, **options)


OUTER: dict[str, Any] = {"events": "anthropic", "max_attempts": 3, "backoff": [0.001], "idempotent": True}


@pytest.mark.parametrize("ends", ["close", "reset", "whole"])
@pytest.mark.parametrize("came", [0, 2])
def test_a_stream_that_breaks_before_content_is_retried_by_the_layer_around(
    loopback: Server, kind: str, ends: Any, came: int
) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(Stream(PARTS[:came], ends=ends), Stream(PARTS))
        async with closing(client):
            texts = [text_of(one) async for one in items(streamed(client, kind, **OUTER))]
        assert "".join(texts) == "Hello"
        assert len(loopback.requests) == 2

    run(kind, work())


@pytest.mark.parametrize("step", [FAILED, Stream(PARTS[:1], ends="close")])
def test_a_stream_that_always_fails_before_content_makes_three_requests(loopback: Server, kind: str, step: Any) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(step)
        async with closing(client):
            with pytest.raises((anthropic.APIStatusError, httpx2.TransportError)):
                async for _ in items(streamed(client, kind, **OUTER, reraise=True)):
                    pass
        assert len(loopback.requests) == 3

    run(kind, work())


def test_a_stream_that_breaks_after_content_is_not_repeated(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(Stream(PARTS[:3], ends="close"), Stream(PARTS))
        async with closing(client):
            with pytest.raises(StreamInterrupted):
                async for _ in items(streamed(client, kind, **OUTER)):
                    pass
        assert len(loopback.requests) == 1

    run(kind, work())


# ---- the life of both clients ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "forget"])
@pytest.mark.parametrize("first", ["owned", "given"])
def test_the_end_of_one_client_leaves_the_other_as_it_is(loopback: Server, kind: str, first: str, end: str) -> None:
    async def work() -> None:
        given = made(loopback, kind)
        clients = {"given": given, "owned": sole_owner(given, **QUICK, max_attempts=4)}
        given._calculate_retry_timeout = lambda *_: 0.0
        del given
        loopback.script(Choose(good))
        for client in clients.values():
            assert await create(client) == "Hello"
        gone = clients.pop(first)
        if end == "close":
            await settled(gone.close())
        del gone, client
        gc.collect()
        (left,) = clients.values()
        loopback.requests.clear()
        loopback.script(FAILED)
        async with closing(left):
            await caught(left)
            assert len(loopback.requests) == {"given": 4, "owned": 3}[first]

    run(kind, work())
    gc.collect()
    loopback.wait_until_idle()
