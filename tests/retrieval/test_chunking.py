"""Splitting documents into chunks."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.graphemes import grapheme_start
from headwater.core.tokens import tokenizer_for
from headwater.retrieval.chunking import split

_WORDS = [
    *("the", "order", "is", "refunded", "within", "thirty", "days", "of", "delivery", "and"),
    *("customers", "may", "return", "items", "that", "arrive", "damaged", "or", "late", "if"),
]
_PIECES = st.sampled_from(
    [
        *("# Title\n", "## Part\n\n", "Under\n---\n", "```py\nx = 1\n```\n", "```\n", "~~~\n"),
        *("| a | b |\n", "- item\n", "1. first\n", "    code\n", "A sentence. ", "Another one! "),
        *("\n", "\r\n", "\r", "\n\n\n", " ", "\t", "\0", "\u2028", "\x0c", "word", "<|endoftext|>"),
        *(
            "中文句子。",
            "ภาษาไทย",
            "👩‍👩‍👧‍👦",
            "e\u0301\u0302",
            "🇩🇪🇫🇷",
            "\ufeff",
            "a" * 70,
            "=" * 90,
        ),
    ]
)


def _tokens(text: str) -> int:
    return tokenizer_for("text-embedding-3-small").recount(text)


def _visible(text: str) -> str:
    return "".join(text.split())


def _prose(seed: int, paragraphs: int, sentences: int = 6) -> list[str]:
    chance = random.Random(seed)

    def sentence() -> str:
        return " ".join(chance.choices(_WORDS, k=chance.randint(6, 18))).capitalize() + "."

    return [" ".join(sentence() for _ in range(sentences)) for _ in range(paragraphs)]


@given(
    pieces=st.lists(_PIECES | st.text(max_size=60), max_size=60),
    chunk_tokens=st.integers(16, 60),
    overlap=st.integers(0, 8),
)
def test_chunks_fit_and_contain_the_whole_text(
    pieces: list[str], chunk_tokens: int, overlap: int
) -> None:
    """No chunk is too long, and without the overlaps nothing is lost, repeated or moved."""
    text = "".join(pieces)

    plain = split(text, chunk_tokens, 0)
    overlapping = split(text, chunk_tokens, overlap)

    assert _visible("".join(plain)) == _visible(text)
    assert all(_tokens(chunk) <= chunk_tokens for chunk in [*plain, *overlapping])
    assert all(chunk.strip() and chunk in text for chunk in [*plain, *overlapping])
    assert overlapping == split(text, chunk_tokens, overlap)
    position = 0
    for chunk in overlapping:  # each begins within the one before it or after white space
        gap = len(text) - position - len(text[position:].lstrip())
        start = text.rfind(chunk, 0, position + gap + len(chunk))
        assert start >= 0
        position = start + len(chunk)
    assert text[position:].strip() == ""


@pytest.mark.parametrize("text", ["", " ", "\n\r\n\t ", "\x0c\u2028"])
def test_a_text_of_white_space_has_no_chunks(text: str) -> None:
    assert split(text, 400, 40) == []


def test_a_short_document_is_one_chunk() -> None:
    assert split("\n# Refunds\n\nWithin 30 days.\n", 400, 40) == ["# Refunds\n\nWithin 30 days."]


def test_sections_are_not_mixed() -> None:
    """Sections that do not fit together are separated at their headings."""
    first, second = (f"## Part {part}\n\n" + _prose(part, 1)[0] for part in (1, 2))

    assert split(f"# Guide\n\n{first}\n\n{second}\n", 120, 10) == [f"# Guide\n\n{first}", second]


def test_a_heading_stays_with_the_text_below_it() -> None:
    text = "\n\n".join(f"# Part {n}\n\n## Inner {n}\n\n{_prose(n, 1, 30)[0]}" for n in range(9))

    for chunk in split(text, 100, 0):
        assert not re.search(r"#[^\n]*\Z", chunk)
        assert len(re.findall("^# ", chunk, re.MULTILINE)) <= 1


def test_an_underlined_line_is_a_heading() -> None:
    prose = _prose(1, 2)

    chunks = split(f"{prose[0]}\n\nReturns\n-------\n{prose[1]}", 120, 20)

    assert chunks == [prose[0], f"Returns\n-------\n{prose[1]}"]


def test_code_that_fits_is_not_divided() -> None:
    code = "```python\n" + "\n\n".join(f"def f{n}():\n    return {n}" for n in range(8)) + "\n```"
    text = "\n\n".join([*_prose(1, 2), "## Code", code, *_prose(2, 2)])

    assert sum(code in chunk for chunk in split(text, 130, 20)) == 1


def test_long_code_is_divided_between_functions() -> None:
    functions = [
        f"def f{n}(a, b):\n    if a:\n\n        return b\n    return {n}" for n in range(60)
    ]

    chunks = split("```python\n" + "\n\n".join(functions) + "\n```\n", 200, 0)

    assert len(chunks) > 3
    assert all(chunk.startswith(("```", "def")) for chunk in chunks)


def test_a_long_table_is_divided_between_rows() -> None:
    rows = [f"| order {n} | shipped on day {n} | paid |" for n in range(200)]

    chunks = split("\n".join(rows), 100, 0)

    assert "\n".join(chunks).split("\n") == rows


def test_long_paragraphs_are_divided_between_sentences() -> None:
    text = _prose(3, 1, 80)[0].replace(" of ", " i.e. approx. of ")

    chunks = split(text, 100, 0)

    assert all(chunk[0].isupper() and chunk.endswith(".") for chunk in chunks)


def test_a_wrapped_paragraph_is_not_divided_at_its_lines() -> None:
    text = re.sub(r"(.{60}\S*) ", r"\1\n", _prose(4, 1, 80)[0])

    assert all(chunk.endswith(".") for chunk in split(text, 100, 0))


def test_chinese_is_divided_between_sentences() -> None:
    text = "客户可以在三十天内退货。退款会在五个工作日内到账\uff01还有其他问题吗\uff1f" * 40

    assert all(chunk[-1] in "。\uff01\uff1f" for chunk in split(text, 100, 0))


def test_list_items_begin_chunks() -> None:
    items = [f"- item {n} has no full stop and goes on\n  over two lines" for n in range(60)]

    assert all(chunk.startswith("- ") for chunk in split("\n".join(items), 100, 0))


@pytest.mark.parametrize("text", ["👩‍👩‍👧‍👦" * 60, "กำ" * 200, "e\u0301\u0302" * 200, "🇩🇪🇫🇷" * 80])
def test_words_without_end_are_divided_between_graphemes(text: str) -> None:
    position = 0
    chunks = split(text, 64, 0)
    for chunk in chunks:
        assert grapheme_start(text, position) == position
        position += len(chunk)
    assert len(chunks) > 2


def test_chunks_begin_with_the_last_sentences_before_them() -> None:
    text = _prose(5, 1, 60)[0]

    chunks = split(text, 120, 40)

    for before, chunk in pairwise(chunks):
        size = next(n for n in range(len(chunk), 0, -1) if before.endswith(chunk[:n]))
        assert 0 < _tokens(chunk[:size]) <= 40
        assert chunk[:size].endswith(".")


def test_a_section_does_not_begin_with_the_end_of_another() -> None:
    text = "\n\n".join(f"# Part {n}\n\n{_prose(n, 1)[0]}" for n in range(5))

    assert all(chunk.startswith("# Part") for chunk in split(text, 100, 30))


def test_line_ends_of_windows_are_kept() -> None:
    text = "# Title\r\n\r\n" + "\r\n\r\n".join(_prose(6, 30)) + "\r\n"

    chunks = split(text, 100, 0)

    assert chunks[0].startswith("# Title\r\n\r\n")
    assert all(chunk.endswith(".") for chunk in chunks)


def test_indentation_is_kept() -> None:
    lines = [f"    value_{n} = compute(value_{n - 1})" for n in range(1, 80)]

    assert "\n".join(split("\n".join(lines), 100, 0)).split("\n") == lines


def test_long_texts_without_spaces_are_accepted() -> None:
    """A long text without a space has no boundary, and is divided all the same."""
    text = "".join(random.Random(7).choices("abcdefghij0123456789+/", k=400_000))

    chunks = split(text, 400, 0)

    assert "".join(chunks) == text
    assert max(map(_tokens, chunks)) <= 400


@pytest.mark.parametrize("kind", ["sections", "paragraphs", "one paragraph", "lines"])
def test_an_edit_changes_few_chunks(kind: str) -> None:
    """Only chunks near an inserted sentence are new, so that few must be embedded again."""
    paragraphs = _prose(8, 400)
    if kind == "sections":
        paragraphs[::5] = [f"## Part {n}" for n in range(80)]
    separator = {"one paragraph": " ", "lines": "\n"}.get(kind, "\n\n")
    before = set(split(separator.join(paragraphs), 400, 40))
    added = []
    for at in range(0, 400, 40):
        edited = list(paragraphs)
        edited[at] += " This sentence is new."
        after = split(separator.join(edited), 400, 40)
        added.append(sum(chunk not in before for chunk in after))

    assert len(after) > 70
    assert sum(added) / len(added) <= 2
