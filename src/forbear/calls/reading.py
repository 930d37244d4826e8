"""Reads what a service's answers say about its limits, for the guards: they know no library and no wall clock."""

from __future__ import annotations

from collections.abc import Iterable

from forbear.calls.verdicts import wall_clock
from forbear.classify.usage import limits_in, tokens_in
from forbear.core.rate import Limit


class AnswerReader:
    """How facts are read from what a service has answered."""

    def limits(self, answer: object, /) -> Iterable[Limit]:
        """The limits that a response or an error reports."""
        return limits_in(answer, wall_clock())

    def tokens(self, result: object, /) -> float | None:
        """The tokens that a result says were used; None where it does not say."""
        return tokens_in(result)


READER = AnswerReader()
