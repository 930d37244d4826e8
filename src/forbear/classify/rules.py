"""What a rule is: facts that must all hold, and the kind of failure that they mean.

Decided here: which of several matching rules wins (the one that names more), so that a permanent error which looks like
a transient one can be told apart. Must never know a provider; their rules are data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forbear.core.failure import PERMITS, Executed, Kind

if TYPE_CHECKING:
    from forbear.classify.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """If all that it names holds of an error, the failure is of `kind`.

    provider: the package whose error it is ("openai", "google.genai"); empty: any. codes: one of the error's codes,
    in lower case. statuses: the HTTP status. classes: the name of a class of the provider. texts: one of these stands
    in the error's message, in lower case; only together with a provider or a status, as prose is no contract.
    hinted: the server named a time to come back. streaming: True, if it must have come without a status.
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
        permit = PERMITS[self.kind]
        object.__setattr__(self, "passes", permit.transient if self.transient is None else self.transient)
        object.__setattr__(self, "done", permit.executed if self.executed is None else self.executed)
        object.__setattr__(self, "rank", self._rank())

    def _rank(self) -> int:
        """The more it names, the higher; a text names most, a provider least. Of equals, the permanent is higher."""
        named = (
            not self.passes, self.provider, self.classes, self.statuses, self.hinted, self.codes, self.texts,
        )  # fmt: skip
        return sum(2**position for position, fact in enumerate(named) if fact)

    def matches(self, facts: Facts) -> bool:
        """Whether all that the rule names holds."""
        return (
            (not self.provider or facts.is_of(self.provider))
            and (not self.statuses or facts.status in self.statuses)
            and (not self.codes or not self.codes.isdisjoint(facts.codes))
            and (not self.classes or not self.classes.isdisjoint(facts.class_names))
            and (not self.streaming or facts.status is None)
            and (not self.hinted or facts.hint is not None)
            and (not self.texts or any(text in facts.message for text in self.texts))
        )

    def __str__(self) -> str:
        return self._said(self.codes)

    def why(self, facts: Facts) -> str:
        """What of the rule has matched, in words."""
        return self._said(self.codes.intersection(facts.codes))

    def _said(self, codes: frozenset[str]) -> str:
        said = [
            self.provider,
            "class " + "/".join(sorted(self.classes)) if self.classes else "",
            "status " + "/".join(map(str, sorted(self.statuses))) if self.statuses else "",
            "code " + "/".join(sorted(codes)) if codes else "",
            "text " + "/".join(map(repr, self.texts)) if self.texts else "",
            "with a hint" if self.hinted else "",
            "inside a stream" if self.streaming else "",
        ]
        return ", ".join(filter(None, said))


class RuleBook:
    """Rules, found by what they name. Of those that match, the highest rank wins."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._by_code: dict[str, list[Rule]] = {}
        self._by_class: dict[str, list[Rule]] = {}
        self._by_status: dict[int, list[Rule]] = {}
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
        elif rule.statuses:
            for status in rule.statuses:
                self._by_status.setdefault(status, []).append(rule)
        else:
            self._by_provider.setdefault(rule.provider, []).append(rule)

    def find(self, facts: Facts) -> Rule | None:
        """The rule that decides, or None."""
        if not self.rules:
            return None
        best: Rule | None = None
        for rule in self._candidates(facts):
            if (best is None or rule.rank > best.rank) and rule.matches(facts):
                best = rule
        return best

    def _candidates(self, facts: Facts) -> Iterator[Rule]:
        for code in facts.codes:
            yield from self._by_code.get(code, ())
        if self._by_class:
            for name in facts.class_names:
                yield from self._by_class.get(name, ())
        if facts.status is not None:
            yield from self._by_status.get(facts.status, ())
        for provider in facts.packages:
            yield from self._by_provider.get(provider, ())
