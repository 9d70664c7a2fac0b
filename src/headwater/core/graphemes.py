"""Borders between graphemes, the characters that people see (Unicode TR 29)."""

from __future__ import annotations

import re
import unicodedata

_JAMO_VOWEL_OR_TAIL = "\u1160-\u11ff\ud7b0-\ud7fb"
_INSIDE = re.compile(
    # a line end of two characters
    "(?<=\r)(?=\n)"
    # joiners, Thai and Lao am, half-width voice marks, skin tones, tags of regional flags
    "|(?<=\u200d)"
    "|(?=[\u200c\u200d\u0e33\u0eb3\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f])"
    # Korean syllables that are written in parts
    f"|(?<=[\u1100-\u115f\ua960-\ua97c])(?=[\u1100-\u115f\ua960-\ua97c\uac00-\ud7a3{_JAMO_VOWEL_OR_TAIL}])"
    f"|(?<=[\uac00-\ud7a3{_JAMO_VOWEL_OR_TAIL}])(?=[{_JAMO_VOWEL_OR_TAIL}])"
)
_FLAG_LETTERS = re.compile("[\U0001f1e6-\U0001f1ff]")
_VIRAMA = 9
"""The combining class of the sign that joins two Indic consonants."""


def grapheme_start(text: str, at: int) -> int:
    """Return the last border between graphemes that is not after a position."""
    while 0 < at < len(text) and _is_inside(text, at):
        at -= 1
    return at


def _is_inside(text: str, at: int) -> bool:
    """Return whether a position is inside a grapheme; in rare scripts also between two."""
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    return (
        unicodedata.category(after)[0] == "M"
        or unicodedata.combining(before) == _VIRAMA
        or _INSIDE.match(text, at) is not None
        or _splits_flag(text, at)
    )


def _splits_flag(text: str, at: int) -> bool:
    """Return whether a position is between the two letters of a flag."""
    start = at
    while start > 0 and _FLAG_LETTERS.match(text, start - 1):
        start -= 1
    return (at - start) % 2 == 1 and _FLAG_LETTERS.match(text, at) is not None
