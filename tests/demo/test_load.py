"""The contenders and their measurement, against a real server of which only the answers are chosen."""

import asyncio
import time

import httpx
import pytest

from forbear import RetriesExhausted
from forbear.demo import load
from forbear.demo.load import Contender, Lateness, Outcome, Tally, client_for, contenders, make_calls
from forbear.demo.script import Answer, Kind
from forbear.demo.server import App, serving

NAIVE, PATIENT = contenders(seed=7)


def failing_first(failures: int, kind: Kind) -> App:
    left = iter([kind] * failures)
    return App(lambda _call, _elapsed: Answer(next(left, Kind.OK), 0.5))


def of(call: load.Call, calls: int = 1) -> Tally:
    return Tally(Contender(name="one", call=call, allowed=""), calls)


async def attempted(contender: Contender, app: App) -> int:
    """Makes one call of the app; the status of its answer."""
    async with serving(app.respond) as port, client_for(f"http://127.0.0.1:{port}") as client:
        return (await contender.call(client, "/items/1")).status_code


@pytest.mark.parametrize("contender", [NAIVE, PATIENT], ids=lambda contender: contender.name)
async def test_both_contenders_get_through_a_passing_failure(contender: Contender):
    kinds = (Kind.UNAVAILABLE, Kind.RESET, Kind.LIMITED_SECONDS, Kind.LIMITED_DATE)
    apps = [failing_first(1, kind) for kind in kinds]
    assert await asyncio.gather(*(attempted(contender, app) for app in apps)) == [200] * 4
    assert [app.state()["requests"] for app in apps] == [2] * 4
    # Forbear comes back when it was asked to; the naive loop twice before.
    assert sum(app.state()["too_early"] for app in apps) == (0 if contender is PATIENT else 2)


async def test_both_contenders_give_up_on_an_outage_that_lasts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(load, "BASE", 0.01)
    app = failing_first(99, Kind.UNAVAILABLE)
    async with serving(app.respond) as port, client_for(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(httpx.HTTPStatusError):
            await load.naive(client, "/items/1")
        with pytest.raises(RetriesExhausted):
            await load.patient(7)(client, "/items/1")
    assert app.state()["requests"] == load.NAIVE_ATTEMPTS + load.FORBEAR_ATTEMPTS


async def test_a_call_counts_as_succeeded_only_with_a_200():
    async def answered(status: int) -> httpx.Response:
        return httpx.Response(status)

    good, odd = of(lambda _client, _path: answered(200)), of(lambda _client, _path: answered(204))
    async with client_for("http://127.0.0.1:1") as client:
        await good.measure(client, "/items/1")
        await odd.measure(client, "/items/1")
    assert (good.succeeded, odd.succeeded) == (1, 0)
    assert odd.outcomes[0].error == "status 204"


async def test_a_call_that_raises_is_measured_with_the_class_of_its_error():
    async with client_for("http://127.0.0.1:1") as client:
        tally = of(lambda client, path: client.get(path))
        await tally.measure(client, "/items/1")
    assert [outcome.error for outcome in tally.outcomes] == ["ConnectError"]


async def test_calls_arrive_evenly_whether_or_not_earlier_ones_have_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load, "ARRIVE_OVER", 0.4)
    arrived: list[float] = []
    all_there = asyncio.Event()

    async def call(_client: httpx.AsyncClient, _path: str) -> httpx.Response:
        arrived.append(asyncio.get_running_loop().time())
        if len(arrived) == 4:
            all_there.set()
        await all_there.wait()
        return httpx.Response(200)

    async with client_for("http://127.0.0.1:1") as client:
        tally = of(call, calls=4)
        await make_calls([tally], [client])
    assert tally.succeeded == 4
    assert arrived[3] - arrived[0] >= 0.25


async def test_who_still_waits_at_the_end_of_the_demo_is_counted_as_failed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load, "ARRIVE_OVER", 0.1)
    monkeypatch.setattr(load, "CUT_AFTER", 0.3)

    async def for_ever(_client: httpx.AsyncClient, _path: str) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with client_for("http://127.0.0.1:1") as client:
        tally = of(for_ever, calls=2)
        await make_calls([tally], [client])
    assert [outcome.error for outcome in tally.outcomes] == ["cut off by the end of the demo"] * 2


async def test_a_busy_process_finds_out_that_its_timers_are_late():
    lateness = Lateness()
    task = asyncio.create_task(lateness.watch())
    await asyncio.sleep(0)
    time.sleep(0.3)
    await asyncio.sleep(0.1)
    task.cancel()
    assert lateness.worst >= 0.2


def test_an_outcome_without_an_error_is_a_success():
    tally = of(load.naive, calls=3)
    tally.outcomes = [Outcome(elapsed=1.0, error=None), Outcome(elapsed=1.0, error="ReadError")]
    assert tally.succeeded == 1
