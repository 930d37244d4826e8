"""Which statuses may pass next time, and which prove that the server did nothing."""

from __future__ import annotations

import pytest

from forbear.classify.status import TOOLKIT, is_transient_status, kind_of_status, nothing_done
from forbear.core.failure import Kind


def test_four_client_errors_may_pass_next_time() -> None:
    assert [status for status in range(400, 500) if is_transient_status(status)] == [408, 409, 425, 429]


def test_every_server_error_but_two_may_pass_next_time() -> None:
    assert [status for status in range(500, 600) if not is_transient_status(status)] == [501, 505]


@pytest.mark.parametrize("status", [0, 100, 200, 301, 399, 600, 999])
def test_what_is_no_error_status_is_not_transient(status: int) -> None:
    assert not is_transient_status(status)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Kind.INVALID_REQUEST),
        (401, Kind.AUTH),
        (403, Kind.AUTH),
        (404, Kind.NOT_FOUND),
        (408, Kind.TIMEOUT),
        (409, Kind.CONFLICT),
        (410, Kind.NOT_FOUND),
        (422, Kind.INVALID_REQUEST),
        (425, Kind.OVERLOADED),
        (429, Kind.RATE_LIMITED),
        (499, Kind.INVALID_REQUEST),
        (500, Kind.SERVER_ERROR),
        (501, Kind.SERVER_ERROR),
        (503, Kind.OVERLOADED),
        (504, Kind.TIMEOUT),
        (529, Kind.OVERLOADED),
        (599, Kind.SERVER_ERROR),
    ],
)
def test_each_status_has_its_kind(status: int, kind: Kind) -> None:
    assert kind_of_status(status) is kind


def test_a_refusal_for_now_proves_that_nothing_was_done() -> None:
    assert [status for status in range(400, 600) if nothing_done(status, hinted=False)] == [425, 429]


def test_a_503_proves_it_only_with_a_time_to_come_back() -> None:
    assert [status for status in range(400, 600) if nothing_done(status, hinted=True)] == [425, 429, 503]


def test_the_toolkit_retries_nothing_that_is_permanent() -> None:
    assert {408, 409, 429, 500, 502, 503, 504, 529} == TOOLKIT
    assert all(map(is_transient_status, TOOLKIT))
