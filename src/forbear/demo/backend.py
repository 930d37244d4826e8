"""Starts the API that misbehaves, asks it for its counts, and sees to it that it ends.

Decided here: that the API never outlives the demo. Its standard input is a pipe that only this process holds.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import httpx

START_WITHIN = 10.0  # seconds; a Python process with the standard library alone needs a tenth of one
STOP_WITHIN = 2.0  # seconds


class ServerError(Exception):
    """The API could not be started, or has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Where the API listens: an address for each contender, and one for questions about the run."""

    apps: tuple[str, ...]
    control: str

    async def states(self, client: httpx.AsyncClient) -> list[dict[str, Any]]:
        """What each app has received, by its own count. Raises ServerError if the API has gone."""
        try:
            answer = await client.get(self.control)
        except httpx.HTTPError as error:
            raise ServerError(f"the demo's API has gone ({type(error).__name__}); start the demo again") from error
        apps: list[dict[str, Any]] = answer.json()["apps"]
        return apps


@asynccontextmanager
async def misbehaving_api(*, seed: int, quota: int, apps: int) -> AsyncGenerator[Api, None]:
    """The API, in a process of its own, while the block runs."""
    command = (sys.executable, "-m", "forbear.demo.server")
    settings = ("--seed", str(seed), "--quota", str(quota), "--apps", str(apps))
    # A session of its own: Ctrl-C in the terminal is for this process, which then ends that one.
    process = await asyncio.create_subprocess_exec(
        *command, *settings, stdin=PIPE, stdout=PIPE, start_new_session=True
    )  # fmt: skip
    try:
        yield await _ready(process)
    finally:
        await _stop(process)


async def _ready(process: Process) -> Api:
    stdout = cast("asyncio.StreamReader", process.stdout)  # a pipe, as asked for
    try:
        line = await asyncio.wait_for(stdout.readline(), START_WITHIN)
        ports = json.loads(line)
    except (TimeoutError, ValueError) as error:
        raise ServerError("the demo's API did not start; what it had to say stands above") from error
    return Api(apps=tuple(map(_address, ports["apps"])), control=_address(ports["control"]))


def _address(port: int) -> str:
    return f"http://127.0.0.1:{port}"


async def _stop(process: Process) -> None:
    cast("asyncio.StreamWriter", process.stdin).close()
    try:
        await asyncio.wait_for(process.wait(), STOP_WITHIN)
    except TimeoutError:
        process.kill()
        await process.wait()
