"""Shortening: at a paragraph, a sentence or a word, with a mark, and never over the limit."""

from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.contexts.tokens import Tokenizer
from headwater.core.templates import MARK
from tests.contexts.texts import EXACT, fresh_count, texts

O200K = EXACT[0]


@given(texts, st.integers(0, 20), st.integers(1, 5), st.sampled_from(EXACT))
def test_a_shortened_text_is_a_marked_beginning_within_the_limit(
    text: str, limit: int, times: int, tokenizer: Tokenizer
) -> None:
    long = text * times
    shortened = tokenizer.shorten(long, limit)
    if fresh_count(tokenizer, long) <= limit:
        assert shortened == long
    elif shortened is not None:
        beginning = shortened.removesuffix(MARK)
        assert shortened == beginning + MARK
        assert beginning.strip()
        assert long.startswith(beginning)
        assert fresh_count(tokenizer, shortened) <= limit


@given(
    st.lists(st.sampled_from(["one", "two", "Müller", "42", "antidisestablishment"]), min_size=1),
    st.integers(0, 40),
    st.sampled_from(EXACT),
)
def test_it_ends_with_the_last_word_that_fits(
    words: list[str], limit: int, tokenizer: Tokenizer
) -> None:
    shortened = tokenizer.shorten(" ".join(words), limit)
    kept = [] if shortened is None else shortened.removesuffix(MARK).split(" ")
    assert kept == words[: len(kept)]
    if kept != words:
        one_more = " ".join(words[: len(kept) + 1]) + MARK
        assert fresh_count(tokenizer, one_more) > limit


PROSE = (
    "Your parcel left the warehouse on Monday. It was handed to the carrier the same day.\n\n"
    "The carrier lost it on Tuesday. Nobody knows why. A new one is on its way to you now."
)


@pytest.mark.parametrize(
    ("limit", "end"),
    [
        (3, "Your parcel …"),
        (8, "the warehouse on …"),
        (10, "on Monday. …"),
        (13, "It was handed to …"),
        (20, "the same day. …"),
        (24, "The carrier lost it on …"),
        (27, "on Tuesday. …"),
        (35, "Nobody knows why. …"),
        (38, "on its way to …"),
        (100, "to you now."),
    ],
)
def test_a_paragraph_or_a_sentence_that_ends_nearby_is_better_than_a_word(
    limit: int, end: str
) -> None:
    shortened = O200K.shorten(PROSE, limit)
    assert shortened is not None
    assert shortened.endswith(end), shortened


def test_a_paragraph_that_ends_nearby_is_better_than_a_sentence() -> None:
    text = "The parcel left on Monday. " * 10 + "\n\nYes. " + "Nobody knows why it did " * 10
    assert O200K.shorten(text, 68) == ("The parcel left on Monday. " * 10).rstrip() + MARK


def test_text_without_spaces_is_cut_between_its_characters() -> None:
    assert O200K.shorten("包裹星期一离开了仓库" * 5, 8) == "包裹星期一离开 …"
    assert O200K.shorten("包裹星期一离开了。" * 5, 20) == "包裹星期一离开了。" * 2 + MARK


@pytest.mark.parametrize("text", ["x" * 100, "👩‍💻" * 20, "   ", "", "\n" * 100])
def test_a_text_without_a_word_that_fits_is_not_shortened(text: str) -> None:
    assert O200K.shorten(text, 3) in (None, text)
    assert O200K.shorten("x" * 100, 0) is None


def test_a_megabyte_is_shortened_in_a_moment() -> None:
    started = thread_time()
    shortened = O200K.shorten("The parcel left the warehouse on Monday. " * 25_000, 100_000)
    assert shortened is not None
    assert 99_000 < O200K.count(shortened) <= 100_000
    assert thread_time() - started < 10
