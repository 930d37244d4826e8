"""Retries inside an attempt are told of with true counts, and where there are none nothing is said.

The errors here are made by hand, in the shapes that the libraries give them; real libraries are asked in the tests of
integrations, and in T39.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from email.message import Message
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from forbear import NestedRetriesWarning, RetriesExhausted, RetryError, Upstream, attempts, llm_retry, retry, retry_sync
from forbear.calls.nesting import COUNTED, requests_behind, retries_counted, warn_if_nested
from forbear.testing import FakeTime, Flaky
from forms import form as form

Form = Callable[..., Any]


def counted(retries: object, status: int = 503) -> httpx.HTTPStatusError:
    """The error of an answer to a request that says how many there were before it."""
    request = httpx.Request("POST", "http://service.test/", headers={COUNTED: str(retries)})
    answer = httpx.Response(status, request=request)
    return httpx.HTTPStatusError("x", request=request, response=answer)


def lost(retries: object) -> httpx.ConnectError:
    """A lost connection, for such a request."""
    return httpx.ConnectError("x", request=counted(retries).request)


def of_botocore(metadata: object) -> Exception:
    error = Exception("x")
    error.response = {"ResponseMetadata": metadata}  # type: ignore[attr-defined]
    return error


def with_attributes(**attributes: Any) -> Exception:
    error = Exception("x")
    vars(error).update(attributes)
    return error


class Hostile:
    """Raises at whatever is read of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


HEADERS = Message()
HEADERS[COUNTED] = "1"
BEHIND: list[tuple[BaseException, int]] = [
    (counted(0), 1), (counted(1), 2), (counted(2), 3), (counted(999), 1000), (lost(2), 3),
    (counted(""), 1), (counted("-2"), 1), (counted("1.5"), 1), (counted("2 "), 1), (counted("1000"), 1),
    (with_attributes(request=SimpleNamespace(headers={COUNTED: "²"})), 1),
    (counted("true"), 1), (httpx.ConnectError("x"), 1), (ValueError(), 1),
    (of_botocore({"RetryAttempts": 4}), 5), (of_botocore({"RetryAttempts": 0}), 1), (of_botocore({}), 1),
    (of_botocore({"RetryAttempts": "2"}), 3), (of_botocore({"RetryAttempts": None}), 1), (of_botocore(None), 1),
    (of_botocore({"RetryAttempts": True}), 1), (of_botocore({"RetryAttempts": -1}), 1), (of_botocore([1]), 1),
    (with_attributes(response={}), 1), (with_attributes(response="x"), 1), (with_attributes(request=7), 1),
    (with_attributes(request=SimpleNamespace(headers=HEADERS)), 2),
    (with_attributes(request=SimpleNamespace(headers={COUNTED: 3})), 4),
    (with_attributes(request=SimpleNamespace(headers=[(COUNTED, "3")])), 1),
    (with_attributes(response=Hostile()), 1), (with_attributes(request=Hostile()), 1),
    (with_attributes(request=SimpleNamespace(headers=SimpleNamespace(get=7))), 1),
]  # fmt: skip


@pytest.mark.parametrize(("error", "requests"), BEHIND)
def test_requests_behind_an_error_are_counted_where_it_says_so(error: BaseException, requests: int) -> None:
    assert requests_behind(error) == requests


def test_headers_that_fail_count_nothing() -> None:
    assert retries_counted(Hostile()) == 0
    assert retries_counted(None) == 0


def test_headers_that_fail_do_not_hide_the_error() -> None:
    assert requests_behind(with_attributes(request=SimpleNamespace(headers=Hostile()))) == 1


def test_the_names_of_the_headers_are_read_as_http_reads_them() -> None:
    assert retries_counted(httpx.Headers({"X-Stainless-Retry-Count": "2"})) == 2


def told_by(work: Callable[[], Any], ends: type[Exception] = RetryError) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(ends):
            work()
    assert {one.category for one in told} <= {NestedRetriesWarning}
    return [str(one.message) for one in told]


# ---- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [counted(2), lost(2), of_botocore({"RetryAttempts": 2, "HTTPStatusCode": 503})])
def test_the_warning_names_both_counts_their_product_and_what_to_do(form: Form, error: Exception) -> None:
    with FakeTime():
        told = told_by(lambda: form(Flaky(then=error), max_attempts=3))
    assert told
    for text in told:
        assert "the client made 3 requests in one attempt, so 3 attempts make up to 9" in text
        assert "forbear.integrations.sole_owner(client)" in text


def test_without_a_limit_of_attempts_no_product_is_named() -> None:
    with FakeTime():
        told = told_by(lambda: retry_sync(Flaky(then=counted(1)), max_attempts=None, deadline=5.0))
    assert all("2 requests in one attempt; let one" in text for text in told)
    assert told


def test_nothing_of_the_request_is_said() -> None:
    request = httpx.Request(
        "POST", "http://user:word@service.test/secret?key=secret", headers={COUNTED: "1", "authorization": "secret"}
    )
    error = httpx.HTTPStatusError("secret", request=request, response=httpx.Response(503, request=request))
    with FakeTime():
        (first, *_) = told_by(lambda: retry_sync(Flaky(then=error), max_attempts=2))
    assert "secret" not in first
    assert "word" not in first


# ---- when it is said -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [counted(0), lost(0), httpx.ConnectError("x"), ConnectionError(), counted(0, 400)])
def test_nothing_is_said_of_a_client_that_made_one_request(form: Form, error: Exception) -> None:
    with FakeTime():
        assert told_by(lambda: form(Flaky(then=error), max_attempts=3), Exception) == []


def test_nothing_is_said_where_the_call_has_one_attempt_and_succeeds(form: Form) -> None:
    with FakeTime(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert form(Flaky("done")) == "done"


def test_nothing_is_said_where_there_is_nothing_to_multiply() -> None:
    with FakeTime():
        assert told_by(lambda: retry_sync(Flaky(then=counted(2)), max_attempts=1)) == []


def test_an_error_that_an_inner_layer_gave_up_is_told_of_once_by_that_layer() -> None:
    fn = Flaky(then=counted(2))

    @retry(max_attempts=2, reraise=True)
    def inner() -> Any:
        return fn()

    with FakeTime():
        told = told_by(lambda: retry_sync(inner, max_attempts=5, reraise=True), httpx.HTTPStatusError)
    assert fn.calls == 2
    assert len(told) == 2
    assert all("inner: the client made 3 requests" in text and "up to 6" in text for text in told)


def test_a_rule_of_the_users_own_does_not_silence_it() -> None:
    with FakeTime():
        assert told_by(lambda: retry_sync(Flaky(then=counted(2)), max_attempts=2, retryable=lambda _: True))


SHOWS = """
import httpx
from forbear import retry_sync, RetriesExhausted
request = httpx.Request("POST", "http://service.test/", headers={"x-stainless-retry-count": "2"})
error = httpx.HTTPStatusError("x", request=request, response=httpx.Response(503, request=request))
def ask():
    raise error
for _ in range(20):
    try:
        retry_sync(ask, max_attempts=3, backoff=[0.0])
    except RetriesExhausted:
        pass
"""


def test_a_program_sees_it_once_however_often_it_happens() -> None:
    """With the filters of a program, and not with those of this suite."""
    ran = subprocess.run([sys.executable, "-c", SHOWS], capture_output=True, text=True, check=True)
    assert ran.stderr.count("NestedRetriesWarning") == 1, ran.stderr


# ---- a warning that is made an error ---------------------------------------------------------------------------------


def test_as_an_error_it_ends_the_call_and_gives_everything_back(form: Form) -> None:
    upstream = Upstream("service", max_concurrency=4)
    fn = Flaky(then=counted(2))
    with FakeTime(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NestedRetriesWarning, match="make up to 9"):
            form(fn, max_attempts=3, upstream=upstream)
    assert fn.calls == 1
    assert (upstream.snapshot().in_flight, upstream.snapshot().waiting) == (0, 0)


def test_as_an_error_it_gives_back_the_place_of_a_block_whose_attempt_is_still_known() -> None:
    upstream = Upstream("service", max_concurrency=4)
    with FakeTime(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NestedRetriesWarning):  # the loop is the form
            for attempt in attempts(max_attempts=3, upstream=upstream):
                with attempt:
                    raise counted(2)
        assert upstream.snapshot().in_flight == 0, attempt


def test_silenced_it_changes_nothing(form: Form) -> None:
    with FakeTime(), warnings.catch_warnings():
        warnings.simplefilter("ignore", NestedRetriesWarning)
        fn = Flaky(then=counted(2))
        with pytest.raises(RetriesExhausted):
            form(fn, max_attempts=3)
        assert fn.calls == 3


async def test_it_is_said_in_async_code_too() -> None:
    @llm_retry(max_attempts=2, backoff=[0.0])
    async def ask() -> None:
        raise counted(2)

    text = "ask: the client made 3 requests in one attempt, so 2 attempts make up to 6"
    with pytest.warns(NestedRetriesWarning, match=text), pytest.raises(httpx.HTTPStatusError):
        await ask()


# ---- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [counted(0), lost(0), ConnectionError()])
def test_an_error_is_looked_at_in_microseconds(error: Exception) -> None:
    best = 1.0
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(1000):
            warn_if_nested("name", error, 3)
        best = min(best, (time.perf_counter() - began) / 1000)
    assert best < 50e-6  # about 2


# ---- a real library --------------------------------------------------------------------------------------------------


def test_boto3_tells_how_often_it_has_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    boto3 = pytest.importorskip("boto3")
    config = pytest.importorskip("botocore.config")
    from loopback import Reply, Server  # noqa: PLC0415  # for this test only

    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None, time=time.time))
    options = config.Config(retries={"total_max_attempts": 3, "mode": "standard"})
    with Server(Reply(500, (), {"message": "x"})) as server:
        session = boto3.Session("k", "s", region_name="us-east-1")
        service = session.client("bedrock-runtime", endpoint_url=server.url, config=options)

        @retry(max_attempts=2, backoff=[0.0], reraise=True)
        def ask() -> Any:
            return service.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "x"}]}])

        told = told_by(ask, pytest.importorskip("botocore.exceptions").ClientError)
        service.close()
        assert len(server.requests) == 6
    assert told
    assert all("the client made 3 requests in one attempt, so 2 attempts make up to 6" in text for text in told)
