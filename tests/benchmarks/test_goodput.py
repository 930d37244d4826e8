"""The fault traces run from one command, give figures that make sense, and the same ones each time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACES = ("quota", "nesting", "outage")
COMPETITORS = ("no retry", "loop by hand", "SDK built-in", "forbear, no Upstream")


def goodput(*options, hash_seed="0"):
    command = [sys.executable, "benchmarks/goodput", "--quick", *options]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def chosen(traces, competitors):
    return [word for name in traces for word in ("--trace", name)] + [
        word for name in competitors for word in ("--competitor", name)
    ]


SMALL = chosen(TRACES, COMPETITORS)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What the traces print, and their figures by trace and competitor."""
    folder = tmp_path_factory.mktemp("goodput")
    printed = goodput(*SMALL, "--jobs", "1", "--json", str(folder / "figures.json"), "--svg", str(folder))
    return printed, figures_in(folder / "figures.json"), folder


def figures_in(file):
    found = json.loads(file.read_text("utf-8"))
    return {(each["trace"], each["competitor"]): each["figures"] for each in found["results"]}


def test_the_tables_name_versions_traces_and_competitors(run):
    printed, _, _ = run
    assert printed.startswith("python ")
    for words in ("Outage:", "Quota:", "Nesting:", *COMPETITORS):
        assert words in printed


def test_a_spent_quota_costs_forbear_one_request_and_a_plain_loop_all_it_has(run):
    _, figures, _ = run
    assert figures["quota", "no retry"]["requests"] == 1
    assert figures["quota", "loop by hand"]["requests"] == 5
    assert figures["quota", "SDK built-in"]["requests"] == 3
    assert figures["quota", "forbear, no Upstream"]["requests"] == 1
    assert figures["quota", "forbear, no Upstream"]["wasted"] == pytest.approx(0.05)


def test_three_layers_of_three_attempts_multiply_except_in_forbear(run):
    _, figures, _ = run
    assert figures["nesting", "loop by hand"]["requests"] == 27
    assert figures["nesting", "forbear, no Upstream"]["requests"] == 3


def test_an_outage_fails_those_who_do_not_wait_and_passes_for_those_who_do(run):
    _, figures, _ = run
    assert figures["outage", "no retry"]["succeeded"] == 0
    assert figures["outage", "no retry"]["done"] < 0.2
    alone = figures["outage", "forbear, no Upstream"]
    assert alone["succeeded"] == 1
    assert alone["requests"] > 2
    assert 3 < alone["done"] < 60


def test_the_event_loop_gives_the_figures_of_the_plain_reference(tmp_path):
    file = tmp_path / "figures.json"
    goodput(*chosen(["metastable"], ["no retry", "reference: no retry"]), "--jobs", "1", "--json", str(file))
    figures = figures_in(file)
    assert figures["metastable", "no retry"] == figures["metastable", "reference: no retry"]
    assert 30 < figures["metastable", "no retry"]["recovery 140"] < 45


def test_the_same_seed_gives_the_same_figures_whatever_the_hash_and_the_processes(run):
    printed, _, _ = run
    assert goodput(*SMALL, "--jobs", "2", hash_seed="1") == printed


def test_another_seed_gives_other_figures(run):
    _, figures, folder = run
    goodput(*SMALL, "--jobs", "1", "--seeds", "2", "--json", str(folder / "two.json"))
    assert figures_in(folder / "two.json")["outage", "loop by hand"] != figures["outage", "loop by hand"]


def test_pictures_are_drawn_for_light_and_dark(run):
    _, _, folder = run
    picture = (folder / "outage.svg").read_text("utf-8")
    assert picture.startswith("<svg ")
    assert "prefers-color-scheme: dark" in picture
    assert "forbear, no Upstream" in picture
