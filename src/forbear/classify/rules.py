"""What a rule is: facts that must all hold, and the kind of failure that they mean.

Decided here: which of several matching rules wins (the one that names more), so that a permanent error which looks like
a transient one can be told apart. Must never know a provider; their rules are data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forbear.core.failure import PERMITS, Executed, Kind

if TYPE_CHECKING:
    from forbear.classify.facts import Facts


# What a status weighs. Below it lies room for how near a class is to the error's own: steps of 4, as provider and
# permanence weigh less than any of them.
_NEAREST = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """If all that it names holds of an error, the failure is of `kind`.

    provider: the package whose error it is ("openai", "google.genai"); empty: any. codes: one of the error's codes,
    in lower case. statuses: the HTTP status. classes: package and name of a class ("httpx.ReadTimeout"). texts: one of
    these stands in the error's message, in lower case; only together with a provider or a status, as prose is no
    contract. hinted: the server named a time to come back. streaming: True, if it must have come without a status.
    transient, executed: where they differ from what the kind permits. source: where this is written down.

    passes, done: what follows for the next attempt and for what the server did. rank: how much the rule names.
    """

    kind: Kind
    source: str
    provider: str = ""
    codes: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    classes: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()
    hinted: bool = False
    streaming: bool = False
    transient: bool | None = None
    executed: Executed | None = None

    rank: int = field(init=False, repr=False, compare=False)
    _words: tuple[str, str] = field(init=False, repr=False, compare=False)
    passes: bool = field(init=False, repr=False, compare=False)
    done: Executed = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("codes", "classes", "texts", "statuses"):
            if isinstance(getattr(self, name), (str, int)):
                raise ValueError(f"{name} must be a collection, as in {name}=frozenset({{...}})")
        if any(word != word.lower() for word in (*self.codes, *self.texts)):
            raise ValueError("codes and texts are compared in lower case: write them so")
        if not all(status in range(400, 600) for status in self.statuses):
            raise ValueError("statuses must be numbers from 400 to 599")
        if not (self.codes or self.statuses or self.classes or self.texts):
            raise ValueError("a rule must name a code, a status, a class or a text, or it would match every error")
        if self.texts and not (self.provider or self.statuses):
            raise ValueError("a rule on a text must name a provider or a status too: prose is no contract")
        for name in self.classes:
            package, _, rest = name.partition(".")
            if not rest or "." in rest:
                meant = f"{package}.{rest.rpartition('.')[2]}" if rest else f"builtins.{name}"
                raise ValueError(f"{name!r} names no class: write the package and the class alone, as in {meant!r}")
        permit = PERMITS[self.kind]
        object.__setattr__(self, "passes", permit.transient if self.transient is None else self.transient)
        object.__setattr__(self, "done", permit.executed if self.executed is None else self.executed)
        object.__setattr__(self, "rank", self._rank())
        object.__setattr__(self, "_words", self._around_codes())

    def _rank(self) -> int:
        """The more it names, the higher; a text names most, a provider least. Of equals, the permanent is higher."""
        named = (not self.passes, self.provider, self.classes)
        telling = (self.statuses, self.hinted, self.codes, self.texts)
        return sum(1 << at for at, fact in enumerate(named) if fact) + sum(
            _NEAREST << at for at, fact in enumerate(telling) if fact
        )

    def weight(self, facts: Facts) -> int:
        """The rank of a rule on classes for an error that it matches: the nearer to its own class, the higher."""
        far = next(at for at, name in enumerate(facts.class_names) if name in self.classes)
        return self.rank + max(0, _NEAREST - 8 - 4 * far)

    def matches(self, facts: Facts) -> bool:
        """Whether all that the rule names holds."""
        return (
            (not self.provider or self.provider in facts.packages)
            and (not self.statuses or facts.status in self.statuses)
            and (not self.codes or not self.codes.isdisjoint(facts.codes))
            and (not self.classes or not self.classes.isdisjoint(facts.class_names))
            and (not self.streaming or facts.status is None)
            and (not self.hinted or facts.hint is not None)
            and (not self.texts or any(map(facts.message.__contains__, self.texts)))
        )

    def __str__(self) -> str:
        return self._said(self.codes)

    def why(self, facts: Facts) -> str:
        """What of the rule has matched, in words."""
        return self._said(self.codes.intersection(facts.codes) if self.codes else self.codes)

    def _said(self, codes: frozenset[str]) -> str:
        before, after = self._words
        said = "code " + "/".join(sorted(codes)) if codes else ""
        return ", ".join(filter(None, (before, said, after)))

    def _around_codes(self) -> tuple[str, str]:
        """What it names before its codes and after them, in words: made once, as every verdict is told why."""
        before = [
            self.provider,
            "class " + "/".join(sorted(self.classes)) if self.classes else "",
            "status " + "/".join(map(str, sorted(self.statuses))) if self.statuses else "",
        ]
        after = [
            "text " + "/".join(map(repr, self.texts)) if self.texts else "",
            "with a hint" if self.hinted else "",
            "inside a stream" if self.streaming else "",
        ]
        return ", ".join(filter(None, before)), ", ".join(filter(None, after))


class RuleBook:
    """Rules, found by what they name. Of those that match, the highest rank wins."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._by_code: dict[str, list[Rule]] = {}
        self._by_class: dict[str, list[Rule]] = {}
        self._by_status: dict[int | None, list[Rule]] = {}
        self._by_provider: dict[str, list[Rule]] = {}
        for rule in self.rules:
            self._file(rule)

    def _file(self, rule: Rule) -> None:
        """Under one kind of fact only: the one that tells most."""
        if rule.codes:
            for code in rule.codes:
                self._by_code.setdefault(code, []).append(rule)
        elif rule.classes:
            for name in rule.classes:
                self._by_class.setdefault(name, []).append(rule)
        elif rule.provider:
            self._by_provider.setdefault(rule.provider, []).append(rule)
        else:
            for status in rule.statuses:
                self._by_status.setdefault(status, []).append(rule)

    def find(self, facts: Facts) -> Rule | None:
        """The rule that decides, or None."""
        if not self.rules:
            return None
        best: Rule | None = None
        most = 0
        for rule in self._candidates(facts):
            if (rule.rank > most or rule.classes) and rule.matches(facts):
                weight = rule.weight(facts) if rule.classes else rule.rank
                if best is None or weight > most:
                    best, most = rule, weight
        return best

    def _candidates(self, facts: Facts) -> list[Rule]:
        found: list[Rule] = []
        for table, keys in (
            (self._by_code, facts.codes), (self._by_class, facts.class_names), (self._by_provider, facts.packages),
        ):  # fmt: skip
            for key in keys:
                if key in table:
                    found += table[key]
        if facts.status in self._by_status:
            found += self._by_status[facts.status]
        return found
