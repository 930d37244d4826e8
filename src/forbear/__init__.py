"""forbear: retries that end in time, obey the server, and never make an outage worse.

    from forbear import retry

    text = await retry(lambda: client.complete(prompt), max_attempts=4, deadline=30.0)

The public names are loaded when they are first used, so that `import forbear` costs next to nothing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from forbear.calls.attempts import Attempts as Attempts
    from forbear.calls.attempts import BlockAttempt as BlockAttempt
    from forbear.calls.attempts import attempts as attempts
    from forbear.calls.blocking import retry_sync as retry_sync
    from forbear.calls.current import Attempt as Attempt
    from forbear.calls.current import current_attempt as current_attempt
    from forbear.calls.deadline import Deadline as Deadline
    from forbear.calls.deadline import current_deadline as current_deadline
    from forbear.calls.deadline import deadline as deadline
    from forbear.calls.delay import backoff_delay as backoff_delay
    from forbear.calls.first_ready import first_ready as first_ready
    from forbear.calls.hedge import hedge as hedge
    from forbear.calls.llm import llm_retry as llm_retry
    from forbear.calls.options import Options as Options
    from forbear.calls.retry import retry as retry
    from forbear.calls.retry import retry_call as retry_call
    from forbear.calls.stream import Stream as Stream
    from forbear.calls.stream import stream as stream
    from forbear.calls.upstream import Upstream as Upstream
    from forbear.calls.verdicts import classify as classify
    from forbear.calls.verdicts import describe as describe
    from forbear.calls.verdicts import read_limits as read_limits
    from forbear.calls.verdicts import retry_after_of as retry_after_of
    from forbear.classify.failures import Classifier as Classifier
    from forbear.classify.failures import is_retryable as is_retryable
    from forbear.classify.failures import is_transient as is_transient
    from forbear.classify.failures import status_code_of as status_code_of
    from forbear.classify.rules import Rule as Rule
    from forbear.classify.stream_events import StreamEvents as StreamEvents
    from forbear.core.backoff import Backoff as Backoff
    from forbear.core.backoff import Jitter as Jitter
    from forbear.core.backoff import constant as constant
    from forbear.core.backoff import decorrelated as decorrelated
    from forbear.core.backoff import exponential as exponential
    from forbear.core.backoff import from_list as from_list
    from forbear.core.backoff import linear as linear
    from forbear.core.backoff import proportional as proportional
    from forbear.core.bounded import decide_retry as decide_retry
    from forbear.core.decision import Retry as Retry
    from forbear.core.decision import Stop as Stop
    from forbear.core.decision import decide as decide
    from forbear.core.events import AttemptEnded as AttemptEnded
    from forbear.core.events import CallEnded as CallEnded
    from forbear.core.events import Event as Event
    from forbear.core.events import FellBack as FellBack
    from forbear.core.events import RetryState as RetryState
    from forbear.core.failure import Failure as Failure
    from forbear.core.failure import Kind as Kind
    from forbear.core.policy import Policy as Policy
    from forbear.core.rate import Limit as Limit
    from forbear.core.stream import Restarted as Restarted
    from forbear.core.suggestion import suggest_attempt_timeout as suggest_attempt_timeout
    from forbear.errors import ApiError as ApiError
    from forbear.errors import AttemptSummary as AttemptSummary
    from forbear.errors import BudgetExhausted as BudgetExhausted
    from forbear.errors import CircuitOpenError as CircuitOpenError
    from forbear.errors import DeadlineExceeded as DeadlineExceeded
    from forbear.errors import ErrorEvent as ErrorEvent
    from forbear.errors import GaveUp as GaveUp
    from forbear.errors import NestedRetriesWarning as NestedRetriesWarning
    from forbear.errors import ResultRejected as ResultRejected
    from forbear.errors import RetriesExhausted as RetriesExhausted
    from forbear.errors import RetryError as RetryError
    from forbear.errors import StreamInterrupted as StreamInterrupted
    from forbear.errors import StreamTruncated as StreamTruncated
    from forbear.errors import SummaryError as SummaryError
    from forbear.observe.hooks import listening as listening
    from forbear.upstream.breaker import CircuitBreaker as CircuitBreaker
    from forbear.upstream.budget import RetryBudget as RetryBudget
    from forbear.upstream.hedge import Hedge as Hedge
    from forbear.upstream.hedge import HedgeSnapshot as HedgeSnapshot
    from forbear.upstream.limiter import RateLimiter as RateLimiter
    from forbear.upstream.service import UpstreamSnapshot as UpstreamSnapshot

__version__ = "0.1.0"

_HOME = {
    "calls.attempts": ("Attempts", "BlockAttempt", "attempts"),
    "calls.current": ("Attempt", "current_attempt"),
    "calls.deadline": ("Deadline", "current_deadline", "deadline"),
    "calls.delay": ("backoff_delay",),
    "calls.first_ready": ("first_ready",),
    "calls.hedge": ("hedge",),
    "calls.llm": ("llm_retry",),
    "calls.options": ("Options",),
    "calls.blocking": ("retry_sync",),
    "calls.retry": ("retry", "retry_call"),
    "calls.stream": ("Stream", "stream"),
    "calls.upstream": ("Upstream",),
    "calls.verdicts": ("classify", "describe", "read_limits", "retry_after_of"),
    "classify.failures": ("Classifier", "is_retryable", "is_transient", "status_code_of"),
    "classify.rules": ("Rule",),
    "classify.stream_events": ("StreamEvents",),
    "core.backoff": (
        "Backoff", "Jitter", "constant", "decorrelated", "exponential", "from_list", "linear", "proportional",
    ),
    "core.bounded": ("decide_retry",),
    "core.decision": ("Retry", "Stop", "decide"),
    "core.events": ("AttemptEnded", "CallEnded", "Event", "FellBack", "RetryState"),
    "core.failure": ("Failure", "Kind"),
    "core.policy": ("Policy",),
    "core.rate": ("Limit",),
    "core.stream": ("Restarted",),
    "core.suggestion": ("suggest_attempt_timeout",),
    "errors": (
        "ApiError", "AttemptSummary", "BudgetExhausted", "CircuitOpenError", "DeadlineExceeded", "ErrorEvent", "GaveUp",
        "NestedRetriesWarning",
        "ResultRejected", "RetriesExhausted", "RetryError", "StreamInterrupted", "StreamTruncated", "SummaryError",
    ),
    "observe.hooks": ("listening",),
    "upstream.breaker": ("CircuitBreaker",),
    "upstream.budget": ("RetryBudget",),
    "upstream.hedge": ("Hedge", "HedgeSnapshot"),
    "upstream.limiter": ("RateLimiter",),
    "upstream.service": ("UpstreamSnapshot",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


class _FrontDoor(type(__import__("sys"))):  # type: ignore[misc]  # the class of modules, without an import
    """Keeps the public `classify` a function: importing the package of that name would put itself in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _MODULE_OF or type(value) is not type(__import__("sys")):
            super().__setattr__(name, value)


__import__("sys").modules[__name__].__class__ = _FrontDoor


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'forbear' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"forbear.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
