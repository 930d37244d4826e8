"""How many requests and tokens may be sent in which time."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from forbear.core.meters import NEGLIGIBLE, Bucket, Window
from forbear.core.rate import LEAST, MOST, NOTHING, ONE, Cost, Limit, Rates, RateSettings


def rates(requests: float | None = None, tokens: float | None = None, **settings: Any) -> Rates:
    return Rates(RateSettings(requests_per_minute=requests, tokens_per_minute=tokens, **settings), 0.0)


def book(meters: Rates, tokens: float = 0.0, now: float = 0.0) -> float:
    """The wait of one who books ahead."""
    cost = meters.settings.cost(tokens)
    wait = meters.wait(cost, now)
    meters.take(cost, now)
    return wait


def left(meters: Rates, now: float = 0.0) -> tuple[float | None, float | None]:
    requests, tokens = meters.requests, meters.tokens
    return (None if requests is None else requests.left(now), None if tokens is None else tokens.left(now))


# ---- traces ------------------------------------------------------------------------------------------------------


def test_a_minute_of_requests_leaves_at_once_and_the_next_ones_second_by_second() -> None:
    meters = rates(60)
    assert [book(meters) for _ in range(62)] == [0.0] * 60 + [1.0, 2.0]
    assert book(meters, now=10.0) == 0.0


# (requests, tokens) per minute; then what happens: the tokens of a booking, or a correction of what was used.
TRACES: list[tuple[float | None, float, list[tuple[str, float, float]]]] = [
    (None, 6000, [("book", 5000, 0.0), ("book", 2000, 10.0)]),
    (1000, 600, [("book", 600, 0.0), ("book", 60, 6.0)]),
    (None, 600, [("book", 500, 0.0), ("used", 200, 0.0), ("book", 100, 20.0)]),
    (None, 600, [("book", 600, 0.0), ("used", -300, 0.0), ("book", 300, 0.0)]),
    (60, 600, [("book", 600, 0.0), ("book", 0, 0.0), ("book", 10, 1.0), ("book", 10, 2.0)]),
    (2, 600, [("book", 300, 0.0), ("book", 300, 0.0), ("book", 0, 30.0), ("book", 0, 60.0)]),
]


@pytest.mark.parametrize(("requests", "tokens", "trace"), TRACES)
def test_bookings_wait_as_long_as_the_slower_limit_asks(
    requests: float | None, tokens: float, trace: list[tuple[str, float, float]]
) -> None:
    meters = rates(requests, tokens)
    for what, amount, wait in trace:
        if what == "used":
            meters.give(Cost(0.0, -amount), 0.0, 0.0)
        else:
            assert book(meters, amount) == pytest.approx(wait)


def test_requests_and_tokens_are_taken_and_given_back_together() -> None:
    meters = rates(60, 600)
    cost = Cost(1.0, 500.0)
    meters.take(cost, 0.0)
    assert left(meters) == (59.0, 100.0)
    meters.give(cost, 0.0, 0.0)
    assert left(meters) == (60.0, 600.0)


def test_what_is_not_limited_is_not_counted() -> None:
    requests, tokens = rates(60), rates(tokens=600)
    for meters in (requests, tokens):
        meters.take(Cost(1.0, 10.0), 0.0)
    assert left(requests) == (59.0, None)
    assert left(tokens) == (None, 590.0)
    for meters in (requests, tokens):
        meters.give(Cost(1.0, 10.0), 0.0, 0.0)
        meters.give(NOTHING, 0.0, 0.0)
    assert left(requests) == (60.0, None)
    assert left(tokens) == (None, 600.0)


def test_who_needs_no_tokens_does_not_wait_for_those_that_others_owe() -> None:
    meters = rates(60, 600)
    meters.give(Cost(0.0, -1000.0), 0.0, 0.0)
    assert meters.wait(ONE, 0.0) == meters.predicted(ONE, ONE, 0.0) == 0.0
    assert meters.wait(Cost(1.0, 1.0), 0.0) == 40.1
    assert rates(60).predicted(Cost(1.0, 5.0), Cost(1.0, 5.0), 0.0) == 0.0


# ---- several together --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "wait"),
    [(Cost(60, 600), 0.0), (Cost(61, 0), 1.0), (Cost(120, 600), 60.0), (Cost(2, 1200), 60.0)],
)
def test_the_wait_of_the_last_of_many_is_that_of_the_slower_limit(total: Cost, wait: float) -> None:
    assert rates(60, 600).predicted(total, Cost(1, total.tokens / total.requests), 0.0) == wait


def test_the_last_of_unlike_ones_waits_for_those_ahead_and_only_until_its_own_fits() -> None:
    meters = Rates(RateSettings(tokens_per_minute=6000, burst=100), 0.0)
    assert meters.predicted(Cost(2, 3001), Cost(1, 3000), 0.0) == pytest.approx(0.01)


def test_requests_larger_than_the_burst_are_predicted_to_go_when_the_bucket_is_full() -> None:
    meters = rates(600, 600, burst=10)  # 10 tokens at once
    cost = Cost(1.0, 100.0)
    assert meters.predicted(cost, cost, 0.0) == meters.wait(cost, 0.0) == 0.0
    meters.take(cost, 0.0)
    assert meters.predicted(cost, cost, 0.0) == meters.wait(cost, 0.0) == 10.0
    assert meters.predicted(cost + cost, cost, 0.0) == 20.0


@pytest.mark.parametrize(
    ("used", "left_over"), [(0, 600.0), (100, 500.0), (300, 300.0), (600, 0.0), (1e9, 0.0), (1e300, 0.0)]
)
def test_what_an_answer_says_was_used_takes_the_place_of_the_estimate_and_nonsense_does_no_lasting_harm(
    used: float, left_over: float
) -> None:
    meters, cost = rates(60, 600), Cost(1.0, 200.0)
    meters.take(cost, 0.0)
    meters.settle(cost, used, 0.0, 0.0)
    assert left(meters) == (59.0, left_over)


def test_without_a_limit_of_tokens_nothing_is_settled() -> None:
    meters = rates(60)
    meters.settle(Cost(1.0, 200.0), 1e9, 0.0, 0.0)
    assert left(meters) == (60.0, None)


# ---- what a server says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Limit(resource="requests", remaining=7), (7.0, 600.0)),
        (Limit(resource="", remaining=7), (7.0, 600.0)),
        (Limit(resource="tokens", remaining=7), (60.0, 7.0)),
        (Limit(resource="input-tokens", remaining=0), (60.0, 0.0)),
        (Limit(resource="connections", remaining=0), (60.0, 600.0)),
        (Limit(resource="requests", remaining=1e9), (60.0, 600.0)),
        (Limit(resource="requests", remaining=-3), (-3.0, 600.0)),
        (Limit(resource="requests", limit=5, reset=9.0), (60.0, 600.0)),
    ],
)
def test_what_the_server_says_is_left_counts_where_it_is_less(limit: Limit, expected: tuple[float, float]) -> None:
    meters = rates(60, 600)
    meters.correct(limit, 0.0)
    assert left(meters) == expected


def test_what_is_said_of_a_limit_that_we_do_not_keep_is_ignored() -> None:
    meters = rates(tokens=600)
    meters.correct(Limit(resource="requests", remaining=0), 0.0)
    assert left(meters) == (None, 600.0)
    other = rates(60)
    other.correct(Limit(resource="tokens", remaining=0), 0.0)
    assert left(other) == (60.0, None)


# ---- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "requests", "tokens"),
    [
        ({"requests_per_minute": 60, "tokens_per_minute": 600}, 60.0, 600.0),
        ({"requests_per_minute": 60, "tokens_per_minute": 600, "burst": 6}, 6.0, 60.0),
        ({"requests_per_minute": 60, "tokens_per_minute": 600, "burst": 0.5}, 1.0, 5.0),
        ({"requests_per_minute": 60, "tokens_per_minute": 600, "burst": 1e9}, 60.0, 600.0),
        ({"requests_per_minute": 0.25}, 1.0, None),
        ({"tokens_per_minute": 600, "burst": 20}, None, 20.0),
        ({"tokens_per_minute": 0.5}, None, 0.5),
        ({"requests_per_minute": 30, "tokens_per_minute": 600, "strict_window": 10.0}, 5.0, 100.0),
    ],
)
def test_so_much_may_leave_at_once(settings: dict[str, float], requests: float | None, tokens: float | None) -> None:
    meters = Rates(RateSettings(**settings), 0.0)
    assert left(meters) == (requests, tokens)
    kind = Window if "strict_window" in settings else Bucket
    assert all(isinstance(meter, kind) for meter in (meters.requests, meters.tokens) if meter is not None)


def test_a_limiter_without_a_limit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"set requests_per_minute=, tokens_per_minute= or both$"):
        RateSettings()
    with pytest.raises(ValueError, match=r"needs a limit"):
        RateSettings(burst=3)


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "burst"])
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (0, "is 0: it must be above 0 and finite; None means that there is no limit$"),
        (-5, "is -5: it must be above 0"),
        (math.inf, "is inf: it must be above 0 and finite; None means"),
        (1e-300, "is 1e-300: it must lie between 1e-09 and 1e\\+15; None means no limit$"),
        (1e300, "is 1e\\+300: it must lie between"),
        (10**400, "is too large$"),
        (math.nan, "must be a number, not NaN$"),
        ("60", "must be a number, not str$"),
        (True, "must be a number, not bool$"),
    ],
)
def test_a_bad_limit_is_refused_by_its_name_with_the_correction(name: str, bad: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} {said}"):
        RateSettings(**{"requests_per_minute": 60, name: bad})


@pytest.mark.parametrize("value", [LEAST, 1e-6, 0.5, 1e9, MOST])
def test_huge_and_tiny_limits_work(value: float) -> None:
    for settings in ({"requests_per_minute": value}, {"requests_per_minute": value, "burst": 1}):
        meters = Rates(RateSettings(**settings), 0.0)
        waits = [book(meters) for _ in range(3)]
        assert waits == sorted(waits)
        assert all(0.0 <= wait < math.inf for wait in waits)
    assert rates(tokens=value).settings.cost(value) == Cost(1.0, value)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "10", True])
def test_a_bad_window_is_refused_by_its_name(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^strict_window "):
        RateSettings(requests_per_minute=60, strict_window=bad)


def test_a_window_may_be_a_timedelta_and_numbers_become_floats() -> None:
    window: Any = timedelta(seconds=10)
    settings = RateSettings(requests_per_minute=30, tokens_per_minute=600, strict_window=window)
    assert settings.strict_window == 10.0
    for name in ("requests_per_minute", "tokens_per_minute"):
        assert type(getattr(settings, name)) is float
    assert type(RateSettings(requests_per_minute=60, burst=3).burst) is float


def test_a_burst_and_a_strict_window_exclude_each_other() -> None:
    with pytest.raises(ValueError, match=r"^burst= and strict_window= exclude each other"):
        RateSettings(requests_per_minute=60, burst=3, strict_window=10.0)


def test_a_window_in_which_not_one_request_fits_is_refused_and_the_advice_helps() -> None:
    for requests in (1, 7, 13, 17, 0.3, 59.99):
        too_short = 0.9 * 60.0 / requests
        with pytest.raises(ValueError, match=r"^strict_window is .* s, but .*: make it at least [\d.]+ s$") as caught:
            RateSettings(requests_per_minute=requests, strict_window=too_short)
        advice = float(str(caught.value).split()[-2])
        assert advice <= 60.0 / requests + 0.001
        window = RateSettings(requests_per_minute=requests, strict_window=advice)
        assert book(Rates(window, 0.0)) == 0.0


@pytest.mark.parametrize("short_by", [0.0, 0.4, 0.5, 0.9, 1.0, 1.1])
def test_a_window_that_is_accepted_lets_a_request_through_however_it_was_rounded(short_by: float) -> None:
    try:
        settings = RateSettings(requests_per_minute=60.0 * (1.0 - short_by * NEGLIGIBLE), strict_window=1.0)
    except ValueError:
        assert short_by >= 0.5
        return
    assert Rates(settings, 0.0).wait(ONE, 0.0) == 0.0


def test_tokens_alone_need_no_window_of_one_request() -> None:
    assert left(rates(tokens=6, strict_window=1.0)) == (None, pytest.approx(0.1))


# ---- costs -------------------------------------------------------------------------------------------------------


def test_a_request_costs_one_and_its_tokens() -> None:
    settings = RateSettings(requests_per_minute=60)
    assert settings.cost(0) == ONE == Cost(1.0, 0.0)
    assert settings.cost(1e9) == Cost(1.0, 1e9)
    assert ONE + Cost(1.0, 5.0) == Cost(2.0, 5.0)
    assert Cost(2.0, 5.0) - Cost(1.0, 5.0) == ONE
    assert NOTHING + ONE == ONE


@pytest.mark.parametrize(
    ("bad", "said"), [(-1, "is -1: a request can't cost less than nothing$"), (math.nan, "must be"), ("5", "must be")]
)
def test_bad_tokens_are_refused(bad: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"^tokens {said}"):
        RateSettings(requests_per_minute=60).cost(bad)


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"tokens_per_minute": 600}, 600.0),
        ({"tokens_per_minute": 600, "burst": 6}, 600.0),
        ({"tokens_per_minute": 600, "requests_per_minute": 60, "strict_window": 10.0}, 100.0),
        ({"tokens_per_minute": 1e-6}, 1e-6),
        ({"tokens_per_minute": 1 / 3, "strict_window": 7.0}, 7 / 180),
    ],
)
def test_what_can_never_fit_is_refused_at_once_and_what_just_fits_is_let_in(
    settings: dict[str, float], most: float
) -> None:
    made = RateSettings(**settings)
    meters = Rates(made, 0.0)
    for amount in (most, most * (1 + 0.4 * NEGLIGIBLE)):
        assert meters.wait(made.cost(amount), 0.0) == 0.0
    for amount in (most * 1.001, math.inf):
        with pytest.raises(ValueError, match=r"can never fit: at most .* send less at a time, or raise tokens_per_min"):
            made.cost(amount)


@pytest.mark.parametrize("over", [0.4, 0.6, 1.0, 1.5, 1.9, 3.0])
@pytest.mark.parametrize("window", [None, 7.0, 60.0])
def test_what_is_accepted_can_be_sent_however_it_was_rounded(over: float, window: float | None) -> None:
    made = RateSettings(tokens_per_minute=60_000, strict_window=window)
    try:
        cost = made.cost(1000.0 * (window or 60.0) * (1 + over * NEGLIGIBLE))
    except ValueError:
        assert over >= 0.5
    else:
        assert Rates(made, 0.0).wait(cost, 0.0) == 0.0


def test_settings_limits_and_costs_are_values() -> None:
    assert RateSettings(requests_per_minute=60) == RateSettings(requests_per_minute=60.0)
    assert len({Cost(1.0, 5.0), Cost(1.0, 5.0), ONE}) == 2
    with pytest.raises(FrozenInstanceError):
        RateSettings(tokens_per_minute=5).burst = 3.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Limit(resource="").reset = 3.0  # type: ignore[misc]
