"""Shortening: at a paragraph, sentence, word or grapheme, marked, and never over the limit."""

from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.graphemes import grapheme_start
from headwater.core.templates import MARK
from headwater.core.tokens import Tokenizer
from tests.core.token_texts import EXACT, fresh_count, texts

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
    if len(kept) == 1 and kept != words[:1]:
        assert words[0].startswith(kept[0])  # not even the first word fits
        kept = []
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


@pytest.mark.parametrize("text", ["   ", "", "\n" * 100])
def test_an_empty_text_is_not_shortened(text: str) -> None:
    assert O200K.shorten(text, 0) in (None, text)
    assert O200K.shorten("x" * 100, 0) is None


JSON = '{"order":{"id":"A-1","lines":[' + '{"sku":"B-42","count":3},' * 50 + "]}}"
URL = "https://shop.example/search?q=" + "parcel%20lost%20" * 40
THAI = "พัสดุออกจากคลังสินค้าเมื่อวันจันทร์" * 20


@pytest.mark.parametrize("text", [JSON, URL, THAI, f"See {URL}", "x" * 1000], ids=range(5))
@pytest.mark.parametrize("tokenizer", EXACT, ids=lambda tokenizer: tokenizer.name)
def test_json_urls_and_thai_are_cut_after_the_last_grapheme_that_fits(
    tokenizer: Tokenizer, text: str
) -> None:
    for limit in (10, 60, 100):
        shortened = tokenizer.shorten(text, limit)
        assert shortened is not None
        beginning = shortened.removesuffix(MARK)
        assert text.startswith(beginning)
        assert limit - 8 <= fresh_count(tokenizer, shortened) <= limit
        assert grapheme_start(text, len(beginning)) == len(beginning)


@pytest.mark.parametrize("grapheme", ["👩‍💻", "🇩🇪", "é", "กำ", "क्षि", "👍🏽", "각"])
def test_a_grapheme_is_not_cut_if_one_fits(grapheme: str) -> None:
    text = grapheme * 40
    for limit in range(15, 40):
        shortened = O200K.shorten(f"x{text}x", limit)
        assert shortened is not None
        beginning = shortened.removesuffix(MARK).removeprefix("x")
        assert beginning == grapheme * (len(beginning) // len(grapheme))


def test_a_grapheme_that_is_too_large_is_cut_between_its_tokens() -> None:
    text = "e" + "\u0301" * 200
    shortened = O200K.shorten(text, 10)
    assert shortened is not None
    assert len(shortened) > 4
    assert text.startswith(shortened.removesuffix(MARK))
    assert O200K.count(shortened) <= 10


def test_a_long_text_without_breaks_is_shortened_in_a_moment() -> None:
    for text in ("x" * 1_000_000, "e" + "\u0301" * 1_000_000, "🇩" * 100_000):
        started = thread_time()
        shortened = O200K.shorten(text, 1_000)
        assert shortened is not None
        assert 900 < O200K.count(shortened) <= 1_000
        assert thread_time() - started < 10


def test_a_megabyte_is_shortened_in_a_moment() -> None:
    started = thread_time()
    shortened = O200K.shorten("The parcel left the warehouse on Monday. " * 25_000, 100_000)
    assert shortened is not None
    assert 99_000 < O200K.count(shortened) <= 100_000
    assert thread_time() - started < 10
