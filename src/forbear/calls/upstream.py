"""`Upstream`: a service, with every form of call that goes to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Literal, Never, Self, TypeVar, Unpack, overload

from forbear.calls.attempts import Attempts
from forbear.calls.attempts import attempts as attempts_of
from forbear.calls.blocking import retry_sync as retry_sync_of
from forbear.calls.decorate import Decorator
from forbear.calls.hedge import hedge as hedge_of
from forbear.calls.llm import llm_retry as llm_retry_of
from forbear.calls.options import BlockOptions, DecoratorOptions, Options, StreamCallOptions
from forbear.calls.retry import retry as retry_of
from forbear.calls.retry import retry_call as retry_call_of
from forbear.calls.stream import AsyncSource, Source, Stream
from forbear.calls.stream import stream as stream_of
from forbear.core.stream import Restarted
from forbear.core.validation import Seconds, refuse_unknown
from forbear.upstream.breaker import CircuitBreaker
from forbear.upstream.budget import RetryBudget
from forbear.upstream.limiter import MEANT
from forbear.upstream.service import Service

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


# Names that users of other libraries try first.
_MEANT = {
    **MEANT,
    "concurrency": "max_concurrency",
    "max_concurrent": "max_concurrency",
    "max_in_flight": "max_concurrency",
    "limiter": "requests_per_minute and tokens_per_minute: an Upstream limits by itself",
    "circuit": "breaker",
    "max_attempts": "upstream.retry(max_attempts=...)",
    "deadline": "upstream.retry(deadline=...)",
}


class Upstream(Service):
    """What all calls to one service share. Make one per service, or per model or region, and use it everywhere.

        openai = Upstream("openai/gpt", requests_per_minute=500, tokens_per_minute=200_000)

        @openai.retry(max_attempts=6)
        async def ask(prompt): ...

    requests_per_minute, tokens_per_minute: known limits. Attempts wait for their turn, first come, first served.
        `burst` requests may leave at once (default: one second's worth); `strict_window` seconds: no window of this
        length ever holds more than its share.
    max_concurrency: how many attempts may be under way at once.
    budget: how many retries its successes earn. "own": a `RetryBudget` of its own, whose retries wait for their turn
        inside their deadline. None: no budget.
    breaker: a `CircuitBreaker`. None: no breaker.
    adaptive (True): learns from refusals: the attempts under way and the rate at which they begin fall with the first
        sign of overload and grow back with success; a pause that the server asks for holds everyone back.
    observe_only (False): holds nothing back and refuses nothing; `snapshot()` tells what it would have done.

    One object serves tasks, threads and successive event loops; nothing is bound to any of them when it is made. A copy
    and an unpickled one have the same settings, and a state of their own.
    """

    def __init__(
        self,
        name: str,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        burst: float | None = None,
        strict_window: Seconds | None = None,
        max_concurrency: int | None = None,
        budget: RetryBudget | Literal["own"] | None = "own",
        breaker: CircuitBreaker | None = None,
        adaptive: bool = True,
        observe_only: bool = False,
        **unknown: Never,
    ) -> None:
        refuse_unknown("Upstream", unknown, _MEANT)
        self._given: dict[str, Any] = {
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
            "burst": burst,
            "strict_window": strict_window,
            "max_concurrency": max_concurrency,
            "budget": RetryBudget(when_empty="wait") if budget == "own" else budget,
            "breaker": breaker,
            "adaptive": adaptive,
            "observe_only": observe_only,
        }
        super().__init__(name, **self._given)

    @overload
    def retry(self, fn: Callable[[], Awaitable[T]], /, **options: Unpack[Options]) -> Coroutine[Any, Any, T]: ...
    @overload
    def retry(self, **options: Unpack[DecoratorOptions]) -> Decorator: ...
    def retry(self, *fn: Any, **options: Any) -> Any:
        """As `forbear.retry`, through the guards of this service."""
        return retry_of(*fn, **self._with(options))

    @overload
    def retry_sync(self, fn: Callable[[], T], /, **options: Unpack[Options]) -> T: ...
    @overload
    def retry_sync(self, **options: Unpack[DecoratorOptions]) -> Decorator: ...
    def retry_sync(self, *fn: Any, **options: Any) -> Any:
        """As `forbear.retry_sync`, through the guards of this service."""
        return retry_sync_of(*fn, **self._with(options))

    def retry_call(
        self, func: Callable[..., Any], /, *args: Any, retry_options: Options | None = None, **kwargs: Any
    ) -> Any:
        """As `forbear.retry_call`, through the guards of this service."""
        return retry_call_of(func, *args, retry_options=self._with({**(retry_options or {})}), **kwargs)

    @overload
    def llm_retry(self, fn: F, /) -> F: ...
    @overload
    def llm_retry(self, **options: Unpack[DecoratorOptions]) -> Decorator: ...
    def llm_retry(self, *fn: Any, **options: Any) -> Any:
        """As `forbear.llm_retry`, through the guards of this service."""
        decorate = llm_retry_of(**self._with(options))
        return decorate(*fn) if fn else decorate

    @overload
    def hedge(
        self,
        fn: Callable[[], Awaitable[T]],
        /,
        *,
        delay: Seconds | None = ...,
        max_extra_load: float = ...,
        max_copies: int = ...,
        min_samples: int = ...,
        **options: Unpack[Options],
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def hedge(
        self,
        *,
        delay: Seconds | None = ...,
        max_extra_load: float = ...,
        max_copies: int = ...,
        min_samples: int = ...,
        **options: Unpack[DecoratorOptions],
    ) -> Decorator: ...
    def hedge(self, *fn: Any, **options: Any) -> Any:
        """As `forbear.hedge`, through the guards of this service, which learns the delay from all its calls."""
        return hedge_of(*fn, **self._with(options))

    @overload
    def stream(
        self,
        fn: Callable[[], AsyncSource[T]],
        /,
        *,
        after_content: Literal["restart"],
        **options: Unpack[StreamCallOptions],
    ) -> Stream[T | Restarted]: ...
    @overload
    def stream(
        self,
        fn: Callable[[], AsyncSource[T]],
        /,
        *,
        after_content: Literal["raise", "buffer", "resume"] = ...,
        **options: Unpack[StreamCallOptions],
    ) -> Stream[T]: ...
    @overload
    def stream(
        self, fn: Callable[[], Source[T]], /, *, after_content: Literal["restart"], **options: Unpack[StreamCallOptions]
    ) -> Stream[T | Restarted]: ...
    @overload
    def stream(
        self,
        fn: Callable[[], Source[T]],
        /,
        *,
        after_content: Literal["raise", "buffer", "resume"] = ...,
        **options: Unpack[StreamCallOptions],
    ) -> Stream[T]: ...
    def stream(self, fn: Any = None, /, **options: Any) -> Stream[Any]:
        """As `forbear.stream`, through the guards of this service: its place is held until the stream ends."""
        return stream_of(fn, **self._with(options))

    def attempts(self, **options: Unpack[BlockOptions]) -> Attempts:
        """As `forbear.attempts`, through the guards of this service."""
        return attempts_of(**self._with(options))

    def _with(self, options: Any) -> Any:
        if "upstream" in options:
            raise TypeError(f"upstream= is {self.name!r} already: call forbear.retry(..., upstream=...) for another")
        return {**options, "upstream": self}

    def _scope(self, key: Hashable) -> Self:
        return self._anew(f"{self.name}[{key!r}]")

    def _anew(self, name: str) -> Self:
        given = dict(self._given)
        for guard in ("budget", "breaker"):
            if given[guard] is not None:
                given[guard] = given[guard].__deepcopy__({})
        if given["breaker"] is not None and given["breaker"].name == self.name:
            given["breaker"].name = name
        return type(self)(name, **given)

    def __copy__(self) -> Self:
        return self._anew(self.name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._anew(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_made_anew, (type(self), self.name, self._given))


def _made_anew(kind: type[Upstream], name: str, given: dict[str, Any]) -> Upstream:
    return kind(name, **given)
