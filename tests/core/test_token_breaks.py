"""Token breaks: the counts on both sides of a break are independent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.tokens import Tokenizer
from tests.core.token_texts import EXACT, SEPARATORS, fresh_count, texts


@given(texts, texts, texts, st.sampled_from(SEPARATORS), st.sampled_from(EXACT))
def test_only_the_edges_of_a_text_depend_on_its_neighbours(
    before: str, text: str, after: str, separator: str, tokenizer: Tokenizer
) -> None:
    edges = tokenizer.edges(text, separator)
    left = fresh_count(tokenizer, before + separator + edges.left)
    right = fresh_count(tokenizer, edges.right + separator + after)
    whole = fresh_count(tokenizer, separator.join([before, text, after]))
    if edges.breaks:
        assert left + edges.inner + right == whole
    assert edges.tokens == fresh_count(tokenizer, text)


@given(st.lists(texts, max_size=5), st.sampled_from(SEPARATORS), st.sampled_from(EXACT))
def test_joined_texts_are_counted_from_their_separate_counts(
    parts: list[str], separator: str, tokenizer: Tokenizer
) -> None:
    joined = separator.join(parts)
    assert tokenizer.count_joined(parts, separator) == fresh_count(tokenizer, joined)


@given(texts, st.integers(1, 300), st.sampled_from(SEPARATORS), st.sampled_from(EXACT))
def test_so_it_is_for_long_texts(
    text: str, times: int, separator: str, tokenizer: Tokenizer
) -> None:
    long = text * times
    edges = tokenizer.edges(long, separator)
    left = fresh_count(tokenizer, f"Before.{separator}{edges.left}")
    right = fresh_count(tokenizer, f"{edges.right}{separator}After")
    whole = fresh_count(tokenizer, separator.join(["Before.", long, "After"]))
    assert not edges.breaks or left + edges.inner + right == whole


@pytest.mark.parametrize("tokenizer", EXACT, ids=lambda tokenizer: tokenizer.name)
def test_no_character_gets_across_a_break(tokenizer: Tokenizer) -> None:
    for code in [*range(0x20, 0x3100), *range(0xFE00, 0xFFFE), *range(0x1F300, 0x1F700)]:
        for text in (f"{chr(code)}b c", f"a {chr(code)}", chr(code)):
            edges = tokenizer.edges(text, "\n")
            left = fresh_count(tokenizer, ".\n" + edges.left)
            right = fresh_count(tokenizer, edges.right + "\n/")
            whole = fresh_count(tokenizer, f".\n{text}\n/")
            assert not edges.breaks or left + edges.inner + right == whole, hex(code)


def test_ordinary_items_depend_on_their_last_word_at_most() -> None:
    text = "The parcel left the warehouse.\n\nIt arrives on Tuesday."
    edges = EXACT[0].edges(text, "\n\n")
    assert (edges.breaks, edges.left, edges.right) == (True, "", ".")
