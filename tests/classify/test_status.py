"""Which HTTP statuses may pass next time, and which prove that the server did nothing."""

from __future__ import annotations

import pytest

from forbear.classify.status import TOOLKIT, executed_by_status, kind_of_status
from forbear.core.failure import PERMITS, Kind

STATUSES = range(400, 600)


def passes(status: int) -> bool:
    return PERMITS[kind_of_status(status)].transient


def test_four_client_errors_may_pass_next_time() -> None:
    assert [status for status in STATUSES if status < 500 and passes(status)] == [408, 409, 425, 429]


def test_every_server_error_but_two_may_pass_next_time() -> None:
    assert [status for status in STATUSES if status >= 500 and not passes(status)] == [501, 505]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Kind.INVALID_REQUEST), (401, Kind.AUTH), (402, Kind.QUOTA_SPENT), (403, Kind.AUTH), (404, Kind.NOT_FOUND),
        (407, Kind.AUTH), (408, Kind.TIMEOUT), (409, Kind.CONFLICT), (410, Kind.NOT_FOUND), (413, Kind.TOO_LONG),
        (414, Kind.TOO_LONG), (418, Kind.INVALID_REQUEST), (422, Kind.INVALID_REQUEST), (423, Kind.INVALID_REQUEST),
        (425, Kind.OVERLOADED), (429, Kind.RATE_LIMITED), (431, Kind.TOO_LONG), (451, Kind.CONTENT_REFUSED),
        (499, Kind.CANCELLED), (500, Kind.SERVER_ERROR), (501, Kind.INVALID_REQUEST), (502, Kind.SERVER_ERROR),
        (503, Kind.OVERLOADED), (504, Kind.TIMEOUT), (505, Kind.INVALID_REQUEST), (520, Kind.SERVER_ERROR),
        (524, Kind.TIMEOUT), (529, Kind.OVERLOADED), (599, Kind.SERVER_ERROR),
    ],
)  # fmt: skip
def test_each_status_has_its_kind(status: int, kind: Kind) -> None:
    assert kind_of_status(status) is kind


def test_a_refusal_is_proof_that_nothing_was_done() -> None:
    maybe = [status for status in STATUSES if executed_by_status(status, hinted=False) == "maybe"]
    assert maybe == [408, 409, 499, *range(500, 600)]


def test_an_overload_is_proof_of_it_only_with_a_time_to_come_back() -> None:
    changed = [
        status
        for status in STATUSES
        if executed_by_status(status, hinted=True) != executed_by_status(status, hinted=False)
    ]
    assert changed == [503, 529]
    assert executed_by_status(503, hinted=True) == "no"


def test_the_toolkit_retries_nothing_that_is_permanent() -> None:
    assert {408, 409, 429, 500, 502, 503, 504, 529} == TOOLKIT
    assert all(map(passes, TOOLKIT))
