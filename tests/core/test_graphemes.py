"""Borders between graphemes: no character that people see as one is split."""

from __future__ import annotations

import pytest

from headwater.core.graphemes import grapheme_start


@pytest.mark.parametrize(
    "grapheme",
    [
        "\r\n",
        "e\u0301",
        "\u0e01\u0e33",  # Thai, with a vowel that is also a letter
        "\u0e01\u0e35\u0e49",  # Thai, with a vowel and a tone
        "\u0915\u094d\u0937\u093f",  # a Hindi conjunct
        "\u1112\u1161\u11ab",  # a Korean syllable in parts
        "\U0001f1e9\U0001f1ea",  # a flag
        "\U0001f44d\U0001f3fd",  # a thumb with a skin tone
        "\U0001f469\u200d\U0001f4bb",  # a woman at a computer
        "\U0001f3f4\U000e0067\U000e0062\U000e007f",  # the flag of a region
        "\uff76\uff9e",  # half-width katakana with a voice mark
    ],
)
def test_a_grapheme_is_never_split(grapheme: str) -> None:
    text = f"a{grapheme * 3}b"
    borders = {grapheme_start(text, at) for at in range(len(text) + 1)}
    inner = [1 + at * len(grapheme) for at in range(4)]
    assert borders == {0, *inner, len(text)}


def test_letters_are_graphemes() -> None:
    for text in ("plain text", "Müller", "包裹星期一", "พสด"):
        assert [grapheme_start(text, at) for at in range(len(text))] == list(range(len(text)))
