"""R030: where a failure is not retried because repeating might do harm, an event says so instead of silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forbear import ApiError, classify
from forbear.integrations.httpx import AsyncTransport, Transport
from forbear.testing import FakeTime, Flaky, record_events
from foreign import WebError, answer

Form = Callable[..., Any]

MAYBE_DONE: list[Exception] = [
    answer(503), answer(500), answer(504), answer(408), TimeoutError(), ConnectionResetError(), ApiError(502),
]  # fmt: skip
NOT_DONE: list[Exception] = [
    answer(429), answer(503, {"Retry-After": "1"}), ConnectionRefusedError(), ApiError(429, retry_after=1),
]  # fmt: skip


def test_what_may_have_been_done_is_not_repeated_and_the_event_says_why(form: Form) -> None:
    for error in MAYBE_DONE:
        fn = Flaky(error, then="done")
        with FakeTime() as clock, record_events() as events:
            with pytest.raises(type(error)) as caught:
                form(fn, idempotent=False)
            assert clock.now == 0.0
        assert (caught.value, fn.calls) == (error, 1)
        assert [(end.reason, end.attempts) for end in events.ends] == [("unsafe", 1)]
        assert events.waits == []


def test_a_log_line_says_so_too(form: Form, caplog: pytest.LogCaptureFixture) -> None:
    for error in MAYBE_DONE:
        caplog.clear()
        with FakeTime(), pytest.raises(type(error)):
            form(Flaky(error), idempotent=False)
        [line] = [record.getMessage() for record in caplog.records]
        assert "not retried" in line
        assert "idempotent=False" in line
        assert str(error) not in line or not str(error)


def test_what_was_surely_not_done_is_repeated(form: Form) -> None:
    for error in NOT_DONE:
        fn = Flaky(error, then="done")
        with FakeTime(), record_events() as events:
            assert form(fn, idempotent=False) == "done"
        assert fn.calls == 2
        assert [end.reason for end in events.ends] == ["success"]


def test_a_call_that_may_be_repeated_is_repeated(form: Form) -> None:
    for error in MAYBE_DONE + NOT_DONE:
        fn = Flaky(error, then="done")
        with FakeTime():
            assert form(fn) == form(lambda: "done") == "done"
        assert fn.calls == 2


def test_the_verdict_can_be_asked_for(form: Form) -> None:
    for error in MAYBE_DONE:
        failure = classify(error, idempotent=False)
        assert (failure.transient, failure.safe_to_retry, failure.executed) == (True, False, "maybe")


def test_a_rule_of_the_callers_own_makes_nothing_safe(form: Form) -> None:
    fn = Flaky(WebError(), then="done")
    with FakeTime(), record_events() as events, pytest.raises(WebError):
        form(fn, idempotent=False, retryable=WebError)
    assert fn.calls == 1
    assert [end.reason for end in events.ends] == ["unsafe"]


# ---- as it was reported: a POST by HTTP --------------------------------------------------------------------------


async def post(kind: str, answers: list[Any], headers: dict[str, str] | None = None, **options: Any) -> httpx.Response:
    """The response to one POST; each request takes the next answer."""

    def handler(request: httpx.Request) -> httpx.Response:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer, text="an answer")

    inner, url = httpx.MockTransport(handler), "https://api.example/orders?token=hunter2"
    if kind == "blocking":
        return httpx.Client(transport=Transport(inner, **options), trust_env=False).post(url, headers=headers)
    client = httpx.AsyncClient(transport=AsyncTransport(inner, **options), trust_env=False)
    return await client.post(url, headers=headers)


@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize("failure", [503, 500, httpx.ReadTimeout("late"), httpx.ReadError("reset")])
async def test_a_post_that_is_not_sent_again_is_not_a_silent_one(
    kind: str, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [failure, 200]
    with FakeTime() as clock, record_events() as events:
        if isinstance(failure, int):
            assert (await post(kind, answers)).status_code == failure
        else:
            with pytest.raises(type(failure)):
                await post(kind, answers)
        assert clock.now == 0.0
    assert answers == [200]
    ours = [end for end in events.ends if end.call.startswith("POST")]  # others' forgotten coroutines may end meanwhile
    assert [(end.call, end.reason) for end in ours] == [("POST https://api.example", "unsafe")]
    [line] = [record.getMessage() for record in caplog.records if record.name == "forbear"]
    assert "POST https://api.example not retried" in line
    assert "not repeatable" in line
    assert "idempotency_key=True" in line  # what to do instead
    assert "hunter2" not in line


@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize(
    "options", [{"idempotency_key": True}, {"headers": {"Idempotency-Key": "order 17"}}, {"idempotent": True}]
)
async def test_under_a_stated_rule_it_is_sent_again(kind: str, options: dict[str, Any]) -> None:
    answers = [503, httpx.ReadTimeout("late"), 200]
    with FakeTime(), record_events() as events:
        assert (await post(kind, answers, **options)).status_code == 200
    assert answers == []
    assert [(end.reason, end.attempts) for end in events.ends] == [("success", 3)]


@pytest.mark.parametrize("kind", ["blocking", "async"])
@pytest.mark.parametrize("failure", [429, httpx.ConnectError("refused")])
async def test_so_it_is_where_nothing_was_done(kind: str, failure: Any) -> None:
    answers = [failure, 200]
    with FakeTime():
        assert (await post(kind, answers)).status_code == 200
    assert answers == []
