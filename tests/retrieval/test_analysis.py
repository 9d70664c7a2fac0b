"""The terms of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.retrieval.analysis import MAX_TERM, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The user's Orders, re-opened!", ["the", "user", "order", "re", "opened"]),
        ("get_feature_values(HTTP2)", ["get", "feature", "value", "http2"]),
        ("Don't", ["dont"]),
        ("GROSS groß ﬁne", ["gross", "gross", "fine"]),
        ("cafe\u0301 café", ["café", "café"]),
        ("東京都", ["東京", "京都"]),
        ("水", ["水"]),
        ("iPhone15を買う", ["iphone15", "を買", "買う"]),
        ("한국어", ["한국", "국어"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("1,234.5", ["1", "234", "5"]),
        ("… !!! \x00", []),
        ("", []),
        ("x" * 1000, ["x" * MAX_TERM]),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("order", "orders"),
        ("class", "classes"),
        ("box", "boxes"),
        ("cache", "caches"),
        ("match", "matches"),
        ("house", "houses"),
        ("policy", "policies"),
        ("movie", "movies"),
        ("potato", "potatoes"),
        ("shoe", "shoes"),
        ("employee", "employees"),
        ("address", "addresses"),
    ],
)
def test_a_word_and_its_plural_are_one_term(singular: str, plural: str) -> None:
    assert terms(singular) == terms(plural)


@pytest.mark.parametrize("word", ["status", "analysis", "this", "bus", "gas", "address"])
def test_a_singular_that_ends_with_s_is_kept(word: str) -> None:
    assert terms(word) == [word]


@given(st.text())
def test_any_text_has_terms_that_do_not_depend_on_case(text: str) -> None:
    found = terms(text)
    assert all(0 < len(term) <= MAX_TERM for term in found)
    assert terms(text.casefold()) == found
