"""R024: aiohttp sends a request again by itself when a connection of its pool breaks, and nobody is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from forbear.errors import mark_of
from forbear.testing import record_events
from loopback import Close, Reply, Reset, Server

aiohttp = pytest.importorskip("aiohttp")

from forbear.integrations.aiohttp import (  # noqa: E402  # once it is known that aiohttp is there
    Middleware,
    RetriesExhausted,
    attempt_log,
    sole_owner,
)

BROKEN = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
QUICK: dict[str, Any] = {"base": 0.001, "cap": 0.002}


async def kept_alive(session: Any, server: Server) -> None:
    """The session has a connection that it will use again; what the server got for that does not count."""
    async with session.get("/warm") as response:
        await response.read()
    server.requests.clear()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_by_itself_it_sends_twice_and_the_answer_does_not_show_it(method: str) -> None:
    with Server() as server:
        async with aiohttp.ClientSession(server.url) as session:
            await kept_alive(session, server)
            server.script(Reset(), Reply(200))
            async with session.request(method, "/x") as response:
                assert response.status == 200
        assert len(server.requests) == 2


@pytest.mark.parametrize("trouble", [Reset(), Close()])
@pytest.mark.parametrize("reraise", [False, True])
@pytest.mark.parametrize("attempts", [1, 3])
async def test_through_forbear_each_request_is_an_attempt_that_is_told(
    trouble: Any, reraise: bool, attempts: int
) -> None:
    ours = Middleware(max_attempts=attempts, reraise=reraise, **QUICK)
    with Server() as server:
        async with aiohttp.ClientSession(server.url, middlewares=(ours,)) as session:
            await kept_alive(session, server)
            server.script(*[trouble] * attempts, Reply(200))
            with record_events() as events, pytest.raises(BROKEN if reraise else RetriesExhausted) as caught:
                await session.get("/x")
            assert len(server.requests) == len(events.attempts) == attempts
            assert len(events.ends) == 1
            if reraise:
                assert mark_of(caught.value) is not None
            async with session.get("/x") as response:  # the same again, by the caller, is another call
                assert response.status == 200
        assert len(server.requests) == attempts + 1


@pytest.mark.parametrize("options", [{"idempotent": False}, {"retryable": lambda error: False}])
async def test_what_must_not_be_sent_again_is_sent_once(options: dict[str, Any]) -> None:
    with Server() as server:
        async with aiohttp.ClientSession(server.url, middlewares=(Middleware(**options, **QUICK),)) as session:
            await kept_alive(session, server)
            server.script(Reset(), Reply(200))
            with pytest.raises(BROKEN):
                await session.put("/x", data=b"order")
        assert len(server.requests) == 1


async def test_the_log_of_a_response_says_how_often_it_was_sent() -> None:
    with Server() as server:
        async with aiohttp.ClientSession(server.url) as session:
            sole_owner(session, **QUICK)
            await kept_alive(session, server)
            server.script(Reset(), Close(), Reply(200))
            async with session.get("/x") as response:
                log = attempt_log(response)
        assert log is not None
        assert log.attempts == len(server.requests) == 3


async def test_a_sole_owner_turns_it_off_for_the_whole_session() -> None:
    with Server() as server:
        async with aiohttp.ClientSession(server.url) as session:
            sole_owner(session, max_attempts=1, **QUICK)
            await kept_alive(session, server)
            server.script(Reset(), Reply(200))
            with pytest.raises(BROKEN) as caught:
                await session.get("/x", middlewares=())
        assert mark_of(caught.value) is not None
        assert len(server.requests) == 1
