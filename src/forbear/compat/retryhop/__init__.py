"""The surface of retryhop 0.1.1, carried out by forbear.

    from forbear.compat.retryhop import RateLimiter, llm_retry

Names, parameters and defaults are retryhop's, its submodules included. See docs/retryhop.md for what is better.
"""

from __future__ import annotations

from forbear.compat.retryhop.backoff import constant, exponential, linear
from forbear.compat.retryhop.circuit import CircuitBreaker, CircuitOpenError
from forbear.compat.retryhop.core import RetryError, RetryState, retry, retry_call
from forbear.compat.retryhop.llm import (
    RETRYABLE_STATUS,
    describe,
    is_transient,
    llm_retry,
    retry_after_of,
    status_code_of,
)
from forbear.compat.retryhop.ratelimit import RateLimiter

__version__ = "0.1.1"  # of the surface

__all__ = [
    "RETRYABLE_STATUS",
    "CircuitBreaker",
    "CircuitOpenError",
    "RateLimiter",
    "RetryError",
    "RetryState",
    "__version__",
    "constant",
    "describe",
    "exponential",
    "is_transient",
    "linear",
    "llm_retry",
    "retry",
    "retry_after_of",
    "retry_call",
    "status_code_of",
]
