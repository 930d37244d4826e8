"""The server's process: it starts, counts for each contender apart, and never outlives whoever started it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from forbear.demo import backend
from forbear.demo.backend import ServerError, misbehaving_api

START_AND_WAIT = """
import asyncio
from forbear.demo.backend import misbehaving_api

async def main():
    async with misbehaving_api(seed=7, quota=5, apps=1) as api:
        print(api.control, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def gone(address: str, within: float = 10.0) -> bool:
    """Whether nobody listens there any more."""
    give_up_at = time.monotonic() + within
    while time.monotonic() < give_up_at:
        try:
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=1.0).close()
        except OSError:
            return True
        time.sleep(0.05)
    return False


async def test_each_contender_has_an_app_of_its_own():
    async with (
        misbehaving_api(seed=7, quota=5, apps=2) as api,
        httpx.AsyncClient(trust_env=False, timeout=5.0) as client,
    ):
        await asyncio.gather(client.get(f"{api.apps[0]}/items/1"), return_exceptions=True)
        states = await api.states(client)
    assert [state["requests"] for state in states] == [1, 0]
    assert states[0]["elapsed"] > 0
    assert states[1]["elapsed"] == 0


async def test_the_server_goes_when_the_block_ends():
    async with misbehaving_api(seed=7, quota=5, apps=1) as api:
        pass
    assert gone(api.control)


async def test_the_server_goes_when_the_block_is_cancelled():
    addresses: list[str] = []

    async def use() -> None:
        async with misbehaving_api(seed=7, quota=5, apps=1) as api:
            addresses.append(api.control)
            await asyncio.sleep(60)

    task = asyncio.create_task(use())
    while not addresses:
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(addresses[0])


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_the_server_goes_when_its_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", START_AND_WAIT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        address = parent.stdout.readline().strip()
        os.kill(parent.pid, signal.SIGKILL)
    assert gone(address)


async def test_a_server_that_has_gone_is_named():
    async with misbehaving_api(seed=7, quota=5, apps=1) as api:
        pass
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(ServerError, match="has gone"):
            await api.states(client)


async def test_a_server_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(backend.sys, "executable", "true")
    with pytest.raises(ServerError, match="did not start"):
        async with misbehaving_api(seed=7, quota=5, apps=1):
            pass
