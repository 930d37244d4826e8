"""The demo as a whole, in real time."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from forbear.demo import load, run
from forbear.demo.script import Kind, Script

DEMO = [sys.executable, "-c", "import sys; from forbear.cli import main; sys.exit(main())", "demo"]


def seed_without_trouble(calls: int) -> int:
    """A seed by which the first request of each call is answered at once: such a run is short."""

    def fine(seed: int) -> bool:
        script = Script(seed, calls)
        return all(script.answer(f"/items/{number}", 0.0).kind is Kind.OK for number in range(calls))

    return next(filter(fine, range(1000)))


@pytest.fixture(scope="module", autouse=True)
def real_run() -> Iterator[subprocess.Popen[str]]:
    """A small run of the default scenario; it goes on while the shorter tests are made."""
    with subprocess.Popen(
        [*DEMO, "--calls", "40", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        yield demo


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (load, run):
        monkeypatch.setattr(room, "ARRIVE_OVER", 0.6)


@pytest.mark.usefixtures("short")
def test_a_run_for_people_ends_in_the_table_and_the_sentence(capsys: pytest.CaptureFixture[str]):
    assert run.run(calls=4, seed=seed_without_trouble(4), as_json=False) == 0
    shown = capsys.readouterr().out
    for part in ("4 calls each over 0.6 s", "server: everyday", "4 of 4", "requests sent per call", "In this run "):
        assert part in shown
    assert "\x1b" not in shown


@pytest.mark.usefixtures("short")
def test_json_is_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str]):
    seed = seed_without_trouble(4)
    assert run.run(calls=4, seed=seed, as_json=True) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["seed"] == seed
    assert {"forbear", "httpx", "python"} == set(report["versions"])
    assert [each["requests"] for each in report["contenders"].values()] == [4, 4]


@pytest.mark.usefixtures("short")
def test_a_busy_machine_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(run, "LATE", -1.0)
    run.run(calls=1, seed=seed_without_trouble(1), as_json=False)
    assert "This machine was busy" in capsys.readouterr().out


def test_a_server_that_does_not_start_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "executable", "true")
    assert run.run(calls=1, seed=7, as_json=False) == 1
    assert "forbear demo: the demo's API did not start" in capsys.readouterr().err


async def test_what_goes_wrong_beside_the_block_is_raised_after_it():
    async def broken() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        async with run.beside(broken()):
            await asyncio.sleep(0)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups of this kind")
def test_ctrl_c_ends_everything_with_130_and_no_traceback():
    demo = subprocess.Popen(
        [*DEMO, "--calls", "40"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background has made them, and so this process, deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # the tests have no threads here
    )
    with demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        while "server:" not in demo.stdout.readline():
            pass
        os.killpg(demo.pid, signal.SIGINT)
        errors = demo.stderr.read()  # ends only when the server, which shares it, has gone too
        assert demo.wait(10) == 130
    assert errors == "stopped\n"


def test_a_run_in_json_adds_up_and_forbear_keeps_its_deadline(real_run: subprocess.Popen[str]):
    printed, errors = real_run.communicate(timeout=60)
    assert (real_run.returncode, errors) == (0, "")
    report = json.loads(printed)
    assert report["took"] < 30 + report["timers_late"]
    assert (report["seed"], report["calls"], report["deadline"]) == (7, 40, 6.0)
    assert list(report["contenders"]) == ["naive loop", "forbear"]
    for each in report["contenders"].values():
        assert each["calls"] == 40
        assert each["succeeded"] + sum(each["errors"].values()) == 40
        assert each["in_time"] <= each["succeeded"]
        assert each["requests"] == sum(each["answers"].values()) >= 40
        assert each["requests_per_call"] == pytest.approx(each["requests"] / 40)
        assert each["succeeded"] <= sum(each["answers"].get(kind, 0) for kind in (Kind.OK, Kind.SLOW, Kind.DRIP))
        assert 0 < each["p50"] <= each["p99"]
        assert each["worst_over"] <= each["over"]
        assert each["answers"]["503"] > 0
    assert report["contenders"]["forbear"]["worst_over"] <= 0.25 + report["timers_late"]
    assert report["verdict"].startswith("In this run ")
