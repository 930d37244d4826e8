"""What a failed round of a block held in its frames is free during the wait, through chains and groups of errors."""

from __future__ import annotations

import gc
import weakref

import pytest

from forbear import RetryError, attempts, retry_sync


class Big:
    pass


class Watch:
    def __init__(self) -> None:
        self.refs, self.waits = [], []

    def fail(self) -> None:
        big = Big()
        self.refs.append(weakref.ref(big))
        raise LookupError

    def slept(self, _: float) -> None:
        self.waits.append(sum(ref() is not None for ref in self.refs))


@pytest.fixture(autouse=True)
def no_collector():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("explicit", [True, False])
def test_blocking(explicit: bool) -> None:
    watch = Watch()
    try:
        for attempt in attempts(sleep=watch.slept, max_attempts=4):
            with attempt:
                try:
                    watch.fail()
                except LookupError as error:
                    if explicit:
                        raise ConnectionError from error
                    raise ConnectionError
    except RetryError:
        pass
    assert watch.waits == [0, 0, 0]


async def test_asynchronous() -> None:
    watch = Watch()
    try:
        async for attempt in attempts(sleep=watch.slept, max_attempts=4):
            async with attempt:
                try:
                    watch.fail()
                except LookupError:
                    raise ConnectionError
    except RetryError:
        pass
    assert watch.waits == [0, 0, 0]


def test_a_large_group() -> None:
    watch = Watch()

    def fn() -> None:
        errors = []
        for _ in range(100):
            try:
                watch.fail()
            except LookupError as error:
                errors.append(error)
        try:
            raise ExceptionGroup("many", errors)
        finally:
            del errors

    try:
        retry_sync(fn, retryable=Exception, max_attempts=2, sleep=watch.slept)
    except RetryError:
        pass
    assert watch.waits == [0]
