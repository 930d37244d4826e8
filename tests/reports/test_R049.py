"""R049: an async generator that yields 0, 1, 2, fails, and yields 0 to 4 the next time, under a decorator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from forbear import Restarted, StreamInterrupted, llm_retry, retry, retry_sync
from forbear.testing import FakeTime

Decorate = Callable[..., Any]


@pytest.fixture(params=[retry, llm_retry])
def decorate(request: pytest.FixtureRequest) -> Decorate:
    return request.param  # type: ignore[no-any-return]


class Numbers:
    """0, 1, 2 and a failure; then 0 to 4."""

    def __init__(self, fails_at: int = 3) -> None:
        self.fails_at = fails_at
        self.runs = 0

    def numbers(self, first: int = 0) -> Iterator[int]:
        self.runs += 1
        fails_at = self.fails_at if self.runs == 1 else None
        for number in range(first, 5):
            if number == fails_at:
                raise ConnectionError
            yield number

    async def asynchronous(self, first: int = 0) -> AsyncIterator[int]:
        for number in self.numbers(first):
            yield number


async def got_of(generator: Any) -> tuple[list[Any], Exception | None]:
    got: list[Any] = []
    try:
        async for item in generator:
            got.append(item)  # noqa: PERF401  # what came before an error counts
    except Exception as error:
        return got, error
    return got, None


async def test_nothing_is_yielded_twice_by_default(decorate: Decorate) -> None:
    source = Numbers()
    with FakeTime():
        got, error = await got_of(decorate()(source.asynchronous)())
    assert got == [0, 1, 2]
    assert isinstance(error, StreamInterrupted)
    assert error.delivered == (0, 1, 2)
    assert source.runs == 1


async def test_before_the_first_item_it_is_retried(decorate: Decorate) -> None:
    source = Numbers(fails_at=0)
    with FakeTime():
        assert await got_of(decorate()(source.asynchronous)()) == ([0, 1, 2, 3, 4], None)
    assert source.runs == 2


async def test_it_goes_on_where_one_says_how(decorate: Decorate) -> None:
    source = Numbers()

    def go_on(delivered: list[int], first: int = 0) -> AsyncIterator[int]:
        return source.asynchronous(first + len(delivered))

    with FakeTime():
        assert await got_of(decorate(resume=go_on)(source.asynchronous)(0)) == ([0, 1, 2, 3, 4], None)
    assert source.runs == 2


async def test_it_comes_anew_behind_a_mark_or_whole_where_one_asks_for_it(decorate: Decorate) -> None:
    with FakeTime():
        got, error = await got_of(decorate(after_content="restart")(Numbers().asynchronous)())
        assert (got, error) == ([0, 1, 2, Restarted(2, 3), 0, 1, 2, 3, 4], None)
        whole = await got_of(decorate(after_content="buffer")(Numbers().asynchronous)())
        assert whole == ([0, 1, 2, 3, 4], None)


@pytest.mark.parametrize("blocking", [retry, retry_sync, llm_retry])
def test_blocking_generators_the_same(blocking: Decorate) -> None:
    with FakeTime():
        source, got = Numbers(), []
        with pytest.raises(StreamInterrupted):
            got.extend(blocking()(source.numbers)())
        assert source.runs == 1
        assert list(blocking()(Numbers(fails_at=0).numbers)()) == [0, 1, 2, 3, 4]
        whole = list(blocking(after_content="buffer")(Numbers().numbers)())
        assert whole == [0, 1, 2, 3, 4]


def test_the_call_that_makes_it_is_not_what_is_retried() -> None:
    source = Numbers()
    decorated = retry()(source.asynchronous)
    decorated()
    assert source.runs == 0
    with pytest.raises(TypeError, match="its failures come while it is iterated"):
        retry(source.asynchronous)  # type: ignore[arg-type, unused-coroutine]
