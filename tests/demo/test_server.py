"""The server's trouble on real sockets, met with a real client."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime

import httpx
import pytest

from forbear import retry_after_of
from forbear.demo.script import Answer, Kind
from forbear.demo.server import App, serving


@asynccontextmanager
async def client_of(app: App, timeout: float = 5.0) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(app.respond) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=timeout, trust_env=False) as client,
    ):
        yield client


def always(kind: Kind, seconds: float = 0.0) -> Callable[[str, float], Answer]:
    return lambda _call, _elapsed: Answer(kind, seconds)


def in_turn(*answers: Answer) -> Callable[[str, float], Answer]:
    left = iter(answers)
    return lambda _call, _elapsed: next(left)


async def test_a_healthy_answer_is_a_200_and_the_connection_is_kept():
    async with client_of(App(always(Kind.OK))) as client:
        first, second = await client.get("/items/1"), await client.get("/items/2")
        streams = [answer.extensions["network_stream"] for answer in (first, second)]
        addresses = {stream.get_extra_info("client_addr") for stream in streams}
    assert (first.status_code, second.json()) == (200, {"call": "/items/2"})
    assert len(addresses) == 1


async def test_a_slow_answer_comes_whole_and_late():
    async with client_of(App(always(Kind.SLOW, 0.3))) as client:
        began_at = time.monotonic()
        answer = await client.get("/items/1")
    assert answer.status_code == 200
    assert time.monotonic() - began_at >= 0.29


async def test_an_answer_in_drops_passes_a_timeout_that_only_watches_the_gaps():
    async with client_of(App(always(Kind.DRIP, 1.5)), timeout=1.2) as client:
        began_at = time.monotonic()
        answer = await client.get("/items/1")
    assert answer.json() == {"call": "/items/1"}
    assert time.monotonic() - began_at >= 1.4


async def test_the_outage_is_a_503():
    async with client_of(App(always(Kind.UNAVAILABLE))) as client:
        assert (await client.get("/items/1")).status_code == 503


async def test_a_429_says_in_seconds_when_to_come_back():
    async with client_of(App(always(Kind.LIMITED_SECONDS, 0.4))) as client:
        answer = await client.get("/items/1")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")


async def test_a_429_says_as_a_date_when_to_come_back_and_has_a_date_of_its_own():
    async with client_of(App(always(Kind.LIMITED_DATE, 0.4))) as client:
        answer = await client.get("/items/1")
    sent, back = (parsedate_to_datetime(answer.headers[name]) for name in ("Date", "Retry-After"))
    assert answer.status_code == 429
    assert (back - sent).total_seconds() in (1.0, 2.0)
    assert retry_after_of(httpx.HTTPStatusError("", request=answer.request, response=answer)) in (1.0, 2.0)


async def test_every_answer_has_a_date():
    for kind in (Kind.OK, Kind.UNAVAILABLE, Kind.LIMITED_SECONDS):
        async with client_of(App(always(kind))) as client:
            assert "Date" in (await client.get("/items/1")).headers


async def test_a_reset_breaks_the_connection():
    async with client_of(App(always(Kind.RESET))) as client:
        with pytest.raises(httpx.NetworkError):
            await client.get("/items/1")


async def test_a_hang_never_answers_and_ends_when_the_client_leaves():
    app = App(always(Kind.HANG))
    async with client_of(app, timeout=0.3) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get("/items/1")
        app.script = always(Kind.OK)
        assert (await client.get("/items/1")).status_code == 200


async def test_every_request_is_counted_by_its_kind_also_those_without_an_answer():
    app = App(in_turn(Answer(Kind.OK), Answer(Kind.UNAVAILABLE), Answer(Kind.RESET), Answer(Kind.OK)))
    async with client_of(app) as client:
        for number in range(4):
            await asyncio.gather(client.get(f"/items/{number}"), return_exceptions=True)
    state = app.state()
    assert state["requests"] == 4
    assert {kind: count for kind, count in state["answers"].items() if count} == {
        "ok": 2, "503": 1, "connection reset": 1
    }  # fmt: skip


async def test_who_comes_back_before_the_time_named_is_counted_and_who_waits_is_not():
    app = App(in_turn(Answer(Kind.LIMITED_DATE, 0.5), Answer(Kind.LIMITED_SECONDS, 0.5), Answer(Kind.OK)))
    async with client_of(app) as client:
        await client.get("/items/1")
        answer = await client.get("/items/1")
        assert app.state()["too_early"] == 1
        await asyncio.sleep(retry_after_of(httpx.HTTPStatusError("", request=answer.request, response=answer)) or 0)
        await client.get("/items/1")
    assert app.state()["too_early"] == 1


async def test_the_time_of_the_script_begins_with_the_first_request():
    told: list[float] = []

    def script(_call: str, elapsed: float) -> Answer:
        told.append(elapsed)
        return Answer(Kind.OK)

    async with client_of(App(script)) as client:
        await asyncio.sleep(0.2)
        await client.get("/items/1")
        await asyncio.sleep(0.2)
        await client.get("/items/2")
    assert told[0] == 0.0
    assert told[1] >= 0.19


async def test_what_is_no_http_is_cut_off():
    async with serving(App(always(Kind.OK)).respond) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
