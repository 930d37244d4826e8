"""R056: a key that is made anew for each attempt protects nothing; one call has one key, in every attempt and copy."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import httpx
import pytest

from forbear import ApiError, RetriesExhausted, Upstream, current_attempt, hedge, retry
from forbear.integrations.httpx import AsyncTransport, Transport
from forbear.testing import FakeTime
from foreign import Thing, foreign
from forms import async_version


def stripes() -> Exception:
    body = {"error": {"code": "idempotency_key_in_use"}}
    kind = foreign("InvalidRequestError", "stripe")
    return kind(http_status=409, code="idempotency_key_in_use", headers={}, json_body=body)  # type: ignore[no-any-return]


CONFLICTS: dict[str, Any] = {
    "of ours": lambda: ApiError(409, "still in progress"),
    "with a pause": lambda: ApiError(409, "still in progress", retry_after=1.0),
    "of Stripe": stripes,
    "of a client": lambda: foreign("ConflictError", "openai")(
        status_code=409, response=Thing(status_code=409, headers={}), body=None
    ),
}


class Payments:
    """Creates a payment for each key it has not seen; while one is under way, the same key is a conflict."""

    def __init__(self, *timeouts: float, conflict: Exception | None = None) -> None:
        self.timeouts = timeouts
        self.conflict = conflict or stripes()
        self.keys: list[str] = []
        self.created: dict[str, int] = {}
        self.under_way: set[str] = set()
        self.conflicts = 0

    async def post(self, seconds: float = 0.0) -> int:
        attempt = current_attempt()
        assert attempt is not None
        key, number = attempt.idempotency_key, len(self.keys)
        self.keys.append(key)
        if key in self.under_way:
            self.conflicts += 1
            raise self.conflict
        self.under_way.add(key)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.under_way.discard(key)
        created = self.created.setdefault(key, len(self.created) + 1)
        if number < len(self.timeouts):
            await asyncio.sleep(self.timeouts[number])  # it was done, but nobody learns of it
        return created


async def test_a_post_that_times_out_twice_is_done_once(async_form: Any) -> None:
    made: list[str] = []

    class Uncounted(Payments):
        async def post(self, seconds: float = 0.0) -> int:
            attempt = current_attempt()
            assert attempt is not None
            made.append(attempt.idempotency_key)
            return await super().post(seconds)

    payments = Uncounted(60, 60)
    with FakeTime():
        assert await async_form(async_version(payments.post), attempt_timeout=2.0) == 1
    assert len(payments.keys) == 3
    assert len(set(payments.keys) | set(made)) == 1
    assert len(payments.created) == 1


async def test_a_maker_of_keys_is_asked_once_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    makes: list[uuid.UUID] = []
    real = uuid.uuid4

    def counted() -> uuid.UUID:
        makes.append(real())
        return makes[-1]

    monkeypatch.setattr(uuid, "uuid4", counted)
    payments = Payments(60, 60)
    with FakeTime():
        await retry(payments.post, attempt_timeout=2.0)
        assert len(makes) == 1
        await hedge(lambda: payments.post(1.0), delay=0.2, max_copies=4, max_attempts=4)
        assert len(makes) == 2


async def test_a_new_call_has_a_new_key() -> None:
    payments = Payments()
    with FakeTime():
        assert [await retry(payments.post), await retry(payments.post), await hedge(payments.post, delay=1)] == [
            1,
            2,
            3,
        ]
    assert len(set(payments.keys)) == 3


async def test_hedged_copies_share_it_so_that_the_payment_is_made_once() -> None:
    payments = Payments(60)
    with FakeTime() as clock:
        assert await hedge(payments.post, delay=0.2) == 1
        assert clock.now == pytest.approx(0.2)
    assert len(payments.keys) == 2
    assert (len(set(payments.keys)), len(payments.created)) == (1, 1)


@pytest.mark.parametrize("conflict", CONFLICTS)
@pytest.mark.parametrize("copies", [2, 3])
async def test_a_conflict_with_a_copy_that_is_still_under_way_is_not_the_end(conflict: str, copies: int) -> None:
    payments, upstream = Payments(conflict=CONFLICTS[conflict]()), Upstream("payments")
    with FakeTime() as clock:
        assert await upstream.hedge(lambda: payments.post(1.0), delay=0.2, max_copies=copies) == 1
        assert clock.now == pytest.approx(1.0)
        assert upstream.snapshot().in_flight == 0
    assert payments.conflicts >= 1
    assert (len(set(payments.keys)), len(payments.created)) == (1, 1)


async def test_where_the_one_under_way_fails_the_next_attempt_fetches_its_outcome() -> None:
    payments = Payments()

    async def post() -> int:
        attempt = current_attempt()
        assert attempt is not None
        created = await payments.post(1.0 if attempt.number == 1 else 0.0)
        if attempt.number == 1:
            raise ConnectionResetError  # the answer is lost
        return created

    with FakeTime():
        assert await hedge(post, delay=0.2) == 1
    assert (len(payments.keys), payments.conflicts) == (3, 1)
    assert (len(set(payments.keys)), len(payments.created)) == (1, 1)


async def test_where_nothing_but_conflicts_comes_the_conflict_is_told() -> None:
    error = stripes()

    async def post() -> None:
        raise error

    with FakeTime(), pytest.raises(RetriesExhausted) as caught:
        await hedge(post, delay=0.2)
    assert caught.value.last_error is error


# ---- by HTTP -----------------------------------------------------------------------------------------------------


class Shop:
    """A server that creates a payment for each key it has not seen. Of the first requests some are never answered, or
    say that the first one with their key is still in progress.
    """

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.keys: list[str] = []
        self.created: dict[str, int] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        key = request.headers["Idempotency-Key"]
        self.keys.append(key)
        answer = self.answers.pop(0) if self.answers else "done"
        if answer == "in progress":
            return httpx.Response(409, json={"error": "a request with this key is in progress"})
        created = self.created.setdefault(key, len(self.created) + 1)
        if answer == "lost":
            raise httpx.ReadTimeout("the payment was made, but nobody learns of it", request=request)
        return httpx.Response(201, json={"payment": created})


class Clerk:
    """A client that pays, blocking or not."""

    def __init__(self, kind: str, shop: Shop, **options: Any) -> None:
        inner = httpx.MockTransport(shop)
        self.blocking = kind == "blocking"
        self.http: Any = (
            httpx.Client(transport=Transport(inner, **options), trust_env=False)
            if self.blocking
            else httpx.AsyncClient(transport=AsyncTransport(inner, **options), trust_env=False)
        )

    async def pay(self, **options: Any) -> int:
        response = self.http.post("https://api.example/payments", json={"amount": 17}, **options)
        response = response if self.blocking else await response
        return int(response.raise_for_status().json()["payment"])


@pytest.mark.parametrize("kind", ["blocking", "async"])
async def test_a_post_by_http_that_times_out_twice_is_done_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    makes: list[uuid.UUID] = []
    real = uuid.uuid4

    def counted() -> uuid.UUID:
        makes.append(real())
        return makes[-1]

    monkeypatch.setattr(uuid, "uuid4", counted)
    shop = Shop("lost", "lost")
    clerk = Clerk(kind, shop, idempotency_key=True)
    with FakeTime():
        assert await clerk.pay() == 1
        assert (len(shop.keys), len(set(shop.keys)), len(makes)) == (3, 1, 1)
        assert await clerk.pay() == 2
        assert (len(set(shop.keys)), len(makes)) == (2, 2)


@pytest.mark.parametrize("kind", ["blocking", "async"])
async def test_a_conflict_by_http_with_the_lost_first_one_is_not_the_end(kind: str) -> None:
    shop = Shop("lost", "in progress", "in progress")
    with FakeTime() as clock:
        assert await Clerk(kind, shop, idempotency_key=True).pay() == 1
        assert len(clock.sleeps) == 3
    assert (len(shop.keys), len(set(shop.keys)), len(shop.created)) == (4, 1, 1)


@pytest.mark.parametrize("kind", ["blocking", "async"])
async def test_a_key_of_the_callers_is_the_only_one(kind: str) -> None:
    shop = Shop("lost", "lost")
    with FakeTime():
        for options in ({}, {"idempotency_key": True}):
            assert await Clerk(kind, shop, **options).pay(headers={"Idempotency-Key": "order 17"}) == 1
    assert set(shop.keys) == {"order 17"}


async def test_copies_of_a_request_within_one_hedged_call_share_its_key() -> None:
    sent: list[str] = []
    shop = Shop()

    async def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["Idempotency-Key"])
        if len(sent) == 1:
            await asyncio.sleep(60)
        return shop(request)

    client = httpx.AsyncClient(transport=httpx.MockTransport(handler), trust_env=False)

    async def pay() -> int:
        attempt = current_attempt()
        assert attempt is not None
        response = await client.post("https://api.example/pay", headers={"Idempotency-Key": attempt.idempotency_key})
        return int(response.json()["payment"])

    with FakeTime():
        assert await hedge(pay, delay=0.2) == 1
    assert (len(sent), len(set(sent)), len(shop.created)) == (2, 1, 1)
