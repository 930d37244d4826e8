"""Rules of one's own that name a class which no error can have: a typing error, or a class of a library's predecessor.

Decided here: when that is certain enough to be said, and what is said. Such a rule matches nothing, silently, and the
errors that it was written for are judged as if it were not there. Asked are the exception classes that exist; nothing
is imported. While rules are made a package may be loaded in part, so only what looks like a slip of the pen is told at
once; the rest when the first error of the package comes that no rule matches. Must never change a verdict.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from forbear.classify.attributes import PYTHONS
from forbear.classify.rules import Rule

if TYPE_CHECKING:
    from forbear.classify.facts import Facts

# Several distributions share the first two names, and only some may be loaded; the third makes classes at run time.
_NEVER_COMPLETE = frozenset({"google", "azure", "botocore"})


class Doubts:
    """The classes that rules name, until they have been seen to exist or have been told about."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._unseen: dict[str, list[str]] = {}
        self._packages: dict[str, list[str]] = {}
        for name in sorted({name for rule in rules for name in rule.classes}):
            package, _, own = name.partition(".")
            self._packages.setdefault(own, []).append(package)
            if package not in _NEVER_COMPLETE:
                self._unseen.setdefault(package, []).append(own)

    def __bool__(self) -> bool:
        """Whether there is anything left to be doubted."""
        return bool(self._packages)

    def at_once(self) -> Iterator[str]:
        """What is nearly the name of a class that exists, or would be one of Python's own, which are all loaded."""
        known = existing_errors() if self._unseen else {}
        for package in self._unseen.keys() & known.keys():
            names = self._unseen[package]
            slips = {own for own in names if own not in known[package] and _is_slip(own, package, known)}
            self._unseen[package] = [own for own in names if own not in slips]
            yield from (_told(own, package, known) for own in sorted(slips))

    def about(self, facts: Facts) -> Iterator[str]:
        """Doubts that an error gives rise to which no rule has matched."""
        if not self._unseen.keys().isdisjoint(facts.packages):
            known = existing_errors()
            for package in self._unseen.keys() & known.keys() & set(facts.packages):
                missing = [own for own in self._unseen.pop(package) if own not in known[package]]
                yield from (_told(own, package, known) for own in missing)
        for name in facts.class_names:
            yield from self._look_alikes(name)

    def _look_alikes(self, name: str) -> Iterator[str]:
        """Classes of the same name in a package of nearly the same name, as a successor has them."""
        package, _, own = name.partition(".")
        for other in list(self._packages.get(own, ())):
            if other != package and _shared(other, package) >= max(len(other), len(package)) - 1:
                self._packages[own].remove(other)
                yield f"a rule names {other}.{own}, but what has come is {name}: if both are meant, name both"


def warn_of(doubts: Iterable[str], *, level: int) -> None:
    """Tells the doubts as warnings. `level`: how many calls up the cause lies."""
    for doubt in doubts:
        warnings.warn(doubt, stacklevel=level + 1)


def existing_errors() -> dict[str, set[str]]:
    """The names of all exception classes that exist now, by the package that they come from."""
    found: dict[str, set[str]] = {}
    todo: list[type] = [BaseException]
    seen: set[type] = set()
    while todo:
        kind = todo.pop()
        if kind not in seen:
            seen.add(kind)
            todo += type.__subclasses__(kind)
            found.setdefault(str(kind.__module__).partition(".")[0], set()).add(kind.__name__)
    return found


def _told(own: str, package: str, known: dict[str, set[str]]) -> str:
    close, likeness = _closest(own, known[package])
    if own in known["builtins"]:
        meant = f" (builtins.{own} does)"  # as asyncio.TimeoutError, which is another name of it
    else:
        meant = f" ({package}.{close} does)" if likeness >= 0.5 else ""
    return f"a rule names {package}.{own}, which does not exist{meant}: it can never match"


def _is_slip(own: str, package: str, known: dict[str, set[str]]) -> bool:
    close, _ = _closest(own, known[package])
    return package in PYTHONS or _shared(close, own) >= max(len(close), len(own)) - 1


def _closest(own: str, names: set[str]) -> tuple[str, float]:
    """The name that is most like it, and the part of its letters that they share."""
    likeness = {name: _shared(name, own) / max(len(name), len(own)) for name in sorted(names)}
    close = max(likeness, key=likeness.__getitem__)
    return close, likeness[close]


def _shared(one: str, other: str) -> int:
    """How many letters two words share at their beginnings and ends."""
    least = min(len(one), len(other))
    begun = next((at for at in range(least) if one[at] != other[at]), least)
    ended = next((at for at in range(least - begun) if one[-1 - at] != other[-1 - at]), least - begun)
    return begun + ended
