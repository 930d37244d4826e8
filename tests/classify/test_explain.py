"""The classifier explains itself: verdicts in words, and the whole book as a page that the docs hold."""

from __future__ import annotations

from pathlib import Path

from forbear.classify.explain import explain, in_words, page
from forbear.core.failure import Kind

QUOTA = '{"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}'


def test_an_answer_is_judged_as_if_an_error_had_carried_it() -> None:
    verdict = explain(429, {"Retry-After": "5"}, QUOTA)
    assert (verdict.kind, verdict.transient, verdict.retry_after) == (Kind.QUOTA_SPENT, False, 5)
    assert explain(429, {}, "").transient
    assert explain(None, {}, "").kind is Kind.UNKNOWN


def test_the_library_matters_where_a_rule_names_one() -> None:
    body = '{"message": "limited to 1000 API calls / month"}'
    assert explain(429, {}, body).transient
    assert not explain(429, {}, body, provider="cohere").transient


def test_a_date_is_read_against_the_clock_that_is_given() -> None:
    verdict = explain(503, {"Retry-After": "Thu, 01 Jan 1970 00:01:40 GMT"}, "", now=90.0)
    assert verdict.retry_after == 10


def test_a_verdict_reads_as_sentences() -> None:
    assert in_words(explain(503, {"Retry-After": "5"}, "")) == (
        "kind: overloaded\nretried: yes (nothing was done)\nthe server asks to wait: 5 s\ndecided by: status 503"
    )
    assert "only if repeating does no harm" in in_words(explain(500, {}, ""))
    assert "retried: no\n" in in_words(explain(429, {}, QUOTA))
    assert "code:" not in in_words(explain(None, {}, ""))


def test_the_page_in_the_docs_is_made_from_the_data_of_today() -> None:
    kept = Path(__file__).parents[2] / "docs" / "errors.md"
    assert kept.read_text(encoding="utf-8") == page(), "renew it: forbear explain-error --table > docs/errors.md"
