"""A layer in a worker thread that knows of no call around it has retried all the same."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from forbear import retry, retry_sync
from forbear.testing import Flaky

OPTIONS = {"max_attempts": 3, "backoff": [0.001], "reraise": True}


def test_a_pool_of_threads() -> None:
    fn = Flaky(then=ConnectionError())
    with ThreadPoolExecutor(1) as pool, pytest.raises(ConnectionError):
        retry_sync(lambda: pool.submit(retry_sync, fn, **OPTIONS).result(), **OPTIONS)
    assert fn.calls == 3


async def test_run_in_executor() -> None:
    fn = Flaky(then=ConnectionError())
    with pytest.raises(ConnectionError):
        await retry(
            lambda: asyncio.get_running_loop().run_in_executor(None, lambda: retry_sync(fn, **OPTIONS)), **OPTIONS
        )
    assert fn.calls == 3
