"""What is known about providers, as data: complete, without contradictions, and all of it within reach."""

from __future__ import annotations

import importlib
import itertools
import json
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from forbear.classify import providers
from forbear.classify.facts import Facts
from forbear.classify.providers import ALL, disputed, transports
from forbear.classify.rules import Rule, RuleBook
from forbear.core.failure import PERMITS, Kind
from foreign import foreign

BOOK = RuleBook(ALL)
PACKAGE = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")
CODE = re.compile(r"[a-z0-9_][a-z0-9_. ]*")


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(providers.__path__):
        yield importlib.import_module(f"{providers.__name__}.{found.name}")


def meetings(rule: Rule) -> Iterator[Facts]:
    """Errors that have just what a rule names, one for each way to meet it."""
    ways = (rule.codes or {""}, rule.statuses or {None}, rule.classes or {f"{rule.provider or 'acme'}.Error"})
    for code, status, name in itertools.product(*ways):
        package, _, class_name = name.rpartition(".")
        for text in rule.texts or ("",):
            error = foreign(class_name, f"{package}.errors")(
                code=code or None, status_code=status, message=f"sorry: {text}!",
                retry_after=1.0 if rule.hinted else None, litellm_response_headers={"a": "b"},
            )  # fmt: skip
            yield Facts(error, 0.0)


# ---- rules -------------------------------------------------------------------------------------------------------


def test_the_book_has_the_rules_of_every_file() -> None:
    found = [rule for module in modules() for rule in getattr(module, "RULES", ())]
    assert Counter(found) == Counter(ALL)
    without = [module.__name__ for module in modules() if not hasattr(module, "RULES")]
    assert without == [disputed.__name__, transports.__name__]


def test_every_rule_says_where_it_is_written_down() -> None:
    assert [str(rule) for rule in ALL if len(rule.source) < 10 or rule.source != rule.source.strip()] == []


def test_what_a_rule_names_is_written_as_facts_are() -> None:
    for rule in ALL:
        assert all(CODE.fullmatch(code) for code in rule.codes), rule
        assert all(400 <= status <= 599 for status in rule.statuses), rule
        assert all(text.strip() and text == text.lower() for text in rule.texts), rule
        assert not rule.provider or PACKAGE.fullmatch(rule.provider), rule
        assert all(name.partition(".")[0] == rule.provider.partition(".")[0] for name in rule.classes), rule
        assert {type(rule.codes), type(rule.statuses), type(rule.classes)} == {frozenset}, rule
        assert type(rule.texts) is tuple, rule


def test_the_kind_of_a_rule_exists_and_is_one_that_a_server_can_cause() -> None:
    ours = {Kind.UNKNOWN, Kind.GAVE_UP, Kind.REJECTED_RESULT}
    assert {rule.kind for rule in ALL} <= PERMITS.keys() - ours
    assert set(Kind) == PERMITS.keys()


def test_a_rule_says_only_where_it_differs_from_what_its_kind_permits() -> None:
    assert [str(rule) for rule in ALL if rule.transient is PERMITS[rule.kind].transient] == []


def test_a_rule_for_streams_names_no_status() -> None:
    assert [str(rule) for rule in ALL if rule.streaming and rule.statuses] == []


def test_no_two_rules_name_the_same() -> None:
    named = Counter(str(rule) for rule in ALL)
    assert [what for what, count in named.items() if count > 1] == []
    assert len({replace(rule, source="") for rule in ALL}) == len(ALL)


def test_no_code_means_two_things_of_which_chance_decides() -> None:
    ranked: dict[tuple[str, int, str, frozenset[int]], set[tuple[Kind, bool]]] = {}
    for rule in ALL:
        for code in rule.codes:
            met = (code, rule.rank | 1, rule.provider, rule.statuses)
            ranked.setdefault(met, set()).add((rule.kind, rule.passes))
    assert {met: meanings for met, meanings in ranked.items() if len(meanings) > 1} == {}


@pytest.mark.parametrize("rule", ALL, ids=str)
def test_every_rule_is_within_reach_in_every_way_that_it_names(rule: Rule) -> None:
    found = [BOOK.find(facts) for facts in meetings(rule)]
    assert rule in found
    for other in found:
        assert other is not None
        assert (other.kind, other.passes, other.done) == (rule.kind, rule.passes, rule.done), str(other)


def test_the_codes_of_rules_are_no_statuses() -> None:
    statuses = [code for rule in ALL for code in rule.codes if code.isdigit() and 400 <= int(code) <= 599]
    assert statuses == []


# ---- classes of network failures ---------------------------------------------------------------------------------


def test_a_row_names_packages_and_classes_of_a_kind_that_exists() -> None:
    for row in transports.ROWS:
        assert row.kind in PERMITS, row
        assert row.packages, row
        assert row.classes, row
        assert all(PACKAGE.fullmatch(package) and "." not in package for package in row.packages), row
        assert all(re.fullmatch(r"[A-Za-z]+", name) for name in row.classes), row
        assert row.executed is None or row.executed != PERMITS[row.kind].executed, row


def test_no_class_means_two_things() -> None:
    named = Counter((package, name) for row in transports.ROWS for package in row.packages for name in row.classes)
    assert [what for what, count in named.items() if count > 1] == []


# ---- disputed cases ----------------------------------------------------------------------------------------------


def test_every_disputed_case_is_decided_and_no_other() -> None:
    """What is chosen is tested on the real errors, in tests/sdk; that needs the libraries, this does not."""
    cases = json.loads((Path(__file__).parents[1] / "sdk" / "cases.json").read_text(encoding="utf-8"))["cases"]
    found = [one["id"] for one in cases if one.get("disputed")]
    assert sorted(choice.case for choice in disputed.CHOICES) == sorted(found)
    otherwise = {one["id"] for one in cases for choice in disputed.CHOICES
                 if choice.case == one["id"] and choice.retried != one["retryable"]}  # fmt: skip
    assert otherwise == {"openai.200.bad-json"}


@pytest.mark.parametrize("choice", disputed.CHOICES, ids=lambda choice: choice.case)
def test_a_choice_says_why_in_whole_sentences(choice: disputed.Choice) -> None:
    assert choice.why.endswith(".")
    assert choice.comes == choice.comes.strip(".")
    assert choice.wait is None or choice.retried
