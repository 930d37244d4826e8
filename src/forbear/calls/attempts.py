"""The block form: retries around a few lines of code that are no function.

    for attempt in attempts(max_attempts=4):        async for attempt in attempts(max_attempts=4):
        with attempt:                                   async with attempt:
            ...                                             ...

Decided here: nothing but the form. Each round of the loop is one attempt; what leaves the inner block decides whether
there is another round. Prevents the silent misuse: a loop without its inner block would run once and retry nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Unpack

from forbear._aio import driver as asyncio_driver
from forbear._aio.admission import admit
from forbear._runtime.call import Call, Plan, drop, open_call
from forbear._runtime.on_asyncio import NEEDS_ASYNCIO
from forbear._runtime.scope import Ambient, current
from forbear._runtime.steps import accept, cancelled, fail
from forbear._sync import driver as blocking_driver
from forbear._sync.admission import admit as admit_blocking
from forbear.calls.current import Attempt
from forbear.calls.guarding import refuse_hedge
from forbear.calls.options import BlockOptions, plan_of
from forbear.errors import UsageError

_NO_RESULT: Any = object()


class BlockAttempt(Attempt):
    """One round: enter it around the code that may fail. Set `result` where `retry_if_result` is to judge it."""

    __slots__ = ("_entered", "_is_async", "_outer", "again", "handled", "result")

    def __init__(self, call: Call, is_async: bool) -> None:
        super().__init__(call)
        self._is_async = is_async
        self._entered = False
        self._outer: Ambient = None
        self.result: Any = _NO_RESULT
        self.again = False
        self.handled: BaseException | None = None

    def __enter__(self) -> BlockAttempt:
        if self._is_async:
            raise TypeError("inside `async for` write `async with attempt:`, so that the attempt can be cut in time")
        if self._call.plan.gate is not None:
            admit_blocking(self._call, (), {})
        self._enter()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        self._leave()
        failed: BaseException | None = error
        try:
            if error is None:
                self._accept()
        except Exception as refused:
            failed = refused
        try:
            if failed is None:
                self._over()
                return False
            if isinstance(failed, Exception):
                return self._settle(fail, failed, error)
            self._over()
            cancelled(self._call, waiting=False)
            return False
        finally:
            del failed, error  # a frame must not keep alive what it raises

    async def __aenter__(self) -> BlockAttempt:
        if not self._is_async:
            raise TypeError("inside a plain `for` write `with attempt:`; for `async with` loop with `async for`")
        if self._call.plan.gate is not None:
            await admit(self._call, (), {})
        if not asyncio_driver.begin(self._call):
            drop(self._call)
            raise RuntimeError(NEEDS_ASYNCIO)
        self._enter()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        self._leave()
        failed: BaseException | None = error
        try:
            if error is None:
                asyncio_driver.finish(self._call)
                self._accept()
        except BaseException as refused:
            failed = refused
        try:
            if failed is None:
                self._over()
                return False
            return self._settle(asyncio_driver.failed, failed, error)
        finally:
            del failed, error

    @property
    def ran(self) -> bool:
        """Whether the block was entered."""
        return self._entered

    def _enter(self) -> None:
        self._entered = True
        self.handled = sys.exception()
        self._outer = current.get()
        current.set(self._call)

    def _over(self) -> None:
        """The call ends with this round."""
        drop(self._call)
        self.handled = None
        self._call.ended = True

    def _leave(self) -> None:
        """The scope around holds again, unless the collector ends the block in a context that is not ours."""
        if current.get() is self._call:
            current.set(self._outer)

    def _accept(self) -> None:
        if self.result is not _NO_RESULT:
            accept(self._call, self.result)
        elif self._call.plan.rejects is not None:
            raise UsageError("retry_if_result needs the result: set attempt.result = ... inside the block")
        else:
            accept(self._call, None)

    def _settle(self, decide: Callable[[Call, Any], bool], failed: BaseException, error: BaseException | None) -> bool:
        """Whether the block's error is dealt with: another round follows. Raises what it really ended with."""
        try:
            self.again = decide(self._call, failed)
            if not self.again:
                self._over()
            if not self.again and failed is not error:
                raise failed
            return self.again
        except BaseException:
            self._over()
            raise
        finally:
            del error, failed


class Rounds:
    """The rounds of one call."""

    __slots__ = ("_block", "_call", "_plan")

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._call: Call | None = None
        self._block: BlockAttempt | None = None

    def __del__(self) -> None:
        """A loop that is left after a failed round sends no retry: what that has paid goes back."""
        passage = None if self._call is None else self._call.passage
        if passage is not None:
            passage.refund()

    def __iter__(self) -> Rounds:
        return self

    def __next__(self) -> BlockAttempt:
        if self._call is not None:
            if not self._again():
                raise StopIteration
            blocking_driver.pause(self._call, self._handled(), block=True)
        return self._begin(is_async=False)

    def __aiter__(self) -> Rounds:
        return self

    async def __anext__(self) -> BlockAttempt:
        if self._call is not None:
            if not self._again():
                raise StopAsyncIteration
            await asyncio_driver.pause_here(self._call, self._handled(), block=True)
        return self._begin(is_async=True)

    def _handled(self) -> BaseException | None:
        """What the caller was handling when it entered the last round; forgotten by asking."""
        if self._block is None:
            return None
        handled, self._block.handled = self._block.handled, None
        return handled

    def _again(self) -> bool:
        """Whether the last round failed and is to be followed by another."""
        block = self._block
        if block is None or not block.ran:
            raise RuntimeError(
                "the loop ran without `with attempt:` (or `async with attempt:`) around its body, so nothing would "
                "have been retried"
            )
        return block.again

    def _begin(self, is_async: bool) -> BlockAttempt:
        if self._call is None:
            self._call = open_call(self._plan, current.get())
        self._block = BlockAttempt(self._call, is_async)
        return self._block


class Attempts:
    """What `attempts` returns: a recipe. Every loop over it is a call of its own."""

    __slots__ = ("_plan",)

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __iter__(self) -> Rounds:
        return Rounds(self._plan)

    def __aiter__(self) -> Rounds:
        return Rounds(self._plan)


def attempts(**options: Unpack[BlockOptions]) -> Attempts:
    """Retries around a block: a `for` loop over this with `with attempt:` in it, or both with `async`.

    Takes the options of `retry` but `fallback`. An error that leaves the inner block ends the round; the loop ends
    after the first round without one, or raises as `retry` does. `attempt` has `number`, `timeout`, `deadline`,
    `idempotency_key`, `previous_error`, and takes `result` where `retry_if_result` is to judge one; leave the block by
    its end then, as a `return` inside it hands out the value, refused or not.
    """
    if "fallback" in options or "fallback_on" in options:
        raise TypeError("a block has no value to replace, so it takes no fallback=: catch RetryError around the loop")
    refuse_hedge(options, "attempts")
    return Attempts(plan_of("block", options))
