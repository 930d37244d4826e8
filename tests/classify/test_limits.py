"""Rate limits as servers report them in headers, and which of several binds."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from forbear.classify.limits import Limit, binding_wait, read_limits

NOW = 1_796_083_200.0  # 2026-12-01T00:00:00Z


def one(headers: dict[str, str], now: float | None = NOW) -> Limit:
    (limit,) = read_limits(headers, now)
    return limit


def wait(headers: dict[str, str], now: float | None = NOW) -> float | None:
    return binding_wait(read_limits(headers, now))


# ---- reading -----------------------------------------------------------------------------------------------------


def test_the_names_of_openai_say_the_resource_last() -> None:
    headers = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    assert read_limits(headers) == (
        Limit(resource="requests", limit=60, remaining=59, reset=1),
        Limit(resource="tokens", limit=150_000, remaining=0, reset=360),
    )


def test_the_names_of_anthropic_say_it_first_and_their_resets_are_dates() -> None:
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "80000",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-12-01T00:00:42Z",
    }
    assert one(headers) == Limit(resource="input-tokens", limit=80_000, remaining=0, reset=42)


@pytest.mark.parametrize("prefix", ["x-ratelimit", "ratelimit", "anthropic-ratelimit"])
def test_a_limit_without_a_name_is_that_of_the_whole_service(prefix: str) -> None:
    headers = {f"{prefix}-limit": "100", f"{prefix}-remaining": "7", f"{prefix}-reset": "18"}
    assert one(headers) == Limit(resource="", limit=100, remaining=7, reset=18)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("18", 18.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("7.66s", 7.66),
        ("6m0s", 360.0),
        ("1796083240", 40.0),
        ("1796083240000", 40.0),
        ("1796083100", 0.0),
        ("2026-12-01T00:00:42Z", 42.0),
        ("2026-12-01T00:00:42+00:00", 42.0),
        ("2026-11-30T23:00:00Z", 0.0),
    ],
)
def test_a_reset_is_a_wait_a_length_an_epoch_or_a_timestamp(value: str, seconds: float) -> None:
    assert one({"x-ratelimit-reset": value}).reset == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["-1", "soon", "", "nan", "inf", "1e400", "1_000", "-1s", "9" * 400, "x" * 10_000])
def test_nonsense_is_no_reset(value: str) -> None:
    assert read_limits({"x-ratelimit-reset": value}, NOW) == ()
    assert one({"x-ratelimit-reset": value, "x-ratelimit-limit": "1"}) == Limit(resource="", limit=1)
    assert read_limits({"x-ratelimit-remaining": value, "x-ratelimit-limit": value}, NOW) == ()


def test_a_timestamp_is_no_wait_where_nobody_knows_what_time_it_is() -> None:
    assert read_limits({"x-ratelimit-reset": "2026-12-01T00:00:42Z"}) == ()


def test_other_headers_are_no_limits() -> None:
    headers = {"retry-after": "3", "x-ratelimit-": "1", "x-ratelimit": "2", "ratelimit-policy": '"a";q=1;w=60'}
    assert read_limits({**headers, "my-x-ratelimit-reset": "3", "x-ratelimit-reset-": "4", "date": "today"}) == (
        Limit(resource="", reset=4),
    )
    assert read_limits({}) == ()


# ---- the structured field ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["limit=100, remaining=0, reset=25", "limit=100,remaining=0,reset=25", "limit=100; remaining=0;reset = 25"]
)
def test_the_seventh_draft_names_one_limit(value: str) -> None:
    assert one({"ratelimit": value}) == Limit(resource="", limit=100, remaining=0, reset=25)


def test_later_drafts_name_several_policies() -> None:
    value = '"burst";r=0;t=30, "day";r=900;t=5000, "unknown";r=0'
    assert read_limits({"ratelimit": value}) == (
        Limit(resource="burst", remaining=0, reset=30),
        Limit(resource="day", remaining=900, reset=5000),
        Limit(resource="unknown", remaining=0),
    )


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        ('"a,b";r=0;t=30', [("a,b", 0, 30)]),
        ('"a,b";r=1;t=30, "c;r=9,";r=0;t=5', [("a,b", 1, 30), ("c;r=9,", 0, 5)]),
        (r'"a\"b, ";r=0;t=30,"c";t=1', [(r"a\"b, ", 0, 30), ("c", None, 1)]),
        ('"a";pk="x,y";r=0;t=30, "b";r=2', [("a", 0, 30), ("b", 2, None)]),
    ],
)
def test_a_comma_in_a_quoted_name_ends_nothing(value: str, limits: list[tuple[str, int | None, int | None]]) -> None:
    wanted = tuple(Limit(resource=name, remaining=left, reset=reset) for name, left, reset in limits)
    assert read_limits({"ratelimit": value}) == wanted


@pytest.mark.parametrize(
    "value", ["", "soon", "default;r=0;t=30", "limit=-1", "reset=nan", "=;=;=", "x" * 3000, "limit=1," * 300]
)
def test_a_field_without_a_limit_in_it_is_ignored(value: str) -> None:
    assert read_limits({"ratelimit": value}) == ()


def test_numbers_of_a_field_that_are_none_are_unknown() -> None:
    assert one({"ratelimit": "limit=100, remaining=1.2.3, reset=-5"}) == Limit(resource="", limit=100)
    assert one({"ratelimit": '"a";r=.;t=soon'}) == Limit(resource="a")
    assert one({"ratelimit": '"a'}) == Limit(resource="a")


def test_limits_of_all_forms_are_read_together() -> None:
    headers = {"x-ratelimit-reset": "5", "ratelimit": '"a";r=0;t=7'}
    assert read_limits(headers) == (Limit(resource="", reset=5), Limit(resource="a", remaining=0, reset=7))


# ---- which binds -------------------------------------------------------------------------------------------------


def limit(remaining: float | None, reset: float | None) -> Limit:
    return Limit(resource="r", remaining=remaining, reset=reset)


def test_the_limit_that_is_used_up_binds() -> None:
    assert binding_wait([limit(59, 1), limit(0, 360)]) == 360
    assert binding_wait([limit(0, 1), limit(59, 360)]) == 1
    assert binding_wait([limit(0, 1), limit(None, 360)]) == 1


def test_of_several_that_are_used_up_the_latest_binds() -> None:
    assert binding_wait([limit(0, 1), limit(0, 360), limit(0, 20)]) == 360


def test_where_none_is_known_to_be_used_up_the_latest_unknown_one_binds() -> None:
    assert binding_wait([limit(None, 1), limit(None, 360)]) == 360
    assert binding_wait([limit(None, 1), limit(5, 360)]) == 1


@pytest.mark.parametrize("limits", [[], [limit(5, 360)], [limit(0, None)], [limit(None, None), limit(1, 2)]])
def test_where_none_may_be_used_up_none_binds(limits: list[Limit]) -> None:
    assert binding_wait(limits) is None


def test_where_it_must_be_certain_an_unknown_one_does_not_bind() -> None:
    assert binding_wait([limit(None, 1), limit(None, 360)], certain=True) is None
    assert binding_wait([limit(0, 1), limit(None, 360)], certain=True) == 1
    assert binding_wait([limit(5, 1)], certain=True) is None


def test_a_reset_of_zero_is_a_wait_of_zero() -> None:
    assert binding_wait([limit(0, 0)]) == 0


def test_headers_give_the_wait_of_the_limit_that_binds() -> None:
    assert wait({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}) == 360
    spent = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "900"}
    assert wait({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s", **spent}) == 1
    assert wait({"ratelimit": '"burst";r=0;t=30, "day";r=900;t=5000'}) == 30
    assert wait({"x-ratelimit-remaining": "5", "x-ratelimit-reset": "9"}) is None


def test_a_limit_is_a_value() -> None:
    assert Limit(resource="a") == Limit(resource="a", limit=None, remaining=None, reset=None)
    assert hash(limit(0, 1)) == hash(limit(0, 1))
    with pytest.raises(FrozenInstanceError):
        limit(0, 1).reset = 5.0  # type: ignore[misc]
