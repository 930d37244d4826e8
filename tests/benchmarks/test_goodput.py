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


BY_DEFAULT = "forbear, 5 % learned"
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


HEDGING = ("slow-tail", "tail-shares", "hedge-trigger", "fan-out", "correlated", "slowdown", "hedge-stack")
HEDGED = (
    "no retry",
    "forbear + hedge",
    "reference: no hedge",
    "reference: hedge at p95",
    "reference: hedge after 10 ms",
    "forbear, 5 % learned",
    "forbear, delay 10 ms",
    "forbear.hedge()",
    "Upstream.hedge()",
)


@pytest.fixture(scope="module")
def hedged(tmp_path_factory):
    """What the hedging traces print, and their figures by trace and competitor."""
    file = tmp_path_factory.mktemp("hedging") / "figures.json"
    printed = goodput(*chosen(HEDGING, HEDGED), "--jobs", "1", "--json", str(file))
    return printed, figures_in(file)


def test_a_hedge_takes_the_slow_tail_away_for_few_more_requests(hedged):
    _, figures = hedged
    alone, with_hedge = figures["slow-tail", "no retry"], figures["slow-tail", "forbear + hedge"]
    assert (alone["p99"], alone["extra"]) == (pytest.approx(2.0), 0)
    assert with_hedge["p99"] <= 0.2
    assert 0.02 < with_hedge["extra"] <= 0.06
    assert figures["tail-shares", "forbear + hedge"]["p99 0.02"] <= 0.2


def test_the_reference_gives_the_published_figures_and_the_learned_delay_comes_near_them(hedged):
    _, figures = hedged
    reference, learned = figures["hedge-trigger", "reference: hedge at p95"], figures["hedge-trigger", BY_DEFAULT]
    assert reference["p99"] == pytest.approx(0.262, rel=0.05)
    assert reference["p999"] == pytest.approx(0.346, rel=0.1)
    assert reference["extra"] == 0.05
    assert learned["divided"] >= 6
    assert 0.04 < learned["extra"] <= 0.05 + 10 / 20_000
    assert figures["hedge-trigger", "reference: no hedge"]["divided"] == 1


def test_an_answer_of_a_hundred_leaves_gains_most(hedged):
    _, figures = hedged
    fan_out = figures["fan-out", "forbear, delay 10 ms"]
    assert fan_out == pytest.approx(figures["fan-out", "reference: hedge after 10 ms"])
    assert fan_out["divided"] >= 20
    assert 0.0005 < fan_out["extra"] < 0.003


def test_stalls_that_the_copy_meets_again_defeat_hedging_but_make_nothing_worse(hedged):
    _, figures = hedged
    found = figures["correlated", BY_DEFAULT]
    assert found["worse 0"] < 0.2 < 0.5 < found["worse 0.5"] < found["worse 1"] <= 1
    assert all(found[f"extra {share}"] <= 0.0505 for share in ("0", "0.5", "1"))


def test_a_service_that_gets_slow_gets_no_more_copies_than_before(hedged):
    _, figures = hedged
    assert figures["slowdown", BY_DEFAULT]["beyond"] <= 30
    assert figures["slowdown", BY_DEFAULT]["worse"] <= 1
    assert figures["slowdown", "reference: hedge at p95"]["extra"] > 0.9


@pytest.mark.parametrize("form", ["forbear.hedge()", "Upstream.hedge()"])
def test_the_core_alone_and_all_of_forbear_send_the_same_copies(hedged, form):
    _, figures = hedged
    found = figures["hedge-stack", form]
    assert found["copies"] == 0
    assert found["differs"] < 1e-6
    assert found["extra"] > 0.03


def test_what_was_published_stands_beside_whole_traces_only(hedged):
    printed, _ = hedged
    assert "here with calls=20000" in printed
    assert "as published" not in printed


def test_pictures_are_drawn_for_light_and_dark(run):
    _, _, folder = run
    picture = (folder / "outage.svg").read_text("utf-8")
    assert picture.startswith("<svg ")
    assert "prefers-color-scheme: dark" in picture
    assert "forbear, no Upstream" in picture
