"""T26: clients that fail together must not come back together: waits differ, by default and at the cap."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from forbear import ApiError, RetriesExhausted, linear, proportional, retry, retry_sync
from forbear.testing import Flaky

CLIENTS = 40


def waits_of(options: dict[str, Any], error: Exception, attempts: int = 4) -> tuple[float, ...]:
    """The waits of one client, with real dice."""
    waits: list[float] = []
    with pytest.raises(RetriesExhausted):
        retry_sync(Flaky(then=error), max_attempts=attempts, sleep=waits.append, deadline=None, **options)
    return tuple(waits)


def columns(options: dict[str, Any], error: Exception, attempts: int = 4) -> list[set[float]]:
    """The first waits of all clients, the second ones, and so on."""
    return [set(column) for column in zip(*(waits_of(options, error, attempts) for _ in range(CLIENTS)), strict=True)]


SPREADING: list[dict[str, Any]] = [
    {},
    {"base": 0.1, "cap": 0.2},
    {"jitter": "equal"},
    {"jitter": "decorrelated"},
    {"jitter": proportional(0.1)},
    {"backoff": linear(1.0)},
    {"backoff": [1.0, 2.0], "jitter": "full"},
    {"backoff": lambda attempt: 2.0 * attempt, "jitter": "equal"},
]


@pytest.mark.parametrize("options", SPREADING, ids=repr)
def test_clients_draw_different_waits(options: dict[str, Any]) -> None:
    for column in columns(options, ConnectionError()):
        assert len(column) == CLIENTS


@pytest.mark.parametrize("options", SPREADING[:6], ids=repr)
def test_they_differ_at_the_cap_too(options: dict[str, Any]) -> None:
    for column in columns(options, ConnectionError(), attempts=30)[20:]:
        assert len(column) >= CLIENTS / 2


@pytest.mark.parametrize("hint", [30.0, 0.0, 3600.0])
@pytest.mark.parametrize("options", [{"retry_after_jitter": 5.0}, {"retry_after": "add"}], ids=repr)
def test_they_differ_after_a_hint_where_it_is_spread(options: dict[str, Any], hint: float) -> None:
    for column in columns(options, ApiError(429, retry_after=hint)):
        assert len(column) == CLIENTS
        assert min(column) >= hint


def test_a_capped_hint_is_spread_as_well() -> None:
    for column in columns({"max_retry_after": 10.0, "retry_after_jitter": 5.0}, ApiError(429, retry_after=3600.0)):
        assert len(column) == CLIENTS
        assert 10.0 <= min(column) <= max(column) <= 15.0


def test_the_users_seed_decides_nothing(form: Callable[..., Any]) -> None:
    drawn = []
    for _ in range(2):
        random.seed(42)
        waits: list[float] = []
        with pytest.raises(RetriesExhausted):
            form(Flaky(then=ConnectionError()), sleep=waits.append, max_attempts=4)
        drawn.append(waits)
    assert set(drawn[0]).isdisjoint(drawn[1])


def test_a_decorated_function_draws_anew_for_each_call() -> None:
    waits: list[float] = []
    call = retry(sleep=waits.append, max_attempts=2)(Flaky(then=ConnectionError()))
    for _ in range(CLIENTS):
        with pytest.raises(RetriesExhausted):
            call()
    assert len(set(waits)) == CLIENTS
