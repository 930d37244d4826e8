"""An owned client of openai: every way to ask makes as many requests as there are attempts, and the errors, the ids and
the streams are the library's own.

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
openai = pytest.importorskip("openai")

from forbear import (
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    NestedRetriesWarning,
    StreamInterrupted,
    Upstream,
    deadline,
    stream,
)
from forbear.errors import mark_of
from forbear.integrations import sole_owner
from forbear.integrations.openai import sole_owner as sole_owner_of_openai
from loopback import Choose, Close, Cut, Hang, Reply, Reset, Server, Stream, event
from sockets.asking import chain, closing, entered, items, run, settled, three_layers

Way = Callable[[Any], Coroutine[Any, Any, Any]]
QUICK: dict[str, Any] = {"backoff": [0.001], "deadline": 20.0}
ASKED = [{"role": "user", "content": "x"}]
FAILED = Reply(500, {"x-request-id": "req-1"}, {"error": {"message": "x", "code": "c"}})


def made(server: Server, kind: str, **options: Any) -> Any:
    """The library's own client, its retries as they are by default."""
    make = openai.OpenAI if kind == "blocking" else openai.AsyncOpenAI
    return make(**{"api_key": "k", "base_url": f"{server.url}/v1", **options})


def owned(server: Server, kind: str, **options: Any) -> Any:
    return sole_owner(made(server, kind), **{**QUICK, "max_attempts": 3, **options})


# ---- what the service says -------------------------------------------------------------------------------------------


def completion() -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hello"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def part(text: str | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


PARTS = [part(""), part("Hel"), part("lo"), part(None, "stop"), event("[DONE]")]
RESPONSE: dict[str, Any] = {
    "id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "parallel_tool_calls": True,
    "tool_choice": "auto", "tools": [], "status": "completed",
}  # fmt: skip
RESPONDED = [
    event({"type": "response.created", "sequence_number": 0, "response": RESPONSE}, "response.created"),
    event({"type": "response.completed", "sequence_number": 1, "response": RESPONSE}, "response.completed"),
]
FILE = {
    "id": "f", "object": "file", "bytes": 3, "created_at": 1, "filename": "n", "purpose": "batch", "status": "processed"
}  # fmt: skip
MODEL = {"id": "m", "object": "model", "created": 1, "owned_by": "o"}


def good(request: Any) -> Reply | Stream:
    """What the service answers where it does not fail."""
    path = request.path.partition("?")[0].removeprefix("/v1/")
    streamed = b'"stream":true' in request.body
    if path == "chat/completions":
        return Stream(PARTS) if streamed else Reply(200, {"x-request-id": "req-ok"}, completion())
    if path == "responses":
        return Stream(RESPONDED) if streamed else Reply(200, (), RESPONSE)
    if path == "embeddings":
        found = {"object": "embedding", "index": 0, "embedding": [0.5]}
        return Reply(200, (), {"object": "list", "model": "m", "data": [found], "usage": {}})
    if path == "files" and request.method == "POST":
        return Reply(200, (), FILE)
    if path == "files":
        more = "after" not in request.path
        return Reply(200, (), {"object": "list", "data": [{**FILE, "id": f"f{more:d}"}], "has_more": more})
    if path.startswith("files/"):
        return Reply(200, {"content-type": "application/octet-stream"}, b"abc")
    return Reply(200, (), {"object": "list", "data": [MODEL]})


async def ask(client: Any) -> Any:
    return await settled(client.chat.completions.create(model="m", messages=ASKED))


async def create(client: Any) -> Any:
    return (await ask(client)).choices[0].message.content


async def stream_of_chunks(client: Any) -> Any:
    chunks = await settled(client.chat.completions.create(model="m", messages=ASKED, stream=True))
    return "".join([chunk.choices[0].delta.content or "" async for chunk in items(chunks)])


async def stream_helper(client: Any) -> Any:
    async with entered(client.chat.completions.stream(model="m", messages=ASKED)) as events:
        return "".join([one.delta async for one in items(events) if one.type == "content.delta"])


async def beta(client: Any) -> Any:
    answer = await settled(client.beta.chat.completions.parse(model="m", messages=ASKED))
    return answer.choices[0].message.content


async def response(client: Any) -> Any:
    return (await settled(client.responses.create(model="m", input="x"))).id


async def response_stream(client: Any) -> Any:
    events = await settled(client.responses.create(model="m", input="x", stream=True))
    return [one.type async for one in items(events)]


async def response_helper(client: Any) -> Any:
    async with entered(client.responses.stream(model="m", input="x")) as events:
        return [one.type async for one in items(events)]


async def embeddings(client: Any) -> Any:
    found = await settled(client.embeddings.create(model="m", input="x", encoding_format="float"))
    return found.data[0].embedding


async def upload(client: Any) -> Any:
    return (await settled(client.files.create(file=("n", b"abc"), purpose="batch"))).id


async def download(client: Any) -> Any:
    return (await settled(client.files.content("f"))).content


async def models(client: Any) -> Any:
    return [model.id async for model in items(client.models.list())]


async def low_level(client: Any) -> Any:
    return (await settled(client.post("/responses", cast_to=object, body={"model": "m"})))["id"]


async def raw(client: Any) -> Any:
    answer = await settled(client.chat.completions.with_raw_response.create(model="m", messages=ASKED))
    return answer.request_id, (await settled(answer.parse())).choices[0].message.content


async def raw_client(client: Any) -> Any:
    answer = await settled(client.with_raw_response.models.list())
    return [model.id for model in (await settled(answer.parse())).data]


async def streaming(client: Any) -> Any:
    manager = client.chat.completions.with_streaming_response.create(model="m", messages=ASKED)
    async with entered(manager) as answer:
        return (await settled(answer.parse())).choices[0].message.content


async def with_options(client: Any) -> Any:
    return await create(client.with_options(timeout=9.0))


async def copied(client: Any) -> Any:
    return await create(client.copy(default_headers={"a": "b"}))


async def derived_of_derived(client: Any) -> Any:
    return await create(client.copy().with_options(timeout=9.0).copy())


WAYS: dict[str, tuple[Way, Any]] = {
    "create": (create, "Hello"),
    "a stream": (stream_of_chunks, "Hello"),
    "the helper for streams": (stream_helper, "Hello"),
    "beta": (beta, "Hello"),
    "responses": (response, "r"),
    "a stream of responses": (response_stream, ["response.created", "response.completed"]),
    "the helper for responses": (response_helper, ["response.created", "response.completed"]),
    "embeddings": (embeddings, [0.5]),
    "an upload": (upload, "f"),
    "a download": (download, b"abc"),
    "models": (models, ["m"]),
    "low level": (low_level, "r"),
    "raw": (raw, ("req-ok", "Hello")),
    "raw client": (raw_client, ["m"]),
    "streaming": (streaming, "Hello"),
    "with_options": (with_options, "Hello"),
    "copy": (copied, "Hello"),
    "derived of derived": (derived_of_derived, "Hello"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_makes_as_many_requests_as_attempts(loopback: Server, kind: str, way: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        async with closing(client):
            loopback.script(FAILED)
            with pytest.raises(openai.InternalServerError):
                await WAYS[way][0](client)
            assert len(loopback.requests) == 3
            assert len({request.body for request in loopback.requests}) == 1  # an upload is sent again as it was
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
            assert [file.id async for file in items(client.files.list())] == ["f1", "f0"]
        assert len(loopback.requests) == 5

    run(kind, work())


def test_a_file_is_sent_whole_in_each_attempt(loopback: Server, kind: str, tmp_path: Any) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(FAILED, FAILED, Choose(good))
        with (tmp_path / "big").open("wb+") as file:
            file.write(b"0123456789" * 1000)
            file.seek(0)
            async with closing(client):
                await settled(client.files.create(file=file, purpose="batch"))
        assert len(loopback.requests) == 3
        assert all(b"0123456789" * 1000 in request.body for request in loopback.requests)

    run(kind, work())


# ---- the clients -----------------------------------------------------------------------------------------------------


def test_the_owned_client_is_of_the_same_kind_and_the_given_one_is_as_it_was(loopback: Server, kind: str) -> None:
    given = made(loopback, kind, max_retries=7, timeout=11.0, default_headers={"a": "b"}, organization="o")
    http, transport = given._client, given._client._transport
    client = sole_owner_of_openai(given)
    assert type(client) is type(given)
    assert client is not given
    assert (client.max_retries, given.max_retries) == (0, 7)
    assert (given._client, given._client._transport) == (http, transport)
    for name in ("timeout", "api_key", "organization", "base_url", "_custom_headers"):
        assert getattr(client, name) == getattr(given, name), name
    run(kind, settled(given.close()))


def test_azure(loopback: Server, kind: str) -> None:
    async def work() -> None:
        make = openai.AzureOpenAI if kind == "blocking" else openai.AsyncAzureOpenAI
        client = sole_owner(
            make(api_key="k", azure_endpoint=loopback.url, api_version="1"), max_attempts=3, backoff=[0.001]
        )
        loopback.script(FAILED)
        async with closing(client):
            for one in (client, client.with_options(timeout=9.0), client.copy().copy()):
                loopback.requests.clear()
                with pytest.raises(openai.InternalServerError):
                    await create(one)
                assert [request.path for request in loopback.requests] == [
                    "/openai/deployments/m/chat/completions?api-version=1"
                ] * 3

    run(kind, work())


@pytest.mark.parametrize("name", ["with_options", "copy"])
def test_retries_of_the_clients_own_have_no_effect_and_are_warned_of(loopback: Server, kind: str, name: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(FAILED)
        async with closing(client):
            with pytest.warns(NestedRetriesWarning, match=r"max_retries=5 .*max_attempts=6") as told:
                other = getattr(client, name)(max_retries=5)
            assert [warning.filename for warning in told] == [__file__]
            with pytest.raises(openai.InternalServerError):
                await create(other)
            assert len(loopback.requests) == 3
            getattr(client, name)(max_retries=0)  # says nothing

    run(kind, work())


@pytest.mark.parametrize("library", ["httpx2", "httpx"])
def test_another_http_client_goes_through_forbear_too(loopback: Server, kind: str, library: str) -> None:
    httpx = pytest.importorskip(library)

    async def work() -> None:
        client = owned(loopback, kind)
        http = (httpx.Client if kind == "blocking" else httpx.AsyncClient)(headers={"x-of": "another"})
        other = client.with_options(http_client=http)
        loopback.script(FAILED)
        async with closing(client, other):
            for one in (other, other.copy()):
                loopback.requests.clear()
                with pytest.raises(openai.InternalServerError):
                    await create(one)
                assert [dict(request.headers).get("x-of") for request in loopback.requests] == ["another"] * 3

    run(kind, work())


def test_retries_asked_for_in_one_request_are_warned_of(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        client._calculate_retry_timeout = lambda *_: 0.0
        loopback.script(FAILED)
        async with closing(client):
            with warnings.catch_warnings(record=True) as told, pytest.raises(openai.InternalServerError):
                warnings.simplefilter("always")
                await settled(client.post("/x", cast_to=object, body={}, options={"max_retries": 1}))
        assert len(loopback.requests) == 6
        assert [one.category for one in told if "this is its attempt 2" in str(one.message)] == [NestedRetriesWarning]

    run(kind, work())


def test_retries_asked_for_in_one_request_are_told_of_with_true_counts(loopback: Server) -> None:
    client = owned(loopback, "blocking")
    client._calculate_retry_timeout = lambda *_: 0.0
    loopback.script(FAILED)
    with (
        client,
        warnings.catch_warnings(record=True) as told,
        pytest.raises(openai.InternalServerError),
    ):
        warnings.simplefilter("always")
        client.post("/x", cast_to=object, body={}, options={"max_retries": 1})
    assert len(told) == 1, [str(one.message) for one in told]  # not once more for each attempt below it


def test_others_are_refused(loopback: Server) -> None:
    with pytest.raises(TypeError, match=r"OpenAI and AsyncOpenAI, not Server: use integrations\.sole_owner"):
        sole_owner_of_openai(loopback)  # type: ignore[type-var]


# ---- errors ----------------------------------------------------------------------------------------------------------


async def caught(client: Any) -> Any:
    with pytest.raises(openai.APIError) as raised:
        await ask(client)
    return raised.value


def test_a_status_is_the_librarys_error_with_all_its_parts(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        body = {"error": {"message": "slow", "code": "rate_limit_exceeded", "type": "requests"}}
        loopback.script(Reply(429, {"x-request-id": "req-9", "x-more": "1"}, body))
        async with closing(client):
            error = await caught(client)
        assert type(error) is openai.RateLimitError
        assert (error.status_code, error.request_id, error.code) == (429, "req-9", "rate_limit_exceeded")
        assert error.body == body["error"]
        assert error.response.headers["x-more"] == "1"
        assert error.response.json() == body
        assert error.response.extensions["forbear"].attempts == 3
        assert error.response.extensions["forbear"].gave_up.reason == "max_attempts"
        assert len(loopback.requests) == 3

    run(kind, work())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_status_that_will_not_pass_is_raised_at_once(loopback: Server, kind: str, status: int) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(Reply(status, (), {"error": {"message": "x"}}))
        async with closing(client):
            error = await caught(client)
        assert (error.status_code, error.response.extensions["forbear"].gave_up) == (status, None)
        assert len(loopback.requests) == 1

    run(kind, work())


@pytest.mark.parametrize("step", [Close(), Reset()])
def test_a_lost_connection_is_the_librarys_error(loopback: Server, kind: str, step: Any) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(step)
        async with closing(client):
            error = await caught(client)
        assert type(error) is openai.APIConnectionError
        assert "TransportError" in [base.__name__ for base in type(error.__cause__).__mro__]
        assert len(loopback.requests) == 3

    run(kind, work())


def told_of_deadline(error: BaseException) -> bool:
    """Whether an error says that the deadline ended it: as ours, or by the mark of one that was given up."""
    marks = [mark for one in chain(error) if (mark := mark_of(one)) is not None]
    ours = any(isinstance(one, DeadlineExceeded) for one in chain(error))
    return ours or any(mark.reason == "deadline" for mark in marks)


@pytest.mark.parametrize("reraise", [True, False])
def test_a_deadline_is_a_timeout_of_the_library_with_ours_behind_it(loopback: Server, kind: str, reraise: bool) -> None:
    async def work() -> None:
        client = owned(loopback, kind, deadline=0.1, reraise=reraise)
        loopback.script(Hang())
        async with closing(client):
            error = await caught(client)
        assert type(error) is openai.APITimeoutError
        assert told_of_deadline(error)
        assert any(isinstance(one, DeadlineExceeded) for one in chain(error)) != reraise

    run(kind, work())


def test_a_deadline_around_the_call_holds_below_it(loopback: Server) -> None:
    client = owned(loopback, "blocking")
    loopback.script(Hang())
    with client, pytest.raises(openai.APITimeoutError) as raised, deadline(0.1):
        run("blocking", ask(client))
    assert told_of_deadline(raised.value)


def test_an_open_breaker_is_a_connection_error_with_ours_behind_it(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind, breaker=CircuitBreaker(1), max_attempts=1)
        loopback.script(FAILED)
        async with closing(client):
            await caught(client)
            error = await caught(client)
        assert type(error) is openai.APIConnectionError
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
            with pytest.raises(openai.APIError):
                await three_layers(lambda: client.chat.completions.create(model="m", messages=ASKED), kind, outer)
        assert len(loopback.requests) == 3

    run(kind, work())


def test_an_error_that_was_given_up_may_be_asked_again_by_a_later_call(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(*[FAILED] * 3, Choose(good))
        async with closing(client):
            await caught(client)
            assert await create(client) == "Hello"
        assert len(loopback.requests) == 4

    run(kind, work())


# ---- streams ---------------------------------------------------------------------------------------------------------


async def opened(client: Any) -> Any:
    return await settled(client.chat.completions.create(model="m", messages=ASKED, stream=True))


LEAVES = ("closed", "read to its end", "forgotten", "broken")


@pytest.mark.parametrize("leaves", LEAVES)
def test_a_streams_lease_is_held_until_it_is_left(loopback: Server, kind: str, leaves: str) -> None:
    upstream = Upstream("service", max_concurrency=4)

    async def work() -> None:
        client = owned(loopback, kind, upstream=upstream)
        ends: Any = {"read to its end": "whole", "broken": "reset"}.get(leaves, "hang")
        loopback.script(FAILED, Stream(PARTS[:3] if ends == "reset" else PARTS, ends=ends))
        async with closing(client):
            chunks = await opened(client)
            assert upstream.snapshot().in_flight == 1
            source = items(chunks)
            await anext(source)
            assert upstream.snapshot().in_flight == 1
            if leaves == "closed":
                await settled(chunks.close())
            elif leaves == "forgotten":
                del chunks, source
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
                except openai.APIConnectionError:
                    assert leaves == "broken"
            assert upstream.snapshot().in_flight == 0
        assert len(loopback.requests) == 2

    run(kind, work())


def test_the_deadline_covers_the_body(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind, deadline=0.3)
        loopback.script(Stream(PARTS[:2], ends="hang"))
        async with closing(client):
            chunks = await opened(client)
            with pytest.raises(openai.APIError) as raised:
                async for _ in items(chunks):
                    pass
        assert type(raised.value) is openai.APITimeoutError
        assert any(isinstance(one, DeadlineExceeded) for one in chain(raised.value))
        assert len(loopback.requests) == 1

    run(kind, work())


def streamed(client: Any, kind: str, **options: Any) -> Any:
    if kind == "blocking":
        question = lambda: client.chat.completions.create(model="m", messages=ASKED, stream=True)  # noqa: E731
        return (chunk for chunk in stream(question, **options))  # which could be iterated in async code too

    async def source() -> Any:
        return await client.chat.completions.create(model="m", messages=ASKED, stream=True)

    return stream(source, **options)


OUTER: dict[str, Any] = {"events": "openai", "max_attempts": 3, "backoff": [0.001], "idempotent": True}


@pytest.mark.parametrize("ends", ["close", "reset", "whole"])
@pytest.mark.parametrize("came", [0, 1])
def test_a_stream_that_breaks_before_content_is_retried_by_the_layer_around(
    loopback: Server, kind: str, ends: Any, came: int
) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(Stream(PARTS[:came], ends=ends), Stream(PARTS))
        async with closing(client):
            texts = [chunk.choices[0].delta.content or "" async for chunk in items(streamed(client, kind, **OUTER))]
        assert "".join(texts) == "Hello"
        assert len(loopback.requests) == 2

    run(kind, work())


def test_a_stream_that_always_breaks_before_content_makes_the_outer_attempts(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(Stream(PARTS[:1], ends="close"))
        async with closing(client):
            with pytest.raises(openai.APIConnectionError):
                async for _ in items(streamed(client, kind, **OUTER, reraise=True)):
                    pass
        assert len(loopback.requests) == 3

    run(kind, work())


def test_a_stream_whose_head_never_comes_makes_the_inner_attempts_only(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(FAILED)
        async with closing(client):
            with pytest.raises(openai.InternalServerError):
                async for _ in items(streamed(client, kind, **OUTER, reraise=True)):
                    pass
        assert len(loopback.requests) == 3

    run(kind, work())


def test_a_stream_that_breaks_after_content_is_not_repeated(loopback: Server, kind: str) -> None:
    async def work() -> None:
        client = owned(loopback, kind)
        loopback.script(Stream(PARTS[:2], ends="close"), Stream(PARTS))
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


def test_an_owned_client_that_is_forgotten_with_its_given_one_closes_the_connections(loopback: Server) -> None:
    loopback.script(Choose(good))
    client = owned(loopback, "blocking")
    assert run("blocking", create(client)) == "Hello"
    assert loopback.open_connections == 1
    del client
    gc.collect()
    loopback.wait_until_idle()


def test_both_share_their_connections(loopback: Server, kind: str) -> None:
    async def work() -> None:
        given = made(loopback, kind)
        client = sole_owner(given, **QUICK)
        loopback.script(Choose(good))
        async with closing(client):
            for _ in range(3):
                await create(client)
                await create(given)
        assert loopback.connections == 1

    run(kind, work())
