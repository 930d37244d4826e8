"""One line puts forbear under a program that exists: the line is the README's, the program stays what it is.

Each program makes one request to a server that breaks two of them, once as it is and once with the line: it fails, and
then it does not. Where the service stays down, the program's own handlers catch what they have always caught.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx
import openai
import pytest
import requests

from forbear.integrations import sole_owner
from loopback import Reply, Server

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
CHAT = {
    "id": "1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
}  # fmt: skip
MESSAGE = {
    "id": "1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
ASKED: Any = [{"role": "user", "content": "hi"}]
Owned = Callable[[Any], Any]


def with_openai(url: str, own: Owned) -> str | None:
    client: openai.OpenAI = own(openai.OpenAI(base_url=url, api_key="key", max_retries=0))
    with client:
        return client.chat.completions.create(model="m", messages=ASKED).choices[0].message.content


def with_async_openai(url: str, own: Owned) -> str | None:
    async def main() -> str | None:
        client: openai.AsyncOpenAI = own(openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0))
        async with client:
            answer = await client.chat.completions.create(model="m", messages=ASKED)
            return answer.choices[0].message.content

    return asyncio.run(main())


def with_anthropic(url: str, own: Owned) -> str | None:
    client: anthropic.Anthropic = own(anthropic.Anthropic(base_url=url, api_key="key", max_retries=0))
    with client:
        block = client.messages.create(model="m", max_tokens=9, messages=ASKED).content[0]
        return block.text if block.type == "text" else None


def with_async_anthropic(url: str, own: Owned) -> str | None:
    async def main() -> str | None:
        client: anthropic.AsyncAnthropic = own(anthropic.AsyncAnthropic(base_url=url, api_key="key", max_retries=0))
        async with client:
            block = (await client.messages.create(model="m", max_tokens=9, messages=ASKED)).content[0]
            return block.text if block.type == "text" else None

    return asyncio.run(main())


def with_httpx(url: str, own: Owned) -> str:
    client: httpx.Client = own(httpx.Client())
    with client:
        return client.get(url).raise_for_status().text


def with_async_httpx(url: str, own: Owned) -> str:
    async def main() -> str:
        client: httpx.AsyncClient = own(httpx.AsyncClient())
        async with client:
            return (await client.get(url)).raise_for_status().text

    return asyncio.run(main())


def with_requests(url: str, own: Owned) -> str:
    session: requests.Session = own(requests.Session())
    with session:
        answer = session.get(url)
        answer.raise_for_status()
        return answer.text


def with_aiohttp(url: str, own: Owned) -> str:
    async def main() -> str:
        async with own(aiohttp.ClientSession()) as session, session.get(url, raise_for_status=True) as answer:
            text: str = await answer.text()
            return text

    return asyncio.run(main())


PROGRAMS: dict[Callable[[str, Owned], str | None], tuple[Any, tuple[type[Exception], ...], str]] = {
    with_openai: (CHAT, (openai.InternalServerError,), "sole_owner(openai.OpenAI())"),
    with_async_openai: (CHAT, (openai.InternalServerError,), "sole_owner(openai.OpenAI())"),
    with_anthropic: (MESSAGE, (anthropic.APIStatusError,), "sole_owner(anthropic.AsyncAnthropic())"),
    with_async_anthropic: (MESSAGE, (anthropic.APIStatusError,), "sole_owner(anthropic.AsyncAnthropic())"),
    with_httpx: ("hello", (httpx.HTTPStatusError,), "sole_owner(httpx.Client())"),
    with_async_httpx: ("hello", (httpx.HTTPStatusError,), "sole_owner(httpx.Client())"),
    with_requests: ("hello", (requests.HTTPError,), "sole_owner(requests.Session(), max_attempts=3)"),
    with_aiohttp: ("hello", (aiohttp.ClientResponseError,), "sole_owner(aiohttp.ClientSession())"),
}
programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def owned(client: Any) -> Any:
    return sole_owner(client, base=0.01)


@programs
def test_the_line_is_in_the_readme(program: Callable[[str, Owned], str | None]) -> None:
    assert re.search(rf"^.*{re.escape(PROGRAMS[program][2])}", README, re.MULTILINE)


@programs
def test_a_program_that_fails_succeeds_with_it(program: Callable[[str, Owned], str | None]) -> None:
    answer, errors, _ = PROGRAMS[program]
    script = Reply(503, body="busy"), Reply(429, {"retry-after": "0"}), Reply(200, body=answer)
    with Server(*script) as server:
        with pytest.raises(errors):
            program(server.url, lambda client: client)
        assert len(server.requests) == 1
    with Server(*script) as server:
        assert program(server.url, owned) == "hello"
        assert len(server.requests) == 3


@programs
def test_where_nothing_helps_its_own_handlers_catch_the_failure(program: Callable[[str, Owned], str | None]) -> None:
    errors = PROGRAMS[program][1]
    with Server(Reply(500, body="down")) as server:
        with pytest.raises(errors):
            program(server.url, lambda client: sole_owner(client, max_attempts=3, base=0.01))
        assert len(server.requests) == 3
