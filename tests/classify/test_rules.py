"""What a rule is, when it matches, and which of several wins."""

from __future__ import annotations

import itertools
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from forbear.classify.facts import Facts
from forbear.classify.rules import Rule, RuleBook
from forbear.core.failure import PERMITS, Kind
from foreign import foreign


def rule(**named: Any) -> Rule:
    """A rule that says "overloaded", if it names nothing else."""
    for name in ("codes", "statuses", "classes"):
        if name in named:
            named[name] = frozenset(named[name])
    return Rule(**{"kind": Kind.OVERLOADED, "source": "a test", **named})


def facts(
    *,
    library: str = "acme",
    name: str = "Error",
    status: int | None = None,
    code: str = "",
    says: str = "",
    **more: Any,
) -> Facts:
    kind = foreign(name, f"{library}.errors")
    return Facts(kind(status_code=status, code=code or None, message=says, **more), 0.0)


# ---- a rule ------------------------------------------------------------------------------------------------------


def test_a_rule_must_name_something() -> None:
    for named in ({}, {"provider": "acme"}, {"hinted": True}, {"streaming": True}, {"transient": False}):
        with pytest.raises(ValueError, match="match every error"):
            rule(**named)


def test_a_rule_on_a_text_must_name_a_provider_or_a_status_too() -> None:
    for named in ({}, {"codes": {"a"}}, {"classes": {"acme.Error"}}):
        with pytest.raises(ValueError, match="prose is no contract"):
            rule(texts=("quota",), **named)
    assert rule(texts=("quota",), provider="acme").texts == rule(texts=("quota",), statuses={429}).texts == ("quota",)


@pytest.mark.parametrize("kind", Kind)
def test_what_follows_from_a_rule_is_what_its_kind_permits(kind: Kind) -> None:
    said = rule(kind=kind, codes={"a"})
    assert (said.passes, said.done) == PERMITS[kind]


def test_a_rule_may_say_otherwise() -> None:
    assert not rule(codes={"a"}, transient=False).passes
    assert rule(kind=Kind.AUTH, codes={"a"}, transient=True).passes
    assert rule(codes={"a"}, executed="no").done == "no"
    assert rule(kind=Kind.AUTH, codes={"a"}, executed="maybe").done == "maybe"


def test_a_rule_is_a_value() -> None:
    assert rule(codes={"a"}) == rule(codes={"a"})
    assert hash(rule(codes={"a"})) == hash(rule(codes={"a"}))
    assert rule(codes={"a"}) != rule(codes={"a"}, transient=False)
    assert rule(codes={"a"}) != rule(codes={"a"}, source="another")
    with pytest.raises(FrozenInstanceError):
        rule(codes={"a"}).kind = Kind.AUTH  # type: ignore[misc]
    with pytest.raises(TypeError):
        Rule(Kind.AUTH, "a test")  # type: ignore[misc]


# ---- matching ----------------------------------------------------------------------------------------------------


def test_a_code_is_one_of_the_errors_codes() -> None:
    said = rule(codes={"busy", "full"})
    assert said.matches(facts(code="FULL"))
    assert not said.matches(facts(code="empty"))
    assert not said.matches(facts())


def test_a_status_is_the_errors_status() -> None:
    said = rule(statuses={429, 503})
    assert said.matches(facts(status=503))
    assert not said.matches(facts(status=500))
    assert not said.matches(facts())


def test_a_class_is_one_of_the_errors_classes_with_its_package() -> None:
    said = rule(classes={"acme.Full"})
    assert said.matches(facts(name="Full"))
    assert not said.matches(facts(name="Empty"))
    assert not said.matches(facts(name="Full", library="other"))
    heir = foreign("Fuller", "mine", foreign("Full", "acme.errors"))
    assert said.matches(Facts(heir()))


def test_a_provider_is_a_package_of_the_errors_classes() -> None:
    said = rule(provider="acme", codes={"full"})
    assert said.matches(facts(code="full"))
    assert not said.matches(facts(code="full", library="other"))
    assert not said.matches(facts(code="empty"))
    assert rule(provider="acme.errors", codes={"full"}).matches(facts(code="full"))
    assert rule(provider="acme", codes={"full"}).matches(
        Facts(foreign("Mine", "mine", foreign("E", "acme"))(code="full"))
    )


def test_a_text_stands_anywhere_in_the_message() -> None:
    said = rule(provider="acme", texts=("per month", "per year"))
    assert said.matches(facts(says="Limited to 1000 calls PER YEAR, sorry"))
    assert not said.matches(facts(says="per minute"))
    assert not said.matches(facts(says="per month", library="other"))


def test_a_rule_for_streams_wants_no_status() -> None:
    said = rule(codes={"full"}, streaming=True)
    assert said.matches(facts(code="full"))
    assert not said.matches(facts(code="full", status=400))


def test_a_rule_on_hints_wants_a_time_to_come_back() -> None:
    said = rule(statuses={403}, hinted=True)
    assert said.matches(facts(status=403, retry_after=0))
    assert said.matches(facts(status=403, headers={"Retry-After": "5"}))
    assert not said.matches(facts(status=403))


def test_all_that_a_rule_names_must_hold() -> None:
    holds: dict[str, Any] = {
        "provider": "acme", "codes": {"full"}, "statuses": {429}, "classes": {"acme.Full"}, "texts": ("sorry",),
        "hinted": True,
    }  # fmt: skip
    met: dict[str, Any] = {
        "library": "acme", "code": "full", "status": 429, "name": "Full", "says": "sorry", "retry_after": 1,
    }  # fmt: skip
    other: dict[str, Any] = {
        "library": "other", "code": "empty", "status": 503, "name": "Empty", "says": "no", "retry_after": None,
    }  # fmt: skip
    assert rule(**holds).matches(facts(**met))
    for name in met:
        assert not rule(**holds).matches(facts(**{**met, name: other[name]})), name


# ---- rank --------------------------------------------------------------------------------------------------------


NAMED: list[dict[str, Any]] = [
    {"provider": "acme"}, {"classes": {"acme.Error"}}, {"statuses": {429}}, {"hinted": True}, {"codes": {"full"}},
    {"texts": ("sorry",)},
]  # fmt: skip


def test_a_rule_that_names_more_ranks_higher() -> None:
    least = rule(statuses={429})
    for more in NAMED:
        if "statuses" not in more:
            assert rule(statuses={429}, **more).rank > least.rank


def test_what_tells_more_outranks_all_that_tells_less_together() -> None:
    less: dict[str, Any] = {"kind": Kind.AUTH}
    for fact in NAMED[:4]:
        assert rule(codes={"full"}, **less).rank < rule(codes={"full"}, **fact).rank
        less.update(fact)
    assert rule(**less).rank < rule(codes={"full"}).rank
    assert rule(codes={"full"}, **less).rank < rule(texts=("sorry",), statuses={429}).rank


def test_of_equals_the_permanent_rule_ranks_higher_but_no_higher_than_one_that_names_more() -> None:
    passing, permanent = rule(codes={"a"}), rule(codes={"a"}, kind=Kind.AUTH)
    assert passing.rank < permanent.rank < rule(codes={"a"}, provider="acme").rank


def test_that_it_came_inside_a_stream_lifts_no_rule_above_a_permanent_code() -> None:
    """Else the type of an error event would hide the code that says that the money is spent."""
    plain = Rule(kind=Kind.OVERLOADED, source="a test", codes=frozenset({"a"}))
    streaming = Rule(kind=Kind.OVERLOADED, source="a test", codes=frozenset({"a"}), streaming=True)
    permanent = Rule(kind=Kind.QUOTA_SPENT, source="a test", codes=frozenset({"b"}))
    assert plain.rank == streaming.rank < permanent.rank


API: Any = foreign("ApiError", "acme.errors")
BUSY: Any = foreign("Busy", "acme.errors", API)
VERY_BUSY: Any = foreign("VeryBusy", "acme.errors", BUSY)


def test_the_class_nearest_to_the_errors_own_wins_whatever_it_means() -> None:
    base = rule(classes={"acme.ApiError"}, kind=Kind.INVALID_REQUEST, provider="acme")
    busy = rule(classes={"acme.Busy"})
    very = rule(classes={"acme.VeryBusy", "acme.ApiError"}, kind=Kind.QUOTA_SPENT)
    for order in itertools.permutations([base, busy, very]):
        book = RuleBook(order)
        assert book.find(Facts(API())) is base
        assert book.find(Facts(BUSY())) is busy
        assert book.find(Facts(VERY_BUSY())) is very
    assert RuleBook([base, busy]).find(Facts(VERY_BUSY())) is busy


def test_a_nearer_class_tells_less_than_a_status_or_a_code() -> None:
    base, busy = rule(classes={"acme.ApiError"}, statuses={503}), rule(classes={"acme.Busy"}, provider="acme")
    book = RuleBook([busy, base, rule(codes={"full"}, kind=Kind.AUTH)])
    assert book.find(Facts(BUSY(status_code=503))) is base
    assert book.find(Facts(BUSY(status_code=500))) is busy
    found = book.find(Facts(BUSY(status_code=503, code="full")))
    assert found is not None
    assert found.kind is Kind.AUTH


def test_an_ancestor_of_any_distance_is_found() -> None:
    kind, base = BUSY, rule(classes={"acme.ApiError"})
    for number in range(300):
        kind = foreign(f"E{number}", "acme.errors", kind)
    assert base.weight(Facts(kind())) == base.rank
    assert RuleBook([base, rule(classes={"other.E"})]).find(Facts(kind())) is base


@pytest.mark.parametrize(
    ("mistake", "correction"),
    [
        ({"classes": frozenset({"TimeoutError"})}, "as in 'builtins.TimeoutError'"),
        ({"classes": frozenset({"httpx._exceptions.ReadTimeout"})}, "as in 'httpx.ReadTimeout'"),
        ({"classes": frozenset({"httpx."})}, "names no class"),
        ({"codes": "full"}, "codes must be a collection"),
        ({"statuses": 429}, "statuses must be a collection"),
        ({"provider": "acme", "texts": "quota"}, "texts must be a collection"),
        ({"codes": frozenset({"Full"})}, "lower case"),
        ({"provider": "acme", "texts": ("Quota",)}, "lower case"),
        ({"statuses": frozenset({"429"})}, "400 to 599"),
        ({"statuses": frozenset({200})}, "400 to 599"),
    ],
)
def test_a_rule_that_could_never_match_is_refused(mistake: dict[str, Any], correction: str) -> None:
    with pytest.raises(ValueError, match=correction):
        Rule(kind=Kind.OVERLOADED, source="a test", **mistake)


# ---- words -------------------------------------------------------------------------------------------------------


def test_a_rule_reads_as_what_it_names() -> None:
    assert str(rule(codes={"b", "a"})) == "code a/b"
    assert str(rule(statuses={503, 429}, hinted=True)) == "status 429/503, with a hint"
    assert str(rule(provider="acme", texts=("x y", "z"), streaming=True)) == "acme, text 'x y'/'z', inside a stream"
    assert str(rule(provider="acme", classes={"acme.B", "acme.A"})) == "acme, class acme.A/acme.B"


def test_why_it_decided_names_the_codes_that_the_error_has() -> None:
    said = rule(codes={"b", "a"}, provider="acme")
    assert said.why(facts(code="b")) == "acme, code b"
    assert rule(statuses={429}).why(facts(status=429)) == "status 429"


# ---- a book ------------------------------------------------------------------------------------------------------


def test_an_empty_book_says_nothing() -> None:
    assert RuleBook(()).find(facts(status=429)) is None


def test_a_book_says_nothing_about_what_no_rule_names() -> None:
    book = RuleBook(
        [rule(codes={"a"}), rule(classes={"acme.Full"}), rule(statuses={429}), rule(provider="x", texts=("y",))]
    )
    assert book.find(facts()) is None
    assert book.find(facts(code="b", status=500, says="y")) is None


@pytest.mark.parametrize(
    ("named", "met"),
    [
        ({"codes": {"full"}}, {"code": "full"}),
        ({"classes": {"acme.Full"}}, {"name": "Full"}),
        ({"statuses": {429}}, {"status": 429}),
        ({"provider": "acme", "texts": ("sorry",)}, {"says": "sorry"}),
    ],
)
def test_a_rule_is_found_by_what_it_names(named: dict[str, Any], met: dict[str, Any]) -> None:
    said = rule(**named)
    assert RuleBook([rule(codes={"other"}), said, rule(statuses={500})]).find(facts(**met)) is said


def test_a_rule_is_found_by_each_of_its_alternatives() -> None:
    said = rule(codes={"a", "b"}, statuses={429, 503})
    book = RuleBook([said])
    for code, status in itertools.product("ab", (429, 503)):
        assert book.find(facts(code=code, status=status)) is said
    assert book.find(facts(code="a", status=500)) is None
    assert book.find(facts(code="c", status=429)) is None


def test_the_rule_that_names_more_wins_in_any_order() -> None:
    rules = [
        rule(codes={"a"}),
        rule(codes={"a"}, statuses={429}),
        rule(statuses={429}),
        rule(statuses={429}, hinted=True),
    ]
    for order in itertools.permutations(rules):
        book = RuleBook(order)
        assert book.find(facts(code="a", status=429)) is rules[1]
        assert book.find(facts(code="a", status=503)) is rules[0]
        assert book.find(facts(status=429)) is rules[2]
        assert book.find(facts(status=429, retry_after=1)) is rules[3]


def test_of_rules_that_name_as_much_a_permanent_one_wins_in_any_order() -> None:
    passing, permanent = rule(codes={"a"}), rule(codes={"b"}, kind=Kind.AUTH)
    both = Facts(foreign("Error", "acme")(code="a", type="b"))
    assert RuleBook([passing, permanent]).find(both) is RuleBook([permanent, passing]).find(both) is permanent


def test_of_two_that_are_equal_in_all_the_first_code_decides() -> None:
    first, second = rule(codes={"a"}), rule(codes={"b"})
    both = Facts(foreign("Error", "acme")(code="a", type="b"))
    assert RuleBook([second, first]).find(both) is first


def test_a_book_keeps_its_rules() -> None:
    rules = [rule(codes={"a"}), replace(rule(codes={"a"}), source="b")]
    assert RuleBook(iter(rules)).rules == tuple(rules)
